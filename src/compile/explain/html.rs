//! Reports as one self-contained page of HTML: the graph with the source beside it, times, kernels with their code, the
//! plan before and after fusion, and edges with their decisions.
//!
//! The page works without scripts. Its script searches, zooms, colours by time, and shows the details of a kernel.

use super::picture::svg;
use super::{CopyReport, Decision, Edge, Explain, Group, charts, counted, source_lines};
use crate::compile::pipeline::Timed;
use crate::escaped::Escaped;
use crate::ir::NodeId;
use std::fmt::{self, Write};
use std::time::Duration;

/// What all pages of this crate look like.
const LOOK: &str = include_str!("../../page.css");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The most kernels of which plans are shown at once. Larger plans are folded.
const MAX_OPEN: usize = 60;

impl Explain {
    /// The report as one self-contained page of HTML. It shows the lines of the program that calls stand in, if their
    /// files can be read now.
    pub fn to_html(&self) -> String {
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<title>opfuse: {}</title>\n<style>\n{LOOK}{STYLE}\
             </style>\n</head>\n<body>\n<main>\n<h1>What was compiled, and why</h1>\n",
            Escaped(&self.headline())
        );
        self.section(&mut out, "Function").expect("writing to a string works");
        for (position, segment) in self.placed_segments() {
            let title = format!("Segment {position}");
            segment.report.section(&mut out, &title).expect("writing to a string works");
            if let Some(end) = &segment.end {
                let (end, hint) = (end.to_string(), end.reason.hint());
                let _ = writeln!(out, "<p class=\"warning\">Graph break: {}.</p>", Escaped(&end));
                let _ = writeln!(out, "<p>What to do: {}.</p>", Escaped(hint));
            }
        }
        if let Some(backward) = &self.backward {
            backward.section(&mut out, "Backward pass").expect("writing to a string works");
        }
        let _ = write!(out, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
        out
    }

    fn headline(&self) -> String {
        match &self.eager {
            Some(reason) => format!("runs eagerly: {reason}"),
            None => self.totals(),
        }
    }

    fn section(&self, out: &mut String, title: &str) -> fmt::Result {
        writeln!(out, "<section class=\"report\">\n<h2>{title}</h2>")?;
        writeln!(out, "<p class=\"headline\">{}</p>", Escaped(&self.headline()))?;
        if let Some(reason) = &self.eager {
            return writeln!(out, "<p>What to do: {}.</p>\n</section>", Escaped(reason.hint()));
        }
        self.facts(out)?;
        if !self.segments.is_empty() {
            return writeln!(out, "</section>");
        }
        self.graph(out)?;
        charts::timeline(out, self)?;
        charts::roofline(out, self)?;
        writeln!(out, "<h3>Kernels</h3>")?;
        let most = self.groups.iter().map(Group::bytes).max().unwrap_or(0).max(1);
        table(
            out,
            &["kernel", "what", "tier", "ops", "reads", "writes", "modelled", "measured", "compiled in"],
            &self.groups,
            |out, group| self.group_row(out, group, most),
        )?;
        if !self.copies.is_empty() {
            writeln!(out, "<h3>Copies</h3>")?;
            table(out, &["of", "reads", "writes", "why"], &self.copies, |out, copy| self.copy_row(out, copy))?;
        }
        let (fused, kept): (Vec<&Edge>, Vec<&Edge>) = self.edges.iter().partition(|edge| edge.is_fused());
        writeln!(out, "<h3>{} not fused</h3>", counted(kept.len(), "edge"))?;
        table(out, &["from", "to", "costs", "why", "what to do"], &kept, |out, edge| self.edge_row(out, edge))?;
        writeln!(out, "<details>\n<summary>{} fused</summary>", counted(fused.len(), "edge"))?;
        table(out, &["from", "to", "saves"], &fused, |out, edge| self.edge_row(out, edge))?;
        writeln!(out, "</details>")?;
        self.plans(out)?;
        phases(out, "Time of each pass", &self.passes)?;
        phases(out, "Time of each merge step", &self.merges)?;
        writeln!(out, "</section>")
    }

    fn facts(&self, out: &mut String) -> fmt::Result {
        let percent = 100.0 * self.bytes_after as f64 / self.bytes_before.max(1) as f64;
        writeln!(out, "<dl class=\"facts\">")?;
        for (name, value) in [
            ("traffic op by op", Bytes(self.bytes_before).to_string()),
            ("traffic fused", format!("{} ({percent:.0} %)", Bytes(self.bytes_after))),
            ("at most allocated", Bytes(self.peak_bytes).to_string()),
            ("planned in", time(self.plan_time)),
            ("compiled in", time(self.compile_time)),
        ] {
            writeln!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>")?;
        }
        writeln!(out, "</dl>")
    }

    fn graph(&self, out: &mut String) -> fmt::Result {
        let (svg, what) = svg(self);
        writeln!(
            out,
            "<h3>Graph</h3>\n<p>A box is one {what}; colours tell kernels apart, or show their times. <span \
             class=\"key fused\">Solid arrows</span> were fused, <span class=\"key kept\">dashed ones</span> were not, \
             <span class=\"key plain\">thin ones</span> read from memory.</p>\n<div class=\"tools\" hidden>\n<label>\
             Search <input type=\"search\" data-search></label>\n<span role=\"status\" data-found></span>\n<label>Colours \
             <select data-colours></select></label>"
        )?;
        for (zoom, name) in [("in", "Zoom in"), ("out", "Zoom out"), ("fit", "Show all")] {
            writeln!(out, "<button type=\"button\" data-zoom=\"{zoom}\">{name}</button>")?;
        }
        writeln!(
            out,
            "<span class=\"note\">Arrow keys move between boxes, Enter shows details, + and − zoom.</span>\n</div>\n\
             <div class=\"view\">\n<div class=\"graph\">\n{svg}</div>\n<div class=\"beside\" tabindex=\"0\" \
             role=\"group\" aria-label=\"Details and source\">\n<div class=\"details\" aria-live=\"polite\"></div>"
        )?;
        source_lines::write(out, self)?;
        writeln!(out, "</div>\n</div>")
    }

    fn plans(&self, out: &mut String) -> fmt::Result {
        let open = if self.groups.len() <= MAX_OPEN { " open" } else { "" };
        writeln!(out, "<details{open}>\n<summary>Plan before and after fusion</summary>\n<div class=\"two\">")?;
        for (name, text) in [("Op by op", self.ops_text()), ("Fused", self.own_plan_text())] {
            writeln!(
                out,
                "<div>\n<h3>{name}</h3>\n<pre tabindex=\"0\" role=\"group\" aria-label=\"Plan: {name}\">\n{}</pre>\n\
                 </div>",
                Escaped(&text)
            )?;
        }
        writeln!(out, "</div>\n</details>")
    }

    fn group_row(&self, out: &mut String, group: &Group, most: usize) -> fmt::Result {
        let tier = group.tiers();
        let (index, colour) = (group.index, colour(group.index));
        write!(out, "<tr data-group=\"{index}\"><td class=\"number swatch\" style=\"background:{colour}\" ")?;
        write!(out, "data-modelled=\"{}\"", group.modelled_time.as_nanos())?;
        if let Some(measured) = group.measured {
            write!(out, " data-measured=\"{}\"", measured.least.as_nanos())?;
        }
        write!(out, ">{index}</td><td>{}</td><td>{tier}</td>", group.kind.meaning())?;
        write!(out, "<td><div class=\"ops\">{}", Escaped(&self.calls(group)))?;
        let lines = self.lines(group);
        if !lines.is_empty() {
            write!(out, "<p class=\"note\">at {}</p>", Escaped(&lines))?;
        }
        if let Some(reason) = &group.declined {
            write!(out, "<p class=\"note\">declined: {}</p>", Escaped(&reason.to_string()))?;
        }
        for remark in &group.remarks {
            write!(out, "<p class=\"note\">fast: {}</p>", Escaped(remark))?;
        }
        write!(out, "</div>")?;
        if !group.code.is_empty() {
            let code = Escaped(&group.code);
            write!(out, "<details><summary>generated code</summary><pre tabindex=\"0\">{code}</pre></details>")?;
        }
        let share = 100.0 * group.bytes() as f64 / most as f64;
        write!(out, "<div class=\"bar\" style=\"width:{share:.0}%;background:{colour}\"></div></td>")?;
        let (read, written) = (Bytes(group.bytes_read), Bytes(group.bytes_written));
        write!(out, "<td class=\"number\">{read}</td><td class=\"number\">{written}</td>")?;
        write!(out, "<td class=\"number\">{}</td>", time(group.modelled_time))?;
        let measured = group.measured.map_or("–".into(), |measured| time(measured.least));
        write!(out, "<td class=\"number\">{measured}</td>")?;
        let compiled = if group.code.is_empty() { String::new() } else { time(group.compile_time) };
        writeln!(out, "<td class=\"number\">{compiled}</td></tr>")
    }

    fn copy_row(&self, out: &mut String, copy: &CopyReport) -> fmt::Result {
        let (value, reason) = (self.name(copy.value), copy.reason.to_string());
        let (read, written) = (Bytes(copy.bytes_read), Bytes(copy.bytes_written));
        write!(out, "<tr><td>{}</td><td class=\"number\">{read}</td>", Escaped(&value))?;
        writeln!(out, "<td class=\"number\">{written}</td><td>{}</td></tr>", Escaped(&reason))
    }

    fn edge_row(&self, out: &mut String, edge: &Edge) -> fmt::Result {
        let (from, to) = (self.name(edge.producer), self.name(edge.consumer));
        let group_of = |node: NodeId| self.nodes.get(node.index()).and_then(|report| report.group);
        let groups: Vec<String> =
            [edge.producer, edge.consumer].into_iter().filter_map(group_of).map(|group| group.to_string()).collect();
        let groups = if edge.is_fused() { String::new() } else { format!(" data-groups=\"{}\"", groups.join(" ")) };
        write!(out, "<tr{groups}><td>{}</td><td>{}</td>", Escaped(&from), Escaped(&to))?;
        write!(out, "<td class=\"number\">{}</td>", Bytes(edge.bytes()))?;
        if let Decision::Kept { reason, hint, .. } = &edge.decision {
            write!(out, "<td>{}</td><td>{}</td>", Escaped(&reason.to_string()), Escaped(hint))?;
        }
        writeln!(out, "</tr>")
    }
}

/// A collapsed table of phases with their times.
fn phases(out: &mut String, title: &str, phases: &[Timed]) -> fmt::Result {
    writeln!(out, "<details>\n<summary>{title}</summary>")?;
    table(out, &["phase", "took"], phases, |out, phase| {
        writeln!(out, "<tr><td>{}</td><td class=\"number\">{}</td></tr>", phase.name, time(phase.time))
    })?;
    writeln!(out, "</details>")
}

fn table<T>(
    out: &mut String,
    heads: &[&str],
    items: &[T],
    row: impl Fn(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    if items.is_empty() {
        return writeln!(out, "<p>None.</p>");
    }
    write!(out, "<div class=\"table\">\n<table>\n<thead><tr>")?;
    heads.iter().try_for_each(|head| write!(out, "<th scope=\"col\">{head}</th>"))?;
    writeln!(out, "</tr></thead>\n<tbody>")?;
    items.iter().try_for_each(|item| row(out, item))?;
    writeln!(out, "</tbody>\n</table>\n</div>")
}

/// The colour of a kernel. Kernels with close numbers differ strongly in hue.
pub(super) fn colour(group: usize) -> String {
    format!("hsl({},75%,{}%)", group * 137 % 360, 80 + group % 3 * 4)
}

pub(super) fn time(time: Duration) -> String {
    format!("{time:.1?}")
}

/// A number of bytes in readable units. The exact number is its tooltip.
struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = self.0;
        let units = ["KiB", "MiB", "GiB", "TiB"];
        let power = (exact.max(1).ilog2() / 10).min(units.len() as u32);
        match power.checked_sub(1) {
            None => write!(f, "{exact} B"),
            Some(unit) => {
                let short = exact as f64 / 1024f64.powi(power as i32);
                write!(f, "<span title=\"{exact} bytes\">{short:.1} {}</span>", units[unit as usize])
            }
        }
    }
}
