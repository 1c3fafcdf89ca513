//! `sin`, `cos`, `tan`.

use super::pieces::{horner, round_product, sign_bit};
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

/// Cody and Waite's reduction with fma: the first product cancels exactly, the second is taken off as a pair, and the
/// third goes to what is left below. Beyond `TURN_HIGH` the quotient is no longer good to a fraction of a turn; the
/// angle counts as unknown and becomes NaN, rather than some number that looks like a sine.
#[inline(always)]
fn turn<W: Width, F: Float>(x: F) -> Turned<F> {
    let x = F::select(x.le(x.constant(W::TURN_HIGH)), x, x.constant(f64::NAN));
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

/// `sin(r + r_low) - r`.
#[inline(always)]
fn sin_tail<W: Width, F: Float>(r: F, r_low: F) -> F {
    let z = r.mul(r);
    z.mul(r).fma(horner(z, W::SIN), r_low)
}

/// `cos(r + r_low) - 1`.
#[inline(always)]
fn cos_tail<W: Width, F: Float>(r: F, r_low: F) -> F {
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
pub(super) fn sin<W: Width, F: Float>(x: F) -> F {
    let turned = turn::<W, F>(x.abs());
    let value = F::select(turned.is_odd(), turned.cos::<W>(), turned.sin::<W>());
    let sign = to_sign::<W, F::Bits>(turned.quadrant.shru(1)).xor(sign_bit(x));
    value.to_bits().xor(sign).to_float_bits()
}

/// Cosine: the sine a quarter turn on.
#[inline(always)]
pub(super) fn cos<W: Width, F: Float>(x: F) -> F {
    let turned = turn::<W, F>(x.abs());
    let value = F::select(turned.is_odd(), turned.sin::<W>(), turned.cos::<W>());
    let next = turned.quadrant.add(turned.quadrant.constant(1));
    value.to_bits().xor(to_sign::<W, F::Bits>(next.shru(1))).to_float_bits()
}

/// Tangent: sine over cosine of what is left, upside down and negated after an odd number of quarter turns.
///
/// Both are kept with what their last sums rounded away, and one step of correction divides as if they were exact.
#[inline(always)]
pub(super) fn tan<W: Width, F: Float>(x: F) -> F {
    let turned = turn::<W, F>(x.abs());
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
