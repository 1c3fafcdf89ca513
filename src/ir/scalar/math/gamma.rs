//! The logarithm of the gamma function and its derivatives: `lgamma`, `digamma`, `trigamma`.
//!
//! They use Stirling's series from [`FAR`] on. Recurrences reduce smaller arguments to an interval of length one, which
//! has a polynomial. Negative arguments use the reflection formulas. Near the zeros of `lgamma` and `digamma` on the
//! negative axis, the two terms of the reflection cancel. There the error is relative to the terms, not to the result.

use super::pieces::{Split, horner, log1p_tail, split};
use super::special_width::SpecialWidth;
use super::trigonometric::{cos_tail, sin_tail, two_sum};
use crate::ir::scalar::number::{Bits, Float, Mask};

/// From here on Stirling's series of `lgamma` is accurate to the last place with the terms that are used.
const FAR: f64 = 8.0;
/// `ln √(2π)`.
const LN_ROOT_2_PI: f64 = 0.918_938_533_204_672_7;

/// Sine and cosine, and their rounding errors.
#[derive(Clone, Copy)]
struct SineAndCosine<F> {
    sin: F,
    sin_low: F,
    cos: F,
    cos_low: F,
}

/// Sine and cosine of `π` times the distance of `a >= 0` to the nearest whole number.
///
/// The distance is exact. An angle above π/4 is replaced by its complement, and sine and cosine are swapped.
#[inline(always)]
fn sine_and_cosine_of_pi<W: SpecialWidth, F: Float>(a: F) -> SineAndCosine<F> {
    let (half, one) = (a.constant(0.5), a.constant(1.0));
    let distance = a.sub(a.round_even()).abs();
    let is_wide = a.constant(0.25).lt(distance);
    let fraction = F::select(is_wide, half.sub(distance), distance);
    let (pi, pi_low) = (a.constant(W::PI.0), a.constant(W::PI.1));
    let r = fraction.mul(pi);
    let r_low = fraction.fma(pi_low, fraction.fma(pi, r.neg()));
    let square_low = r.fma(r, r.mul(r).neg());
    let (sin_rest, cos_rest) = (sin_tail::<W, F>(r, r_low), cos_tail::<W, F>(r, r_low));
    // The rounding error of the square matters where the cosine is squared.
    let cos_rest = square_low.fma(half.neg(), cos_rest);
    let (sin, cos) = (r.add(sin_rest), one.add(cos_rest));
    let (sin_low, cos_low) = (sin_rest.sub(sin.sub(r)), cos_rest.sub(cos.sub(one)));
    SineAndCosine {
        sin: F::select(is_wide, cos, sin),
        sin_low: F::select(is_wide, cos_low, sin_low),
        cos: F::select(is_wide, sin, cos),
        cos_low: F::select(is_wide, sin_low, cos_low),
    }
}

/// `ln |Γ(x)|`.
///
/// - For `z` between 0.85 and 5/2, `ln Γ(z) = (z - 1) (z - 2) q(z)`.
/// - Elsewhere below 8, the recurrence `Γ(a + 1) = a Γ(a)` (DLMF 5.5.1) leads from `a = |x|` to such a `z`. The
///   logarithm of its factors is added.
/// - From 8 on, Stirling's series (DLMF 5.11.1).
/// - For negative arguments, `ln |Γ(-a)| = ln(π / |sin πa|) - ln Γ(1 + a)` (DLMF 5.5.3).
///
/// Logarithms, and the products that are large, are kept in two parts.
#[inline(always)]
pub(super) fn lgamma<W: SpecialWidth, F: Float>(x: F) -> F {
    let c = |value: f64| x.constant(value);
    let (zero, one, half, infinity) = (c(0.0), c(1.0), c(0.5), c(f64::INFINITY));
    let a = x.abs();
    let is_negative = x.lt(zero);

    // Below 0.85 the recurrence goes up, and divides by its factor.
    let is_raised = a.lt(c(0.85));
    let n = a.add(half).floor();
    let z = a.sub(zero.max(n.sub(c(2.0))));
    let from_1 = F::select(is_raised, a, z.sub(one));
    let from_2 = from_1.sub(one);
    let from_2_low = from_1.sub(from_2.add(one));
    let from_center = from_1.sub(c(W::LGAMMA_CENTER - 1.0));
    let (first, first_low) = W::LGAMMA_FIRST;
    let product = from_1.mul(from_2);
    let product_low = from_1.fma(from_2_low, from_1.fma(from_2, product.neg()));
    let rest = from_center.fma(horner(from_center, W::LGAMMA), c(first_low));
    let between = product.fma(c(first), product_low.fma(c(first), product.mul(rest)));

    // Negative numbers need the logarithm of Γ(1 + a).
    let mut factors = F::select(is_raised, F::select(is_negative, one, a), F::select(is_negative, a, one));
    // An inclusive range would not be unrolled, and then the loop could not be vectorized.
    for step in 1..FAR as usize - 1 {
        let is_taken = c(step as f64 + 1.5).lt(n);
        factors = factors.mul(F::select(is_taken, a.sub(c(step as f64)), one));
    }
    let is_far = c(FAR).le(a);
    let (log, log_low) = log_parts::<W, F>(F::select(is_far, a, factors));
    let to_log = F::select(is_raised, one.neg(), one);
    let near = (to_log.mul(log), to_log.fma(log_low, between));

    let inverse = one.div(a);
    // ln √(2π) ± 1/2.
    let (shift, constant) = (
        F::select(is_negative, half, half.neg()),
        F::select(is_negative, c(LN_ROOT_2_PI + 0.5), c(LN_ROOT_2_PI - 0.5)),
    );
    let rest = inverse.fma(horner(inverse.mul(inverse), W::STIRLING), constant);
    let (steps, height) = (a.add(shift), log.sub(one));
    let far = steps.mul(height);
    let far_low = steps.fma(height, far.neg());
    // With an infinite product the low part would be NaN.
    let far_low = F::select(far.lt(infinity), steps.fma(log_low, far_low).add(rest), zero);
    let gamma_first = F::select(is_far, far, near.0);
    let gamma_rest = F::select(is_far, far_low, near.1);
    let gamma = gamma_first.add(gamma_rest);

    let SineAndCosine { sin, .. } = sine_and_cosine_of_pi::<W, F>(a);
    let (log, log_low) = log_parts::<W, F>(sin);
    let [ln_pi, ln_pi_low] = [W::LN_PI.0, W::LN_PI.1].map(c);
    let (height, height_low) = two_sum(ln_pi, log.neg());
    let gamma_low = gamma_rest.sub(gamma.sub(gamma_first));
    let reflected = height.sub(gamma).add(height_low.sub(gamma_low).add(ln_pi_low.sub(log_low)));
    // Whole numbers are poles. So are large numbers, which are all whole, and infinity.
    let reflected = F::select(sin.eq(zero).or(a.eq(infinity)), infinity, reflected);
    // Near 0 both signs have the same value, and the sine may underflow.
    let value = F::select(is_negative, reflected, gamma);
    let is_tiny = a.lt(c(1.0 / W::TWO_MANTISSA_1));
    let (log, log_low) = log_parts::<W, F>(a);
    F::select(is_tiny, F::select(a.eq(zero), infinity, log.add(log_low).neg()), value)
}

/// `ln x` of a finite positive number as a rounded sum, and its rounding error.
#[inline(always)]
fn log_parts<W: SpecialWidth, F: Float>(x: F) -> (F, F) {
    let Split { exponent, fraction } = split::<W, F>(x);
    let whole = exponent.mul(x.constant(W::LN2_SHORT.0));
    let log = whole.add(fraction);
    let lost = fraction.sub(log.sub(whole));
    let low = lost.add(exponent.fma(x.constant(W::LN2_SHORT.1), log1p_tail::<W, F>(fraction)));
    let sum = log.add(low);
    (sum, low.sub(sum.sub(log)))
}

/// `ψ(x) = Γ'(x) / Γ(x)`.
///
/// With `a = |x|`:
///
/// - For `a` between 1 and 2, `ψ = (a - a0) q(a - 3/2)`, where `a0` is the zero.
/// - `ψ(a + 1) = ψ(a) + 1/a` (DLMF 5.5.2) leads there. The reciprocals are summed as one fraction.
/// - From `DIGAMMA_END` on, the asymptotic series (DLMF 5.11.2).
/// - For negative arguments, `ψ(-a) = ψ(1 + a) + π cot πa` (DLMF 5.5.4). The last term is kept in two parts.
#[inline(always)]
pub(super) fn digamma<W: SpecialWidth, F: Float>(x: F) -> F {
    let c = |value: f64| x.constant(value);
    let (zero, one, half) = (c(0.0), c(1.0), c(0.5));
    let a = x.abs();
    let is_negative = x.lt(zero);

    let whole = a.floor();
    let fraction = a.sub(whole);
    let from_root = fraction.sub(c(W::DIGAMMA_ROOT_1.0)).sub(c(W::DIGAMMA_ROOT_1.1));
    let from_middle = fraction.sub(half);
    let slope_rest = from_middle.mul(horner(from_middle, &W::DIGAMMA[1..]));
    let between = from_root.fma(c(W::DIGAMMA[0]), from_root.mul(slope_rest));
    let (mut above, mut below) = (zero, one);
    for step in 1..W::DIGAMMA_END as usize - 1 {
        let is_taken = c(step as f64 + 0.5).lt(whole);
        let term = a.sub(c(step as f64));
        above = F::select(is_taken, above.fma(term, below), above);
        below = F::select(is_taken, below.mul(term), below);
    }
    let near = if W::DIGAMMA_END > 2.0 { between.add(above.div(below)) } else { between };

    let inverse = one.div(a);
    let square = inverse.mul(inverse);
    let (log, log_low) = log_parts::<W, F>(a);
    // The series of a and of a + 1 differ in the sign of 1/(2a).
    let half = F::select(is_negative, half, half.neg());
    let far = log.add(inverse.fma(half, log_low.sub(square.mul(horner(square, W::DIGAMMA_FAR)))));
    let far = F::select(a.lt(c(f64::INFINITY)), far, a);

    // Between 0 and 1 the value at hand is that of a + 1, elsewhere that of a.
    let is_raised = whole.lt(one);
    let step = F::select(is_raised, F::select(is_negative, zero, inverse.neg()), F::select(is_negative, inverse, zero));
    // The rounding error of the reciprocal matters where terms cancel. Near 0 it may be NaN.
    let step_low = inverse.neg().fma(a, one).mul(step);
    let step_low = F::select(c(0.25).lt(a), step_low, zero);
    let regular = F::select(c(W::DIGAMMA_END).le(a), far, near.add(step_low).add(step));

    let sine = sine_and_cosine_of_pi::<W, F>(a);
    let inverse = one.div(sine.sin);
    let quotient = sine.cos.mul(inverse);
    let negated = quotient.neg();
    let left = negated.fma(sine.sin, sine.cos).add(negated.fma(sine.sin_low, sine.cos_low));
    let (pi, pi_low) = (c(W::PI.0), c(W::PI.1));
    let cotangent = quotient.mul(pi);
    let cotangent_low = quotient.fma(pi, cotangent.neg()).add(quotient.fma(pi_low, left.mul(inverse).mul(pi)));
    // The cotangent has the sign of the signed distance to the nearest whole number.
    let is_past = a.lt(a.round_even());
    let cotangent = F::select(is_past, cotangent.neg(), cotangent);
    let cotangent_low = F::select(is_past, cotangent_low.neg(), cotangent_low);
    let (sum, lost) = two_sum(cotangent, regular);
    let reflected = sum.add(lost.add(cotangent_low));
    let reflected = F::select(sine.sin.eq(zero), c(f64::NAN), reflected);
    // Near 0 the sine may be subnormal.
    let reflected = F::select(a.lt(c(1.0 / W::TWO_MANTISSA_1)), one.div(a), reflected);
    let value = F::select(is_negative, reflected, regular);
    // The pole at 0: its sign is opposite to that of the zero.
    let pole = x.neg().to_bits().and(c(-0.0).to_bits()).or(c(f64::INFINITY).to_bits()).to_float_bits();
    F::select(x.eq(zero), pole, value)
}

/// `ψ'(x)`.
///
/// - `ψ'(a) = ψ'(a + 1) + 1/a²` (DLMF 5.15.5) leads up to `TRIGAMMA_END`. All terms are positive, and all but the first
///   are summed as one fraction.
/// - From there on, the asymptotic series (DLMF 5.15.8).
/// - For negative arguments, `ψ'(-a) = π²/sin² πa - ψ'(1 + a)` (DLMF 5.15.6). The square is kept in two parts.
#[inline(always)]
pub(super) fn trigamma<W: SpecialWidth, F: Float>(x: F) -> F {
    let c = |value: f64| x.constant(value);
    let (zero, one, half, infinity) = (c(0.0), c(1.0), c(0.5), c(f64::INFINITY));
    let a = x.abs();
    let is_negative = x.lt(zero);
    let is_near = a.lt(c(W::TRIGAMMA_END));
    // The first term is added last, because it may overflow, or be left out.
    let (mut above, mut below) = (zero, one);
    for step in 1..W::TRIGAMMA_END as usize {
        let term = a.add(c(step as f64));
        let square = term.mul(term);
        above = above.fma(square, below);
        below = below.mul(square);
    }
    let raised = F::select(is_near, a.add(c(W::TRIGAMMA_END)), a);
    let inverse = one.div(raised);
    let square = inverse.mul(inverse);
    // 1/z ± 1/(2z²) + (1/z³) t(1/z²): the series of z and of z + 1 differ in the sign of the second term.
    let half = F::select(is_near.not().and(is_negative), half.neg(), half);
    let inverse_low = inverse.neg().fma(raised, one).mul(inverse);
    let inverse_low = F::select(raised.lt(infinity), inverse_low, zero);
    let rest = square.mul(horner(square, W::TRIGAMMA_FAR)).add(inverse.mul(half));
    let far = inverse.fma(rest, inverse_low).add(inverse);
    let inverse = one.div(a);
    let first = inverse.mul(inverse);
    let left = inverse.neg().fma(a, one);
    let first_low = left.add(left).mul(first);
    let first_low = F::select(first.lt(infinity), first_low, zero);
    let beyond_first = if W::TRIGAMMA_END > 1.0 { far.add(above.div(below)) } else { far };
    let positive = F::select(is_near, beyond_first.add(first_low).add(first), far);

    let sine = sine_and_cosine_of_pi::<W, F>(a);
    let inverse = one.div(sine.sin);
    let ratio = inverse.mul(c(W::PI.0));
    let negated = ratio.neg();
    let left = negated.fma(sine.sin, c(W::PI.0)).add(negated.fma(sine.sin_low, c(W::PI.1)));
    let square = ratio.mul(ratio);
    let square_low = ratio.fma(ratio, square.neg()).add(ratio.add(ratio).mul(left.mul(inverse)));
    let square_low = F::select(square.lt(infinity), square_low, zero);
    let reflected = square.add(square_low.sub(F::select(is_near, beyond_first, far)));
    let reflected = F::select(sine.sin.eq(zero), infinity, reflected);
    F::select(is_negative, reflected, positive)
}
