//! Index tensors that are read once.

use super::eliminate::rebuild;
use crate::ir::attrs::{Along, Attributes, FlatIndex};
use crate::ir::graph::{Graph, Node, NodeId, NodeKind};
use crate::ir::routine::Routine;
use crate::ir::row::Meaning;
use crate::ir::shape::normalize_dim;

/// Lets writes by index read an index tensor itself, and not its flat index.
///
/// The flat index of one index tensor holds the same numbers, unless it wraps negative ones. It checks them, and so
/// does the write. A run that fails is made again call by call, so the message does not change. The flat index is dead
/// then, and its memory need not be written and read.
pub fn index_directly(graph: &Graph) -> Graph {
    let is_flat = |(_, node): (NodeId, &Node)| matches!(routine(node), Some(Routine::FlatIndex));
    if !graph.nodes().any(is_flat) {
        return graph.clone();
    }
    rebuild(graph, |out, _, node, args| {
        let direct = match routine(node) {
            Some(Routine::Scatter(_)) => size_of_dim(node).and_then(|size| unflattened(out, args[1], size)),
            Some(_) | None => None,
        };
        let Some(direct) = direct else { return Some(out.copy(node, args)) };
        Some(out.copy(node, &[args[0], direct, args[2]]))
    })
}

fn routine(node: &Node) -> Option<&'static Routine> {
    match &node.op()?.row().meaning {
        Meaning::Routine(routine) => Some(routine),
        _others => None,
    }
}

/// The size of the dim that a write goes along.
fn size_of_dim(node: &Node) -> Option<i64> {
    let dim = normalize_dim("dim", Along::read(&node.attrs).dim, node.ty.rank()).ok()?;
    node.ty.sizes.get(dim).map(|&size| size as i64)
}

/// The index tensor whose flat index, for one dim of this size, `id` is a view of. It gets the same views. A view that
/// leaves elements out does not count, because the flat index checks these too.
fn unflattened(graph: &mut Graph, id: NodeId, size: i64) -> Option<NodeId> {
    let Node { kind: NodeKind::Op(op), ty, args, attrs } = graph[id].clone() else { return None };
    if let (Meaning::Routine(Routine::FlatIndex), &[index]) = (&op.row().meaning, &args[..]) {
        let FlatIndex { sizes, wrap } = FlatIndex::read(&attrs);
        return (!wrap && sizes[..] == [size] && ty.numel() > 0).then_some(index);
    }
    let &from = args.first().filter(|_| matches!(op.row().meaning, Meaning::View(_)))?;
    if ty.numel() < graph[from].ty.numel() {
        return None;
    }
    let index = unflattened(graph, from, size)?;
    // The index tensor may have another layout than its flat index, and then other views.
    let view = graph.add(op, &[index], attrs).ok()?;
    (graph[view].ty.sizes == ty.sizes).then_some(view)
}
