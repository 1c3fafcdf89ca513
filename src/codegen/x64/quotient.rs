//! Quotients without the divider.
//!
//! A machine divides a vector of AVX-512 in 16 cycles, in which it could do 32 other operations. Where a pass divides more than
//! once, the others wait for it, so divisions whose operands are known to be harmless are done by multiplications: an inverse
//! that is 2^-14 off at most, two of Newton's steps, and a correction of the quotient by what it lacks, which an fma finds exactly.
//! The result is the one of a division unless all bits of the divisor's mantissa are ones (Markstein, *Computation of elementary
//! functions on the IBM RISC System/6000 processor*, 1990): then it may be one last place less.

use super::code::V;
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
        let lacks = self.fma(&quotient, &d, &n, Ty::F32, true);
        self.fma(&lacks, &inverse, &quotient, Ty::F32, false)
    }

    /// An inverse of `d` that is off by the square of what this one is off by.
    fn newton(&mut self, one: &Val, d: &Val, inverse: &Val) -> Val {
        let lacks = self.fma(d, inverse, one, Ty::F32, true);
        self.fma(&lacks, inverse, inverse, Ty::F32, false)
    }
}

#[cfg(test)]
mod tests {
    /// What the instructions do with an inverse to begin with.
    fn inverse(d: f32, near: f32) -> f32 {
        let newton = |x: f32| (-d).mul_add(x, 1.0).mul_add(x, x);
        newton(newton(near))
    }

    fn quotient(n: f32, d: f32, near: f32) -> f32 {
        let inverse = inverse(d, near);
        let quotient = n * inverse;
        (-quotient).mul_add(d, n).mul_add(inverse, quotient)
    }

    /// Inverses that are off by as much as the instruction may be.
    fn starts(d: f32) -> impl Iterator<Item = f32> {
        let off = [0.0, 1.0, -1.0, 0.6, -0.3, 0.01].map(|part: f64| part / 16384.0);
        off.into_iter().map(move |off| ((1.0 + off) / f64::from(d)) as f32)
    }

    const ALL_ONES: u32 = (1 << 23) - 1;

    #[test]
    fn inverses_are_rounded_once_unless_all_ones_are_inverted() {
        for mantissa in (0..ALL_ONES).step_by(41).chain(ALL_ONES - 1000..ALL_ONES) {
            let d = f32::from_bits(1.0_f32.to_bits() | mantissa);
            starts(d).for_each(|near| assert_eq!(inverse(d, near), 1.0 / d, "{d:e} from {near:e}"));
        }
        let d = f32::from_bits(1.0_f32.to_bits() | ALL_ONES);
        starts(d).for_each(|near| assert!([0.5, 1.0 / d].contains(&inverse(d, near)), "from {near:e}"));
    }

    /// `tanh` of all sums that there are: what is divided is 1 for `h >= 1`, else `h * h`.
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
