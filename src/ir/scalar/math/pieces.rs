//! Building blocks of the functions, for both widths.
//!
//! Everything is branch-free. Special cases are selects at the end, and a lane that a select replaces may hold anything
//! before.

use super::width::Width;
use crate::ir::scalar::number::{Bits, Float};

/// `c0 + x (c1 + x (c2 + …))`.
#[inline(always)]
pub(super) fn horner<F: Float>(x: F, coefficients: &'static [f64]) -> F {
    polynomial(x, coefficients.len(), |at| coefficients[at])
}

/// [`horner`] of `-x`.
#[inline(always)]
pub(super) fn horner_of_minus<F: Float>(x: F, coefficients: &'static [f64]) -> F {
    polynomial(x, coefficients.len(), |at| if at.is_multiple_of(2) { coefficients[at] } else { -coefficients[at] })
}

/// A polynomial in `x`, its coefficients from the constant upwards.
#[inline(always)]
pub(super) fn polynomial<F: Float>(x: F, n_coefficients: usize, coefficient: impl Fn(usize) -> f64) -> F {
    let mut rest = n_coefficients - 1;
    let mut sum = x.constant(coefficient(rest));
    while rest > 0 {
        rest -= 1;
        sum = sum.fma(x, x.constant(coefficient(rest)));
    }
    sum
}

/// `x` limited to a range. A NaN stays a NaN.
#[inline(always)]
pub(super) fn clamp<F: Float>(x: F, (low, high): (f64, f64)) -> F {
    x.constant(low).max(x.constant(high).min(x))
}

/// `magnitude` with the sign of `sign`.
#[inline(always)]
pub(super) fn copy_sign<F: Float>(magnitude: F, sign: F) -> F {
    with_sign(magnitude.abs(), sign)
}

/// A magnitude without a sign bit, with the sign of `sign`.
#[inline(always)]
pub(super) fn with_sign<F: Float>(magnitude: F, sign: F) -> F {
    magnitude.to_bits().or(sign_bit(sign)).to_float_bits()
}

/// The sign bit of `x` alone.
#[inline(always)]
pub(super) fn sign_bit<F: Float>(x: F) -> F::Bits {
    x.to_bits().and(x.constant(-0.0).to_bits())
}

/// `x c` rounded to an integer: as a float, and in the low bits of a pattern, where `offset` is added to it.
///
/// The sum with `ROUND` has no fractional bits, so the integer is in the low bits of its significand.
#[inline(always)]
pub(super) fn round_product<W: Width, F: Float>(x: F, c: f64, offset: i64) -> (F, F::Bits) {
    let magic = x.constant(W::ROUND + offset as f64);
    let shifted = x.fma(x.constant(c), magic);
    (shifted.sub(magic), shifted.to_bits())
}

/// `e^r` for `|r| <= ln 2 / 2`.
#[inline(always)]
pub(super) fn exp_reduced<W: Width, F: Float>(r: F) -> F {
    exp_reduced_times::<W, F>(r, 1.0)
}

/// `power e^r` for a power of two and `|r| <= ln 2 / 2`. It has the bits of [`exp_reduced`], except for the exponent.
#[inline(always)]
pub(super) fn exp_reduced_times<W: Width, F: Float>(r: F, power: f64) -> F {
    let one = r.constant(power);
    r.fma(r.fma(polynomial(r, W::EXP.len(), |at| W::EXP[at] * power), one), one)
}

/// `x - n ln 2`.
#[inline(always)]
pub(super) fn minus_ln2<W: Width, F: Float>(x: F, n: F) -> F {
    // The first step is exact: the product's last place is not below that of 1, and the difference is below 1.
    let rest = n.fma(x.constant(-W::LN2.0), x);
    n.fma(x.constant(-W::LN2.1), rest)
}

/// `p 2^n`, rounded once, where the low bits of `bits` hold `n + 2 BIAS` and `p` is near 1.
///
/// The power is a product of two whose exponents are halves of `n`, so that subnormal results and overflow come
/// from the last multiplication.
#[inline(always)]
pub(super) fn scale<W: Width, F: Float>(p: F, bits: F::Bits) -> F {
    let exponent_mask = p.constant(f64::NEG_INFINITY).to_bits();
    let half = bits.shl(W::MANTISSA - 1).and(exponent_mask);
    let other = bits.shl(W::MANTISSA).sub(half);
    p.mul(half.to_float_bits()).mul(other.to_float_bits())
}

/// Like [`scale`], but 0 where `is_zero` holds, which is where [`scale`] would underflow to 0.
///
/// An operation that underflows takes a hundred times as long, and masked attention is full of `e^-∞`. 0 times a power
/// of two does not underflow.
#[inline(always)]
pub(super) fn scale_or_zero<W: Width, F: Float>(is_zero: F::Mask, p: F, bits: F::Bits) -> F {
    scale::<W, F>(F::select(is_zero, p.constant(0.0), p), bits)
}

/// A positive number as `2^exponent m` with `√½ <= m < √2`.
#[derive(Clone, Copy)]
pub(super) struct Split<F> {
    /// The exponent.
    pub exponent: F,
    /// `m - 1`, exact.
    pub fraction: F,
}

/// Splits a finite positive `x`. The result for other numbers is unspecified.
#[inline(always)]
pub(super) fn split<W: Width, F: Float>(x: F) -> Split<F> {
    let is_small = x.lt(x.constant(W::MIN_NORMAL));
    let normal = F::select(is_small, x.mul(x.constant(W::TWO_MANTISSA_1)), x);
    // Counting from √½ instead of 1 keeps the significand in [√½, √2).
    let one = x.constant(1.0).to_bits();
    let sqrt_half = one.constant(W::SQRT_HALF);
    let counted = normal.to_bits().add(one.sub(sqrt_half));
    let bias = unit::<W>() + W::BIAS as f64;
    let lifted_bias = x.constant(bias + (W::MANTISSA + 1) as f64);
    let exponent = biased_exponent::<W, F>(x, counted).sub(F::select(is_small, lifted_bias, x.constant(bias)));
    let mantissa_mask = one.constant((1 << W::MANTISSA) - 1);
    let m: F = counted.and(mantissa_mask).add(sqrt_half).to_float_bits();
    Split { exponent, fraction: m.sub(x.constant(1.0)) }
}

/// The float whose last place is 1 and whose explicit bits are all 0.
pub(super) const fn unit<W: Width>() -> f64 {
    (1_u64 << W::MANTISSA) as f64
}

/// The exponent field of a positive pattern as a number, plus [`unit()`].
#[inline(always)]
pub(super) fn biased_exponent<W: Width, F: Float>(x: F, bits: F::Bits) -> F {
    bits.shru(W::MANTISSA).or(x.constant(unit::<W>()).to_bits()).to_float_bits()
}

/// `ln(1 + f) - f` for `√½ <= 1 + f <= √2`.
#[inline(always)]
pub(super) fn log1p_tail<W: Width, F: Float>(f: F) -> F {
    f.mul(f.mul(horner(f, W::LOG)))
}

/// `ln(1 + f)` for `√½ <= 1 + f <= √2`.
#[inline(always)]
pub(super) fn log1p_reduced<W: Width, F: Float>(f: F) -> F {
    f.fma(f.mul(horner(f, W::LOG)), f)
}

/// `log` where the logarithm of `x` is finite, else the special value of IEEE 754. The pole is at `zero`.
#[inline(always)]
pub(super) fn log_specials<F: Float>(x: F, log: F, zero: f64) -> F {
    let zero = x.constant(zero);
    let outside = F::select(x.eq(zero), x.constant(f64::NEG_INFINITY), x.constant(f64::NAN));
    let inside = F::select(x.lt(x.constant(f64::INFINITY)), log, x);
    F::select(zero.lt(x), inside, outside)
}
