//! Gradients of pointwise rows that are too long for the table.
//!
//! A slope that selects is written as `where(condition, gradient, 0)` and never as a product with a mask: the gradient
//! may be infinite, and infinity times zero is no zero. At kinks the slopes are those of PyTorch.

use super::expr::Expr;
use super::formula::{Backward, Gradients};
use crate::ir::attr::Attr;
use crate::ir::scalar::Scalar;
use smallvec::smallvec;

/// `self + alpha * other`.
pub fn add<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad), Some(call.grad.scaled(&call.attrs[0]))]
}

/// `self - alpha * other`.
pub fn sub<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad), Some(-call.grad.scaled(&call.attrs[0]))]
}

/// What passes unchanged: copies and conversions.
pub fn same<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad)]
}

/// To whichever side was taken.
pub fn where_<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let condition = call.args[0];
    smallvec![None, Some(condition.then(call.grad, 0.0)), Some(condition.then(0.0, call.grad))]
}

/// To the elements that were not filled.
pub fn masked_fill<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.masked_fill(call.args[1], 0.0))]
}

/// To the elements strictly between the bounds.
pub fn clamp<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let x = call.args[0];
    let bound = |attr: &Attr| attr.scalar().map(Scalar::as_f64);
    let inside = match (bound(&call.attrs[0]), bound(&call.attrs[1])) {
        (Some(low), Some(high)) => x.gt(low).logical_and(x.lt(high)),
        (Some(low), None) => x.gt(low),
        (None, Some(high)) => x.lt(high),
        (None, None) => return smallvec![Some(call.grad)],
    };
    smallvec![Some(inside.then(call.grad, 0.0))]
}

/// The slope of `x Φ(x)` is `Φ(x) + x φ(x)`, that of `x σ(2u)` is `σ(2u) + x σ(2u) (1 - σ(2u)) 2u'`.
pub fn gelu<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};
    let x = call.args[0];
    let slope = if call.attrs[0].word() == "tanh" {
        let scale = 2.0 * (2.0 / PI).sqrt();
        let square = x.square();
        let s = ((square * 0.044715 + 1.0) * x * scale).sigmoid();
        s * ((1.0 - s) * x * ((square * (3.0 * 0.044715) + 1.0) * scale) + 1.0)
    } else {
        let below = ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
        let density = (x.square() * -0.5).exp() * (0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
        below + x * density
    };
    smallvec![Some(call.grad * slope)]
}

/// The slope of `x σ(x)`.
pub fn silu_slope(x: Expr<'_>) -> Expr<'_> {
    let s = x.sigmoid();
    s * (x * (1.0 - s) + 1.0)
}

/// Of `y = a / b`.
pub fn quotient<'g>(b: Expr<'g>, y: Expr<'g>, grad: Expr<'g>) -> [Expr<'g>; 2] {
    let first = grad / b;
    [first, -(first * y)]
}

/// Of `y = a ^ b`. A power of 0 is constant, and so is 0 to any power that is not negative.
pub fn power<'g>(a: Expr<'g>, b: Expr<'g>, y: Expr<'g>, grad: Expr<'g>) -> [Expr<'g>; 2] {
    let base = b.eq(0.0).then(0.0, grad * (b * a.pow(b - 1.0)));
    let flat = a.eq(0.0).logical_and(b.ge(0.0));
    [base, flat.then(0.0, grad * (y * a.log()))]
}

/// The share of the greater of two operands, `greater` being it: all, or half on a tie.
pub fn chosen<'g>(lesser: Expr<'g>, greater: Expr<'g>, grad: Expr<'g>) -> Expr<'g> {
    let share = lesser.eq(greater).then(grad * 0.5, grad);
    greater.lt(lesser).then(0.0, share)
}
