//! Gradients of reads and writes by index.
//!
//! The gradient of a read is a `scatter_add` to where the element was read. The gradient of a write is a `gather` from
//! where the element was written. Of several writes to one place that replace each other, the last gets the gradient.
//! The gradient of a product with zeros uses the product of the other factors. At places with two
//! zeros this is exact for first derivatives only.

use super::derivative::{Backward, Gradients};
use super::expr::Expr;
use crate::ir::attrs::*;
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;
use crate::ir::shape::normalize_dim;
use smallvec::smallvec;

/// Of `index_select`: each slice is added to where it was read.
pub fn index_select<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (x, index) = (call.args[0], call.args[1]);
    if x.rank() == 0 {
        return smallvec![Some(call.grad)];
    }
    let dim = normalize_dim("dim", dim_of(call), x.rank()).unwrap_or(0);
    let mut sizes = x.sizes();
    sizes.fill(1);
    sizes[dim] = index.ty().numel();
    let index = index.reshape(&sizes).expand(&call.grad.sizes());
    smallvec![Some(add_at(call.args[0].zeros(), dim_of(call), index, call.grad))]
}

/// Of `gather`: each element is added to where it was read.
pub fn gather<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(add_at(call.args[0].zeros(), dim_of(call), call.args[1], call.grad))]
}

/// Of `embedding`: [`Op::EmbeddingDenseBackward`].
pub fn embedding<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let Embedding { padding_idx, scale_grad_by_freq, .. } = Embedding::read(call.attrs);
    let num_weights = call.args[0].sizes()[0] as i64;
    let attrs = EmbeddingDenseBackward { num_weights, padding_idx, scale_grad_by_freq };
    smallvec![Some(call.grad.call(Op::EmbeddingDenseBackward, &[call.args[1]], attrs.into()))]
}

/// Of writes that replace: the gradient of replaced elements is 0.
pub fn scatter<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let index = call.args[1];
    // At every written place, the number of the write that was last.
    let number = call.builder().range(0, index.ty().numel()).reshape(&index.sizes());
    let places = call.builder().full(&call.grad.sizes(), 0, number.dtype());
    let stayed = places.call(Op::Scatter, &[index, number], call.attrs.into());
    let gradient = taken(call, stayed).eq(number).then(taken(call, call.grad), 0.0);
    smallvec![Some(without(call, call.grad)), None, Some(to_source(call, gradient))]
}

/// Of writes that add.
pub fn scatter_add<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad), None, Some(to_source(call, taken(call, call.grad)))]
}

/// Of writes that reduce.
pub fn scatter_reduce<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let ScatterReduce { dim, reduce, include_self: with_self } = ScatterReduce::read(call.attrs);
    let wide = call.grad.dtype().widened();
    let (grad, index) = (call.grad.to(wide), call.args[1]);
    let (into, result) = (call.args[0].to(wide), call.result.to(wide));
    // The part of the source that has the sizes of the index.
    let source = inside(call.args[2].to(wide), index);
    let (to_self, to_source_part) = match reduce {
        Some(Reducer::Prod) => product(call, grad, into, source),
        Some(Reducer::Mean) => {
            let start = call.builder().full(&into.sizes(), with_self as i64, wide);
            let ones = call.builder().full(&[], 1, wide).expand(&index.sizes());
            let count = add_at(start, dim, index, ones);
            let share = grad / count.call(Op::Clamp, &[], Clamp { min: Some(Scalar::Int(1)), max: None }.into());
            (share, taken(call, share))
        }
        Some(Reducer::Amax | Reducer::Amin) => {
            let is_self = into.eq(result);
            let is_source = source.eq(taken(call, result));
            let own = is_self.to(wide);
            let own = if with_self { own } else { without(call, own) };
            let hits = add_at(own, dim, index, is_source.to(wide));
            let share = grad / hits;
            (is_self.then(share, 0.0), is_source.then(taken(call, share), 0.0))
        }
        Some(Reducer::Sum) | None => (grad, taken(call, grad)),
    };
    let to_self = if with_self { to_self } else { without(call, to_self) };
    smallvec![Some(to_self), None, Some(to_source(call, to_source_part))]
}

/// The gradients of a `scatter_reduce` by product. The gradient by a factor is the product of the others. That is the
/// result over the factor, or the product without zeros where the factor is the only zero.
fn product<'g>(call: &Backward<'g, '_>, grad: Expr<'g>, into: Expr<'g>, source: Expr<'g>) -> (Expr<'g>, Expr<'g>) {
    let index = call.args[1];
    let ScatterReduce { dim, include_self, .. } = ScatterReduce::read(call.attrs);
    let reduced = |into: Expr<'g>, source: Expr<'g>| {
        let attrs = ScatterReduce { dim, reduce: Some(Reducer::Prod), include_self };
        into.call(Op::ScatterReduce, &[index, source], attrs.into())
    };
    let result = reduced(into, source);
    let self_is_zero = into.eq(0.0);
    let without_self = into.masked_fill(self_is_zero, 1.0);
    let to_self = grad * (reduced(without_self, source) / without_self);
    let source_is_zero = source.eq(0.0);
    let zeros = add_at(into.zeros(), dim, index, source_is_zero.to(into.dtype()));
    let only_zero = source_is_zero.logical_and(taken(call, zeros).eq(1.0));
    let without_source = source.masked_fill(source_is_zero, 1.0);
    let others = taken(call, grad * reduced(into, without_source));
    let to_source = only_zero.then(others, taken(call, grad * result) / without_source);
    (to_self, to_source)
}

/// The dim of a gather or a scatter.
fn dim_of(call: &Backward<'_, '_>) -> i64 {
    Along::read(call.attrs).dim
}

/// `to` with `what` added at the index.
fn add_at<'g>(to: Expr<'g>, dim: i64, index: Expr<'g>, what: Expr<'g>) -> Expr<'g> {
    to.call(Op::ScatterAdd, &[index, what], Along { dim }.into())
}

/// The elements of `from` at the index of a scatter.
fn taken<'g>(call: &Backward<'g, '_>, from: Expr<'g>) -> Expr<'g> {
    from.call(Op::Gather, &[call.args[1]], Gather { dim: dim_of(call), sparse_grad: false }.into())
}

/// `from` with zeros at the index of a scatter.
fn without<'g>(call: &Backward<'g, '_>, from: Expr<'g>) -> Expr<'g> {
    let index = call.args[1];
    let zero = call.builder().full(&[], 0, from.dtype()).expand(&index.sizes());
    from.call(Op::Scatter, &[index, zero], Along { dim: dim_of(call) }.into())
}

/// The part of a source that has the sizes of the index: the first elements of every dim.
fn inside<'g>(source: Expr<'g>, index: Expr<'g>) -> Expr<'g> {
    let sizes = index.sizes();
    let mut part = source;
    for (dim, (&size, &own)) in sizes.iter().zip(&source.sizes()).enumerate() {
        if size < own {
            let attrs = Slice { dim: dim as i64, start: Some(0), end: Some(size as i64), step: 1 };
            part = part.call(Op::Slice, &[], attrs.into());
        }
    }
    part.reshape(&sizes)
}

/// The gradient of a source: that of the part with the sizes of the index, and zeros elsewhere.
fn to_source<'g>(call: &Backward<'g, '_>, part: Expr<'g>) -> Expr<'g> {
    let sizes = call.args[2].sizes();
    if part.rank() != sizes.len() {
        return if part.ty().numel() == 0 { call.args[2].zeros() } else { part.reshape(&sizes) };
    }
    let mut out = part;
    for (dim, &size) in sizes.iter().enumerate() {
        let mut larger = out.sizes();
        let own = larger[dim];
        if own < size {
            larger[dim] = size;
            let zeros = call.builder().full(&larger, 0, out.dtype());
            let attrs = Slice { dim: dim as i64, start: Some(0), end: Some(own as i64), step: 1 };
            out = zeros.call(Op::SliceScatter, &[out], attrs.into());
        }
    }
    out
}
