//! Sequences for what AVX2 has no instruction for: 64-bit integer arithmetic and its conversions, and narrow elements.
//!
//! Each gives the bits of the AVX-512 instruction that it replaces.

use super::code::{Minus, V};
use super::encoder::Constant;
use super::opcode;
use super::select::{Select, Val};
use crate::ir::scalar::{Prim, Ty};

impl Select<'_> {
    /// The low 64 bits of products, made of 32-bit halves.
    pub(super) fn product_64(&mut self, a: V, b: V) -> V {
        let (a_high, b_high) = (self.shifted_right(a, 32), self.shifted_right(b, 32));
        let low = self.op(&opcode::MUL_LOW, &[a, b]);
        let first = self.op(&opcode::MUL_LOW, &[a_high, b]);
        let second = self.op(&opcode::MUL_LOW, &[b_high, a]);
        let cross_products = self.op(&opcode::ADD_I[1], &[first, second]);
        let cross_products = self.op_imm(&opcode::SHL_IMM[1], &[cross_products], Some(32));
        self.op(&opcode::ADD_I[1], &[low, cross_products])
    }

    fn shifted_right(&mut self, a: V, bits: u8) -> V {
        self.op_imm(&opcode::SHR_IMM[1], &[a], Some(bits))
    }

    /// The greater of signed 64-bit lanes, or for [`Prim::Min`] the less.
    pub(super) fn extreme_64(&mut self, prim: Prim, a: V, b: V) -> V {
        let (high, low) = if prim == Prim::Max { (a, b) } else { (b, a) };
        let takes = self.op(&opcode::GT_I[1], &[high, low]);
        self.picked(takes, a, b)
    }

    /// Selects between `yes` and `no` by a vector of all-ones or zero lanes.
    fn picked(&mut self, takes: V, yes: V, no: V) -> V {
        let result = self.vector(true);
        self.push(&opcode::PICK, Some(result), &[no, yes, takes], None);
        result
    }

    /// Absolute values of 64-bit lanes; the least integer stays.
    pub(super) fn absolute_64(&mut self, a: V) -> V {
        let zero = self.bits(true, 0);
        let negative = self.op(&opcode::GT_I[1], &[zero, a]);
        let flipped = self.op(&opcode::XOR[1], &[a, negative]);
        self.op(&opcode::SUB_I[1], &[flipped, negative])
    }

    /// 64-bit lanes shifted right arithmetically, by amounts below 64.
    pub(super) fn shift_right_64(&mut self, a: V, amounts: V) -> V {
        let sign = self.bits(true, 1 << 63);
        let bits = self.op(&opcode::SHR[1], &[a, amounts]);
        // A subtraction extends the sign from where it was shifted to.
        let sign = self.op(&opcode::SHR[1], &[sign, amounts]);
        let flipped = self.op(&opcode::XOR[1], &[bits, sign]);
        self.op(&opcode::SUB_I[1], &[flipped, sign])
    }

    /// The nearest f64. Both halves become exact floats by their bits, and one addition rounds.
    pub(super) fn i64_to_f64(&mut self, a: V) -> V {
        const TWO_52: f64 = 4503599627370496.0;
        const TWO_84: f64 = 19342813113834066795298816.0;
        const TWO_63: f64 = 9223372036854775808.0;
        let low_mask = self.bits(true, u32::MAX as u64);
        let low_exponent = self.bits(true, TWO_52.to_bits());
        // With its sign bit flipped, the upper half counts from -2^63.
        let high_exponent = self.bits(true, TWO_84.to_bits() ^ (1 << 31));
        let offset = self.bits(true, (TWO_84 + TWO_63 + TWO_52).to_bits());
        let low = self.op(&opcode::AND[1], &[a, low_mask]);
        let low = self.op(&opcode::OR[1], &[low, low_exponent]);
        let high = self.shifted_right(a, 32);
        let high = self.op(&opcode::XOR[1], &[high, high_exponent]);
        let high = self.op(&opcode::SUB_F[1], &[high, offset]);
        self.op(&opcode::ADD_F[1], &[high, low])
    }

    /// 64-bit integers that convert through f64 to the correctly rounded f32. In large ones, the bits beyond the
    /// precision are replaced by a sticky bit.
    pub(super) fn sticky_64(&mut self, a: V) -> V {
        let (low_bits, half, high_bits) = (self.bits(true, 0x7ff), self.bits(true, 1 << 53), self.bits(true, !0x7ff));
        let zero = self.bits(true, 0);
        let low = self.op(&opcode::AND[1], &[a, low_bits]);
        let carried = self.op(&opcode::ADD_I[1], &[low, low_bits]);
        let sticky = self.op(&opcode::OR[1], &[carried, a]);
        let sticky = self.op(&opcode::AND[1], &[sticky, high_bits]);
        let from_least = self.op(&opcode::ADD_I[1], &[a, half]);
        let beyond = self.shifted_right(from_least, 54);
        let exact = self.op(&opcode::EQ_I[1], &[beyond, zero]);
        self.picked(exact, a, sticky)
    }

    /// f64 truncated to integers. Values below the range give the least integer; values above it and NaNs give any.
    pub(super) fn f64_to_i64(&mut self, a: V) -> V {
        const TWO_32: f64 = 4294967296.0;
        const TWO_52: f64 = 4503599627370496.0;
        let number = |this: &mut Self, x: f64| this.bits(true, x.to_bits());
        let least = number(self, i64::MIN as f64);
        let a = self.op(&opcode::MAX_F[1], &[a, least]);
        let whole = self.op_imm(&opcode::ROUND[1], &[a], Some(8 | 3));
        let (parts, base) = (number(self, 1.0 / TWO_32), number(self, -TWO_32));
        let high = self.op(&opcode::MUL_F[1], &[whole, parts]);
        let high = self.op_imm(&opcode::ROUND[1], &[high], Some(8 | 1));
        let low = self.fma(&Val::from([high]), &Val::from([base]), &Val::from([whole]), Ty::F64, Minus::default())[0];
        let (low_magic, high_magic) = (number(self, TWO_52), number(self, 1.5 * TWO_52));
        let low = self.op(&opcode::ADD_F[1], &[low, low_magic]);
        let low = self.op(&opcode::XOR[1], &[low, low_magic]);
        let high = self.op(&opcode::ADD_F[1], &[high, high_magic]);
        let high = self.op_imm(&opcode::SHL_IMM[1], &[high], Some(32));
        self.op(&opcode::OR[1], &[high, low])
    }

    /// The low bytes of 32-bit lanes, packed into the lowest eight bytes.
    pub(super) fn low_bytes(&mut self, a: V) -> V {
        let quads = self.low_parts(a, 0x8080_8080_0c08_0400);
        self.op_imm(&opcode::SHUFFLE, &[quads], Some(0x08))
    }

    /// The low halves of 32-bit lanes, packed into the lowest sixteen bytes.
    pub(super) fn low_halves(&mut self, a: V) -> V {
        self.low_parts(a, 0x0d0c_0908_0504_0100)
    }

    /// Selects eight bytes of each half of a vector, packed into the lowest sixteen.
    fn low_parts(&mut self, a: V, which: u64) -> V {
        let none = 0x8080_8080_8080_8080;
        let which = self.shared(Constant::Vector([which, none, which, none, 0, 0, 0, 0]), false);
        let chosen = self.op(&opcode::SHUFFLE_BYTES, &[a, which]);
        let result = self.vector(false);
        let width = super::encoder::Width::Y;
        self.push_as(&opcode::PERMUTE, width, Some(result), &[chosen], Some(0x08));
        result
    }

    /// Applies an operation to each part of two values.
    pub(super) fn each_part(&mut self, a: &Val, b: &Val, mut op: impl FnMut(&mut Self, V, V) -> V) -> Val {
        a.iter().zip(b).map(|(&a, &b)| op(self, a, b)).collect()
    }
}
