//! Divisions of integers by literals, as multiplications: no processor divides vectors of integers.
//!
//! Of 32 bits, quotients are the upper bits of one product (Granlund and Montgomery 1994, *Division by Invariant
//! Integers using Multiplication*). Of 64 bits, a product in f64 estimates the quotient. What it leaves is divided in
//! the same way, and is small, so the second quotient is one too small or too large at most. Results are exact.
//!
//! Machine code is made of such kernels. The vm divides one element after the other, which takes it less time than so
//! many instructions.

use super::kernel::{Inst, Kernel, Kind, Level, Output};
use crate::ir::scalar::{Lit, Prim, Reg, Ty};
use smallvec::SmallVec;
use std::borrow::Cow;

/// The kernel with multiplications where it divides integers by literals.
pub(super) fn without_literal_divisors(kernel: &Kernel) -> Cow<'_, Kernel> {
    let divisors: Vec<Option<i64>> = kernel.insts.iter().map(|inst| kernel.literal_divisor(inst)).collect();
    if divisors.iter().all(Option::is_none) {
        return Cow::Borrowed(kernel);
    }
    let mut insts = Vec::new();
    let mut moved: Vec<Reg> = Vec::with_capacity(kernel.insts.len());
    for (inst, divisor) in kernel.insts.iter().zip(divisors) {
        let inst = Inst { args: inst.args.iter().map(|arg| moved[arg.index()]).collect(), ..inst.clone() };
        let mut writer = Writer { level: inst.level, insts: &mut insts };
        moved.push(match divisor {
            Some(divisor) => {
                let [quotient, rest] = writer.divided(inst.args[0], divisor, inst.ty);
                if inst.kind == Kind::Prim(Prim::Quot) { quotient } else { rest }
            }
            None => writer.push(inst),
        });
    }
    let outputs = kernel.outputs.iter().map(|output| Output { value: moved[output.value.index()], ..*output });
    Cow::Owned(Kernel { outputs: outputs.collect(), operands: kernel.operands.clone(), insts })
}

/// Writes instructions that have values of a level.
struct Writer<'a> {
    level: Level,
    insts: &'a mut Vec<Inst>,
}

impl Writer<'_> {
    fn push(&mut self, inst: Inst) -> Reg {
        self.insts.push(inst);
        Reg::new(self.insts.len() - 1)
    }

    fn lit(&mut self, lit: Lit) -> Reg {
        self.push(Inst { kind: Kind::Lit(lit), args: SmallVec::new(), ty: lit.ty, level: Level::Row })
    }

    fn prim(&mut self, prim: Prim, args: &[Reg], ty: Ty) -> Reg {
        let level = self.level;
        self.push(Inst { kind: Kind::Prim(prim), args: args.into(), ty, level })
    }

    fn int(&mut self, value: i64, ty: Ty) -> Reg {
        self.lit(if ty == Ty::I32 { Lit::i32(value as i32) } else { Lit::i64(value) })
    }

    /// Quotient and remainder of a division that rounds toward zero.
    fn divided(&mut self, a: Reg, divisor: i64, ty: Ty) -> [Reg; 2] {
        let by = divisor.abs();
        if ty == Ty::I64 {
            let [quotient, rest] = self.divided_64(a, by);
            return [self.signed(quotient, divisor, ty), rest];
        }
        let quotient = self.quotient_32(a, by);
        let quotient = self.signed(quotient, divisor, ty);
        let divisor = self.int(divisor, ty);
        let product = self.prim(Prim::Mul, &[quotient, divisor], ty);
        [quotient, self.prim(Prim::Sub, &[a, product], ty)]
    }

    /// The quotient by a divisor, from that by its absolute value.
    fn signed(&mut self, quotient: Reg, divisor: i64, ty: Ty) -> Reg {
        if divisor > 0 {
            return quotient;
        }
        let zero = self.int(0, ty);
        self.prim(Prim::Sub, &[zero, quotient], ty)
    }

    /// The upper bits of the product with `2^k / by`, rounded up, where `k` is 31 more than the bits of `by`. Those of
    /// a negative number are rounded down, and so one too small.
    fn quotient_32(&mut self, a: Reg, by: i64) -> Reg {
        let bits = i64::from(64 - (by - 1).leading_zeros());
        let factor = self.int((1 << (31 + bits)) / by + 1, Ty::I64);
        let wide = self.prim(Prim::Convert(Ty::I64), &[a], Ty::I64);
        let product = self.prim(Prim::Mul, &[wide, factor], Ty::I64);
        let (by_bits, sign) = (self.int(31 + bits, Ty::I64), self.int(63, Ty::I64));
        let upper = self.prim(Prim::Shr, &[product, by_bits], Ty::I64);
        let is_negative = self.prim(Prim::ShrU, &[wide, sign], Ty::I64);
        let quotient = self.prim(Prim::Add, &[upper, is_negative], Ty::I64);
        self.prim(Prim::Convert(Ty::I32), &[quotient], Ty::I32)
    }

    fn divided_64(&mut self, a: Reg, by: i64) -> [Reg; 2] {
        let ty = Ty::I64;
        let (zero, one, divisor) = (self.int(0, ty), self.int(1, ty), self.int(by, ty));
        let first = self.estimate(a, by);
        let product = self.prim(Prim::Mul, &[first, divisor], ty);
        // Below 2^42, because the estimate is off by less than 2^11. So it is exact in f64.
        let left = self.prim(Prim::Sub, &[a, product], ty);
        let second = self.estimate(left, by);
        let product = self.prim(Prim::Mul, &[second, divisor], ty);
        let rest = self.prim(Prim::Sub, &[left, product], ty);
        let found = [self.prim(Prim::Add, &[first, second], ty), rest];
        let units = [one, divisor];
        // The quotient rounded down, whose remainder is not negative, and then rounded toward zero.
        let is_too_large = self.prim(Prim::Lt, &[rest, zero], Ty::Bool);
        let found = self.corrected(is_too_large, found, [Prim::Sub, Prim::Add], units);
        let is_too_small = self.prim(Prim::Le, &[divisor, found[1]], Ty::Bool);
        let found = self.corrected(is_too_small, found, [Prim::Add, Prim::Sub], units);
        let is_negative = self.prim(Prim::Lt, &[a, zero], Ty::Bool);
        let has_rest = self.prim(Prim::Ne, &[found[1], zero], Ty::Bool);
        let is_too_small = self.prim(Prim::And, &[is_negative, has_rest], Ty::Bool);
        self.corrected(is_too_small, found, [Prim::Add, Prim::Sub], units)
    }

    /// A quotient and its remainder, each moved by its unit if they are wrong.
    fn corrected(&mut self, is_wrong: Reg, found: [Reg; 2], by: [Prim; 2], units: [Reg; 2]) -> [Reg; 2] {
        [0, 1].map(|at| {
            let moved = self.prim(by[at], &[found[at], units[at]], Ty::I64);
            self.prim(Prim::Select, &[is_wrong, moved, found[at]], Ty::I64)
        })
    }

    /// The product with the reciprocal of a divisor in f64, truncated.
    fn estimate(&mut self, a: Reg, by: i64) -> Reg {
        let reciprocal = self.lit(Lit::f64(1.0 / by as f64));
        let float = self.prim(Prim::Convert(Ty::F64), &[a], Ty::F64);
        let product = self.prim(Prim::Mul, &[float, reciprocal], Ty::F64);
        self.prim(Prim::Convert(Ty::I64), &[product], Ty::I64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::geometry::LoopOrder;
    use crate::codegen::interp;
    use crate::codegen::kernel::{Operand, Source};
    use crate::codegen::launch::Faults;
    use crate::codegen::{Access, Geometry};
    use crate::ir::DType;
    use smallvec::smallvec;

    /// A kernel with the quotient and the remainder by a literal.
    fn divided(dtype: DType, by: i64) -> Kernel {
        let ty = dtype.compute();
        let literal = if ty == Ty::I32 { Lit::i32(by as i32) } else { Lit::i64(by) };
        let inst = |kind: Kind, args: &[usize], level: Level| {
            let args = args.iter().map(|&reg| Reg::new(reg)).collect();
            Inst { kind, args, ty, level }
        };
        let output = |reg: usize| Output { dtype, value: Reg::new(reg) };
        Kernel {
            operands: vec![Operand { dtype, source: Source::Memory }],
            insts: vec![
                inst(Kind::Load(0), &[], Level::Full),
                inst(Kind::Lit(literal), &[], Level::Row),
                inst(Kind::Prim(Prim::Quot), &[0, 1], Level::Full),
                inst(Kind::Prim(Prim::Rem), &[0, 1], Level::Full),
            ],
            outputs: vec![output(2), output(3)],
        }
    }

    fn results(kernel: &Kernel, bytes: &[u8], size: usize) -> [Vec<u8>; 2] {
        let access = || Access { rows: smallvec![size], ..Access::default() };
        let order = LoopOrder::OfMemory;
        let operands = (vec![access()], vec![access(), access()]);
        let geometry = Geometry::plan(kernel, &[bytes.len() / size], &[], operands.0, operands.1, order);
        let [mut quotients, mut rests] = [vec![0; bytes.len()], vec![0; bytes.len()]];
        interp::run(kernel, &geometry, &[bytes], &mut [&mut quotients, &mut rests], &Faults::new());
        [quotients, rests]
    }

    /// Numbers around multiples of a divisor, around powers of two, and at random.
    fn numbers(by: i64) -> Vec<i64> {
        let mut numbers = Vec::new();
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for bits in 0..64 {
            for near in -2..=2 {
                numbers.extend([(1_i64 << bits).wrapping_add(near), (-1_i64 << bits).wrapping_add(near)]);
                let multiple = by.wrapping_mul(1 << bits);
                numbers.extend([multiple.wrapping_add(near), (i64::MAX / by * by).wrapping_sub(near)]);
            }
            for _ in 0..40 {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                numbers.push(state as i64 >> bits);
            }
        }
        numbers
    }

    #[test]
    fn quotients_and_remainders_are_exact() {
        let divisors = [2, 3, 4, 5, 7, 10, 16, 60, 255, 256, 1000, 5003, 65_521, 65_536, 1 << 30, (1 << 30) + 1];
        let most = i64::from(i32::MAX);
        for by in divisors.into_iter().chain([most - 1, most]).flat_map(|by| [by, -by]) {
            for (dtype, size) in [(DType::I32, 4), (DType::I64, 8)] {
                let kernel = divided(dtype, by);
                let made = without_literal_divisors(&kernel);
                assert_eq!(made.verify(), Ok(()), "{made}");
                let is_division = |inst: &Inst| matches!(inst.kind, Kind::Prim(Prim::Quot | Prim::Rem));
                assert!(!made.insts.iter().any(is_division) && kernel.prim_by_element().is_none(), "{made}");
                let bytes: Vec<u8> =
                    numbers(by).iter().flat_map(|number| number.to_le_bytes()[..size].to_vec()).collect();
                assert_eq!(results(&made, &bytes, size), results(&kernel, &bytes, size), "{dtype} by {by}");
            }
        }
    }

    #[test]
    fn the_least_divisor_of_32_bits_has_a_product_too() {
        let kernel = divided(DType::I32, i64::from(i32::MIN));
        let made = without_literal_divisors(&kernel);
        assert!(made.insts.len() > kernel.insts.len(), "{made}");
        let bytes: Vec<u8> =
            [0, 1, -1, i32::MAX, i32::MIN, i32::MIN + 1].iter().flat_map(|n| n.to_le_bytes()).collect();
        assert_eq!(results(&made, &bytes, 4), results(&kernel, &bytes, 4));
    }

    #[test]
    fn other_divisors_stay() {
        for (dtype, by) in
            [(DType::I64, 0), (DType::I64, 1), (DType::I32, -1), (DType::I64, 1 << 40), (DType::I64, i64::MIN)]
        {
            let kernel = divided(dtype, by);
            assert_eq!(*without_literal_divisors(&kernel), kernel, "{dtype} by {by}");
            assert!(kernel.prim_by_element().is_some(), "{dtype} by {by}");
        }
    }
}
