//! Gradients of rows that move elements: each element's gradient goes to where the element was read.

use super::derivative::{Backward, Gradients};
use super::expr::{Builder, Expr};
use crate::error::Result;
use crate::ir::attr::{Attr, Attrs};
use crate::ir::attrs::{ints, *};
use crate::ir::graph::{Graph, NodeId};
use crate::ir::infer::{joins_anything, part_of as part_of_type};
use crate::ir::op::Op;
use crate::ir::row::{Call, ViewRule};
use crate::ir::shape::{Layout, Sizes, normalize_dim};
use crate::ir::types::TensorType;
use crate::ir::view;
use smallvec::{SmallVec, smallvec};

/// Of a view that keeps the order of elements: a reshape to the operand's sizes.
pub fn reshaped<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.reshape(&call.args[0].sizes()))]
}

/// Of `permute`: the inverse permutation.
pub fn permute<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let rank = call.args[0].rank();
    let mut back: SmallVec<[usize; 6]> = SmallVec::from_elem(0, rank);
    for (place, &dim) in Dims::read(call.attrs).dims.iter().enumerate() {
        back[index(dim, rank)] = place;
    }
    smallvec![Some(call.grad.permute(&back))]
}

/// Of `transpose`: the same transposition.
pub fn transpose<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let rank = call.args[0].rank();
    let mut dims: SmallVec<[usize; 6]> = (0..rank).collect();
    if rank > 0 {
        let Transpose { dim0, dim1 } = Transpose::read(call.attrs);
        dims.swap(index(dim0, rank), index(dim1, rank));
    }
    smallvec![Some(call.grad.permute(&dims))]
}

/// Of `t`: the same transposition.
pub fn t<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(if call.args[0].rank() == 2 { call.grad.transposed() } else { call.grad })]
}

/// Of `expand`: the gradient itself, because every gradient is summed over broadcast dims.
pub fn expand<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad)]
}

/// Of `select`: [`Op::SelectBackward`].
pub fn select<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let Select { dim, index } = Select::read(call.attrs);
    let attrs = SelectBackward { input_sizes: ints(&call.args[0].sizes()), dim, index };
    smallvec![Some(call.grad.call(Op::SelectBackward, &[], attrs.into()))]
}

/// The sizes of the operand, and the arguments of the view, from those of [`Op::SelectBackward`].
fn selected(attrs: &[Attr]) -> (Ints, Attrs) {
    let SelectBackward { input_sizes, dim, index } = SelectBackward::read(attrs);
    (input_sizes, Select { dim, index }.into())
}

/// The sizes of the operand, and the arguments of the view, from those of [`Op::SliceBackward`].
fn sliced(attrs: &[Attr]) -> (Ints, Attrs) {
    let SliceBackward { input_sizes, dim, start, end, step } = SliceBackward::read(attrs);
    (input_sizes, Slice { dim, start, end, step }.into())
}

/// The type of [`Op::SelectBackward`].
pub fn select_zeros_type(call: &Call<'_>) -> Result<TensorType> {
    let (sizes, attrs) = selected(call.attrs);
    part_of_type(call, &sizes, view::select, &attrs)
}

/// The decomposition of [`Op::SelectBackward`]: the gradient in zeros.
pub fn select_zeros(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let (sizes, attrs) = selected(attrs);
    among_zeros(graph, args, &sizes, &attrs, view::select)
}

/// Of [`Op::SelectBackward`]: the same `select`.
pub fn select_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.call(Op::Select, &[], selected(call.attrs).1))]
}

/// Of `slice`: [`Op::SliceBackward`].
pub fn slice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let sizes = call.args[0].sizes();
    let Slice { dim, start, end, step } = Slice::read(call.attrs);
    let dim = index(dim, sizes.len());
    let attrs = SliceBackward {
        input_sizes: ints(&sizes),
        dim: dim as i64,
        start: start.or(Some(0)),
        end: end.or(Some(sizes[dim] as i64)),
        step,
    };
    smallvec![Some(call.grad.call(Op::SliceBackward, &[], attrs.into()))]
}

/// The type of [`Op::SliceBackward`].
pub fn slice_zeros_type(call: &Call<'_>) -> Result<TensorType> {
    let (sizes, attrs) = sliced(call.attrs);
    part_of_type(call, &sizes, view::slice, &attrs)
}

/// The decomposition of [`Op::SliceBackward`]: the gradient in zeros.
pub fn slice_zeros(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let (sizes, attrs) = sliced(attrs);
    among_zeros(graph, args, &sizes, &attrs, view::slice)
}

/// Zeros of these sizes, with the gradient written to a view of them.
fn among_zeros(graph: &mut Graph, args: &[NodeId], sizes: &[i64], attrs: &Attrs, rule: ViewRule) -> Result<NodeId> {
    let sizes: Sizes = sizes.iter().map(|&size| size as usize).collect();
    let layout = rule(&Layout::contiguous(&sizes), attrs)?;
    Builder::extend(graph, args, |args| put(args[0], &sizes, &layout))
}

/// Zeros of these sizes, with `x` written at a layout of them.
fn put<'g>(x: Expr<'g>, sizes: &[usize], layout: &Layout) -> Expr<'g> {
    let zeros = zeros(x, sizes);
    if layout.numel() == 0 {
        return zeros.arriving_with(x);
    }
    let attrs = Overlay { stride: ints(&layout.strides), offset: layout.offset as i64 };
    zeros.call(Op::Overlay, &[x], attrs.into())
}

/// Of [`Op::SliceBackward`]: the same `slice`.
pub fn slice_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.call(Op::Slice, &[], sliced(call.attrs).1))]
}

/// Of `diagonal`: the gradient on the diagonal of zeros.
pub fn diagonal<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let sizes = call.args[0].sizes();
    let at = view::diagonal(&Layout::contiguous(&sizes), call.attrs).expect("inference has accepted the view");
    smallvec![Some(put(call.grad, &sizes, &at))]
}

/// Of `unfold`: the sum over the windows that have the element. Windows are cut into pieces of one step. Then piece `k`
/// of all windows together is contiguous and without overlap, and begins at element `k * step`.
pub fn unfold<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let sizes = call.args[0].sizes();
    if sizes.is_empty() {
        // At most one window of at most one element.
        return smallvec![Some(call.grad.sum(&[0], false))];
    }
    let Unfold { size, step, .. } = Unfold::read(call.attrs);
    let [size, step] = [size, step].map(|number| number as usize);
    let windows = view::unfold(&Layout::contiguous(&sizes), call.attrs).expect("inference has accepted the view");
    let last = sizes.len();
    let piece = |start: usize| {
        let end = size.min(start + step);
        put(part(call.grad, last, start, end), &sizes, &windows.slice(last, start, end, 1))
    };
    let sum = (0..size).step_by(step).map(piece).reduce(|sum, piece| sum + piece);
    smallvec![Some(sum.unwrap_or_else(|| call.args[0].zeros()))]
}

/// Elements `start..end` of a dim.
fn part<'g>(x: Expr<'g>, dim: usize, start: usize, end: usize) -> Expr<'g> {
    let attrs = Slice { dim: dim as i64, start: Some(start as i64), end: Some(end as i64), step: 1 };
    x.call(Op::Slice, &[], attrs.into())
}

fn zeros<'g>(like: Expr<'g>, sizes: &[usize]) -> Expr<'g> {
    like.builder().full(sizes, 0, like.dtype())
}

/// Of `cat`: each operand gets its part of the gradient.
pub fn cat<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let dim = index(Along::read(call.attrs).dim, call.grad.rank());
    let mut start = 0;
    let own = |arg: &Expr<'g>| {
        if joins_anything(&arg.ty()) && call.grad.rank() != 1 {
            // An operand without elements has no part in the result.
            return Some(zeros(*arg, &arg.sizes()));
        }
        let (from, size) = (start, arg.sizes()[dim]);
        start += size;
        Some(part(call.grad, dim, from, from + size))
    };
    call.args.iter().map(own).collect()
}

/// Of [`Op::Overlay`]: operand 1 gets the gradient of its window, and operand 0 the rest.
pub fn overlay<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let grad = call.grad.contiguous();
    let over = call.args[1].sizes();
    let blank = zeros(grad, &over);
    let beside = grad.call(Op::Overlay, &[blank], call.attrs.into());
    let Overlay { stride, offset } = Overlay::read(call.attrs);
    let window = Part { size: ints(&over), stride, offset };
    smallvec![Some(beside), Some(grad.call(Op::Part, &[], window.into()))]
}

/// Of [`Op::Part`]: the gradient at that part of zeros.
pub fn part_of<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let Part { stride, offset, .. } = Part::read(call.attrs);
    let attrs = Overlay { stride, offset };
    smallvec![Some(call.args[0].zeros().call(Op::Overlay, &[call.grad], attrs.into()))]
}

/// Of `flip`: the same `flip`.
pub fn flip<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.call(Op::Flip, &[], call.attrs.into()))]
}

/// Of a triangle: the same triangle.
pub fn tril<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.call(Op::Tril, &[], call.attrs.into()))]
}

/// Of a triangle: the same triangle.
pub fn triu<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.call(Op::Triu, &[], call.attrs.into()))]
}

/// A dim that inference has accepted.
fn index(dim: i64, rank: usize) -> usize {
    normalize_dim("dim", dim, rank).unwrap_or(0)
}
