//! Checks of values that are not used.
//!
//! An eager call finds an index out of range, or a window outside the memory of an input, even if its result is
//! dropped. A graph would drop the call with the result. So such calls become outputs.

use crate::ir::attrs::{Along, Argsort, Attributes, Gather, TopkIndices};
use crate::ir::shape::normalize_dim;
use crate::ir::{Graph, Meaning, Node, NodeId, NodeKind, Op, Routine, SideTable};
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
        let is_division = matches!(op.row().meaning, Meaning::Body(..));
        id <= write && !is_division && !op.is_window()
    })
}

fn may_fail(graph: &Graph, node: &Node, op: Op) -> bool {
    if op.is_window() {
        // The memory of an input may be another in each call.
        return matches!(graph[graph.view_base(node.args[0])].kind, NodeKind::Input(_));
    }
    if !op.checks_values(node.ty.dtype) {
        return false;
    }
    if matches!(op.row().meaning, Meaning::Body(..)) {
        let by = node.args.get(1).map(|&by| graph[graph.view_base(by)].kind);
        return !matches!(by, Some(NodeKind::Number(number)) if number.as_f64() != 0.0);
    }
    match (n_places(graph, node, op), node.args.get(1).and_then(|&index| n_indices(graph, index))) {
        (Some(n_places), Some(n_indices)) => n_indices > n_places,
        (_, _) => true,
    }
}

/// How many places the index of a read or a write chooses from, or fewer.
fn n_places(graph: &Graph, node: &Node, op: Op) -> Option<usize> {
    let sizes = &graph[*node.args.first()?].ty.sizes;
    let along = |dim: i64| sizes.get(normalize_dim("dim", dim, sizes.len()).ok()?).copied();
    match (op, &op.row().meaning) {
        // What `sort` and `topk` read their values with.
        (Op::Gather, _) => along(Gather::read(&node.attrs).dim),
        (_, Meaning::Gather(_) | Meaning::Routine(Routine::Scatter(_))) => sizes.iter().copied().min(),
        (_, _others) => None,
    }
}

/// How many different indices there may be, from 0 on, if an op computes indices.
fn n_indices(graph: &Graph, index: NodeId) -> Option<usize> {
    let node = &graph[graph.view_base(index)];
    let (op, of) = (node.op()?, &graph[*node.args.first()?].ty);
    let along = |dim: i64| of.sizes.get(normalize_dim("dim", dim, of.rank()).ok()?).copied();
    match op {
        Op::Argsort => along(Argsort::read(&node.attrs).dim),
        Op::TopkIndices => along(TopkIndices::read(&node.attrs).dim),
        Op::CummaxIndices | Op::CumminIndices => along(Along::read(&node.attrs).dim),
        Op::Argmax | Op::Argmin => Some(of.numel()),
        _others => None,
    }
}
