//! Activations made of an exponential: `sigmoid`, `silu`, `gelu_tanh`, `mish`.
//!
//! The exponential is `2^n (1 + p)`. A sum or product with it takes the two parts, so `1 + p` is never rounded alone.
//! The power of two is scaled by [`Width::LIFT`]. So nothing overflows before the result underflows to 0, and nothing
//! is subnormal before the result is. A result of 0 comes from an infinite sum or a power of 0, because an operation
//! that underflows takes a hundred times as long.

use super::pieces::{horner, horner_of_minus, minus_ln2, round_product, sign_bit};
use super::width::Width;
use crate::ir::scalar::number::{Bits, Float};

/// A sum with [`Width::ROUND`] to which the rounded exponent and the bias were added, no larger than for the largest
/// power.
#[inline(always)]
fn up_to_largest<W: Width, F: Float>(shifted: F) -> F {
    shifted.constant(W::ROUND + (2 * W::BIAS) as f64).min(shifted)
}

/// `2^n`, where the low bits of `shifted` hold `n` and the bias.
#[inline(always)]
fn power<W: Width, F: Float>(shifted: F) -> F {
    shifted.to_bits().shl(W::MANTISSA).to_float_bits()
}

/// `e^-x = 2^n (1 + s t)`, with the power of two scaled down; times `s` it is exact.
#[derive(Clone, Copy)]
struct Exponential<F> {
    power: F,
    s: F,
    t: F,
}

#[inline(always)]
fn exp_of_minus<W: Width, F: Float>(x: F) -> Exponential<F> {
    let c = |value: f64| x.constant(value);
    let magic = c(W::ROUND + (W::BIAS - W::LIFT.0) as f64);
    let shifted = up_to_largest::<W, F>(x.fma(c(-W::LOG2E.0), magic));
    let minus_r = minus_ln2::<W, F>(x, magic.sub(shifted));
    let t = minus_r.fma(horner_of_minus(minus_r, W::EXP), c(-1.0));
    Exponential { power: power::<W, F>(shifted), s: minus_r, t }
}

/// The rounded sum of a power of two and 1, scaled down, and its rounding error.
#[inline(always)]
fn plus_1<W: Width, F: Float>(power: F) -> (F, F) {
    let one = power.constant(W::LIFT.1);
    let sum = power.add(one);
    (sum, one.sub(sum.sub(power)))
}

/// `1 + e^-x`, scaled down.
#[inline(always)]
fn one_plus<W: Width, F: Float>(e: Exponential<F>) -> F {
    let (first, lost) = plus_1::<W, F>(e.power);
    first.add(e.power.mul(e.s).fma(e.t, lost))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid<W: Width, F: Float>(x: F) -> F {
    let e = exp_of_minus::<W, F>(x.constant(2.0 * W::TANH_HIGH).min(x));
    x.constant(W::LIFT.1).div(one_plus::<W, F>(e))
}

/// `x` divided by a sum that is scaled down, or `x` itself above `high`.
#[inline(always)]
fn over_sum<W: Width, F: Float>(x: F, sum: F, high: f64) -> F {
    let quotient = x.div(sum).mul(x.constant(W::LIFT.1));
    F::select(x.constant(high).lt(x), x, quotient)
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub(super) fn silu<W: Width, F: Float>(x: F) -> F {
    let e = exp_of_minus::<W, F>(x);
    over_sum::<W, F>(x, one_plus::<W, F>(e), 2.0 * W::TANH_HIGH)
}

/// `x / (1 + e^-v)` with `v = √(8/π) (x + 0.044715 x³)`.
///
/// `e^v` amplifies the error of `v`. So `v log2 e` is `x (g + g_low)`, where `g_low` is the rounding error of
/// `g = c + k x²`.
#[inline(always)]
pub(super) fn gelu_tanh<W: Width, F: Float>(x: F) -> F {
    let c = |value: f64| x.constant(value);
    let a = c(W::GELU_LOW).max(x);
    let square = a.mul(a);
    let square_low = a.fma(a, square.neg());
    let (first, first_low) = W::GELU_FIRST;
    let (third, third_low) = (c(W::GELU_THIRD.0), c(W::GELU_THIRD.1));
    let g = third.fma(square, c(first));
    // The difference is exact, because `first` is short.
    let lost = third.fma(square, c(first).sub(g));
    let g_low = third.fma(square_low, lost).add(third_low.fma(square, c(first_low)));

    let a = a.neg();
    let magic = c(W::ROUND + (W::BIAS - W::LIFT.0) as f64);
    let shifted = up_to_largest::<W, F>(a.fma(g, magic));
    let f = a.fma(g, magic.sub(shifted));
    let f = a.fma(g_low, f);
    let power = power::<W, F>(shifted);
    let (first, lost) = plus_1::<W, F>(power);
    let scaled = power.mul(f);
    // The constant term of the polynomial is kept apart, so that it is rounded only in the last sum.
    let rest = scaled.fma(c(W::EXP2[0]), scaled.mul(f).fma(horner(f, &W::EXP2[1..]), lost));
    over_sum::<W, F>(x, first.add(rest), W::GELU_HIGH)
}

/// `x tanh(ln(1 + e^x)) = x n / (n + 2)` with `e = e^x` and `n = e (e + 2)`. With `d = 1 + (1 + e)²` that is `x e (1 -
/// e (1 + e) / d)`, used below -1/4, and `x (1 - 2 / d)`, used elsewhere. Numerator and divisor are polynomials in `p`.
#[inline(always)]
pub(super) fn mish<W: Width, F: Float>(x: F) -> F {
    let (offset, drop) = W::LIFT;
    let c = |value: f64| x.constant(value);
    let one = c(1.0);
    let limited = c(W::MISH_LOW).max(x);
    let (n, bits) = round_product::<W, F>(limited, W::LOG2E.0, W::BIAS + offset);
    let r = minus_ln2::<W, F>(limited, n);
    let p = r.mul(r).fma(horner(r, W::EXP), r);
    let scale = bits.shl(W::MANTISSA).to_float_bits();
    let power = c(drop).max(scale).mul(c(drop));
    let power_1 = power.add(one);
    let square = power.mul(power);
    let both = power.add(square);
    let d = p.fma(square.fma(p, both.add(both)), power_1.fma(power_1, one));
    let n = p.fma(square.fma(p, both.add(square)), both);
    let is_negative = x.lt(c(-0.25));
    let lost = F::select(is_negative, n, c(2.0)).div(d);
    let p = F::select(is_negative, p, c(0.0));
    let p = p.add(one).fma(lost.neg(), p);
    let scaled = x.mul(F::select(is_negative, scale, one));
    let value = scaled.fma(p, scaled).mul(F::select(is_negative, c(drop), one));
    // A sum of 0 has lost the sign of `x`.
    let value = value.to_bits().or(sign_bit(x)).to_float_bits();
    F::select(c(2.0 * W::TANH_HIGH).lt(x), x, value)
}
