//! Products of widened operands.

use super::eliminate::{eliminate_dead, rebuild};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::{Attr, DType, Op};
use smallvec::smallvec;

/// Products in f32 of two operands that were 16-bit floats, both f16 or both bf16, as products of those whose sums are not rounded.
///
/// The elements are the same numbers, so bits stay. What is gained is for a device to say: half the bytes are read, and tensor
/// cores take such operands. `addmm` of 16-bit floats is decomposed into products of widened operands; a CPU multiplies those.
pub fn narrow_products(graph: &Graph) -> Graph {
    let is_wide = |id: NodeId| narrow(graph, id).is_some();
    if !graph
        .nodes()
        .any(|(_, node)| node.op().and_then(unrounded).is_some() && node.args.iter().all(|&arg| is_wide(arg)))
    {
        return graph.clone();
    }
    eliminate_dead(&rebuild(graph, |out, _, node, args| {
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

/// The 16-bit floats that a value in f32 was made of, if nothing else was done to them.
fn narrow(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let node = &graph[id];
    let from = *node.args.first()?;
    let is_widening = node.op() == Some(Op::ToCopy)
        && node.ty.dtype == DType::F32
        && matches!(graph[from].ty.dtype, DType::F16 | DType::BF16);
    (is_widening && !graph[from].ty.number).then_some(from)
}
