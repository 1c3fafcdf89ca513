//! Plans as text for version control. The text is the same on every machine and in every run, and a small change of the
//! function changes few lines.
//!
//! Values are numbered per op (`exp2` is the second `exp`), so a new op renumbers only its own kind. Kernels are named
//! by the values that they write. Numbers, fills and views of memory are written where they are used. There are no
//! times, tiers or node numbers, which change more often than the plan. Segments follow each other.

use super::{Decision, Explain, SegmentReport, counted, plain};
use crate::fusion::role::Role;
use crate::ir::{NodeId, NodeKind, Op};
use std::collections::HashMap;
use std::fmt::Write;

impl Explain {
    /// The plan as text that diffs well: a paragraph per kernel, then the edges that were not fused.
    pub fn plan_text(&self) -> String {
        if let Some(reason) = &self.eager {
            return format!("runs eagerly: {reason}\n");
        }
        if !self.segments.is_empty() {
            // How often a segment runs, and where its end stands, change more often than its plan.
            let count = self.segments.len();
            let plan = |(index, segment): (usize, &SegmentReport)| {
                let end = segment.end.iter().map(|end| format!("\ngraph break: {}\n\n", end.reason));
                format!("segment {} of {count}\n{}{}", index + 1, segment.report.plan_text(), end.collect::<String>())
            };
            return self.segments.iter().enumerate().map(plan).collect();
        }
        let mut out = self.own_plan_text();
        if let Some(backward) = &self.backward {
            let _ = write!(out, "\nbackward pass\n{}", backward.plan_text());
        }
        out
    }

    /// The function op by op: a line per computed value, as if each were a kernel of its own.
    pub(super) fn ops_text(&self) -> String {
        let names = Names::of(self);
        let mut out = format!("{}\n{} bytes\n\n", counted(self.kernels_before, "op"), self.bytes_before);
        for report in &self.nodes {
            if matches!(report.role, Role::Loop | Role::Product | Role::Parts | Role::Routine) {
                let (name, call) = (names.text(report.id), names.call(report.id));
                let _ = writeln!(out, "{name} = {call}: {}", report.node.ty);
            }
        }
        let outputs: Vec<String> = self.outputs.iter().map(|&node| names.text(node)).collect();
        let _ = writeln!(out, "\nreturn {}", outputs.join(", "));
        out
    }

    /// The plan of a function in one segment, without that of its backward pass.
    pub(super) fn own_plan_text(&self) -> String {
        let names = Names::of(self);
        let mut out = format!("{} -> {}\n", counted(self.kernels_before, "op"), counted(self.kernels_after, "kernel"));
        let _ = writeln!(out, "{} bytes unfused, {} fused", self.bytes_before, self.bytes_after);
        for group in &self.groups {
            let list = |nodes: &[NodeId]| nodes.iter().map(|&node| names.text(node)).collect::<Vec<_>>().join(", ");
            let _ = writeln!(out, "\n{} {} {{", group.kind, list(&group.outputs));
            for &node in &group.nodes {
                let report = &self.nodes[node.index()];
                let (name, call, ty) = (names.text(node), names.call(node), &report.node.ty);
                let _ = write!(out, "  {name} = {call}: {ty}");
                let composite = report.source.filter(|source| Some(source.op) != report.node.op());
                let _ = writeln!(out, "{}", composite.map_or(String::new(), |source| format!("  # {}", source.name())));
            }
            let _ = writeln!(out, "  reads {} bytes, writes {}", group.bytes_read, group.bytes_written);
            out += "}\n";
        }
        let outputs: Vec<String> = self.outputs.iter().map(|&node| names.text(node)).collect();
        let _ = writeln!(out, "\nreturn {}", outputs.join(", "));
        for edge in &self.edges {
            if let Decision::Kept { reason, bytes, .. } = &edge.decision {
                let (producer, consumer) = (names.text(edge.producer), names.text(edge.consumer));
                let _ = writeln!(out, "kept {producer} -> {consumer} ({bytes} bytes): {reason}");
            }
        }
        for copy in &self.copies {
            let (value, bytes) = (names.text(copy.value), (copy.bytes_read, copy.bytes_written));
            let _ = writeln!(out, "copy {value} (reads {} bytes, writes {}): {}", bytes.0, bytes.1, copy.reason);
        }
        out
    }
}

/// The name of each node.
struct Names<'a> {
    explain: &'a Explain,
    /// `None` for values that are written where they are used.
    own: Vec<Option<String>>,
}

impl Names<'_> {
    fn of(explain: &Explain) -> Names<'_> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let mut count = |name: &'static str| {
            let count = counts.entry(name).or_default();
            *count += 1;
            format!("{name}{count}")
        };
        let own = explain.nodes.iter().map(|report| match (report.role, report.node.op()) {
            (Role::Input, _) => Some(count("input")),
            (_, Some(op)) if report.group.is_some() => Some(count(plain(op))),
            (_, _) => None,
        });
        let own = own.collect();
        Names { explain, own }
    }

    fn text(&self, id: NodeId) -> String {
        self.own[id.index()].clone().unwrap_or_else(|| self.call(id))
    }

    fn call(&self, id: NodeId) -> String {
        let node = &self.explain.nodes[id.index()].node;
        match node.kind {
            NodeKind::Input(index) => format!("input{}", index + 1),
            NodeKind::Number(value) => value.to_string(),
            NodeKind::Extent(count) => count.to_string(),
            NodeKind::Op(op) => {
                let args: Vec<String> = node.args.iter().map(|&arg| self.text(arg)).collect();
                let attrs: Vec<String> = node.attrs.iter().map(ToString::to_string).collect();
                let between = if attrs.is_empty() || args.is_empty() { "" } else { "; " };
                format!("{}({}{between}{})", Op::name(op), args.join(", "), attrs.join(", "))
            }
        }
    }
}
