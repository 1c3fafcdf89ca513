//! Gradients of windows of memory.
//!
//! The gradient of a window is added to a buffer of zeros that stands for the memory, at the places that the window
//! read. The gradient of the operand is then read from that buffer with the operand's layout. Places count from the
//! first element of operand and window.

use super::derivative::{Backward, Gradients};
use super::expr::{Builder, Expr};
use crate::ir::attr::{Attr, Attrs};
use crate::ir::attrs::{Along, AsStrided, Attributes};
use crate::ir::dtype::DType;
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;
use crate::ir::shape::{Sizes, numel};
use crate::ir::types::TensorType;
use smallvec::{SmallVec, smallvec};

/// Of [`Op::AsStrided`]. Where several elements of the operand share memory, each gets an equal share.
///
/// Here the offset argument counts from the operand's first element; see [`counted_from`].
pub fn as_strided<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let TensorType { sizes, strides, .. } = call.args[0].ty();
    let AsStrided { size, stride, storage_offset } = AsStrided::read(call.attrs);
    let offset = storage_offset.unwrap_or(0);
    let [seen_sizes, seen_strides] = [counts(&size), counts(&stride)];
    if numel(&seen_sizes) == 0 || numel(&sizes) == 0 {
        return smallvec![Some(call.args[0].zeros())];
    }
    let builder = call.builder();
    let first = offset.min(0);
    let (own_start, seen_start) = ((-first) as usize, (offset - first) as usize);
    let end = |sizes: &[usize], strides: &[usize], start: usize| {
        start + 1 + sizes.iter().zip(strides).map(|(&size, &stride)| (size - 1) * stride).sum::<usize>()
    };
    let extent = end(&sizes, &strides, own_start).max(end(&seen_sizes, &seen_strides, seen_start));
    let memory = |dtype: DType| builder.full(&[extent], 0, dtype);
    let seen = places(builder, &seen_sizes, &seen_strides, seen_start);
    let own = places(builder, &sizes, &strides, own_start);
    let mut sum = scatter_add(memory(call.grad.dtype()), seen, call.grad.reshape(&[numel(&seen_sizes)]));
    if overlaps(&sizes, &strides) {
        let ones = builder.full(&[numel(&sizes)], 1, DType::I64);
        let count = scatter_add(memory(DType::I64), own, ones);
        sum = sum / count.maximum(Scalar::Int(1));
    }
    let read = sum.call(Op::IndexSelect, &[own], Along { dim: 0 }.into());
    smallvec![Some(read.reshape(&sizes))]
}

/// The arguments of a call as its derivative expects them, or `None` if they do not change. An offset in memory then
/// counts from the operand's first element, which is element `start` of its storage. Types have no offset, so a caller
/// that has tensors calls this before [`vjp`](super::vjp).
pub fn counted_from(op: Op, attrs: &[Attr], start: impl FnOnce() -> usize) -> Option<Attrs> {
    if op != Op::AsStrided {
        return None;
    }
    let attrs = AsStrided::read(attrs);
    let offset = attrs.storage_offset?.saturating_sub(start() as i64);
    Some(AsStrided { storage_offset: Some(offset), ..attrs }.into())
}

/// The places of the elements of a layout in memory, in their order.
fn places<'g>(builder: &'g Builder, sizes: &[usize], strides: &[usize], start: usize) -> Expr<'g> {
    let mut place = builder.full(&[], start as i64, DType::I64);
    for (dim, (&size, &stride)) in sizes.iter().zip(strides).enumerate() {
        let mut along: SmallVec<[usize; 6]> = SmallVec::from_elem(1, sizes.len() - dim);
        along[0] = size;
        place = place + builder.range(0, size).mul(Scalar::Int(stride as i64)).reshape(&along);
    }
    place.expand(sizes).reshape(&[numel(sizes)])
}

/// Whether elements may share memory: whether a stride does not exceed the span of all smaller ones.
fn overlaps(sizes: &[usize], strides: &[usize]) -> bool {
    let mut dims: SmallVec<[(usize, usize); 6]> = strides.iter().copied().zip(sizes.iter().copied()).collect();
    dims.retain(|(_, size)| *size > 1);
    dims.sort_unstable();
    let mut reach = 0;
    dims.iter().any(|&(stride, size)| {
        let within = stride <= reach;
        reach += (size - 1) * stride;
        within
    })
}

fn counts(numbers: &[i64]) -> Sizes {
    numbers.iter().map(|&count| count.max(0) as usize).collect()
}

fn scatter_add<'g>(into: Expr<'g>, index: Expr<'g>, what: Expr<'g>) -> Expr<'g> {
    into.call(Op::ScatterAdd, &[index, what], Along { dim: 0 }.into())
}
