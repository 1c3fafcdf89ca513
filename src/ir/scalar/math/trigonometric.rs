//! `sin`, `cos`, `tan`.
//!
//! Small angles are reduced by Cody and Waite's method, huge ones after Payne and Hanek (1983), "Radian reduction for
//! trigonometric functions". The second costs several times as much as all the rest, and hardly anyone needs it: the
//! functions are there with it and without, and on small angles both give the same bits.

use super::pieces::{horner, round_product, sign_bit};
use super::special_width::SpecialWidth;
use super::width::Width;
use crate::ir::scalar::number::{Bits, Float};

/// An angle as `quadrant π/2 + r` with `|r|` near π/4 at most.
struct Turned<F: Float> {
    /// `r`, rounded.
    r: F,
    /// What the rounding of `r` left.
    r_low: F,
    /// The number of quarter turns in the low two bits.
    quadrant: F::Bits,
}

impl<F: Float> Turned<F> {
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
    /// Those up to `TURN_HIGH`; others give anything.
    Small,
}

#[inline(always)]
fn turn<W: SpecialWidth, F: Float>(x: F, angles: Angles) -> Turned<F> {
    let near = turn_small::<W, F>(x);
    if angles == Angles::Small {
        return near;
    }
    let far = turn_huge::<W, F>(x);
    let is_small = x.le(x.constant(W::TURN_HIGH));
    Turned {
        r: F::select(is_small, near.r, far.r),
        r_low: F::select(is_small, near.r_low, far.r_low),
        quadrant: F::Bits::select(is_small, near.quadrant, far.quadrant),
    }
}

/// Cody and Waite's reduction with fma: the first product cancels exactly, the second is taken off as a pair, and the
/// third goes to what is left below. Beyond `TURN_HIGH` the quotient is no longer good to a fraction of a turn.
#[inline(always)]
fn turn_small<W: Width, F: Float>(x: F) -> Turned<F> {
    let (n, quadrant) = round_product::<W, F>(x, std::f64::consts::FRAC_2_PI, 0);
    let [first, second, third] = W::PI_2.map(|part| x.constant(part));
    let exact = n.fma(first.neg(), x);
    let product = n.mul(second);
    let product_low = n.fma(second, product.neg());
    let r = exact.sub(product);
    let lost = exact.sub(r).sub(product);
    let r_low = n.fma(third.neg(), lost.sub(product_low));
    Turned { r, r_low, quadrant }
}

/// Digits of 2/π that a huge angle is multiplied by.
const N_DIGITS: usize = 5;
/// Digits there are, or more.
const MAX_DIGITS: usize = 24;

/// Payne and Hanek's reduction, in floats: 2/π is a row of digits, each a whole number as wide as a significand, so
/// that the product of an angle with a digit is a pair without error. Digits whose product is a multiple of four
/// quarter turns whatever the angle are left out, five are taken from there, and what is left of the products modulo
/// four is summed in three floats. An infinite angle gives NaN.
#[inline(always)]
fn turn_huge<W: SpecialWidth, F: Float>(x: F) -> Turned<F> {
    let c = |value: f64| x.constant(value);
    let power = |exponent: i64| c(f64::from_bits(((exponent + 1023) << 52) as u64));
    let width = W::MANTISSA as i64 + 1;

    // As the angle gives up a digit's power of two, the row of digits moves up by one.
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
    Turned { r, r_low: angle_low.sub(r.sub(angle)), quadrant: n.add(c(W::ROUND)).to_bits() }
}

/// What is left of a number after multiples of four, with either sign; exact.
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

/// A rounded sum, and what the rounding took away (Knuth).
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
    let turned = turn::<W, F>(x.abs(), angles);
    let value = F::select(turned.is_odd(), turned.cos::<W>(), turned.sin::<W>());
    let sign = to_sign::<W, F::Bits>(turned.quadrant.shru(1)).xor(sign_bit(x));
    value.to_bits().xor(sign).to_float_bits()
}

/// Cosine: the sine a quarter turn on.
#[inline(always)]
pub(super) fn cos<W: SpecialWidth, F: Float>(x: F, angles: Angles) -> F {
    let turned = turn::<W, F>(x.abs(), angles);
    let value = F::select(turned.is_odd(), turned.sin::<W>(), turned.cos::<W>());
    let next = turned.quadrant.add(turned.quadrant.constant(1));
    value.to_bits().xor(to_sign::<W, F::Bits>(next.shru(1))).to_float_bits()
}

/// Tangent: sine over cosine of what is left, upside down and negated after an odd number of quarter turns.
///
/// Both are kept with what their last sums rounded away, and one step of correction divides as if they were exact.
#[inline(always)]
pub(super) fn tan<W: SpecialWidth, F: Float>(x: F, angles: Angles) -> F {
    let turned = turn::<W, F>(x.abs(), angles);
    let is_odd = turned.is_odd();
    let (r, r_low) = (turned.r, turned.r_low);
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
    let sign = to_sign::<W, F::Bits>(turned.quadrant).xor(sign_bit(x));
    rest.fma(inverse, quotient).to_bits().xor(sign).to_float_bits()
}
