//! Gradients of activation functions, and of the rows that compute these gradients.
//!
//! The gradient of an activation is one call of its backward row, so it is one kernel. A backward row is linear in the
//! incoming gradient `g`. So its gradient by `g` is the same row again. Its gradient by `x` is the second derivative of
//! the activation.

use super::derivative::{Backward, Gradients};
use super::expr::Expr;
use crate::ir::attr::Attrs;
use crate::ir::attrs::*;
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;
use smallvec::smallvec;

/// `g` where `x` is above a threshold.
pub fn above<'g>(x: Expr<'g>, threshold: f64, g: Expr<'g>) -> Expr<'g> {
    g.call(Op::ThresholdBackward, &[x], ThresholdBackward { threshold: threshold.into() }.into())
}

/// A call of a backward row. It takes the gradient, the operand or the result `x`, and the activation's arguments.
pub fn by_row<'g>(op: Op, x: Expr<'g>, attrs: Attrs, g: Expr<'g>) -> Expr<'g> {
    g.call(op, &[x], attrs)
}

/// Of [`Op::Gelu`].
pub fn gelu<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    plain(call, Op::GeluBackward)
}

/// Of [`Op::LeakyRelu`], from its operand.
pub fn leaky_relu<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let LeakyRelu { negative_slope } = LeakyRelu::read(call.attrs);
    let attrs = LeakyReluBackward { negative_slope, self_is_result: false };
    smallvec![Some(by_row(Op::LeakyReluBackward, call.args[0], attrs.into(), call.grad))]
}

/// Of [`Op::Elu`], from its operand.
pub fn elu<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let Elu { alpha, scale, input_scale } = Elu::read(call.attrs);
    let attrs = EluBackward { alpha, scale, input_scale, is_result: false };
    smallvec![Some(by_row(Op::EluBackward, call.args[0], attrs.into(), call.grad))]
}

/// Of an activation whose backward row takes the same arguments.
pub fn plain<'g>(call: &Backward<'g, '_>, op: Op) -> Gradients<'g> {
    smallvec![Some(by_row(op, call.args[0], call.attrs.into(), call.grad))]
}

/// Of [`Op::Threshold`], whose backward row takes the threshold only.
pub fn threshold<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let Threshold { threshold, .. } = Threshold::read(call.attrs);
    let attrs = ThresholdBackward { threshold };
    smallvec![Some(by_row(Op::ThresholdBackward, call.args[0], attrs.into(), call.grad))]
}

/// Of the backward row of a piecewise linear activation, whose second derivative is 0.
pub fn straight<'g>(call: &Backward<'g, '_>, op: Op) -> Gradients<'g> {
    smallvec![Some(by_row(op, call.args[1], call.attrs.into(), call.grad)), Some(call.args[1].zeros())]
}

/// Of [`Op::GeluBackward`]. The second derivative of `x Φ(x)` is `φ(x) (2 - x²)`; that of `x σ(v)`, where `v` is
/// `c (x + k x³)`, is `σ(1 - σ) (2 v' + x ((1 - 2σ) v'² + v''))`.
pub fn gelu_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};
    let (g, x) = (call.args[0], call.args[1]);
    let square = x.square();
    let bend = if Gelu::read(call.attrs).approximate == Approximation::Tanh {
        let scale = 2.0 * (2.0 / PI).sqrt();
        let s = ((square * 0.044715 + 1.0) * x * scale).sigmoid();
        let first = (square * (3.0 * 0.044715) + 1.0) * scale;
        let second = x * (6.0 * 0.044715 * scale);
        s * (1.0 - s) * (first * 2.0 + x * ((1.0 - s * 2.0) * first.square() + second))
    } else {
        (square * -0.5).exp() * (2.0 - square) * (0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2)
    };
    smallvec![Some(by_row(Op::GeluBackward, x, call.attrs.into(), call.grad)), Some(call.grad * g * bend)]
}

/// Of [`Op::SiluBackward`]: `σ (1 - σ) (2 + x (1 - 2σ))`.
pub fn silu_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (g, x) = (call.args[0], call.args[1]);
    let s = x.sigmoid();
    let bend = s * (1.0 - s) * (x * (1.0 - s * 2.0) + 2.0);
    smallvec![Some(by_row(Op::SiluBackward, x, Attrs::new(), call.grad)), Some(call.grad * g * bend)]
}

/// Of [`Op::SigmoidBackward`], `g y (1 - y)`.
pub fn sigmoid_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (g, y) = (call.args[0], call.args[1]);
    smallvec![Some(by_row(Op::SigmoidBackward, y, Attrs::new(), call.grad)), Some(call.grad * g * (1.0 - y * 2.0))]
}

/// Of [`Op::TanhBackward`], `g (1 - y²)`.
pub fn tanh_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (g, y) = (call.args[0], call.args[1]);
    smallvec![Some(by_row(Op::TanhBackward, y, Attrs::new(), call.grad)), Some(call.grad * g * (y * -2.0))]
}

/// Of [`Op::EluBackward`]: the slope changes only below 0.
pub fn elu_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (g, x) = (call.args[0], call.args[1]);
    let attrs = EluBackward::read(call.attrs);
    let [alpha, scale, input_scale] = [attrs.alpha, attrs.scale, attrs.input_scale].map(Scalar::as_f64);
    let bend = call.grad * g * input_scale;
    let bend = if attrs.is_result { bend } else { bend * (x * input_scale).exp() * (alpha * scale * input_scale) };
    smallvec![Some(by_row(Op::EluBackward, x, call.attrs.into(), call.grad)), Some(x.le(0.0).then(bend, 0.0))]
}

/// Of [`Op::SoftplusBackward`]: `beta σ (1 - σ)` up to the threshold.
pub fn softplus_twice<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let (g, x) = (call.args[0], call.args[1]);
    let Softplus { beta, threshold } = Softplus::read(call.attrs);
    let [beta, threshold] = [beta, threshold].map(Scalar::as_f64);
    let scaled = x * beta;
    let s = scaled.sigmoid();
    let bend = call.grad * g * (s * (1.0 - s) * beta);
    let bend = scaled.gt(threshold).then(0.0, bend);
    smallvec![Some(by_row(Op::SoftplusBackward, x, call.attrs.into(), call.grad)), Some(bend)]
}
