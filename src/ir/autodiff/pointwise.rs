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

/// Of [`Op::BinaryCrossEntropy`](crate::ir::Op::BinaryCrossEntropy). The slope by the probability is `(x - t) / (x (1 - x))`, steep but not infinite at
/// the ends; that by the target knows nothing of the bound on the logarithms.
pub fn binary_cross_entropy<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (x, target, g) = (call.args[0], call.args[1], call.grad);
    let spread = ((1.0 - x) * x).maximum(1e-12);
    smallvec![Some(g * (x - target) / spread), Some(g * ((-x).log1p() - x.log()))]
}
