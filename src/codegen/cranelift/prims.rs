//! Every prim as CLIF, in both forms, with the bits of [`crate::ir::scalar::eval`].
//!
//! What CLIF has no vector instruction for is done lane by lane. No instruction may trap: the remaining lanes of a
//! vector loop, and branches that are not taken, run prims on arbitrary values.

use super::value::{Emit, Val, ValueForm};
use crate::ir::scalar::half_bits::{BF16_NAN, F16_NAN};
use crate::ir::scalar::{Lit, Prim, Ty};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

/// An operand: its value in the current form, its type, and its scalar if all lanes are equal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arg {
    /// The value.
    pub(super) val: Val,
    /// Its type.
    pub(super) ty: Ty,
    /// The scalar that all lanes hold.
    pub(super) scalar: Option<Value>,
}

impl<'f> Emit<'_, 'f> {
    /// Computes a prim.
    pub(super) fn prim(&mut self, prim: Prim, args: &[Arg]) -> Val {
        let (ty, a) = (args[0].ty, args[0].val);
        let second = || args[1].val;
        match prim {
            Prim::Convert(to) => self.convert(a, ty, to),
            Prim::Select => self.select(a, args[1].val, args[2].val, args[1].ty),
            Prim::Bitcast => {
                let part = self.part(ty.bitcast());
                a.map(|a| self.cast(part, a))
            }
            Prim::Eq => self.compare(FloatCC::Equal, IntCC::Equal, ty, a, second()),
            Prim::Ne => self.compare(FloatCC::NotEqual, IntCC::NotEqual, ty, a, second()),
            Prim::Lt => self.compare(FloatCC::LessThan, IntCC::SignedLessThan, ty, a, second()),
            Prim::Le => self.compare(FloatCC::LessThanOrEqual, IntCC::SignedLessThanOrEqual, ty, a, second()),
            Prim::Shl | Prim::Shr | Prim::ShrU => self.shift(prim, args),
            Prim::Quot | Prim::Rem | Prim::IntPow => unreachable!("kernels with these are declined before"),
            Prim::Fma => {
                let mut c = args[2].val.parts();
                a.zip(second(), |a, b| self.b.ins().fma(a, b, c.next().expect("a part per operand part")))
            }
            Prim::Max => self.select_by(FloatCC::LessThan, IntCC::SignedLessThan, ty, a, second(), true),
            Prim::Min => self.select_by(FloatCC::LessThan, IntCC::SignedLessThan, ty, a, second(), false),
            Prim::And | Prim::Or | Prim::Xor if ty == Ty::Bool => self.logic(prim, a, second()),
            Prim::Not if ty == Ty::Bool && self.form == ValueForm::Scalar => a.map(|a| self.b.ins().bxor_imm_u(a, 1)),
            Prim::Add | Prim::Sub | Prim::Mul | Prim::Div | Prim::And | Prim::Or | Prim::Xor => {
                a.zip(second(), |a, b| self.binary(prim, ty, a, b))
            }
            Prim::Neg
            | Prim::Abs
            | Prim::Sqrt
            | Prim::Floor
            | Prim::Ceil
            | Prim::Trunc
            | Prim::RoundEven
            | Prim::Not => a.map(|a| self.unary(prim, ty, a)),
            Prim::Canon => {
                let bits = if ty == Ty::F64 { 0x7ff8_0000_0000_0000 } else { 0x7fc0_0000 };
                self.unless_nan(a, ty, a, Lit { ty, bits })
            }
            Prim::RoundF16 => self.round_f16(a),
            Prim::RoundBF16 => self.round_bf16(a),
            Prim::WrapU8 => self.int_and(a, 0xff),
            Prim::WrapI8 => self.sign_extend(a, 24),
            Prim::WrapI16 => self.sign_extend(a, 16),
        }
    }

    fn binary(&mut self, prim: Prim, ty: Ty, a: Value, b: Value) -> Value {
        let ins = self.b.ins();
        match (prim, ty.is_float()) {
            (Prim::Add, true) => ins.fadd(a, b),
            (Prim::Sub, true) => ins.fsub(a, b),
            (Prim::Mul, true) => ins.fmul(a, b),
            (Prim::Div, true) => ins.fdiv(a, b),
            (Prim::Add, false) => ins.iadd(a, b),
            (Prim::Sub, false) => ins.isub(a, b),
            (Prim::Mul, false) => ins.imul(a, b),
            (Prim::And, false) => ins.band(a, b),
            (Prim::Or, false) => ins.bor(a, b),
            (Prim::Xor, false) => ins.bxor(a, b),
            (other, _) => unreachable!("{} is not a plain binary prim of {ty}", other.name()),
        }
    }

    fn unary(&mut self, prim: Prim, ty: Ty, a: Value) -> Value {
        let ins = self.b.ins();
        match (prim, ty.is_float()) {
            (Prim::Neg, true) => ins.fneg(a),
            (Prim::Abs, true) => ins.fabs(a),
            (Prim::Sqrt, true) => ins.sqrt(a),
            (Prim::Floor, true) => ins.floor(a),
            (Prim::Ceil, true) => ins.ceil(a),
            (Prim::Trunc, true) => ins.trunc(a),
            (Prim::RoundEven, true) => ins.nearest(a),
            (Prim::Neg, false) => ins.ineg(a),
            (Prim::Abs, false) => ins.iabs(a),
            (Prim::Not, false) => ins.bnot(a),
            (other, _) => unreachable!("{} is not a plain unary prim of {ty}", other.name()),
        }
    }

    /// And, or, xor of bools. Masks of different widths are narrowed first.
    fn logic(&mut self, prim: Prim, a: Val, b: Val) -> Val {
        let wide = matches!((a, b), (Val::Two(..), Val::Two(..)));
        let (a, b) = (self.mask(a, wide), self.mask(b, wide));
        a.zip(b, |a, b| self.binary(prim, Ty::Bool, a, b))
    }

    fn compare(&mut self, float: FloatCC, int: IntCC, ty: Ty, a: Val, b: Val) -> Val {
        let wide = matches!((a, b), (Val::Two(..), Val::Two(..)));
        let (a, b) = if ty == Ty::Bool { (self.mask(a, wide), self.mask(b, wide)) } else { (a, b) };
        a.zip(b, |a, b| if ty.is_float() { self.b.ins().fcmp(float, a, b) } else { self.b.ins().icmp(int, a, b) })
    }

    /// `Max` (`b < a`) and `Min` (`a < b`): the first operand where the comparison holds, else the second. In this form
    /// x86-64 has one instruction for it.
    fn select_by(&mut self, float: FloatCC, int: IntCC, ty: Ty, a: Val, b: Val, swapped: bool) -> Val {
        let (x, y) = if swapped { (b, a) } else { (a, b) };
        let holds = self.compare(float, int, ty, x, y);
        self.select(holds, a, b, ty)
    }

    /// Vector shifts take one amount for all lanes; different amounts are shifted lane by lane.
    fn shift(&mut self, prim: Prim, args: &[Arg]) -> Val {
        let ty = args[0].ty;
        if self.form == ValueForm::Vector && args[1].scalar.is_none() {
            let operands = [(args[0].val, ty), (args[1].val, ty)];
            return self.by_lane(&operands, ty, |scalar, lanes| {
                let arg = |val: Val| Arg { val, ty, scalar: Some(val.one()) };
                scalar.shift(prim, &[arg(lanes[0]), arg(lanes[1])])
            });
        }
        let amount = args[1].scalar.unwrap_or_else(|| args[1].val.one());
        args[0].val.map(|a| match prim {
            Prim::Shl => self.b.ins().ishl(a, amount),
            Prim::Shr => self.b.ins().sshr(a, amount),
            other => {
                debug_assert_eq!(other, Prim::ShrU);
                self.b.ins().ushr(a, amount)
            }
        })
    }

    fn convert(&mut self, a: Val, from: Ty, to: Ty) -> Val {
        match (from, to) {
            _ if from == to => a,
            (_, Ty::Bool) => {
                let zero = self.lit(Lit { ty: from, bits: 0 });
                self.compare(FloatCC::NotEqual, IntCC::NotEqual, from, a, zero)
            }
            (Ty::Bool, _) => self.bool_to_number(a, to),
            _ if self.form == ValueForm::Scalar => Val::One(self.convert_scalar(a.one(), from, to)),
            (Ty::I32, Ty::F32) => a.map(|a| self.b.ins().fcvt_from_sint(types::F32X4, a)),
            (Ty::F32, Ty::I32) => a.map(|a| self.b.ins().fcvt_to_sint_sat(types::I32X4, a)),
            (Ty::I32, Ty::I64) => self.mask(a, true),
            (Ty::I64, Ty::I32) => self.mask(a, false),
            (Ty::F32, Ty::F64) => {
                let high = self.upper(a.one());
                let low = self.b.ins().fvpromote_low(a.one());
                Val::Two(low, self.b.ins().fvpromote_low(high))
            }
            (Ty::F64, Ty::F32) => {
                // Each half has zeros above it.
                let mut halves = a.parts().map(|part| self.b.ins().fvdemote(part)).collect::<Vec<_>>().into_iter();
                let (low, high) = (halves.next().expect("two halves"), halves.next().expect("two halves"));
                let bytes = [0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23];
                Val::One(self.shuffle(low, high, bytes, types::F32X4))
            }
            _ => self
                .by_lane(&[(a, from)], to, |scalar, lanes| Val::One(scalar.convert_scalar(lanes[0].one(), from, to))),
        }
    }

    fn convert_scalar(&mut self, a: Value, from: Ty, to: Ty) -> Value {
        let part = self.part(to);
        match (from.is_float(), to.is_float()) {
            (true, true) if to == Ty::F64 => self.b.ins().fpromote(part, a),
            (true, true) => self.b.ins().fdemote(part, a),
            (true, false) => self.b.ins().fcvt_to_sint_sat(part, a),
            (false, true) => self.b.ins().fcvt_from_sint(part, a),
            (false, false) if to == Ty::I64 => self.b.ins().sextend(part, a),
            (false, false) => self.b.ins().ireduce(part, a),
        }
    }

    fn bool_to_number(&mut self, a: Val, to: Ty) -> Val {
        if self.form == ValueForm::Scalar {
            let int = if to == Ty::I64 { types::I64 } else { types::I32 };
            let int = self.b.ins().uextend(int, a.one());
            let part = self.part(to);
            return Val::One(if to.is_float() { self.b.ins().fcvt_from_sint(part, int) } else { int });
        }
        let one = self.lit(Lit::number(to, 1.0));
        let part = self.part(to);
        let mask = self.mask(a, matches!(to, Ty::I64 | Ty::F64)).map(|mask| self.cast(part, mask));
        mask.zip(one, |mask, one| self.b.ins().band(mask, one))
    }

    /// `other` where `value` is no NaN, else the literal.
    fn unless_nan(&mut self, value: Val, ty: Ty, other: Val, nan: Lit) -> Val {
        let nan = self.lit(nan);
        let number = self.compare(FloatCC::Equal, IntCC::Equal, ty, value, value);
        self.select(number, other, nan, ty)
    }
}

/// The half formats: the steps of [`crate::ir::scalar::half_bits`], on i32 lanes.
impl<'f> Emit<'_, 'f> {
    fn int_and(&mut self, a: Val, mask: i32) -> Val {
        let mask = self.int(mask);
        a.zip(mask, |a, mask| self.b.ins().band(a, mask))
    }

    fn int_or(&mut self, a: Val, b: Val) -> Val {
        a.zip(b, |a, b| self.b.ins().bor(a, b))
    }

    fn int_add(&mut self, a: Val, b: Val) -> Val {
        a.zip(b, |a, b| self.b.ins().iadd(a, b))
    }

    fn shifted_left(&mut self, a: Val, bits: i64) -> Val {
        a.map(|a| self.b.ins().ishl_imm_u(a, bits))
    }

    fn shifted_right(&mut self, a: Val, bits: i64) -> Val {
        a.map(|a| self.b.ins().ushr_imm_u(a, bits))
    }

    fn sign_extend(&mut self, a: Val, bits: i64) -> Val {
        let raised = self.shifted_left(a, bits);
        raised.map(|a| self.b.ins().sshr_imm_u(a, bits))
    }

    fn as_int(&mut self, a: Val) -> Val {
        let part = self.part(Ty::I32);
        a.map(|a| self.cast(part, a))
    }

    fn as_float(&mut self, a: Val) -> Val {
        let part = self.part(Ty::F32);
        a.map(|a| self.cast(part, a))
    }

    /// Whether non-negative i32 lanes are at least `bound`.
    fn at_least(&mut self, a: Val, bound: i32) -> Val {
        let bound = self.int(bound);
        self.compare(FloatCC::Equal, IntCC::SignedGreaterThanOrEqual, Ty::I32, a, bound)
    }

    /// The f32 of bf16 bits in i32 lanes.
    pub(super) fn widen_bf16(&mut self, bits: Val) -> Val {
        let bits = self.shifted_left(bits, 16);
        self.as_float(bits)
    }

    /// The f32 of f16 bits in i32 lanes.
    pub(super) fn widen_f16(&mut self, bits: Val) -> Val {
        let sign = self.int_and(bits, 0x8000);
        let sign = self.shifted_left(sign, 16);
        let magnitude = self.int_and(bits, 0x7fff);
        let raised = self.shifted_left(magnitude, 13);
        let scale = self.lit(Lit { ty: Ty::F32, bits: 0x7780_0000 });
        let float = self.as_float(raised);
        let finite = float.zip(scale, |a, b| self.b.ins().fmul(a, b));
        let finite = self.as_int(finite);
        let exponent = self.int(0x7f80_0000);
        let special = self.int_or(raised, exponent);
        let is_special = self.at_least(magnitude, 0x7c00);
        let magnitude = self.select(is_special, special, finite, Ty::I32);
        let bits = self.int_or(sign, magnitude);
        self.as_float(bits)
    }

    fn round_bf16(&mut self, a: Val) -> Val {
        let bits = self.as_int(a);
        let odd = self.shifted_right(bits, 16);
        let odd = self.int_and(odd, 1);
        let half = self.int(0x7fff);
        let bias = self.int_add(odd, half);
        let rounded = self.int_add(bits, bias);
        let rounded = self.int_and(rounded, 0xffff_0000_u32 as i32);
        let rounded = self.as_float(rounded);
        self.unless_nan(a, Ty::F32, rounded, Lit { ty: Ty::F32, bits: (BF16_NAN as u64) << 16 })
    }

    /// The f16 bits, without sign, nearest to a magnitude given as f32 bits; not for NaN.
    fn f16_magnitude(&mut self, magnitude: Val) -> Val {
        let odd = self.shifted_right(magnitude, 13);
        let odd = self.int_and(odd, 1);
        let bias = self.int(0xfff - (112 << 23));
        let normal = self.int_add(magnitude, odd);
        let normal = self.int_add(normal, bias);
        let normal = self.shifted_right(normal, 13);
        let half = self.lit(Lit::f32(0.5));
        let float = self.as_float(magnitude);
        let sum = float.zip(half, |a, b| self.b.ins().fadd(a, b));
        let sum = self.as_int(sum);
        let half = self.as_int(half);
        let subnormal = sum.zip(half, |a, b| self.b.ins().isub(a, b));
        let is_normal = self.at_least(magnitude, 0x3880_0000);
        let finite = self.select(is_normal, normal, subnormal, Ty::I32);
        let infinite = self.at_least(magnitude, 0x4780_0000);
        let infinity = self.int(0x7c00);
        self.select(infinite, infinity, finite, Ty::I32)
    }

    fn round_f16(&mut self, a: Val) -> Val {
        let bits = self.as_int(a);
        let sign = self.shifted_right(bits, 16);
        let sign = self.int_and(sign, 0x8000);
        let magnitude = self.int_and(bits, 0x7fff_ffff);
        let magnitude = self.f16_magnitude(magnitude);
        let rounded = self.int_or(sign, magnitude);
        let rounded = self.widen_f16(rounded);
        self.unless_nan(a, Ty::F32, rounded, Lit { ty: Ty::F32, bits: (F16_NAN as u64) << 13 | 0x7f80_0000 })
    }

    /// The f16 bits, in i32 lanes, of f32 lanes that hold f16 values.
    pub(super) fn narrow_f16(&mut self, a: Val) -> Val {
        let bits = self.as_int(a);
        let sign = self.shifted_right(bits, 16);
        let sign = self.int_and(sign, 0x8000);
        let magnitude = self.int_and(bits, 0x7fff_ffff);
        let finite = self.f16_magnitude(magnitude);
        let payload = self.shifted_right(magnitude, 13);
        let payload = self.int_and(payload, 0x3ff);
        let exponent = self.int(0x7c00);
        let special = self.int_or(payload, exponent);
        let is_special = self.at_least(magnitude, 0x7f80_0000);
        let magnitude = self.select(is_special, special, finite, Ty::I32);
        self.int_or(sign, magnitude)
    }

    /// The bf16 bits, in i32 lanes, of f32 lanes that hold bf16 values.
    pub(super) fn narrow_bf16(&mut self, a: Val) -> Val {
        let bits = self.as_int(a);
        self.shifted_right(bits, 16)
    }
}
