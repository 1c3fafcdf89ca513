//! The graph of a report as inline SVG: a box per node, coloured by kernel, and an arrow per operand.
//!
//! Plain numbers and fills are part of their users' labels. A large graph is drawn with a box per kernel instead.

use super::html::colour;
use super::layers::positions;
use super::{Decision, Edge, Explain, GroupKind};
use crate::escaped::Escaped;
use crate::fusion::role::Role;
use crate::ir::NodeId;
use crate::ir::text::NodeText;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// The maximum number of boxes for a picture with a box per node.
const MAX_BOXES: usize = 300;
const BOX_HEIGHT: f64 = 40.0;
/// The approximate width of a character.
const CHARACTER: f64 = 7.2;
const MARGIN: f64 = 10.0;

#[derive(Default)]
struct Picture<'a> {
    boxes: Vec<BoxOf>,
    /// Start, end, and the edge if the arrow connects computed values.
    arrows: Vec<(usize, usize, Option<&'a Edge>)>,
}

struct BoxOf {
    lines: [String; 2],
    title: String,
    group: Option<usize>,
    /// Whether the box is memory (an input, or a view of it) and computes nothing.
    is_memory: bool,
}

/// The picture of a report, and what one box stands for.
pub(super) fn svg(explain: &Explain) -> (String, &'static str) {
    let n_drawn = explain.nodes.iter().filter(|report| report.role != Role::Inline || report.group.is_some()).count();
    match n_drawn <= MAX_BOXES {
        true => (Picture::of_nodes(explain).svg(), "op"),
        false => (Picture::of_groups(explain).svg(), "kernel"),
    }
}

impl<'a> Picture<'a> {
    fn of_nodes(explain: &'a Explain) -> Picture<'a> {
        let edges: HashMap<(NodeId, NodeId), &Edge> =
            explain.edges.iter().map(|edge| ((edge.producer, edge.consumer), edge)).collect();
        let mut picture = Picture::default();
        let mut box_of: HashMap<NodeId, usize> = HashMap::new();
        for report in explain.nodes.iter().filter(|report| report.role != Role::Inline || report.group.is_some()) {
            let (id, node) = (report.id, &report.node);
            let to = picture.boxes.len();
            box_of.insert(id, to);
            let source = report.source.map_or(String::new(), |source| format!("\nfor {}", source.name()));
            let kernel = report.group.map_or("in no kernel".into(), |group| format!("kernel {group}"));
            picture.boxes.push(BoxOf {
                lines: [explain.name(id), node.ty.to_string()],
                title: format!("{id} = {}: {}\n{kernel}{source}", NodeText(node), node.ty),
                group: report.group,
                is_memory: report.group.is_none(),
            });
            let mut args = node.args.to_vec();
            args.sort_unstable();
            args.dedup();
            for arg in args {
                let edge = edges.get(&(explain.view_base(arg), id)).copied();
                picture.arrows.extend(box_of.get(&arg).map(|&from| (from, to, edge)));
            }
        }
        picture
    }

    fn of_groups(explain: &'a Explain) -> Picture<'a> {
        let mut picture = Picture::default();
        let group_of = |id: NodeId| explain.nodes[id.index()].group;
        for group in &explain.groups {
            let calls = explain.calls(group);
            let short: String = calls.chars().take(24).collect();
            let dots = if short.len() < calls.len() { "…" } else { "" };
            picture.boxes.push(BoxOf {
                lines: [format!("{} {}", group.kind, group.index), format!("{short}{dots}")],
                title: format!("{} {}\n{calls}", group.kind, group.index),
                group: Some(group.index),
                is_memory: false,
            });
        }
        let mut between: BTreeMap<(usize, usize), &Edge> = BTreeMap::new();
        for edge in explain.kept() {
            if let (Some(from), Some(to)) = (group_of(edge.producer), group_of(edge.consumer)) {
                between.entry((from, to)).or_insert(edge);
            }
        }
        picture.arrows = between.into_iter().map(|((from, to), edge)| (from, to, Some(edge))).collect();
        picture
    }

    fn svg(&self) -> String {
        let label = |of: &BoxOf| of.lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let widths: Vec<f64> = self.boxes.iter().map(|of| label(of) as f64 * CHARACTER + 16.0).collect();
        let pairs: Vec<(usize, usize)> = self.arrows.iter().map(|&(from, to, _)| (from, to)).collect();
        let positions = positions(&widths, BOX_HEIGHT, &pairs);
        let (width, height) = (positions.size.0 + 2.0 * MARGIN, positions.size.1 + 2.0 * MARGIN);
        let corner = |index: usize| (positions.corners[index].0 + MARGIN, positions.corners[index].1 + MARGIN);
        let mut out = format!(
            "<svg role=\"group\" aria-label=\"Graph\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 \
             {width:.0} {height:.0}\">\n"
        );
        for (&(from, to, edge), lanes) in self.arrows.iter().zip(&positions.lanes) {
            let middle = |index: usize| corner(index).0 + widths[index] / 2.0;
            let mut at = (middle(from), corner(from).1 + BOX_HEIGHT);
            let mut path = format!("M{:.0} {:.0}", at.0, at.1);
            let ends = lanes.iter().map(|&(x, y)| (x + MARGIN, y + MARGIN)).chain([(middle(to), corner(to).1)]);
            for (stop, (x, y)) in ends.enumerate() {
                let half = (at.1 + y) / 2.0;
                let _ = write!(path, "C{:.0} {half:.0} {x:.0} {half:.0} {x:.0} {y:.0}", at.0);
                at = (x, y);
                if stop < lanes.len() {
                    at.1 += BOX_HEIGHT;
                    let _ = write!(path, "L{x:.0} {:.0}", at.1);
                }
            }
            let (class, title) = arrow(edge);
            let title = Escaped(&title);
            let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\"><title>{title}</title></path>");
        }
        for (index, of) in self.boxes.iter().enumerate() {
            let (x, y) = corner(index);
            let fill = of.group.map_or("#fff".into(), colour);
            let group = of.group.map_or(String::new(), |group| format!(" data-group=\"{group}\""));
            let class = if of.is_memory { "box memory" } else { "box" };
            let _ = writeln!(
                out,
                "<g class=\"{class}\"{group}><title>{}</title><rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{:.0}\" \
                 height=\"{BOX_HEIGHT:.0}\" rx=\"5\" fill=\"{fill}\"></rect>",
                Escaped(&of.title),
                widths[index]
            );
            for (line, text) in of.lines.iter().enumerate() {
                let (x, y) = (x + widths[index] / 2.0, y + 16.0 + 16.0 * line as f64);
                let _ = write!(out, "<text x=\"{x:.0}\" y=\"{y:.0}\">{}</text>", Escaped(text));
            }
            out += "</g>\n";
        }
        out + "</svg>\n"
    }
}

/// The CSS class and the tooltip of an arrow.
fn arrow(edge: Option<&Edge>) -> (&'static str, String) {
    let Some(edge) = edge else { return ("plain", "read from memory".into()) };
    let ends = format!("{} -> {}", edge.producer, edge.consumer);
    match &edge.decision {
        Decision::Fused { bytes } => ("fused", format!("{ends}: fused, saves {bytes} bytes")),
        Decision::Kept { reason, bytes, hint } => {
            ("kept", format!("{ends}: not fused, costs {bytes} bytes: {reason}\n{hint}"))
        }
    }
}

impl GroupKind {
    /// A description of a kind of group.
    pub(super) const fn meaning(self) -> &'static str {
        match self {
            GroupKind::Kernel => "one generated kernel",
            GroupKind::Product => "a matrix product of the library",
            GroupKind::Parts => "generated kernels, one per part of a value",
            GroupKind::Routine => "a procedure on whole arrays",
            GroupKind::Blocks => "matrix products and generated kernels, some rows at a time",
        }
    }
}
