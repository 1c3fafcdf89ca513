//! `pow`: the logarithm, the product and the exponential in pairs of floats.

use super::exponential::exp2_of_sum;
use super::pieces::{clamp, horner, sign_bit, split};
use super::width::Width;
use crate::ir::scalar::number::{Bits, Float, Mask};

/// A sum of two floats of which the second is below the last place of the first, or nearly.
#[derive(Clone, Copy)]
struct Pair<F> {
    high: F,
    low: F,
}

impl<F: Float> Pair<F> {
    /// `a + b` exactly, for `|a| >= |b|` or `a = 0`.
    #[inline(always)]
    fn sum(a: F, b: F) -> Self {
        let high = a.add(b);
        Pair { high, low: b.sub(high.sub(a)) }
    }

    /// The product, without the part below the square of a last place.
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        let high = self.high.mul(o.high);
        let low = self.high.fma(o.high, high.neg());
        Pair { high, low: self.low.fma(o.high, self.high.fma(o.low, low)) }
    }

    /// The sum with a number that is small relative to `self`.
    #[inline(always)]
    fn add_small(self, low: F) -> Self {
        Pair { high: self.high, low: self.low.add(low) }
    }
}

/// `x^y = 2^(y log2 |x|)`, with the sign and the special cases of C99.
#[inline(always)]
pub(super) fn pow<W: Width, F: Float>(x: F, y: F) -> F {
    let c = |value: f64| x.constant(value);
    let (zero, one, infinity) = (c(0.0), c(1.0), c(f64::INFINITY));
    let size = x.abs();
    let log = log2_pair::<W, F>(size);
    // 0, infinity and NaN have a logarithm of one float.
    let high = F::select(size.lt(infinity), log.high, size);
    let high = F::select(size.eq(zero), c(f64::NEG_INFINITY), high);

    let product = y.mul(high);
    let low = y.fma(log.low, y.fma(high, product.neg()));
    // Far outside the range the low part does not matter, and it may be NaN.
    let low = F::select(product.abs().lt(c(2.0 * W::EXP2_RANGE.1)), low, zero);
    let power = exp2_of_sum::<W, F>(clamp(product, W::EXP2_RANGE), low);

    let y_is_whole = y.trunc().eq(y);
    let half = y.mul(c(0.5));
    let y_is_odd = y_is_whole.and(half.trunc().ne(half));
    let signed = power.to_bits().or(sign_bit(x)).to_float_bits();
    let power = F::select(y_is_odd, signed, power);

    // A finite negative base has a power only for whole exponents.
    let has_root = x.lt(zero).and(size.lt(infinity)).and(y_is_whole.not());
    let power = F::select(has_root, c(f64::NAN), power);
    // `x^0` and `1^y` are 1 even for NaN. (-1)^±inf is 1, because every large float is even.
    let unit_to_infinity = x.eq(c(-1.0)).and(y.abs().eq(infinity));
    F::select(y.eq(zero).or(x.eq(one)).or(unit_to_infinity), one, power)
}

/// `log2 x` of a finite positive number as a pair.
///
/// With `m = (1 + s) / (1 - s)` and `z = s²`: `log2 m = s (2/ln 2 + z (2/(3 ln 2) + z t(z)))`. All terms are pairs but
/// `t`, a polynomial in one float, which contributes less than `2^-12` of the sum.
#[inline(always)]
fn log2_pair<W: Width, F: Float>(x: F) -> Pair<F> {
    let parts = split::<W, F>(x);
    let f = parts.fraction;
    let c = |(high, low): (f64, f64)| Pair { high: x.constant(high), low: x.constant(low) };
    let s = ratio(f);
    let z = s.mul(s);
    let w = z.high.mul(horner(z.high, W::POW));
    let third = c(W::TWO_THIRDS_LOG2E);
    let q = Pair::sum(third.high, w).add_small(third.low);
    let u = z.mul(q);
    let first = c(W::TWO_LOG2E);
    let a = Pair::sum(first.high, u.high).add_small(u.low.add(first.low));
    let log2_m = a.mul(s);
    Pair::sum(parts.exponent, log2_m.high).add_small(log2_m.low)
}

/// `f / (2 + f)` as a pair.
#[inline(always)]
fn ratio<F: Float>(f: F) -> Pair<F> {
    let two = f.constant(2.0);
    let divisor = Pair::sum(two, f);
    let inverse = f.constant(1.0).div(divisor.high);
    let high = f.mul(inverse);
    let negated = high.neg();
    let rest = negated.fma(divisor.low, negated.fma(divisor.high, f));
    Pair { high, low: rest.mul(inverse) }
}
