//! Scalar bodies of the backward ops. They take the gradient `g` of a result, and the operand `x` or the result `y`,
//! and give the gradient of the operand.
//!
//! A slope of 0 or 1 is a select and no multiplication, because the gradient may be infinite. At kinks and for NaN
//! operands the branch is that of PyTorch.

use super::attrs::{Approximation, EluBackward, Hardtanh};
use super::bodies::number;
use super::scalar::{Prim, Scalar, Sym};

/// 0 where the operand is at most the threshold, else `g`.
pub fn threshold<'r>(g: Sym<'r>, x: Sym<'r>, threshold: Scalar) -> Sym<'r> {
    at_most(x, number(x, threshold)).then(g.num(0.0), g)
}

/// Of `x Φ(x)`, or of `x σ(2u)`; see the row of the op.
pub fn gelu<'r>(g: Sym<'r>, x: Sym<'r>, approximate: Approximation) -> Sym<'r> {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};
    if approximate == Approximation::Tanh {
        let scale = 2.0 * (2.0 / PI).sqrt();
        let square = x * x;
        let s = (x * (square * 0.044715 + 1.0) * scale).sigmoid();
        let inner = (square * (3.0 * 0.044715) + 1.0) * scale;
        g * (s + x * (s * (1.0 - s)) * inner)
    } else {
        let below = ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
        let density = (x * x * -0.5).exp() * (0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
        g * (below + x * density)
    }
}

/// Of `x σ(x)`.
pub fn silu<'r>(g: Sym<'r>, x: Sym<'r>) -> Sym<'r> {
    let s = x.sigmoid();
    g * (s * (x * (1.0 - s) + 1.0))
}

/// Of `y = σ(x)`.
pub fn sigmoid<'r>(g: Sym<'r>, y: Sym<'r>) -> Sym<'r> {
    g * (1.0 - y) * y
}

/// Of `y = tanh(x)`.
pub fn tanh<'r>(g: Sym<'r>, y: Sym<'r>) -> Sym<'r> {
    g * (1.0 - y * y)
}

/// `g` where `x` is positive, else `g` times the slope. The result may stand in for `x`, because it has the same sign.
pub fn leaky_relu<'r>(g: Sym<'r>, x: Sym<'r>, slope: Scalar) -> Sym<'r> {
    x.num(0.0).prim(Prim::Lt, &[x]).then(g, g * number(g, slope))
}

/// Of `scale x` for positive `x`, and `alpha scale (exp(input_scale x) - 1)` elsewhere. `x` is the operand, or the
/// result if `is_result` holds.
pub fn elu<'r>(g: Sym<'r>, x: Sym<'r>, attrs: EluBackward) -> Sym<'r> {
    let [alpha, scale, input_scale] = [attrs.alpha, attrs.scale, attrs.input_scale].map(Scalar::as_f64);
    let (below, above) = (alpha * scale, scale);
    let slope = if attrs.is_result { x + below } else { (x * input_scale).exp() * below };
    at_most(x, x.num(0.0)).then(g * input_scale * slope, g * above)
}

/// `g` strictly between the bounds, else 0.
pub fn hardtanh<'r>(g: Sym<'r>, x: Sym<'r>, bounds: Hardtanh) -> Sym<'r> {
    let [min, max] = [bounds.min_val, bounds.max_val].map(|bound| number(x, bound.unwrap_or(Scalar::Int(0))));
    let outside = at_most(x, min) | at_most(max, x);
    outside.then(g.num(0.0), g)
}

/// Of `log(1 + exp(beta x)) / beta`, which is `x` where `beta x` is above the threshold.
pub fn softplus<'r>(g: Sym<'r>, x: Sym<'r>, beta: Scalar, threshold: Scalar) -> Sym<'r> {
    let scaled = x * number(x, beta);
    number(x, threshold).prim(Prim::Lt, &[scaled]).then(g, g * scaled.sigmoid())
}

fn at_most<'r>(a: Sym<'r>, b: Sym<'r>) -> Sym<'r> {
    a.prim(Prim::Le, &[b])
}
