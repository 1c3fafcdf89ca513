//! Exponentials and what is built from them: `exp`, `exp2`, `expm1`, `tanh`, `erf`.

use super::pieces::{
    clamp, copy_sign, exp_reduced, expm1_between, horner, minus_ln2, over_sum, round_product, scale_or_zero,
};
use super::width::Width;
use crate::ir::scalar::number::{Bits, Float};

/// `e^x = 2^n e^r` with `r = x - n ln 2`.
#[inline(always)]
pub(super) fn exp<W: Width, F: Float>(x: F) -> F {
    let limited = clamp(x, W::EXP_RANGE);
    let (n, bits) = round_product::<W, F>(limited, W::LOG2E.0, 2 * W::BIAS);
    let factor = exp_reduced::<W, F>(minus_ln2::<W, F>(limited, n));
    let is_zero = x.lt(x.constant(W::EXP_RANGE.0));
    scale_or_zero::<W, F>(is_zero, factor, bits)
}

/// `2^x = 2^n 2^f` with `f = x - n`, which is exact.
#[inline(always)]
pub(super) fn exp2<W: Width, F: Float>(x: F) -> F {
    exp2_of_sum::<W, F>(clamp(x, W::EXP2_RANGE), x.constant(0.0))
}

/// `2^(x + tail)` for `x` in `EXP2_RANGE` and a tail below the last place of `x`.
#[inline(always)]
pub(super) fn exp2_of_sum<W: Width, F: Float>(x: F, tail: F) -> F {
    let (n, bits) = round_product::<W, F>(x, 1.0, 2 * W::BIAS);
    let f = x.sub(n).add(tail);
    let factor = f.fma(horner(f, W::EXP2), x.constant(1.0));
    let is_zero = x.le(x.constant(W::EXP2_RANGE.0));
    scale_or_zero::<W, F>(is_zero, factor, bits)
}

/// `e^x - 1 = 2^n (e^r - 1) + (2^n - 1)`, all of it halved on the way so that `2^n` does not overflow early.
#[inline(always)]
pub(super) fn expm1<W: Width, F: Float>(x: F) -> F {
    let limited = clamp(x, (W::EXPM1_LOW, W::EXP_RANGE.1));
    let (n, bits) = round_product::<W, F>(limited, W::LOG2E.0, W::BIAS - 1);
    let r = minus_ln2::<W, F>(limited, n);
    let p = r.mul(r).fma(horner(r, W::EXP), r);
    let half_power: F = bits.shl(W::MANTISSA).to_float_bits();
    let half = p.fma(half_power, half_power.sub(x.constant(0.5)));
    // Near 0 halving would lose the last bit of a subnormal, and -0 its sign.
    let is_tiny = x.abs().lt(x.constant(0.5 / W::TWO_MANTISSA_1));
    F::select(is_tiny, x, half.add(half))
}

/// `tanh |x| = em / (2 + em)` with `em = e^(2|x|) - 1`, and from 1/2 on `1 - 2 / (2 + em)`, whose error is halved.
#[inline(always)]
pub(super) fn tanh<W: Width, F: Float>(x: F) -> F {
    let (two, zero) = (x.constant(2.0), x.constant(0.0));
    let em = expm1_between::<W, F>(x.constant(W::TANH_HIGH).min(x.abs()).mul(two), zero);
    let is_small = em.lt(two);
    let quotient = over_sum(F::select(is_small, em, x.constant(-2.0)), two, em);
    copy_sign(quotient.add(F::select(is_small, zero, x.constant(1.0))), x)
}

/// `erf a = 1 - e^-w` with `w = -ln(erfc a)`, a smooth function that vanishes with `a`; one polynomial does for all
/// of it, because an error of `w` counts the less the larger it is.
#[inline(always)]
pub(super) fn erf<W: Width, F: Float>(x: F) -> F {
    let a = x.constant(W::ERF_HIGH).min(x.abs());
    let (first, tail) = W::TWO_SQRT_PI;
    let rest = a.fma(horner(a, W::ERF), x.constant(tail));
    let (first, negated) = (x.constant(first), a.neg());
    let small = negated.mul(rest);
    let minus_w = negated.fma(first, small);
    let minus_w_low = negated.fma(first, minus_w.neg()).add(small);
    copy_sign(expm1_between::<W, F>(minus_w, minus_w_low), x)
}
