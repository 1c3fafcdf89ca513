//! Gradients of reductions and normalizations.
//!
//! Result and gradient first get the reduced dims back with size 1, so that they broadcast against the operand. 16-bit
//! floats are computed in f32.

use super::derivative::{Backward, Gradients};
use super::expr::{Builder, Expr};
use crate::error::Result;
use crate::ir::attr::Attr;
use crate::ir::attrs::*;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::infer::reduced_dims;
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;
use crate::ir::shape::normalize_dims;
use smallvec::{SmallVec, smallvec};

/// Operand, result and gradient of a reduction, in the dtype of its computation.
struct Reduced<'g> {
    /// The operand.
    x: Expr<'g>,
    /// The result, with reduced dims of size 1.
    y: Expr<'g>,
    /// The result's gradient, with reduced dims of size 1.
    grad: Expr<'g>,
    /// The reduced dims.
    dims: SmallVec<[usize; 6]>,
    /// How many elements are reduced to one.
    count: usize,
}

impl<'g> Reduced<'g> {
    /// Reads a reduction over the dims that its arguments name.
    fn of(call: &Backward<'g, '_>) -> Reduced<'g> {
        let x = call.args[0];
        let sizes = x.sizes();
        // Inference has accepted the call, so its dims exist.
        let dims = reduced_dims("reduction", call.attrs, sizes.len()).unwrap_or_default();
        let mut kept = sizes.clone();
        for &dim in &dims {
            kept[dim] = 1;
        }
        let count = dims.iter().map(|&dim| sizes[dim]).product();
        let [y, grad] = [call.result, call.grad].map(|value| value.wide().reshape(&kept));
        Reduced { x: x.wide(), y, grad, dims, count }
    }

    fn mean(&self) -> Expr<'g> {
        self.x.sum(&self.dims, true) / self.x.builder().extent(self.count)
    }
}

/// Of a sum: the gradient, for every element.
pub fn sum<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(Reduced::of(call).grad)]
}

/// Of a mean: the gradient over the number of elements, for every element.
pub fn mean<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let reduced = Reduced::of(call);
    smallvec![Some(reduced.grad / call.builder().extent(reduced.count))]
}

/// Of a product: the product of the other elements. With one zero, that is not 0 for the zero only; with several, it is
/// 0 for all.
pub fn prod<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let Reduced { x, y, grad, dims, .. } = Reduced::of(call);
    let x = x.to(y.dtype());
    let zero = x.eq(0.0);
    if dims.is_empty() {
        return smallvec![Some(grad)];
    }
    let n_zeros = zero.sum(&dims, true);
    let rest = x.masked_fill(zero, 1.0).prod(&dims);
    // Where there are zeros, `rest` divided by an element is meaningless, and is not selected.
    let none = grad * (rest / x.masked_fill(zero, 1.0));
    let one = zero.logical_and(n_zeros.eq(1.0)).then(grad * rest, 0.0);
    smallvec![Some(n_zeros.eq(0.0).then(none, one))]
}

/// Of an extremum: equal shares of the gradient for all elements that are equal to it. If it is NaN, all get NaN.
pub fn extremum<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let Reduced { x, y, grad, dims, .. } = Reduced::of(call);
    let chosen = x.eq(y);
    if dims.is_empty() {
        return smallvec![Some(grad)];
    }
    let count = chosen.sum(&dims, true);
    smallvec![Some(chosen.then(grad / count, count.eq(0.0).then(f64::NAN, 0.0)))]
}

/// Of a variance: `2 (x - mean) / (n - correction)`.
pub fn var<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let reduced = Reduced::of(call);
    let grad = reduced.grad;
    smallvec![Some(variance(call, &reduced, grad))]
}

/// Of a standard deviation `y`: that of the variance over `2 y`, or 0 where `y` is 0.
pub fn std<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let reduced = Reduced::of(call);
    let flat = reduced.y.eq(0.0);
    // The divisor is 1 where `y` is 0, so second derivatives have no NaN either.
    let grad = (reduced.grad / (reduced.y * 2.0).masked_fill(flat, 1.0)).masked_fill(flat, 0.0);
    smallvec![Some(variance(call, &reduced, grad))]
}

fn variance<'g>(call: &Backward<'g, '_>, reduced: &Reduced<'g>, grad: Expr<'g>) -> Expr<'g> {
    let correction = Var::read(call.attrs).correction.unwrap_or(Scalar::Int(1));
    let count = call.builder().extent(reduced.count);
    let freedom = match correction.as_f64() {
        0.0 => count,
        // A whole correction is subtracted from the count as an integer, which is exact.
        value if value.fract() == 0.0 => (count - Scalar::Int(correction.as_i64())).relu(),
        _ => (count.to(reduced.x.dtype()) - correction).relu(),
    };
    grad * ((reduced.x - reduced.mean()) * 2.0 / freedom)
}

/// Of `y = log(sum(exp(x)))`: `exp(x - y)`.
pub fn logsumexp<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let Reduced { x, y, grad, .. } = Reduced::of(call);
    smallvec![Some(grad * (x - y).exp())]
}

/// Of [`Op::Softmax`], from its result.
pub fn softmax<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(by_data(Op::SoftmaxBackwardData, call))]
}

/// Of [`Op::LogSoftmax`], from its result.
pub fn log_softmax<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(by_data(Op::LogSoftmaxBackwardData, call))]
}

fn by_data<'g>(op: Op, call: &Backward<'g, '_>) -> Expr<'g> {
    let Softmax { dim, .. } = Softmax::read(call.attrs);
    let attrs = SoftmaxBackwardData { dim, input_dtype: Some(call.args[0].dtype()) };
    call.grad.call(op, &[call.result], attrs.into())
}

/// The decomposition of [`Op::SoftmaxBackwardData`], `(g - sum(g y)) y`.
pub fn softmax_data(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let attrs = SoftmaxBackwardData::read(attrs);
    Builder::extend(graph, args, |args| {
        let (grad, y) = (args[0].wide(), args[1].wide());
        let product = grad * y;
        stored(product - along(product, attrs.dim) * y, args[0], &attrs)
    })
}

/// The decomposition of [`Op::LogSoftmaxBackwardData`], `g - exp(y) sum(g)`.
pub fn log_softmax_data(graph: &mut Graph, args: &[NodeId], attrs: &[Attr]) -> Result<NodeId> {
    let attrs = SoftmaxBackwardData::read(attrs);
    Builder::extend(graph, args, |args| {
        let (grad, y) = (args[0].wide(), args[1].wide());
        stored(grad - y.exp() * along(grad, attrs.dim), args[0], &attrs)
    })
}

fn stored<'g>(value: Expr<'g>, grad: Expr<'g>, attrs: &SoftmaxBackwardData) -> Expr<'g> {
    value.to(attrs.input_dtype.unwrap_or(grad.dtype())).contiguous()
}

/// Of a layer normalization `y = z w + b` with `z = (x - mean) r`, where `r` is the reciprocal of the deviation. The
/// gradient by `x` is `r (h - mean(h) - z mean(h z))` with `h = g w`. That by `w` is `g z`, and that by `b` is `g`.
pub fn layer_norm<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let x = call.args[0].wide();
    let rank = x.rank();
    let LayerNorm { normalized_shape, weight: has_weight, bias: has_bias, eps, .. } = LayerNorm::read(call.attrs);
    let dims: SmallVec<[usize; 6]> = (rank - normalized_shape.len()..rank).collect();
    let sizes = x.sizes();
    let count = call.builder().extent(dims.iter().map(|&dim| sizes[dim]).product());
    let mean = |value: Expr<'g>| value.sum(&dims, true) / count;
    let centred = x - mean(x);
    let scale = (mean(centred.square()) + eps).rsqrt();
    let normal = centred * scale;
    let grad = call.grad.wide();
    let inner = if has_weight { grad * call.args[1].wide() } else { grad };
    let first = scale * (inner - mean(inner) - normal * mean(inner * normal));
    let mut gradients: Gradients<'g> = smallvec![Some(first)];
    gradients.extend(has_weight.then(|| Some(grad * normal)));
    gradients.extend(has_bias.then_some(Some(grad)));
    gradients
}

fn along<'g>(x: Expr<'g>, dim: i64) -> Expr<'g> {
    let dims = normalize_dims("softmax", &[dim], x.rank()).unwrap_or_default();
    x.sum(&dims, true)
}
