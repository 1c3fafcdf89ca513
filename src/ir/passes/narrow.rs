//! Narrows matrix products of widened operands.

use super::eliminate::{eliminate_dead, rebuild};
use crate::ir::attrs::MmDtype;
use crate::ir::graph::{Graph, Node, NodeId, NodeKind};
use crate::ir::row::Meaning;
use crate::ir::{DType, Op};

/// Replaces f32 products of operands widened from f16 or bf16 by products of the 16-bit operands.
///
/// The new product keeps its sums in f32, and its operands are the same numbers, so no bits change. A GPU then reads
/// half the bytes and can use tensor cores. Products of widened operands come from the decomposition of `addmm` of
/// 16-bit floats; the CPU multiplies them as they are.
pub fn narrow_products(graph: &Graph) -> Graph {
    let is_product = |op: Op| unrounded(op).is_some();
    if !graph.nodes().any(|(_, node)| node.ty.dtype == DType::F32 && node.op().is_some_and(is_product)) {
        return graph.clone();
    }
    eliminate_dead(&rebuild(graph, |out, _, node, args| {
        let mut narrowed = || {
            let op = unrounded(node.op()?)?;
            let (left, right) = (narrow(out, args[0])?, narrow(out, args[1])?);
            let alike = out[left].ty.dtype == out[right].ty.dtype;
            alike.then(|| out.add(op, &[left, right], MmDtype { out_dtype: Some(node.ty.dtype) }.into()).ok())?
        };
        Some(narrowed().unwrap_or_else(|| out.copy(node, args)))
    }))
}

/// The op for the same product with a separate dtype of the result.
fn unrounded(op: Op) -> Option<Op> {
    [(Op::Mm, Op::MmDtype), (Op::Bmm, Op::BmmDtype)].into_iter().find_map(|(of, into)| (op == of).then_some(into))
}

/// The 16-bit value that an f32 value was made from, if only by widening and views.
fn narrow(graph: &mut Graph, id: NodeId) -> Option<NodeId> {
    let Node { kind: NodeKind::Op(op), ty, args, attrs } = graph[id].clone() else { return None };
    let from = *args.first()?;
    if matches!(op.row().meaning, Meaning::View(_)) {
        let from = narrow(graph, from)?;
        // Widening may have changed the layout, so a view of its result need not be one of the operand.
        let view = graph.add(op, &[from], attrs).ok()?;
        return (graph[view].ty.sizes == ty.sizes).then_some(view);
    }
    let is_widening = op == Op::ToCopy && ty.dtype == DType::F32;
    let source = &graph[from].ty;
    (is_widening && matches!(source.dtype, DType::F16 | DType::BF16) && !source.number).then_some(from)
}
