//! Exponentials and what is built from them: `exp`, `exp2`, `expm1`, `tanh`, `erf`.

use super::pieces::{
    clamp, exp_reduced, exp_reduced_times, horner, horner_of_minus, minus_ln2, polynomial, round_product,
    scale_or_zero, with_sign,
};
use super::width::Width;
use crate::ir::scalar::number::{Bits, Float};
use std::f64::consts::LN_2;

/// `e^x = 2^n e^r` with `r = x - n ln 2`.
#[inline(always)]
pub(super) fn exp<W: Width, F: Float>(x: F) -> F {
    let limited = clamp(x, W::EXP_RANGE);
    let (n, bits) = round_product::<W, F>(limited, W::LOG2E.0, 2 * W::BIAS);
    let factor = exp_reduced::<W, F>(minus_ln2::<W, F>(limited, n));
    let is_zero = x.lt(x.constant(W::EXP_RANGE.0));
    scale_or_zero::<W, F>(is_zero, factor, bits)
}

/// `e^x = 2^(n + k) (2^-k e^r)` for `x <= 0`, with `k` from [`Width::LIFT`]. The factor `2^-k` is in the coefficients
/// of the polynomial, so one multiplication by a power of two is enough. Where that power is 0 the product is exact,
/// and nothing underflows.
#[inline(always)]
pub(super) fn exp_of_not_positive<W: Width, F: Float>(x: F) -> F {
    let offset = W::BIAS + W::LIFT.0;
    let limited = x.constant(-LN_2 * offset as f64).max(x);
    let (n, bits) = round_product::<W, F>(limited, W::LOG2E.0, offset);
    let factor = exp_reduced_times::<W, F>(minus_ln2::<W, F>(limited, n), W::LIFT.1);
    factor.mul(bits.shl(W::MANTISSA).to_float_bits())
}

/// `2^x = 2^n 2^f` with `f = x - n`, which is exact.
#[inline(always)]
pub(super) fn exp2<W: Width, F: Float>(x: F) -> F {
    exp2_of_sum::<W, F>(clamp(x, W::EXP2_RANGE), x.constant(0.0))
}

/// `2^(x + low)` for `x` in `EXP2_RANGE` and a `low` below the last place of `x`.
#[inline(always)]
pub(super) fn exp2_of_sum<W: Width, F: Float>(x: F, low: F) -> F {
    let (n, bits) = round_product::<W, F>(x, 1.0, 2 * W::BIAS);
    let f = x.sub(n).add(low);
    let factor = f.fma(horner(f, W::EXP2), x.constant(1.0));
    let is_zero = x.le(x.constant(W::EXP2_RANGE.0));
    scale_or_zero::<W, F>(is_zero, factor, bits)
}

/// `e^x - 1 = 2^n (e^r - 1) + (2^n - 1)`, computed as halves so that `2^n` does not overflow early.
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

/// `tanh |x| = h / (1 + h)` with `h = (e^(2|x|) - 1) / 2`. It is computed as `h - h² / (1 + h)` below `h = 1`, and as
/// `1 - 1 / (1 + h)` from there on. So the rounding error of the quotient is small relative to the first term.
#[inline(always)]
pub(super) fn tanh<W: Width, F: Float>(x: F) -> F {
    let one = x.constant(1.0);
    let a = x.constant(W::TANH_HIGH).min(x.abs());
    let (n, bits) = round_product::<W, F>(a, 2.0 * W::LOG2E.0, W::BIAS);
    let h = half_expm1::<W, F>(n.fma(x.constant(-0.5 * W::LN2.0), a), n, bits);
    let is_small = h.lt(one);
    let quotient = F::select(is_small, h.mul(h), one).div(h.add(one));
    with_sign(F::select(is_small, h, one).sub(quotient), x)
}

/// `(e^(2r + n ln 2) - 1) / 2` for `|r| <= ln 2 / 4`, where the low bits of `bits` hold `n` and the bias. The second
/// part of ln 2 is not yet subtracted from `r`.
///
/// It is `2^n r + (2^n - 1) / 2 + 2^n r² E(r)`. Products with powers of two are exact, so only two sums are rounded.
#[inline(always)]
fn half_expm1<W: Width, F: Float>(r: F, n: F, bits: F::Bits) -> F {
    let c = |value: f64| r.constant(value);
    let power = bits.shl(W::MANTISSA).to_float_bits();
    let series = polynomial(r, W::EXP.len(), |at| W::EXP[at] * (2 << at) as f64);
    let first = power.fma(r, power.fma(c(0.5), c(-0.5)));
    let rest = power.mul(r.mul(r));
    if W::LN2_TAIL {
        return first.add(rest.fma(series, power.mul(n.mul(c(-0.5 * W::LN2.1)))));
    }
    rest.fma(series, first)
}

/// `erf a = 1 - e^-w` with `w = -ln(erfc a)`, a smooth function that is 0 at 0. One polynomial covers the whole range,
/// because an error of `w` matters less the larger `w` is.
#[inline(always)]
pub(super) fn erf<W: Width, F: Float>(x: F) -> F {
    let a = x.constant(W::ERF_HIGH).min(x.abs());
    let (first, first_low) = W::TWO_SQRT_PI;
    let rest = a.fma(horner(a, W::ERF), x.constant(first_low));
    with_sign(one_minus_exp::<W, F>(a.fma(x.constant(first), a.mul(rest))), x)
}

/// `1 - e^-w = 2^n q + (1 - 2^n)` for `w` from 0 to `2 TANH_HIGH`, with `q = 1 - e^-r`, `r = w + n ln 2`.
#[inline(always)]
fn one_minus_exp<W: Width, F: Float>(w: F) -> F {
    let (n, bits) = round_product::<W, F>(w, -W::LOG2E.0, W::BIAS);
    let r = n.fma(w.constant(W::LN2.0), w);
    let power = bits.shl(W::MANTISSA).to_float_bits();
    let (minus_square, series) = (r.mul(r).neg(), horner_of_minus(r, W::EXP));
    // Where n is small the second part of ln 2 is a few units of the last place of r. Elsewhere q matters less.
    let q = if W::LN2_TAIL {
        r.add(minus_square.fma(series, n.mul(w.constant(W::LN2.1))))
    } else {
        minus_square.fma(series, r)
    };
    q.fma(power, w.constant(1.0).sub(power))
}
