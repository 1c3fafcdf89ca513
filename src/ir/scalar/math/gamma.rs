//! The logarithm of the gamma function and its derivatives: `lgamma`, `digamma`, `trigamma`.
//!
//! They are Stirling's series from [`FAR`] on, a polynomial on an interval of length one that recurrences lead to,
//! and the reflection formulas for negative arguments. Near the zeros of `lgamma` on the negative axis, and near those
//! of `digamma` there, the two sides of the reflection cancel: errors are then small beside the terms, not beside the
//! result.

use super::logarithm::log;
use super::pieces::horner;
use super::special_width::SpecialWidth;
use super::trigonometric::{cos_tail, sin_tail};
use crate::ir::scalar::number::{Bits, Float, Mask};

/// Where Stirling's series is good to the last place with the terms that are taken.
const FAR: f64 = 8.0;
/// Steps of a recurrence that bring a number below [`FAR`] down to the interval.
const N_STEPS: usize = 6;

/// `(sin, cos)` of `π` times the distance of `a >= 0` to the nearest whole number.
///
/// The distance is exact, and the larger of the two angles it makes with a right angle is left to the other function.
#[inline(always)]
fn sin_cos_of_pi<W: SpecialWidth, F: Float>(a: F) -> (F, F) {
    let (half, one) = (a.constant(0.5), a.constant(1.0));
    let distance = a.sub(a.round_even()).abs();
    let is_wide = a.constant(0.25).lt(distance);
    let turn = F::select(is_wide, half.sub(distance), distance);
    let (pi, pi_low) = (a.constant(W::PI.0), a.constant(W::PI.1));
    let r = turn.mul(pi);
    let r_low = turn.fma(pi_low, turn.fma(pi, r.neg()));
    let sin = r.add(sin_tail::<W, F>(r, r_low));
    let cos = one.add(cos_tail::<W, F>(r, r_low));
    (F::select(is_wide, cos, sin), F::select(is_wide, sin, cos))
}

/// `ln |Γ(x)|`.
///
/// With `a = |x|` and `d` its distance from the nearest whole number `n`: `ln Γ(2 + d) = d q(d)`, to which the
/// logarithm of what `Γ(a + 1) = a Γ(a)` leaves is added (DLMF 5.5.1); Stirling's series (DLMF 5.11.1) from 8 on;
/// `ln |Γ(-a)| = ln(π / (a |sin πa|)) - ln Γ(a)` (DLMF 5.5.3).
#[inline(always)]
pub(super) fn lgamma<W: SpecialWidth, F: Float>(x: F) -> F {
    let c = |value: f64| x.constant(value);
    let (zero, one, half) = (c(0.0), c(1.0), c(0.5));
    let a = x.abs();

    let n = a.add(half).floor();
    let d = a.sub(n);
    // Below 3/2 the recurrence goes up, and its factors are divided by.
    let is_raised = n.lt(c(2.0));
    let mut factors = F::select(n.lt(one), a.mul(a.add(one)), F::select(is_raised, a, one));
    for step in 1..=N_STEPS {
        let is_taken = c(step as f64 + 1.5).lt(n);
        factors = factors.mul(F::select(is_taken, a.sub(c(step as f64)), one));
    }
    let is_far = c(FAR).le(a);
    let log_a = log::<W, F>(F::select(is_far, a, factors));
    let near = d.fma(horner(d, W::LGAMMA), F::select(is_raised, log_a.neg(), log_a));

    let inverse = one.div(a);
    let rest = inverse.mul(horner(inverse.mul(inverse), W::STIRLING));
    // ln √(2π) - 1/2.
    let far = a.sub(half).fma(log_a.sub(one), c(0.418_938_533_204_672_7).add(rest));
    let positive = F::select(is_far, far, near);

    let (sin, _) = sin_cos_of_pi::<W, F>(a);
    let reflected = log::<W, F>(c(W::PI.0).div(a.mul(sin))).sub(positive);
    // Whole numbers are poles, as all large numbers and infinity are taken to be.
    let reflected = F::select(sin.eq(zero).or(a.eq(c(f64::INFINITY))), c(f64::INFINITY), reflected);
    // Near 0 both sides are alike, and the square that is divided by would vanish.
    let reflected = F::select(a.lt(c(1.0 / W::TWO_MANTISSA_1)), positive, reflected);
    F::select(x.lt(zero), reflected, positive)
}

/// `ψ(x) = Γ'(x) / Γ(x)`.
///
/// With `a = |x|`, between 1 and 2: `ψ = (a - a0) q(a - 3/2)`, where `a0` is the zero; `ψ(a + 1) = ψ(a) + 1/a` leads
/// there (DLMF 5.5.2), the reciprocals being summed as one fraction; the asymptotic series (DLMF 5.11.2) from 8 on;
/// `ψ(-a) = ψ(a) + 1/a + π cot πa` (DLMF 5.5.4).
#[inline(always)]
pub(super) fn digamma<W: SpecialWidth, F: Float>(x: F) -> F {
    let c = |value: f64| x.constant(value);
    let (zero, one, half) = (c(0.0), c(1.0), c(0.5));
    let a = x.abs();

    let whole = a.floor();
    let fraction = a.sub(whole);
    let from_root = fraction.sub(c(W::DIGAMMA_ROOT_1.0)).sub(c(W::DIGAMMA_ROOT_1.1));
    let between = from_root.mul(horner(fraction.sub(half), W::DIGAMMA));
    let is_raised = whole.lt(one);
    let (mut above, mut below) = (F::select(is_raised, c(-1.0), zero), F::select(is_raised, a, one));
    for step in 1..=N_STEPS {
        let is_taken = c(step as f64 + 0.5).lt(whole);
        let term = a.sub(c(step as f64));
        above = F::select(is_taken, above.fma(term, below), above);
        below = F::select(is_taken, below.mul(term), below);
    }
    let near = between.add(above.div(below));

    let inverse = one.div(a);
    let square = inverse.mul(inverse);
    let rest = inverse.fma(half, square.mul(horner(square, W::DIGAMMA_FAR)));
    let far = log::<W, F>(a).sub(rest);
    let positive = F::select(c(FAR).le(a), far, near);

    let (sin, cos) = sin_cos_of_pi::<W, F>(a);
    // The cotangent falls from a whole number to the next: it has the sign of the way to the nearest one.
    let cotangent = c(W::PI.0).mul(cos).div(sin);
    let is_past = a.lt(a.round_even());
    let cotangent = F::select(is_past, cotangent.neg(), cotangent);
    // Below 1 the reciprocal is only put back, and it may be infinite.
    let beside = F::select(is_raised, between, positive.add(inverse));
    let reflected = beside.add(cotangent);
    let reflected = F::select(sin.eq(zero), c(f64::NAN), reflected);
    let value = F::select(x.lt(zero), reflected, positive);
    // A pole whose sign is that of the side one comes from.
    let pole = x.neg().to_bits().and(c(-0.0).to_bits()).or(c(f64::INFINITY).to_bits()).to_float_bits();
    F::select(x.eq(zero), pole, value)
}

/// `ψ'(x)`.
///
/// `ψ'(a) = ψ'(a + 1) + 1/a²` leads up to 8 (DLMF 5.15.5), where all terms are positive, the reciprocals being summed as
/// one fraction; the asymptotic series (DLMF 5.15.8) from there on; `ψ'(-a) = π²/sin² πa - ψ'(a) + 1/a²` (DLMF 5.15.6).
#[inline(always)]
pub(super) fn trigamma<W: SpecialWidth, F: Float>(x: F) -> F {
    let c = |value: f64| x.constant(value);
    let (zero, one) = (c(0.0), c(1.0));
    let a = x.abs();
    let is_near = a.lt(c(FAR));
    // The first term is added last: it is the one that may overflow, or be put back.
    let (mut above, mut below) = (zero, one);
    for step in 1..FAR as usize {
        let term = a.add(c(step as f64));
        let square = term.mul(term);
        above = above.fma(square, below);
        below = below.mul(square);
    }
    let raised = F::select(is_near, a.add(c(FAR)), a);
    let inverse = one.div(raised);
    let square = inverse.mul(inverse);
    // 1/z + 1/(2z²) + (1/z³) t(1/z²).
    let far = inverse.fma(square.mul(horner(square, W::TRIGAMMA_FAR)).add(inverse.mul(c(0.5))), inverse);
    let beyond_first = F::select(is_near, far.add(above.div(below)), far);
    let first = one.div(a.mul(a));
    let positive = F::select(is_near, beyond_first.add(first), far);

    let (sin, _) = sin_cos_of_pi::<W, F>(a);
    let ratio = c(W::PI.0).div(sin);
    // Below 8 the first term is taken off and put back.
    let beside = F::select(is_near, beyond_first, positive.sub(first));
    let reflected = F::select(sin.eq(zero), c(f64::INFINITY), ratio.mul(ratio).sub(beside));
    F::select(x.lt(zero), reflected, positive)
}
