//! `sin`, `cos`, `tan`.
//!
//! Small angles are reduced by Cody and Waite's method, huge ones after Payne and Hanek (1983), "Radian reduction for
//! trigonometric functions". The second costs several times as much as all the rest, and is rarely needed. So each
//! function exists with and without it, and both give the same bits for small angles.

use super::pieces::{horner, round_product, sign_bit};
use super::special_width::SpecialWidth;
use super::width::Width;
use crate::ir::scalar::number::{Bits, Float};

/// An angle as `quadrant π/2 + r` with `|r|` near π/4 at most.
struct ReducedAngle<F: Float> {
    /// `r`, rounded.
    r: F,
    /// The rounding error of `r`.
    r_low: F,
    /// The number of quarter turns in the low two bits.
    quadrant: F::Bits,
}

impl<F: Float> ReducedAngle<F> {
    /// Whether the number of quarter turns is odd.
    #[inline(always)]
    fn is_odd(&self) -> F::Mask {
        let one = self.quadrant.constant(1);
        self.quadrant.and(one).eq(one)
    }

    /// `sin r`.
    #[inline(always)]
    fn sin<W: Width>(&self) -> F {
        self.r.add(sin_tail::<W, F>(self.r, self.r_low))
    }

    /// `cos r`.
    #[inline(always)]
    fn cos<W: Width>(&self) -> F {
        self.r.constant(1.0).add(cos_tail::<W, F>(self.r, self.r_low))
    }
}

/// Which angles are reduced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Angles {
    /// All finite ones.
    All,
    /// Those up to `SMALL_ANGLE_MAX`. The result for others is unspecified.
    Small,
}

#[inline(always)]
fn reduce<W: SpecialWidth, F: Float>(x: F, angles: Angles) -> ReducedAngle<F> {
    let near = reduce_small::<W, F>(x);
    if angles == Angles::Small {
        return near;
    }
    let far = reduce_huge::<W, F>(x);
    let is_small = x.le(x.constant(W::SMALL_ANGLE_MAX));
    ReducedAngle {
        r: F::select(is_small, near.r, far.r),
        r_low: F::select(is_small, near.r_low, far.r_low),
        quadrant: F::Bits::select(is_small, near.quadrant, far.quadrant),
    }
}

/// Cody and Waite's reduction with fma. The first product cancels exactly, the second is subtracted as a pair, and the
/// third goes to the low part. Beyond `SMALL_ANGLE_MAX` the rounded quotient is not accurate enough.
#[inline(always)]
fn reduce_small<W: Width, F: Float>(x: F) -> ReducedAngle<F> {
    let (n, quadrant) = round_product::<W, F>(x, std::f64::consts::FRAC_2_PI, 0);
    let [first, second, third] = W::PI_2.map(|part| x.constant(part));
    let exact = n.fma(first.neg(), x);
    let product = n.mul(second);
    let product_low = n.fma(second, product.neg());
    let r = exact.sub(product);
    let lost = exact.sub(r).sub(product);
    let r_low = n.fma(third.neg(), lost.sub(product_low));
    ReducedAngle { r, r_low, quadrant }
}

/// Digits of 2/π that a huge angle is multiplied by.
const N_DIGITS: usize = 5;
/// An upper bound of the number of digits.
const MAX_DIGITS: usize = 24;

/// Payne and Hanek's reduction, in floats. 2/π is a sequence of digits. Each is a whole number as wide as a
/// significand, so the product of an angle with a digit is an exact pair of floats. Leading digits whose product is a
/// multiple of four quarter turns are skipped. The products of the next five, modulo four, are summed in three floats.
/// An infinite angle gives NaN.
#[inline(always)]
fn reduce_huge<W: SpecialWidth, F: Float>(x: F) -> ReducedAngle<F> {
    let c = |value: f64| x.constant(value);
    let power = |exponent: i64| c(f64::from_bits(((exponent + 1023) << 52) as u64));
    let width = W::MANTISSA as i64 + 1;

    // Dividing the angle by a digit's power of two skips one digit.
    let mut scaled = x;
    let mut digits = [c(0.0); MAX_DIGITS];
    for (digit, &value) in digits.iter_mut().zip(W::TWO_OVER_PI) {
        *digit = c(value);
    }
    let mut step = W::MAX_SKIP;
    while step > 0 {
        let shift = width * step as i64;
        let is_beyond = power(shift + width + 1).le(scaled);
        scaled = F::select(is_beyond, scaled.mul(power(-shift)), scaled);
        for at in 0..N_DIGITS + step - 1 {
            let next = digits.get(at + step).copied().unwrap_or(c(0.0));
            digits[at] = F::select(is_beyond, next, digits[at]);
        }
        step /= 2;
    }

    let mut sum = Sum { high: c(0.0), middle: c(0.0), low: c(0.0) };
    for (at, &digit) in digits[..N_DIGITS].iter().enumerate() {
        let place = scaled.mul(power(-width * (at as i64 + 1)));
        let product = place.mul(digit);
        let product_low = place.fma(digit, product.neg());
        sum.add(modulo_4(product));
        sum.add(modulo_4(product_low));
    }
    let n = sum.high.round_even();
    let fraction = sum.high.sub(n);
    let (fraction, middle) = two_sum(fraction, sum.middle);
    let (middle, _) = two_sum(middle, sum.low);
    let (fraction, rest) = two_sum(fraction, middle);

    let [first, second, _] = W::PI_2.map(c);
    let angle = fraction.mul(first);
    let angle_low = fraction.fma(first, angle.neg());
    let angle_low = rest.fma(first, fraction.fma(second, angle_low));
    let r = angle.add(angle_low);
    ReducedAngle { r, r_low: angle_low.sub(r.sub(angle)), quadrant: n.add(c(W::ROUND)).to_bits() }
}

/// The remainder of a number modulo four, with either sign. Exact.
#[inline(always)]
fn modulo_4<F: Float>(x: F) -> F {
    let multiple = x.mul(x.constant(0.25)).round_even();
    multiple.fma(x.constant(-4.0), x)
}

/// A sum of floats, kept in three.
struct Sum<F> {
    high: F,
    middle: F,
    low: F,
}

impl<F: Float> Sum<F> {
    #[inline(always)]
    fn add(&mut self, term: F) {
        let (high, lost) = two_sum(self.high, term);
        let (middle, lost) = two_sum(self.middle, lost);
        (self.high, self.middle, self.low) = (high, middle, self.low.add(lost));
    }
}

/// A rounded sum, and its rounding error (Knuth).
#[inline(always)]
pub(super) fn two_sum<F: Float>(a: F, b: F) -> (F, F) {
    let sum = a.add(b);
    let b_seen = sum.sub(a);
    let a_seen = sum.sub(b_seen);
    (sum, a.sub(a_seen).add(b.sub(b_seen)))
}

/// `sin(r + r_low) - r`.
#[inline(always)]
pub(super) fn sin_tail<W: Width, F: Float>(r: F, r_low: F) -> F {
    let z = r.mul(r);
    z.mul(r).fma(horner(z, W::SIN), r_low)
}

/// `cos(r + r_low) - 1`.
#[inline(always)]
pub(super) fn cos_tail<W: Width, F: Float>(r: F, r_low: F) -> F {
    let z = r.mul(r);
    let even = z.mul(z.fma(horner(z, W::COS), r.constant(-0.5)));
    r.neg().fma(r_low, even)
}

/// The low bit of `bits` as a sign.
#[inline(always)]
fn to_sign<W: Width, B: Bits>(bits: B) -> B {
    let width = if W::MANTISSA == 23 { 32 } else { 64 };
    bits.shl(width - 1)
}

/// Sine: of `|x|`, with the sign of `x` put back, which keeps -0.
#[inline(always)]
pub(super) fn sin<W: SpecialWidth, F: Float>(x: F, angles: Angles) -> F {
    let reduced = reduce::<W, F>(x.abs(), angles);
    let value = F::select(reduced.is_odd(), reduced.cos::<W>(), reduced.sin::<W>());
    let sign = to_sign::<W, F::Bits>(reduced.quadrant.shru(1)).xor(sign_bit(x));
    value.to_bits().xor(sign).to_float_bits()
}

/// Cosine: the sine a quarter turn on.
#[inline(always)]
pub(super) fn cos<W: SpecialWidth, F: Float>(x: F, angles: Angles) -> F {
    let reduced = reduce::<W, F>(x.abs(), angles);
    let value = F::select(reduced.is_odd(), reduced.sin::<W>(), reduced.cos::<W>());
    let next = reduced.quadrant.add(reduced.quadrant.constant(1));
    value.to_bits().xor(to_sign::<W, F::Bits>(next.shru(1))).to_float_bits()
}

/// Tangent: sine over cosine of the reduced angle. After an odd number of quarter turns the quotient is inverted and
/// negated.
///
/// Both are kept with the rounding errors of their last sums, and the division is corrected by one step.
#[inline(always)]
pub(super) fn tan<W: SpecialWidth, F: Float>(x: F, angles: Angles) -> F {
    let reduced = reduce::<W, F>(x.abs(), angles);
    let is_odd = reduced.is_odd();
    let (r, r_low) = (reduced.r, reduced.r_low);
    let (sin_rest, cos_rest) = (sin_tail::<W, F>(r, r_low), cos_tail::<W, F>(r, r_low));
    let one = x.constant(1.0);
    let (sin, cos) = (r.add(sin_rest), one.add(cos_rest));
    let sin_low = sin_rest.sub(sin.sub(r));
    let cos_low = cos_rest.sub(cos.sub(one));
    let (above, above_low) = (F::select(is_odd, cos, sin), F::select(is_odd, cos_low, sin_low));
    let (below, below_low) = (F::select(is_odd, sin, cos), F::select(is_odd, sin_low, cos_low));
    let inverse = one.div(below);
    let quotient = above.mul(inverse);
    let negated = quotient.neg();
    let rest = negated.fma(below, above).add(negated.fma(below_low, above_low));
    let sign = to_sign::<W, F::Bits>(reduced.quadrant).xor(sign_bit(x));
    rest.fma(inverse, quotient).to_bits().xor(sign).to_float_bits()
}
