//! `asin`, `acos`, `atan`, `atan2`.
//!
//! Each is one polynomial in the square of its argument. The argument is first made small by the complement or the half
//! of the angle (Abramowitz and Stegun 4.4.28 to 4.4.34).

use super::pieces::{copy_sign, horner};
use super::special_width::SpecialWidth;
use crate::ir::scalar::number::{Bits, Float, Mask};

/// `atan q` for `0 <= q <= 1`.
#[inline(always)]
fn atan_of_quotient<W: SpecialWidth, F: Float>(q: F) -> F {
    let z = q.mul(q);
    q.mul(z).fma(horner(z, W::ATAN), q)
}

/// `atan |x|`, or `π/2 - atan 1/|x|` from 1 on.
#[inline(always)]
pub(super) fn atan<W: SpecialWidth, F: Float>(x: F) -> F {
    let (a, one) = (x.abs(), x.constant(1.0));
    let is_steep = one.lt(a);
    let angle = atan_of_quotient::<W, F>(F::select(is_steep, one.div(a), a));
    let [high, low, _] = W::PI_2.map(|part| x.constant(part));
    copy_sign(F::select(is_steep, high.sub(angle.sub(low)), angle), x)
}

/// The angle of the point `(x, y)`: `atan` of the smaller coordinate over the larger, reflected to its octant.
#[inline(always)]
pub(super) fn atan2<W: SpecialWidth, F: Float>(y: F, x: F) -> F {
    let (a, b) = (y.abs(), x.abs());
    let (zero, one) = (x.constant(0.0), x.constant(1.0));
    let is_steep = b.lt(a);
    let (above, below) = (F::select(is_steep, b, a), F::select(is_steep, a, b));
    let quotient = above.div(below);
    // C99: for two infinities the angle is half a quadrant, and at the origin it is that of the axis.
    let quotient = F::select(above.eq(below), F::select(below.eq(zero), zero, one), quotient);
    let angle = atan_of_quotient::<W, F>(quotient);

    let is_left = x.to_bits().lt(x.to_bits().constant(0));
    let [high, low, _] = W::PI_2.map(|part| x.constant(part));
    let (double_high, double_low) = (high.add(high), low.add(low));
    let base = F::select(is_steep, high, F::select(is_left, double_high, zero));
    let base_low = F::select(is_steep, low, F::select(is_left, double_low, zero));
    let is_counted_back = is_left.and(is_steep.not()).or(is_steep.and(is_left.not()));
    let angle = F::select(is_counted_back, angle.neg(), angle);
    copy_sign(base.add(angle.add(base_low)), y)
}

/// The common part of `asin` and `acos`.
struct Arc<F: Float> {
    /// Whether `|x| > 1/2`.
    is_far: F::Mask,
    /// `x`, or the root of `(1 - |x|) / 2`.
    s: F,
    /// `asin s - s`.
    rest: F,
}

#[inline(always)]
fn arc<W: SpecialWidth, F: Float>(x: F) -> Arc<F> {
    let (a, half) = (x.abs(), x.constant(0.5));
    let is_far = half.lt(a);
    // Exact: the difference of two numbers within a factor of two.
    let far = x.constant(1.0).sub(a).mul(half);
    let z = F::select(is_far, far, a.mul(a));
    let s = F::select(is_far, far.sqrt(), x);
    Arc { is_far, s, rest: s.mul(z).mul(horner(z, W::ASIN)) }
}

/// `asin x`, or `π/2 - 2 asin √((1 - |x|) / 2)` from 1/2 on.
#[inline(always)]
pub(super) fn asin<W: SpecialWidth, F: Float>(x: F) -> F {
    let Arc { is_far, s, rest } = arc::<W, F>(x);
    let [high, low, _] = W::PI_2.map(|part| x.constant(part));
    let far = high.sub(s.add(s)).sub(rest.add(rest).sub(low));
    copy_sign(F::select(is_far, far, s.add(rest)), x)
}

/// `π/2 - asin x`; `2 asin √((1 - x) / 2)` from 1/2 on, and the supplement of that up to -1/2.
#[inline(always)]
pub(super) fn acos<W: SpecialWidth, F: Float>(x: F) -> F {
    let Arc { is_far, s, rest } = arc::<W, F>(x);
    let [high, low, _] = W::PI_2.map(|part| x.constant(part));
    let complement = high.sub(s.sub(low.sub(rest)));
    let angle = s.add(rest);
    let far = F::select(x.lt(x.constant(0.0)), complement, angle);
    F::select(is_far, far.add(far), complement)
}
