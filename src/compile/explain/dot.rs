//! Reports as Graphviz text, with one cluster per kernel.

use super::Explain;
use crate::ir::Op;
use std::fmt::Write;

impl Explain {
    /// The planned graph as Graphviz text, one cluster per kernel. Empty if nothing is compiled. A function that runs
    /// in several segments has a graph of each, one after the other.
    pub fn to_dot(&self) -> String {
        if self.eager.is_some() {
            return String::new();
        }
        if !self.segments.is_empty() {
            return self.segments.iter().map(|segment| segment.report.to_dot()).collect();
        }
        let mut out = String::from("digraph {\n  node [shape=box];\n");
        let draw = |out: &mut String, index: usize, indent: &str| {
            let report = &self.nodes[index];
            let op = report.node.op().map_or("input", Op::name);
            let _ = writeln!(out, "{indent}{id} [label=\"{id} {op}\\n{}\"];", report.node.ty, id = report.id);
        };
        for group in &self.groups {
            let _ = writeln!(out, "  subgraph cluster_{} {{\n    label = \"kernel {0}\";", group.index);
            group.nodes.iter().for_each(|node| draw(&mut out, node.index(), "    "));
            out += "  }\n";
        }
        for report in self.nodes.iter().filter(|report| report.group.is_none()) {
            draw(&mut out, report.id.index(), "  ");
        }
        for report in &self.nodes {
            for arg in &report.node.args {
                let _ = writeln!(out, "  {arg} -> {};", report.id);
            }
        }
        out + "}\n"
    }
}
