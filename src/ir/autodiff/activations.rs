//! Gradients of activation functions, and of the rows that compute those gradients.
//!
//! An activation's gradient is one call of its backward row, which is one kernel. A backward row is linear in the
//! gradient `g` it is given, so the first of its own gradients is the same row again; the other one goes by the second
//! derivative of the activation.

use super::derivative::{Backward, Gradients};
use super::expr::Expr;
use crate::ir::attr::{Attr, Attrs};
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;
use smallvec::smallvec;

/// `g` where `x` is above a threshold.
pub fn above<'g>(x: Expr<'g>, threshold: f64, g: Expr<'g>) -> Expr<'g> {
    g.call(Op::ThresholdBackward, &[x], smallvec![Attr::float(threshold)])
}

/// Of an activation whose backward row takes the gradient, the operand or the result, and the activation's arguments.
pub fn by_row<'g>(op: Op, x: Expr<'g>, attrs: &[Attr], g: Expr<'g>) -> Expr<'g> {
    g.call(op, &[x], Attrs::from(attrs))
}

/// Of [`Op::Gelu`].
pub fn gelu<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(by_row(Op::GeluBackward, call.args[0], call.attrs, call.grad))]
}

/// Of an activation whose backward row takes the same arguments, and then whether it is given the result, which it is
/// not.
pub fn from_operand<'g>(call: &Backward<'g, '_>, op: Op) -> Gradients<'g> {
    let mut attrs = Attrs::from(call.attrs);
    attrs.push(Attr::bool(false));
    smallvec![Some(by_row(op, call.args[0], &attrs, call.grad))]
}

/// Of an activation whose backward row takes the same arguments.
pub fn plain<'g>(call: &Backward<'g, '_>, op: Op) -> Gradients<'g> {
    smallvec![Some(by_row(op, call.args[0], call.attrs, call.grad))]
}

/// Of [`Op::Threshold`], whose backward row takes the threshold alone.
pub fn threshold<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    smallvec![Some(by_row(Op::ThresholdBackward, call.args[0], &call.attrs[..1], call.grad))]
}

/// Of a backward row whose activation is made of straight lines.
pub fn straight<'g>(call: &Backward<'g, '_>, op: Op) -> Gradients<'g> {
    smallvec![Some(by_row(op, call.args[1], call.attrs, call.grad)), Some(call.args[1].zeros())]
}

/// Of [`Op::GeluBackward`]. The second derivative of `x Φ(x)` is `φ(x) (2 - x²)`; that of `x σ(v)`, where `v` is
/// `c (x + k x³)`, is `σ(1 - σ) (2 v' + x ((1 - 2σ) v'² + v''))`.
pub fn gelu_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};
    let (g, x) = (call.args[0], call.args[1]);
    let square = x.square();
    let bend = if call.attrs[0].word() == "tanh" {
        let scale = 2.0 * (2.0 / PI).sqrt();
        let s = ((square * 0.044715 + 1.0) * x * scale).sigmoid();
        let first = (square * (3.0 * 0.044715) + 1.0) * scale;
        let second = x * (6.0 * 0.044715 * scale);
        s * (1.0 - s) * (first * 2.0 + x * ((1.0 - s * 2.0) * first.square() + second))
    } else {
        (square * -0.5).exp() * (2.0 - square) * (0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2)
    };
    smallvec![Some(by_row(Op::GeluBackward, x, call.attrs, call.grad)), Some(call.grad * g * bend)]
}

/// Of [`Op::SiluBackward`]: `σ (1 - σ) (2 + x (1 - 2σ))`.
pub fn silu_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (g, x) = (call.args[0], call.args[1]);
    let s = x.sigmoid();
    let bend = s * (1.0 - s) * (x * (1.0 - s * 2.0) + 2.0);
    smallvec![Some(by_row(Op::SiluBackward, x, &[], call.grad)), Some(call.grad * g * bend)]
}

/// Of [`Op::SigmoidBackward`], `g y (1 - y)`.
pub fn sigmoid_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (g, y) = (call.args[0], call.args[1]);
    smallvec![Some(by_row(Op::SigmoidBackward, y, &[], call.grad)), Some(call.grad * g * (1.0 - y * 2.0))]
}

/// Of [`Op::TanhBackward`], `g (1 - y²)`.
pub fn tanh_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (g, y) = (call.args[0], call.args[1]);
    smallvec![Some(by_row(Op::TanhBackward, y, &[], call.grad)), Some(call.grad * g * (y * -2.0))]
}

/// Of [`Op::EluBackward`]: the slope changes below 0 alone.
pub fn elu_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (g, x) = (call.args[0], call.args[1]);
    let [alpha, scale, input_scale] = [0, 1, 2].map(|index: usize| value(&call.attrs[index]));
    let bend = call.grad * g * input_scale;
    let bend =
        if call.attrs[3].is_true() { bend } else { bend * (x * input_scale).exp() * (alpha * scale * input_scale) };
    smallvec![Some(by_row(Op::EluBackward, x, call.attrs, call.grad)), Some(x.le(0.0).then(bend, 0.0))]
}

/// Of [`Op::SoftplusBackward`]: `beta σ (1 - σ)` up to the threshold.
pub fn softplus_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (g, x) = (call.args[0], call.args[1]);
    let [beta, threshold] = [value(&call.attrs[0]), value(&call.attrs[1])];
    let scaled = x * beta;
    let s = scaled.sigmoid();
    let bend = call.grad * g * (s * (1.0 - s) * beta);
    let bend = scaled.gt(threshold).then(0.0, bend);
    smallvec![Some(by_row(Op::SoftplusBackward, x, call.attrs, call.grad)), Some(bend)]
}

fn value(attr: &Attr) -> f64 {
    attr.scalar().map_or(1.0, Scalar::as_f64)
}
