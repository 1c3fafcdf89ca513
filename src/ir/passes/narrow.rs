//! Products of widened operands.

use super::eliminate::{eliminate_dead, rebuild};
use crate::ir::graph::{Graph, Node, NodeId, NodeKind};
use crate::ir::row::Meaning;
use crate::ir::{Attr, DType, Op};
use smallvec::smallvec;

/// Products in f32 of two operands that were 16-bit floats, both f16 or both bf16, as products of those whose sums are not rounded.
///
/// The elements are the same numbers, so bits stay. What is gained is for a device to say: half the bytes are read, and tensor
/// cores take such operands. `addmm` of 16-bit floats is decomposed into products of widened operands; a CPU multiplies those.
pub fn narrow_products(graph: Graph) -> Graph {
    let is_product = |op: Op| unrounded(op).is_some();
    if !graph.nodes().any(|(_, node)| node.ty.dtype == DType::F32 && node.op().is_some_and(is_product)) {
        return graph;
    }
    eliminate_dead(&rebuild(&graph, |out, _, node, args| {
        let mut narrowed = || {
            let op = unrounded(node.op()?)?;
            let (left, right) = (narrow(out, args[0])?, narrow(out, args[1])?);
            let alike = out[left].ty.dtype == out[right].ty.dtype;
            alike.then(|| out.add(op, &[left, right], smallvec![Attr::DType(node.ty.dtype)]).ok())?
        };
        Some(narrowed().unwrap_or_else(|| out.copy(node, args)))
    }))
}

/// The product that has a result of its own dtype.
fn unrounded(op: Op) -> Option<Op> {
    [(Op::Mm, Op::MmDtype), (Op::Bmm, Op::BmmDtype)].into_iter().find_map(|(of, into)| (op == of).then_some(into))
}

/// The 16-bit floats that a value in f32 was made of, if they were only widened and looked at in another way.
fn narrow(graph: &mut Graph, id: NodeId) -> Option<NodeId> {
    let Node { kind: NodeKind::Op(op), ty, args, attrs } = graph[id].clone() else { return None };
    let from = *args.first()?;
    if matches!(op.row().meaning, Meaning::View(_)) {
        let from = narrow(graph, from)?;
        // Memory that was widened may have been packed on the way, so that a view of it is none of this.
        let view = graph.add(op, &[from], attrs).ok()?;
        return (graph[view].ty.sizes == ty.sizes).then_some(view);
    }
    let is_widening = op == Op::ToCopy && ty.dtype == DType::F32;
    let source = &graph[from].ty;
    (is_widening && matches!(source.dtype, DType::F16 | DType::BF16) && !source.number).then_some(from)
}
