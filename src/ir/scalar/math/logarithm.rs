//! Logarithms: `log`, `log2`, `log10`, `log1p`.
//!
//! A number is `2^e m` with `√½ <= m < √2`; `ln m` is a polynomial in `m - 1`. A polynomial twice as long is cheaper
//! here than the division that the series of the inverse hyperbolic tangent would need.

use super::pieces::{biased_exponent, log_specials, log1p_reduced, log1p_tail, split, unit};
use super::width::Width;
use crate::ir::scalar::number::{Bits, Float};

/// `ln x = e ln 2 + ln m`.
#[inline(always)]
pub(super) fn log<W: Width, F: Float>(x: F) -> F {
    let parts = split::<W, F>(x);
    let ln_m = log1p_reduced::<W, F>(parts.fraction);
    log_specials(x, plus_ln2s::<W, F>(ln_m, parts.exponent, 1.0), 0.0)
}

/// `log2 x = e + log2 m`.
#[inline(always)]
pub(super) fn log2<W: Width, F: Float>(x: F) -> F {
    let parts = split::<W, F>(x);
    let log2_m = log_in_base::<W, F>(parts.fraction, W::LOG2E);
    log_specials(x, parts.exponent.add(log2_m), 0.0)
}

/// `log10 x = e log10 2 + log10 m`.
#[inline(always)]
pub(super) fn log10<W: Width, F: Float>(x: F) -> F {
    let parts = split::<W, F>(x);
    let log10_m = log_in_base::<W, F>(parts.fraction, W::LOG10E);
    let low = parts.exponent.fma(x.constant(W::LOG10_2.1), log10_m);
    log_specials(x, parts.exponent.fma(x.constant(W::LOG10_2.0), low), 0.0)
}

/// `ln(1 + x)`: the exponent `e` is that of the rounded sum. The fraction `2^-e x + (2^-e - 1)` does not depend on the
/// rounding.
#[inline(always)]
pub(super) fn log1p<W: Width, F: Float>(x: F) -> F {
    let one = x.constant(1.0).to_bits();
    let counted = x.add(x.constant(1.0)).to_bits().add(one.sub(one.constant(W::SQRT_HALF)));
    // The exponent is negated, so that its product with -ln 2 is -0 where it is 0. Then -0 gives -0.
    let negated = x.constant(unit::<W>() + W::BIAS as f64).sub(biased_exponent::<W, F>(x, counted));
    let step = counted.and(x.constant(f64::NEG_INFINITY).to_bits()).sub(one);
    let scaled: F = x.to_bits().sub(step).to_float_bits();
    // Four times the power, because the power itself can be subnormal.
    let power_4: F = x.constant(4.0).to_bits().sub(step).to_float_bits();
    // A subtraction, so that -0 gives -0.
    let fraction = scaled.sub(power_4.fma(x.constant(-0.25), x.constant(1.0)));
    // Subtracting exponents would not scale zeros and subnormals, but their step is 0.
    let log = log1p_reduced::<W, F>(fraction);
    log_specials(x, plus_ln2s::<W, F>(log, negated, -1.0), -1.0)
}

/// `log + exponent sign ln 2`.
#[inline(always)]
fn plus_ln2s<W: Width, F: Float>(log: F, exponent: F, sign: f64) -> F {
    let log = if W::LN2_TAIL { exponent.fma(log.constant(sign * W::LN2.1), log) } else { log };
    exponent.fma(log.constant(sign * W::LN2.0), log)
}

/// `ln(1 + f)` times the logarithm of e in another base.
#[inline(always)]
fn log_in_base<W: Width, F: Float>(f: F, (factor, factor_low): (f64, f64)) -> F {
    let small = f.mul(f.constant(factor_low));
    let small = log1p_tail::<W, F>(f).fma(f.constant(factor), small);
    f.fma(f.constant(factor), small)
}
