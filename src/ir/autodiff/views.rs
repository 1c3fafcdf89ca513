//! Gradients of rows that move elements: each element's gradient goes back where the element came from.

use super::expr::{Builder, Expr, ints};
use super::formula::{Backward, Gradients};
use crate::error::Result;
use crate::ir::attr::Attr;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::infer::joins_anything;
use crate::ir::ops::Op;
use crate::ir::shape::{Sizes, normalize_dim};
use smallvec::{SmallVec, smallvec};

/// Of a view that keeps the order of elements: the operand's sizes again.
pub fn reshaped<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.reshape(&call.args[0].sizes()))]
}

/// Of dims in another order: the order they had.
pub fn permute<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let rank = call.args[0].rank();
    let mut back: SmallVec<[usize; 6]> = SmallVec::from_elem(0, rank);
    for (place, &dim) in call.attrs[0].list().iter().enumerate() {
        back[index(dim, rank)] = place;
    }
    smallvec![Some(call.grad.permute(&back))]
}

/// Of two dims swapped: swapped again.
pub fn transpose<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let rank = call.args[0].rank();
    let mut dims: SmallVec<[usize; 6]> = (0..rank).collect();
    if rank > 0 {
        let [a, b] = [0, 1].map(|place: usize| index(call.attrs[place].as_int().unwrap_or(0), rank));
        dims.swap(a, b);
    }
    smallvec![Some(call.grad.permute(&dims))]
}

/// Of a matrix transposed.
pub fn t<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(if call.args[0].rank() == 2 { call.grad.transposed() } else { call.grad })]
}

/// Of elements repeated: the sum, which every gradient gets anyway.
pub fn expand<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad)]
}

/// Of one index of a dim: [`Op::SelectBackward`].
pub fn select<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let attrs = [&[ints(&call.args[0].sizes())], call.attrs].concat();
    smallvec![Some(call.grad.call(Op::SelectBackward, &[], attrs.into()))]
}

/// The decomposition of [`Op::SelectBackward`]: zeros around it.
pub fn select_zeros(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let sizes = sizes_of(&attrs[0]);
    let dim = index(attrs[1].as_int().unwrap_or(0), sizes.len());
    let at = attrs[2].as_int().unwrap_or(0);
    let at = if at < 0 { at + sizes[dim] as i64 } else { at } as usize;
    Builder::extend(graph, args, |args| among_zeros(args[0].unsqueeze(dim), dim, at, sizes[dim]).contiguous())
}

/// Of [`Op::SelectBackward`]: the index again.
pub fn select_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.call(Op::Select, &[], call.attrs[1..].into()))]
}

/// Of every `step`-th element: [`Op::SliceBackward`].
pub fn slice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let sizes = call.args[0].sizes();
    let dim = index(call.attrs[0].as_int().unwrap_or(0), sizes.len());
    let bound = |attr: &Attr, default: usize| Attr::int(attr.as_int().unwrap_or(default as i64));
    let attrs = smallvec![
        ints(&sizes),
        Attr::int(dim as i64),
        bound(&call.attrs[1], 0),
        bound(&call.attrs[2], sizes[dim]),
        bound(&call.attrs[3], 1)
    ];
    smallvec![Some(call.grad.call(Op::SliceBackward, &[], attrs))]
}

/// The decomposition of [`Op::SliceBackward`]: zeros between and around the elements.
pub fn slice_zeros(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let sizes = sizes_of(&attrs[0]);
    let dim = index(attrs[1].as_int().unwrap_or(0), sizes.len());
    let size = sizes[dim] as i64;
    let start = attrs[2].as_int().unwrap_or(0);
    let start = (if start < 0 { start.saturating_add(size) } else { start }).clamp(0, size) as usize;
    let step = attrs[4].as_int().unwrap_or(1).max(1) as usize;
    Builder::extend(graph, args, |args| {
        let count = args[0].sizes()[dim];
        if count == 0 {
            return zeros(args[0], &sizes);
        }
        let spaced = spaced(args[0], dim, step);
        let spaced = if step == 1 { spaced } else { part(spaced, dim, 0, (count - 1) * step + 1) };
        among_zeros(spaced, dim, start, sizes[dim]).contiguous()
    })
}

/// Of [`Op::SliceBackward`]: the slice again.
pub fn slice_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.call(Op::Slice, &[], call.attrs[1..].into()))]
}

/// Of a diagonal: in a column of its own, repeated along rows, and 0 but where row and column meet.
pub fn diagonal<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let sizes = call.args[0].sizes();
    let rank = sizes.len();
    let [offset, dim1, dim2] = [0, 1, 2].map(|place: usize| call.attrs[place].as_int().unwrap_or(0));
    let (dim1, dim2) = (index(dim1, rank), index(dim2, rank));
    let (rows, columns) = (sizes[dim1], sizes[dim2]);
    if call.grad.sizes()[rank - 2] == 0 {
        return smallvec![Some(call.args[0].zeros())];
    }
    let column = among_zeros(call.grad, rank - 2, (-offset).max(0) as usize, rows).unsqueeze(rank - 1);
    let row_numbers = call.builder().range(offset, rows).unsqueeze(1);
    let spread = row_numbers.eq(call.builder().range(0, columns)).then(column, 0.0);
    // The two dims are last; they go back where they were.
    let rest = (0..rank).filter(|&dim| dim != dim1 && dim != dim2);
    let places: SmallVec<[usize; 6]> = rest.chain([dim1, dim2]).collect();
    let mut back: SmallVec<[usize; 6]> = SmallVec::from_elem(0, rank);
    for (place, &dim) in places.iter().enumerate() {
        back[dim] = place;
    }
    smallvec![Some(spread.permute(&back))]
}

/// Of windows of a dim: the sum of what each element got. Windows are cut into pieces of one step, so that piece `k`
/// of all windows together is a stretch without overlap that begins `k` steps in.
pub fn unfold<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let sizes = call.args[0].sizes();
    if sizes.is_empty() {
        // At most one window of at most one element.
        return smallvec![Some(call.grad.sum(&[0], false))];
    }
    let rank = sizes.len();
    let [dim, size, step] = [0, 1, 2].map(|place: usize| call.attrs[place].as_int().unwrap_or(0));
    let (dim, size, step) = (index(dim, rank), size as usize, step as usize);
    let n_windows = call.grad.sizes()[dim];
    // The elements of a window directly behind the number of the window.
    let mut order: SmallVec<[usize; 6]> = (0..rank).collect();
    order.insert(dim + 1, rank);
    let windows = call.grad.permute(&order);
    let mut sum: Option<Expr<'g>> = None;
    for start in (0..size).step_by(step) {
        let length = step.min(size - start);
        let mut piece = among_zeros(part(windows, dim + 1, start, start + length), dim + 1, 0, step);
        let mut joined = sizes.clone();
        joined[dim] = n_windows * step;
        piece = piece.reshape(&joined);
        // Of the last window, what reaches beyond its end is 0.
        let end = (n_windows - 1) * step + length;
        piece = among_zeros(part(piece, dim, 0, end), dim, start, sizes[dim]);
        sum = Some(sum.map_or(piece, |sum| sum + piece));
    }
    smallvec![Some(sum.unwrap_or_else(|| call.args[0].zeros()))]
}

/// Each element of a dim followed by `step - 1` zeros.
fn spaced<'g>(x: Expr<'g>, dim: usize, step: usize) -> Expr<'g> {
    if step == 1 {
        return x;
    }
    let own = x.sizes();
    let mut gap = own.clone();
    gap.insert(dim + 1, step - 1);
    let mut joined = own;
    joined[dim] *= step;
    join(&[x.unsqueeze(dim + 1), zeros(x, &gap)], dim + 1).reshape(&joined)
}

/// Elements `start..end` of a dim.
fn part<'g>(x: Expr<'g>, dim: usize, start: usize, end: usize) -> Expr<'g> {
    let [dim, start, end] = [dim, start, end].map(|number| Attr::int(number as i64));
    x.call(Op::Slice, &[], smallvec![dim, start, end, Attr::int(1)])
}

/// `x` from index `at` of a dim of `size`, zeros elsewhere.
fn among_zeros<'g>(x: Expr<'g>, dim: usize, at: usize, size: usize) -> Expr<'g> {
    let own = x.sizes();
    let pad = |count: usize| {
        let mut sizes: Sizes = own.clone();
        sizes[dim] = count;
        (count > 0).then(|| zeros(x, &sizes))
    };
    let parts: SmallVec<[Expr<'g>; 3]> = [pad(at), Some(x), pad(size - at - own[dim])].into_iter().flatten().collect();
    join(&parts, dim)
}

fn zeros<'g>(like: Expr<'g>, sizes: &[usize]) -> Expr<'g> {
    like.builder().full(sizes, 0, like.dtype())
}

fn join<'g>(parts: &[Expr<'g>], dim: usize) -> Expr<'g> {
    match parts {
        [only] => *only,
        parts => parts[0].call(Op::Cat, &parts[1..], smallvec![Attr::int(dim as i64)]),
    }
}

/// Of tensors side by side: to each its part.
pub fn cat<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let dim = index(call.attrs[0].as_int().unwrap_or(0), call.grad.rank());
    let mut start = 0;
    let own = |arg: &Expr<'g>| {
        if joins_anything(&arg.ty()) && call.grad.rank() != 1 {
            // It lies nowhere in the result.
            return Some(zeros(*arg, &arg.sizes()));
        }
        let (from, size) = (start, arg.sizes()[dim]);
        start += size;
        Some(part(call.grad, dim, from, from + size))
    };
    call.args.iter().map(own).collect()
}

/// Of one tensor over another: to the upper one its window, to the lower one what is beside it.
pub fn overlay<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let grad = call.grad.contiguous();
    let over = call.args[1].sizes();
    let blank = zeros(grad, &over);
    let beside = grad.call(Op::Overlay, &[blank], call.attrs.into());
    let window = smallvec![ints(&over), call.attrs[0].clone(), call.attrs[1].clone()];
    smallvec![Some(beside), Some(grad.call(Op::Part, &[], window))]
}

/// Of a part of a row-major tensor: put back among zeros.
pub fn part_of<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let attrs = smallvec![call.attrs[1].clone(), call.attrs[2].clone()];
    smallvec![Some(call.args[0].zeros().call(Op::Overlay, &[call.grad], attrs))]
}

/// Of elements in reverse order: reversed again.
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

/// Sizes that inference has accepted.
fn sizes_of(attr: &Attr) -> Sizes {
    attr.list().iter().map(|&size| size as usize).collect()
}

/// A dim that inference has accepted.
fn index(dim: i64, rank: usize) -> usize {
    normalize_dim("dim", dim, rank).unwrap_or(0)
}
