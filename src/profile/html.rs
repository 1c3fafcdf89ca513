//! A profile as one self-contained page: a timeline, the memory in use, a roofline, and a table of rows.
//!
//! The page loads nothing, and works without scripts. Its script zooms the timeline and filters the table.

use super::axes::Axes;
use super::report::{Kind, Profile, Row, TimedSpan};
use super::text;
use crate::escaped::Escaped;
use std::fmt::{self, Write};
use std::time::Duration;

/// What all pages of this crate look like.
const LOOK: &str = include_str!("../page.css");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Spans that the timeline shows: the longest.
const MAX_SHOWN: usize = 4000;
/// Units of the picture from its left to its right.
const WIDTH: f64 = 1200.0;
/// The height of one level of spans.
const LEVEL: f64 = 18.0;
/// The height of the picture of the memory.
const MEMORY: f64 = 80.0;

impl Profile {
    /// The profile as one self-contained page of HTML.
    pub fn to_html(&self) -> String {
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<title>opfuse: where the time went</title>\n<style>\n\
             {LOOK}{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>Where the time went</h1>\n"
        );
        self.page(&mut out).expect("writing to a string works");
        let _ = write!(out, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
        out
    }

    fn page(&self, out: &mut String) -> fmt::Result {
        let share = 100.0 * self.covered.as_secs_f64() / self.wall.as_secs_f64().max(1e-12);
        writeln!(
            out,
            "<p class=\"headline\">{} of wall time, {} of it in spans ({share:.1} %), {} threads. The roof is that of \
             the cost model&#39;s rates: {}.</p>",
            text::time(self.wall),
            text::time(self.covered),
            self.threads,
            Escaped(&self.rates)
        )?;
        self.timeline(out)?;
        self.memory_line(out)?;
        self.roofline(out)?;
        self.table(out)?;
        if !self.events.is_empty() {
            writeln!(out, "<h2>Events</h2>\n<ul>")?;
            for event in &self.events {
                let (kind, what) = (event.kind.name(), Escaped(&event.what));
                writeln!(out, "<li>{kind} at {}: {what}</li>", text::time(event.at))?;
            }
            writeln!(out, "</ul>")?;
        }
        Ok(())
    }

    fn timeline(&self, out: &mut String) -> fmt::Result {
        let mut shown: Vec<&TimedSpan> = self.spans.iter().collect();
        shown.sort_by_key(|span| std::cmp::Reverse(span.time));
        let n_hidden = shown.len().saturating_sub(MAX_SHOWN);
        shown.truncate(MAX_SHOWN);
        let levels = shown.iter().map(|span| span.depth + 1).max().unwrap_or(0);
        let height = LEVEL * levels as f64;
        writeln!(out, "<h2>Timeline</h2>\n<p>{}</p>", self.about(n_hidden))?;
        writeln!(out, "<div class=\"tools\" hidden>")?;
        let buttons = [("in", "Zoom in"), ("out", "Zoom out"), ("left", "Earlier"), ("right", "Later"), ("all", "All")];
        for (zoom, name) in buttons {
            writeln!(out, "<button type=\"button\" data-zoom=\"{zoom}\">{name}</button>")?;
        }
        writeln!(
            out,
            "<span class=\"note\">In the picture, + and − zoom, arrow keys move; so do Ctrl with the wheel, and \
             dragging.</span>\n</div>\n<div class=\"picture\" tabindex=\"0\" role=\"group\" \
             aria-label=\"Timeline\">\n<svg id=\"timeline\" role=\"img\" aria-label=\"Spans over time, inner spans \
             below outer ones; the table of rows has their sums\" viewBox=\"0 0 {WIDTH} {height}\" \
             preserveAspectRatio=\"none\" style=\"height:{height}px\">"
        )?;
        for span in shown {
            let row = &self.rows[span.row];
            let (x, width) = (self.x(span.start), (self.x(span.time)).max(0.05));
            let (y, colour) = (LEVEL * span.depth as f64, colour(row.kind));
            let (name, time) = (Escaped(&row.name), text::time(span.time));
            writeln!(
                out,
                "<rect data-row=\"{}\" x=\"{x:.3}\" y=\"{y}\" width=\"{width:.3}\" height=\"{:.0}\" fill=\"{colour}\">\
                 <title>{} {name}: {time} at {}</title></rect>",
                span.row,
                LEVEL - 2.0,
                row.kind.name(),
                text::time(span.start)
            )?;
        }
        writeln!(out, "</svg>\n</div>\n<p role=\"status\" id=\"chosen\"></p>")
    }

    /// Writes the rates of kernels and operators over their operations per byte, each with its own roof.
    fn roofline(&self, out: &mut String) -> fmt::Result {
        let mut dots: Vec<(usize, &Row, (f64, f64))> = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            if let (Some(rate), true) = (row.gigaflops_per_second(), row.bytes > 0) {
                dots.push((at, row, (row.operations / row.bytes as f64, rate)));
            }
        }
        if dots.is_empty() {
            return Ok(());
        }
        let roof = |row: &Row, rate: f64| row.roof.filter(|&share| share > 0.0).map(|share| rate / share);
        let rates = dots.iter().flat_map(|&(_, row, (_, rate))| roof(row, rate).into_iter().chain([rate]));
        let axes = Axes::around(dots.iter().map(|&(_, _, (x, _))| x), rates);
        writeln!(
            out,
            "<h2>Roofline</h2>\n<p>A dot is a row: how fast it computed, over the operations that it has for each \
             byte. The line above it ends at its roof, which is what the cost model deems possible on its threads. \
             Large dots took long.</p>"
        )?;
        axes.begin(out, &format!("Roofline: rates of {} rows; the table below has the same numbers", dots.len()))?;
        let most = dots.iter().map(|(_, row, _)| row.own.as_secs_f64()).fold(1e-12, f64::max);
        for (at, row, (x, rate)) in dots {
            if let Some(roof) = roof(row, rate) {
                axes.line(out, "reach", (x, rate), (x, roof))?;
                let (middle, y) = axes.place((x, roof));
                writeln!(
                    out,
                    "<line class=\"roof\" x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"></line>",
                    middle - 7.0,
                    middle + 7.0
                )?;
            }
            let (cx, cy) = axes.place((x, rate));
            let radius = 4.0 + 6.0 * (row.own.as_secs_f64() / most).sqrt();
            writeln!(
                out,
                "<ellipse data-row=\"{at}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" rx=\"{radius:.1}\" ry=\"{radius:.1}\" \
                 fill=\"{}\"><title>{} {}: {x:.2} operations per byte, {rate:.2} per nanosecond</title></ellipse>",
                colour(row.kind),
                row.kind.name(),
                Escaped(&row.name)
            )?;
        }
        writeln!(out, "</svg>")
    }

    fn about(&self, n_hidden: usize) -> String {
        let mut about = String::from("Inner spans stand below outer ones.");
        for kind in Kind::ALL {
            if self.of_kind(kind).next().is_some() {
                let (colour, name) = (colour(kind), kind.name());
                about += &format!(" <span class=\"key\" style=\"border-color:{colour}\">{name}</span>");
            }
        }
        if n_hidden > 0 {
            about += &format!(" The {n_hidden} shortest spans are not shown.");
        }
        if self.dropped_spans > 0 {
            about += &format!(" The first {} spans were dropped.", self.dropped_spans);
        }
        about
    }

    fn memory_line(&self, out: &mut String) -> fmt::Result {
        let Some(peak) = self.memory.peak else { return Ok(()) };
        let row = &self.rows[peak.row];
        writeln!(
            out,
            "<h2>Memory</h2>\n<p>{:.1} MB at the start, at most {:.1} MB after {} {}.</p>",
            self.memory.start as f64 / 1e6,
            peak.live as f64 / 1e6,
            row.kind.name(),
            Escaped(&row.name)
        )?;
        let height = |live: usize| MEMORY * (1.0 - live as f64 / peak.live.max(self.memory.start).max(1) as f64);
        let mut points = format!("0,{:.2}", height(self.memory.start));
        let step = self.memory.timeline.len().div_ceil(MAX_SHOWN).max(1);
        for moment in self.memory.timeline.iter().step_by(step) {
            write!(points, " {:.3},{:.2}", self.x(moment.at), height(moment.live))?;
        }
        writeln!(
            out,
            "<svg id=\"memory\" role=\"img\" aria-label=\"Bytes in use over time\" viewBox=\"0 0 {WIDTH} {MEMORY}\" \
             preserveAspectRatio=\"none\" style=\"height:{MEMORY}px\"><polyline points=\"{points}\"></polyline></svg>"
        )
    }

    /// A time as units of the picture.
    fn x(&self, time: Duration) -> f64 {
        WIDTH * time.as_secs_f64() / self.wall.as_secs_f64().max(1e-12)
    }

    fn table(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "<h2>Rows</h2>\n<div class=\"tools\" hidden>\n<label>Search <input id=\"search\" type=\"search\"></label>\n\
             <span role=\"status\" id=\"found\"></span>\n</div>\n<table>\n<thead><tr>"
        )?;
        write!(out, "<th scope=\"col\">what</th>")?;
        for head in ["calls", "own", "least", "median", "GB/s", "GFLOP/s", "roof", "threads"] {
            write!(out, "<th scope=\"col\" class=\"number\">{head}</th>")?;
        }
        writeln!(out, "</tr></thead>\n<tbody>")?;
        let most = self.rows.iter().map(|row| row.own).max().unwrap_or_default().as_secs_f64().max(1e-12);
        for row in &self.rows {
            self.table_row(out, row, most)?;
        }
        writeln!(out, "</tbody>\n</table>")
    }

    fn table_row(&self, out: &mut String, row: &Row, most: f64) -> fmt::Result {
        let number = |value: Option<f64>| value.map_or("–".into(), text::three);
        write!(out, "<tr><td>{} {}", row.kind.name(), Escaped(&row.name))?;
        if let Some(tier) = row.tier {
            write!(out, " [{tier}]")?;
        }
        let place = row.place.as_ref().map(|place| place.to_string()).unwrap_or_default();
        for note in [&row.detail, &place].into_iter().filter(|note| !note.is_empty()) {
            write!(out, "<p class=\"note\">{}</p>", Escaped(note))?;
        }
        let share = 100.0 * row.own.as_secs_f64() / most;
        write!(out, "<div class=\"bar\" style=\"width:{share:.0}%;background:{}\"></div></td>", colour(row.kind))?;
        let roof = row.roof.map_or("–".into(), |roof| format!("{:.0} %", 100.0 * roof));
        let threads = row.threads.map_or("–".into(), |threads| threads.to_string());
        for cell in [
            row.calls.to_string(),
            text::time(row.own),
            text::time(row.least),
            text::time(row.median),
            number(row.gigabytes_per_second()),
            number(row.gigaflops_per_second()),
            roof,
            threads,
        ] {
            write!(out, "<td class=\"number\">{cell}</td>")?;
        }
        writeln!(out, "</tr>")
    }
}

/// Colours that differ in lightness, too, and on which dark letters can be read.
const fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Operator => "#5b95e5",
        Kind::Kernel => "#2a9d5c",
        Kind::Call => "#a8d5ba",
        Kind::Backward => "#f3c969",
        Kind::Node => "#e08e2b",
        Kind::Capture => "#c9a0dc",
        Kind::Compile => "#a868c9",
        Kind::Scope => "#c8ccd4",
    }
}
