//! Products of widened operands.

use super::eliminate::{eliminate_dead, rebuild};
use crate::ir::attrs::MmDtype;
use crate::ir::graph::{Graph, Node, NodeId, NodeKind};
use crate::ir::row::Meaning;
use crate::ir::{DType, Op};

/// Replaces f32 products of operands widened from f16 or bf16 by products of the 16-bit operands.
///
/// The new product does not round its sums, and the elements are the same numbers, so bits stay. A GPU then reads half the
/// bytes and can use tensor cores. `addmm` of 16-bit floats decomposes into products of widened operands; the CPU
/// multiplies those.
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
