//! Gradients of pointwise rows that are too long for the table.
//!
//! A slope of 0 or 1 is written as `where(condition, gradient, 0)`. A product with a mask would be wrong, because the
//! gradient may be infinite and `inf * 0` is NaN. At kinks the slopes are those of PyTorch.

use super::derivative::{Backward, Gradients};
use super::expr::Expr;
use crate::ir::attrs::*;
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;
use smallvec::smallvec;

/// The slope of the hard sigmoid. As in PyTorch it is an f32 number, even for f64.
pub const SIXTH: f64 = (1.0f32 / 6.0) as f64;

/// `self + alpha * other`.
pub fn add<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad), Some(call.grad.scaled(Add::read(call.attrs).alpha))]
}

/// `self - alpha * other`.
pub fn sub<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad), Some(-call.grad.scaled(Add::read(call.attrs).alpha))]
}

/// Of copies and conversions: the gradient itself.
pub fn same<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad)]
}

/// Of a value with a given slope. The slope itself has no influence on the value.
pub fn sloped<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad), Some(call.grad * call.args[2]), None]
}

/// Of a dropout: the gradient of the kept elements, times the same scale.
pub fn dropout<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.call(Op::NativeDropoutBackward, &[call.args[1]], call.attrs.into()))]
}

/// Of `where`: the gradient goes to the side that was selected.
pub fn where_<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let condition = call.args[0];
    smallvec![None, Some(condition.then(call.grad, 0.0)), Some(condition.then(0.0, call.grad))]
}

/// Of `masked_fill`: the gradient of the elements that were not filled.
pub fn masked_fill<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad.masked_fill(call.args[1], 0.0))]
}

/// Of `clamp`: the gradient of the elements strictly between the bounds.
pub fn clamp<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let x = call.args[0];
    let Clamp { min, max } = Clamp::read(call.attrs);
    let inside = match (min.map(Scalar::as_f64), max.map(Scalar::as_f64)) {
        (Some(low), Some(high)) => x.gt(low).logical_and(x.lt(high)),
        (Some(low), None) => x.gt(low),
        (None, Some(high)) => x.lt(high),
        (None, None) => return smallvec![Some(call.grad)],
    };
    smallvec![Some(inside.then(call.grad, 0.0))]
}

/// Of `|x|`: the gradient with the sign of `x`, and 0 where `x` is 0.
pub fn abs<'g>(x: Expr<'g>, grad: Expr<'g>) -> Expr<'g> {
    x.gt(0.0).then(grad, x.lt(0.0).then(-grad, 0.0))
}

/// Of `y = a / b`.
pub fn quotient<'g>(b: Expr<'g>, y: Expr<'g>, grad: Expr<'g>) -> [Expr<'g>; 2] {
    let first = grad / b;
    [first, -(first * y)]
}

/// Of a quotient. If it is rounded, its gradient is 0.
pub fn division<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    if DivMode::read(call.attrs).rounding_mode.is_none() {
        return quotient(call.args[1], call.result, call.grad).map(Some).into_iter().collect();
    }
    call.args.iter().map(|arg| Some(arg.zeros())).collect()
}

/// Of `y = a ^ b`. The gradient by `a` is 0 where `b` is 0. The gradient by `b` is 0 where `a` is 0 and `b` is not
/// negative.
pub fn power<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (a, b, y, grad) = (call.args[0], call.args[1], call.result, call.grad);
    let base = b.eq(0.0).then(0.0, grad * (b * a.pow(b - 1.0)));
    let flat = a.eq(0.0).logical_and(b.ge(0.0));
    smallvec![Some(base), Some(flat.then(0.0, grad * (y * a.log())))]
}

/// Of a power whose exponent is a number.
pub fn power_of_number<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (x, exponent) = (call.args[0], PowScalar::read(call.attrs).exponent.as_f64());
    if exponent == 0.0 {
        return smallvec![Some(x.zeros())];
    }
    smallvec![Some(call.grad * (x.pow_scalar(exponent - 1.0) * exponent))]
}

/// Of `atan2(y, x)`.
pub fn atan2<'g>(y: Expr<'g>, x: Expr<'g>, grad: Expr<'g>) -> [Expr<'g>; 2] {
    let scaled = grad / (x.square() + y.square());
    [scaled * x, -(scaled * y)]
}

/// Of `x ln y`. The gradient by `x` is 0 where `x` is 0 and `y` is not positive.
pub fn xlogy<'g>(x: Expr<'g>, y: Expr<'g>, grad: Expr<'g>) -> [Expr<'g>; 2] {
    let flat = x.eq(0.0).logical_and(y.le(0.0));
    [flat.then(0.0, grad.xlogy(y)), grad * x / y]
}

/// Of `sin(πx) / (πx)`, 0 at 0.
pub fn sinc<'g>(x: Expr<'g>, grad: Expr<'g>) -> Expr<'g> {
    let angle = x * std::f64::consts::PI;
    let slope = (angle * angle.cos() - angle.sin()) / (angle * x);
    x.eq(0.0).then(0.0, grad * slope)
}

/// The slope of `x tanh(ln(1 + e^x))`.
pub fn mish_slope(x: Expr<'_>) -> Expr<'_> {
    let t = (-(-x).log_sigmoid()).tanh();
    t + x * x.sigmoid() * (1.0 - t.square())
}

/// Of [`Op::Hardswish`].
pub fn hardswish<'g>(x: Expr<'g>, grad: Expr<'g>) -> Expr<'g> {
    let between = x.le(3.0).then(grad * (x / 3.0 + 0.5), grad);
    x.le(-3.0).then(0.0, between)
}

/// Of `lerp` with a number as weight: the gradient times `1 - weight` and `weight`.
pub fn lerp_scalar<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let weight = LerpScalar::read(call.attrs).weight.as_f64();
    smallvec![Some(call.grad * (1.0 - weight)), Some(call.grad * weight)]
}

/// Of `lerp`: the gradient times `1 - weight`, `weight`, and `end - start`.
pub fn lerp<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (start, end, weight, grad) = (call.args[0], call.args[1], call.args[2], call.grad);
    smallvec![Some(grad * (1.0 - weight)), Some(grad * weight), Some(grad * (end - start))]
}

/// Of `a b + c`.
pub fn fma<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.grad * call.args[1]), Some(call.grad * call.args[0]), Some(call.grad)]
}

/// Of `x + value a b`.
pub fn addcmul<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let scaled = call.grad.scaled(Addcmul::read(call.attrs).value);
    smallvec![Some(call.grad), Some(scaled * call.args[2]), Some(scaled * call.args[1])]
}

/// Of `x + value a / b`.
pub fn addcdiv<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (above, below) = (call.args[1], call.args[2]);
    let scaled = call.grad.scaled(Addcmul::read(call.attrs).value);
    smallvec![Some(call.grad), Some(scaled / below), Some(-(scaled * (above / below.square())))]
}

/// Of a derivative of the digamma function: the derivative of the next order.
pub fn polygamma<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let next = Polygamma::read(call.attrs).n + 1;
    smallvec![Some(call.grad * call.args[0].polygamma(next))]
}

/// Of `ln(x / (1 - x))`. With `eps` it is 0 where `x` was clamped. Without, it is NaN outside of 0 to 1.
pub fn logit<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (x, grad) = (call.args[0], call.grad);
    let (low, outside) = Logit::read(call.attrs).eps.map_or((0.0, f64::NAN), |eps| (eps, 0.0));
    let inside = x.ge(low).logical_and(x.le(1.0 - low));
    smallvec![Some(inside.then(grad / (x * (1.0 - x)), outside))]
}

/// Of shrinking by `lambd`: the gradient of the elements with `|x| > lambd`.
pub fn shrink<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (x, lambda) = (call.args[0], Softshrink::read(call.attrs).lambd.as_f64());
    let within = x.ge(-lambda).logical_and(x.le(lambda));
    smallvec![Some(within.then(0.0, call.grad))]
}

/// Of `fill`: 0 for the filled tensor, and the gradient for the value.
pub fn fill<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(call.args[0].zeros()), Some(call.grad)]
}

/// Of `fmax` and `fmin`: like [`chosen`], but where one operand is NaN the other one gets the whole gradient. `lesser`
/// and `greater` are `a` and `b` in the order that [`chosen`] takes for the share of `a`.
pub fn chosen_number<'g>(
    lesser: Expr<'g>,
    greater: Expr<'g>,
    a: Expr<'g>,
    b: Expr<'g>,
    grad: Expr<'g>,
) -> [Expr<'g>; 2] {
    let (a_is_nan, b_is_nan) = (a.isnan(), b.isnan());
    let first = b_is_nan.then(grad, chosen(lesser, greater, grad));
    let second = a_is_nan.then(grad, chosen(greater, lesser, grad));
    [a_is_nan.logical_and(b_is_nan.logical_not()).then(0.0, first), b_is_nan.then(0.0, second)]
}

/// The gradient of the operand `greater` of a maximum: the whole gradient where it is greater, half of it on a tie,
/// else
/// 0. For a minimum the operands are swapped.
pub fn chosen<'g>(lesser: Expr<'g>, greater: Expr<'g>, grad: Expr<'g>) -> Expr<'g> {
    let share = lesser.eq(greater).then(grad * 0.5, grad);
    greater.lt(lesser).then(0.0, share)
}

/// Of [`Op::BinaryCrossEntropy`]. The slope by the probability is `(x - t) / (x (1 - x))`, with a divisor that is
/// bounded away from 0. The slope by the target is the difference of the logarithms, which are bounded as in the op.
pub fn binary_cross_entropy<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (x, target, g) = (call.args[0], call.args[1], call.grad);
    let spread = ((1.0 - x) * x).maximum(1e-12);
    let bounded = |log: Expr<'g>| log.maximum(-100.0);
    smallvec![Some(g * (x - target) / spread), Some(g * (bounded((-x).log1p()) - bounded(x.log())))]
}
