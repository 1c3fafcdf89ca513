//! Elimination of dead code and of common subexpressions.

use crate::ir::entity::SideTable;
use crate::ir::graph::{Graph, Node, NodeId, NodeKind};
use std::collections::HashMap;

/// Drops nodes that reach no output. Inputs stay, so their positions do not change.
pub fn eliminate_dead(graph: &Graph) -> Graph {
    let live = live(graph);
    rebuild(graph, |out, id, node, args| {
        (live[id] || matches!(node.kind, NodeKind::Input(_))).then(|| out.copy(node, args))
    })
}

/// Drops nodes that reach no output, inputs included. Returns the positions of the inputs that are left.
pub fn drop_unused(graph: &Graph) -> (Graph, Vec<usize>) {
    let live = live(graph);
    let used = (0..graph.inputs().len()).filter(|&index| live[graph.inputs()[index]]).collect();
    (rebuild(graph, |out, id, node, args| live[id].then(|| out.copy(node, args))), used)
}

/// Which nodes reach an output.
fn live(graph: &Graph) -> SideTable<NodeId, bool> {
    let mut live = SideTable::filled(graph, || false);
    for &output in graph.outputs() {
        live[output] = true;
    }
    for (id, node) in graph.nodes().rev() {
        if live[id] {
            for &arg in &node.args {
                live[arg] = true;
            }
        }
    }
    live
}

/// Merges nodes that are the same call of the same operands. Constants compare by bits.
pub fn eliminate_common(graph: &Graph) -> Graph {
    let mut merged: HashMap<Node, NodeId> = HashMap::new();
    rebuild(graph, |out, _, node, args| {
        if let NodeKind::Input(_) = node.kind {
            return Some(out.copy(node, args));
        }
        let key = Node { args: args.into(), ..node.clone() };
        Some(*merged.entry(key).or_insert_with(|| out.copy(node, args)))
    })
}

/// Builds a new graph node by node. `place` adds a node and returns its id, or `None` if the node is dead.
pub(super) fn rebuild(
    graph: &Graph,
    mut place: impl FnMut(&mut Graph, NodeId, &Node, &[NodeId]) -> Option<NodeId>,
) -> Graph {
    let mut out = Graph::new();
    let mut moved: SideTable<NodeId, Option<NodeId>> = SideTable::new();
    for (id, node) in graph.nodes() {
        out.set_origin(graph.origin(id));
        // Only a dead node has a dead operand.
        let args: Option<Vec<NodeId>> = node.args.iter().map(|&arg| moved[arg]).collect();
        moved.push(args.and_then(|args| place(&mut out, id, node, &args)));
    }
    let outputs = graph.outputs().iter().map(|&id| moved[id].expect("outputs are live"));
    out.set_outputs(outputs.collect());
    out
}
