//! Quotients that avoid the divider.
//!
//! A processor divides a vector of AVX-512 in about ten cycles ([`Opcode::timing`](opcode::Opcode::timing)), in which
//! it could do twenty other operations. Roots take as long, in the same unit. Where a pass divides more than once,
//! divisions wait for each other. So those with known ranges of operands are computed by multiplications: an
//! approximate inverse with an error of at most 2^-14, Newton steps, and a correction by the remainder, which an fma
//! gives exactly.
//!
//! The result is that of a division, unless all bits of the divisor's mantissa are ones. Then it may be one last place
//! less (Markstein, *Computation of elementary functions on the IBM RISC System/6000 processor*, 1990).

use super::code::{Minus, V};
use super::opcode;
use super::select::{Select, Val};
use crate::ir::scalar::{Lit, Ty};

impl Select<'_> {
    /// `n / d` of f32, for [`tanh_quotients`](crate::codegen::native::flat::Flat::tanh_quotients).
    pub(super) fn quotient(&mut self, n: V, d: V) -> Val {
        let one = self.lit(Lit::f32(1.0));
        let [n, d, near] = [n, d, self.op(&opcode::NEAR_INVERSE, &[d])].map(|v| Val::from([v]));
        let nearer = self.newton(&one, &d, &near);
        let inverse = self.newton(&one, &d, &nearer);
        let quotient = self.op(&opcode::MUL_F[0], &[n[0], inverse[0]]);
        let quotient = Val::from([quotient]);
        let lacks = self.fma(&quotient, &d, &n, Ty::F32, MINUS_PRODUCT);
        self.fma(&lacks, &inverse, &quotient, Ty::F32, Minus::default())
    }

    /// `1 / d` of f32, where `d` is a square root: from 2^-75 to 2^64, zero, infinite or NaN.
    ///
    /// The first inverse is made 2^-11 too large. So the second one, `x (1 + e + e²)` with `e = 1 - d x`, is too large
    /// by `e³`, which exceeds its rounding. If all bits of the mantissa are ones, the exact inverse is next to the
    /// midpoint of two floats, and the second inverse is the right one of them. Elsewhere the correction finds the
    /// right one from either.
    pub(super) fn inverse_of_root(&mut self, d: V) -> Val {
        let (one, larger) = (self.lit(Lit::f32(1.0)), self.lit(Lit::f32(LARGER)));
        let near = self.op(&opcode::NEAR_INVERSE, &[d]);
        let [d, near] = [d, self.op(&opcode::MUL_F[0], &[near, larger[0]])].map(|v| Val::from([v]));
        let e = self.fma(&d, &near, &one, Ty::F32, MINUS_PRODUCT);
        let e = self.fma(&e, &e, &e, Ty::F32, Minus::default());
        let inverse = self.fma(&near, &e, &near, Ty::F32, Minus::default());
        let corrected = self.newton(&one, &d, &inverse);
        // For zero, infinity and NaN the first inverse is the result, and every later one is NaN.
        let is_first = self.is_nan(&corrected, Ty::F32);
        Val::from([self.blend(is_first, near[0], corrected[0], 0)])
    }

    /// A Newton step: an inverse of `d` whose relative error is the square of this one's.
    fn newton(&mut self, one: &Val, d: &Val, inverse: &Val) -> Val {
        let lacks = self.fma(d, inverse, one, Ty::F32, MINUS_PRODUCT);
        self.fma(&lacks, inverse, inverse, Ty::F32, Minus::default())
    }
}

const MINUS_PRODUCT: Minus = Minus { product: true, addend: false };

/// The factor by which [`Select::inverse_of_root`] enlarges the first inverse.
const LARGER: f32 = 1.0 + 1.0 / 2048.0;

#[cfg(test)]
mod tests {
    use super::LARGER;

    /// What the instructions do with an approximate inverse.
    fn inverse(d: f32, near: f32) -> f32 {
        let newton = |x: f32| (-d).mul_add(x, 1.0).mul_add(x, x);
        newton(newton(near))
    }

    fn quotient(n: f32, d: f32, near: f32) -> f32 {
        let inverse = inverse(d, near);
        let quotient = n * inverse;
        (-quotient).mul_add(d, n).mul_add(inverse, quotient)
    }

    /// Approximate inverses at the limits of the instruction's error.
    fn starts(d: f32) -> impl Iterator<Item = f32> {
        let off = [0.0, 1.0, -1.0, 0.6, -0.3, 0.01].map(|part: f64| part / 16384.0);
        off.into_iter().map(move |off| ((1.0 + off) / f64::from(d)) as f32)
    }

    const ALL_ONES: u32 = (1 << 23) - 1;

    fn inverse_of_root(d: f32, near: f32) -> f32 {
        let near = near * LARGER;
        let e = (-d).mul_add(near, 1.0);
        let inverse = near.mul_add(e.mul_add(e, e), near);
        let corrected = (-d).mul_add(inverse, 1.0).mul_add(inverse, inverse);
        if corrected.is_nan() { near } else { corrected }
    }

    #[test]
    fn inverses_of_roots_have_the_bits_of_a_division() {
        let mantissas = (0..ALL_ONES).step_by(37).chain(ALL_ONES - 1000..ALL_ONES + 1);
        for d in mantissas.flat_map(|mantissa| [52, 126, 127, 190].map(|e| f32::from_bits(e << 23 | mantissa))) {
            starts(d).for_each(|near| assert_eq!(inverse_of_root(d, near), 1.0 / d, "{d:e} from {near:e}"));
        }
        for (d, near) in [(0.0, f32::INFINITY), (-0.0, f32::NEG_INFINITY), (f32::INFINITY, 0.0)] {
            assert_eq!(inverse_of_root(d, near).to_bits(), (1.0 / d).to_bits(), "{d}");
        }
        assert!(inverse_of_root(f32::NAN, f32::NAN).is_nan());
    }

    #[test]
    fn inverses_are_rounded_once_unless_all_ones_are_inverted() {
        for mantissa in (0..ALL_ONES).step_by(41).chain(ALL_ONES - 1000..ALL_ONES) {
            let d = f32::from_bits(1.0_f32.to_bits() | mantissa);
            starts(d).for_each(|near| assert_eq!(inverse(d, near), 1.0 / d, "{d:e} from {near:e}"));
        }
        let d = f32::from_bits(1.0_f32.to_bits() | ALL_ONES);
        starts(d).for_each(|near| assert!([0.5, 1.0 / d].contains(&inverse(d, near)), "from {near:e}"));
    }

    /// `tanh` of all possible sums: the divisor is 1 for `h >= 1`, else `h * h`.
    #[test]
    fn tanh_has_the_bits_of_a_division() {
        let bits = (0..(1_u32 << 27) * 10).step_by(997).chain((0..28).flat_map(|exponent| {
            let all_ones = f32::from_bits((127 + exponent) << 23 | ALL_ONES);
            let near = (all_ones - 1.0).to_bits();
            near - 2..near + 3
        }));
        for h in bits.map(f32::from_bits).filter(|h| *h < 134_217_728.0) {
            let (first, n, d) = if h < 1.0 { (h, h * h, 1.0 + h) } else { (1.0, 1.0, 1.0 + h) };
            for near in starts(d) {
                let difference = first - quotient(n, d, near);
                assert_eq!(difference.to_bits(), (first - n / d).to_bits(), "h = {h:e} from {near:e}");
            }
        }
    }
}
