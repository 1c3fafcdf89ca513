//! Checks of values that are not used.
//!
//! An eager call finds an index out of range, or a window outside the memory of an input, even if its result is
//! dropped. A graph would drop the call with the result. So such calls become outputs.

use crate::ir::routine::Scan;
use crate::ir::{Combine, Graph, Meaning, Node, NodeId, NodeKind, Op, Routine, SideTable};
use smallvec::SmallVec;

/// The calls that may find a value out of range, and that no output needs. They are among the first `n_nodes`: those of
/// a function, and not of its gradients, which an eager call does not compute.
pub(super) fn unused_checks(graph: &Graph, outputs: &[NodeId], n_nodes: usize) -> Vec<NodeId> {
    let mut live = SideTable::filled(graph, || false);
    outputs.iter().for_each(|&output| live[output] = true);
    let mut unused = Vec::new();
    for (id, node) in graph.nodes().rev() {
        if !live[id] && id.index() < n_nodes && node.op().is_some_and(|op| may_fail(graph, node, op)) {
            live[id] = true;
            unused.push(id);
        }
        if live[id] {
            let is_read = elements_read(graph, id, node);
            node.args.iter().zip(is_read).filter(|(_, is_read)| *is_read).for_each(|(&arg, _)| live[arg] = true);
        }
    }
    unused
}

/// Which operands a call reads all elements of. A fill reads the type of one alone, and a slice shows a part.
fn elements_read(graph: &Graph, id: NodeId, node: &Node) -> SmallVec<[bool; 4]> {
    let body = node.op().filter(|op| matches!(op.row().meaning, Meaning::Body(..)));
    let body = body.and_then(|op| op.body(&graph.arg_types(id), &node.attrs).ok());
    let is_view = node.op().is_some_and(|op| op.is_view() && !op.is_window());
    let is_read = |arg: usize| match &body {
        Some(body) => body.reads(arg),
        None => !is_view || node.ty.numel() >= graph[node.args[arg]].ty.numel(),
    };
    (0..node.args.len()).map(is_read).collect()
}

/// Whether every value is checked before an input is overwritten in place by the node `write`. Plans keep the order of
/// such writes and of the checks of indices before them, and of no other checks.
pub(crate) fn checks_come_before(graph: &Graph, write: NodeId) -> bool {
    graph.nodes().all(|(id, node)| {
        let Some(op) = node.op().filter(|&op| may_fail(graph, node, op)) else { return true };
        id <= write && matches!(op.row().meaning, Meaning::Gather(_) | Meaning::Routine(_))
    })
}

fn may_fail(graph: &Graph, node: &Node, op: Op) -> bool {
    if op.is_window() {
        // The memory of an input may be another in each call.
        return matches!(graph[graph.view_base(node.args[0])].kind, NodeKind::Input(_));
    }
    let by = node.args.get(1).map(|&arg| &graph[graph.view_base(arg)]);
    let is_target = |of: NodeId| graph.view_base(of) == graph.view_base(node.args[0]);
    let is_index = matches!(op.row().meaning, Meaning::Gather(_) | Meaning::Routine(_));
    op.checks_values(node.ty.dtype)
        && !by.is_some_and(|by| match by.kind {
            NodeKind::Op(made_by) => {
                is_index && is_index_of(made_by) && by.args.first().is_some_and(|&of| is_target(of))
            }
            NodeKind::Number(number) => !is_index && number.as_f64() != 0.0,
            NodeKind::Input(_) | NodeKind::Extent(_) => false,
        })
}

/// Whether an op computes indices of its operand, which are in range there.
fn is_index_of(op: Op) -> bool {
    match &op.row().meaning {
        Meaning::Routine(routine) => {
            matches!(routine, Routine::Argsort | Routine::First | Routine::Scan(Scan::ArgMax | Scan::ArgMin))
        }
        Meaning::Fold(combine) => matches!(combine, Combine::ArgMax | Combine::ArgMin),
        _others => false,
    }
}
