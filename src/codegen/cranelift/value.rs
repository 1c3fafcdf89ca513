//! Values of one or four lanes, and the builder that makes them.
//!
//! In scalar form a value is one CLIF value; bools are 0 or 1 in an `i8`. In vector form it has four lanes: one 128-bit
//! CLIF value for 32-bit types, two for 64-bit types. A vector bool is a mask of all-ones lanes, as wide as the
//! comparison that made it; [`Emit::mask`] converts it to the width of what it selects.

use crate::ir::scalar::{Lit, Ty};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::immediates::V128Imm;
use cranelift_codegen::ir::{ConstantData, Endianness, InstBuilder, MemFlagsData, Type, Value, types};
use cranelift_frontend::FunctionBuilder;

/// Lanes of a value in vector form.
pub(super) const LANES: usize = 4;

/// Whether code handles one element or [`LANES`] of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// One element.
    Scalar,
    /// Four neighbouring elements.
    Vector,
}

impl ValueForm {
    /// Elements handled at once.
    pub(super) const fn lanes(self) -> usize {
        match self {
            ValueForm::Scalar => 1,
            ValueForm::Vector => LANES,
        }
    }
}

/// A value of one or four lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Val {
    /// A scalar, or four lanes of 32 bits.
    One(Value),
    /// Four lanes of 64 bits, lower two first.
    Two(Value, Value),
}

impl Val {
    /// The parts, lower lanes first.
    pub(super) fn parts(self) -> impl Iterator<Item = Value> {
        let (first, second) = match self {
            Val::One(a) => (a, None),
            Val::Two(a, b) => (a, Some(b)),
        };
        std::iter::once(first).chain(second)
    }

    /// The only part.
    pub(super) fn one(self) -> Value {
        match self {
            Val::One(a) => a,
            Val::Two(..) => unreachable!("a 64-bit vector where a scalar or 32-bit vector belongs"),
        }
    }

    /// A value with as many parts as this one has.
    pub(super) fn rebuilt(self, parts: &mut impl Iterator<Item = Value>) -> Val {
        let mut next = || parts.next().expect("as many parts as the value has");
        match self {
            Val::One(_) => Val::One(next()),
            Val::Two(..) => Val::Two(next(), next()),
        }
    }

    /// Applies `f` to every part.
    pub(super) fn map(self, mut f: impl FnMut(Value) -> Value) -> Val {
        match self {
            Val::One(a) => Val::One(f(a)),
            Val::Two(a, b) => Val::Two(f(a), f(b)),
        }
    }

    /// Applies `f` to the parts of two values of the same width.
    pub(super) fn zip(self, other: Val, mut f: impl FnMut(Value, Value) -> Value) -> Val {
        match (self, other) {
            (Val::One(a), Val::One(b)) => Val::One(f(a, b)),
            (Val::Two(a, c), Val::Two(b, d)) => Val::Two(f(a, b), f(c, d)),
            (Val::One(_), Val::Two(..)) | (Val::Two(..), Val::One(_)) => {
                unreachable!("operands of one type have one width")
            }
        }
    }
}

/// Flags of a memory access that cannot trap; it may be unaligned.
pub(super) fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

fn lane_order() -> MemFlagsData {
    MemFlagsData::new().with_endianness(Endianness::Little)
}

/// Emits values in one form into a function.
pub(super) struct Emit<'a, 'f> {
    /// The function.
    pub(super) b: &'a mut FunctionBuilder<'f>,
    /// The form of the emitted values.
    pub(super) form: ValueForm,
}

impl<'a, 'f> Emit<'a, 'f> {
    /// The same function in another form.
    pub(super) fn with_form(&mut self, form: ValueForm) -> Emit<'_, 'f> {
        Emit { b: self.b, form }
    }

    /// The CLIF type of a part of a value of type `ty`; for a bool in vector form, the narrow mask.
    pub(super) fn part(&self, ty: Ty) -> Type {
        match (self.form, ty) {
            (ValueForm::Scalar, Ty::Bool) => types::I8,
            (ValueForm::Scalar, Ty::I32) => types::I32,
            (ValueForm::Scalar, Ty::I64) => types::I64,
            (ValueForm::Scalar, Ty::F32) => types::F32,
            (ValueForm::Scalar, Ty::F64) => types::F64,
            (ValueForm::Vector, Ty::Bool | Ty::I32) => types::I32X4,
            (ValueForm::Vector, Ty::I64) => types::I64X2,
            (ValueForm::Vector, Ty::F32) => types::F32X4,
            (ValueForm::Vector, Ty::F64) => types::F64X2,
        }
    }

    /// A literal.
    pub(super) fn lit(&mut self, lit: Lit) -> Val {
        match self.form {
            ValueForm::Scalar => Val::One(self.scalar_lit(lit)),
            ValueForm::Vector => match lit.ty {
                Ty::Bool => Val::One(self.lanes32(if lit.as_bool() { u32::MAX } else { 0 }, types::I32X4)),
                Ty::I32 | Ty::F32 => Val::One(self.lanes32(lit.bits as u32, self.part(lit.ty))),
                Ty::I64 | Ty::F64 => {
                    let part = self.lanes64([lit.bits, lit.bits], self.part(lit.ty));
                    Val::Two(part, part)
                }
            },
        }
    }

    /// An i32 literal.
    pub(super) fn int(&mut self, value: i32) -> Val {
        self.lit(Lit::i32(value))
    }

    fn scalar_lit(&mut self, lit: Lit) -> Value {
        match lit.ty {
            Ty::Bool => self.b.ins().iconst(types::I8, lit.bits as i64),
            Ty::I32 => self.b.ins().iconst(types::I32, lit.bits as i64),
            Ty::I64 => self.b.ins().iconst(types::I64, lit.bits as i64),
            Ty::F32 => self.b.ins().f32const(lit.as_f32()),
            Ty::F64 => self.b.ins().f64const(lit.as_f64()),
        }
    }

    fn lanes32(&mut self, bits: u32, ty: Type) -> Value {
        self.lanes64([bits as u64 * 0x1_0000_0001; 2], ty)
    }

    /// A vector constant from its two halves.
    pub(super) fn lanes64(&mut self, bits: [u64; 2], ty: Type) -> Value {
        let mut bytes = [0u8; 16];
        bytes[..8].copy_from_slice(&bits[0].to_le_bytes());
        bytes[8..].copy_from_slice(&bits[1].to_le_bytes());
        let constant = self.b.func.dfg.constants.insert(ConstantData::from(V128Imm(bytes)));
        self.b.ins().vconst(ty, constant)
    }

    /// Bitcasts a part to another type of the same width.
    pub(super) fn cast(&mut self, ty: Type, value: Value) -> Value {
        if self.b.func.dfg.value_type(value) == ty { value } else { self.b.ins().bitcast(ty, lane_order(), value) }
    }

    /// Selects bytes of two vectors by number, with those of `b` starting at 16.
    pub(super) fn shuffle(&mut self, a: Value, b: Value, bytes: [u8; 16], ty: Type) -> Value {
        let (a, b) = (self.cast(types::I8X16, a), self.cast(types::I8X16, b));
        let mask = self.b.func.dfg.immediates.push(ConstantData::from(V128Imm(bytes)));
        let picked = self.b.ins().shuffle(a, b, mask);
        self.cast(ty, picked)
    }

    /// The upper two 32-bit lanes moved to the lower two.
    pub(super) fn upper(&mut self, vector: Value) -> Value {
        let ty = self.b.func.dfg.value_type(vector);
        self.shuffle(vector, vector, [8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15], ty)
    }

    /// The low halves of the 64-bit lanes of two vectors.
    pub(super) fn low_halves(&mut self, a: Value, b: Value) -> Value {
        self.shuffle(a, b, [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27], types::I32X4)
    }

    /// A vector mask as four lanes of 32 bits, or as pairs of 64 bits; a scalar bool unchanged.
    pub(super) fn mask(&mut self, mask: Val, wide: bool) -> Val {
        match (self.form, mask, wide) {
            (ValueForm::Scalar, _, _)
            | (ValueForm::Vector, Val::One(_), false)
            | (ValueForm::Vector, Val::Two(..), true) => mask,
            (ValueForm::Vector, Val::One(narrow), true) => {
                let low = self.b.ins().swiden_low(narrow);
                Val::Two(low, self.b.ins().swiden_high(narrow))
            }
            (ValueForm::Vector, Val::Two(low, high), false) => Val::One(self.low_halves(low, high)),
        }
    }

    /// `mask ? yes : no` for values of type `ty`.
    pub(super) fn select(&mut self, mask: Val, yes: Val, no: Val, ty: Ty) -> Val {
        if self.form == ValueForm::Scalar {
            return Val::One(self.b.ins().select(mask.one(), yes.one(), no.one()));
        }
        let (yes, no) = if ty == Ty::Bool { (self.mask(yes, false), self.mask(no, false)) } else { (yes, no) };
        let part = self.part(ty);
        let mask = self.mask(mask, matches!(ty, Ty::I64 | Ty::F64)).map(|mask| self.cast(part, mask));
        let mut masks = mask.parts();
        yes.zip(no, |yes, no| {
            let mask = masks.next().expect("a mask part per value part");
            self.b.ins().bitselect(mask, yes, no)
        })
    }

    /// Broadcasts a scalar to all lanes; in scalar form it is unchanged.
    pub(super) fn splat(&mut self, scalar: Value, ty: Ty) -> Val {
        if self.form == ValueForm::Scalar {
            return Val::One(scalar);
        }
        let part = self.part(ty);
        match ty {
            Ty::Bool => Val::One(self.lane_mask(scalar, |b, ones| b.ins().splat(types::I32X4, ones))),
            Ty::I32 | Ty::F32 => Val::One(self.b.ins().splat(part, scalar)),
            Ty::I64 | Ty::F64 => {
                let both = self.b.ins().splat(part, scalar);
                Val::Two(both, both)
            }
        }
    }

    fn lane_mask(&mut self, bool: Value, put: impl FnOnce(&mut FunctionBuilder<'f>, Value) -> Value) -> Value {
        let wide = self.b.ins().uextend(types::I32, bool);
        let ones = self.b.ins().ineg(wide);
        put(self.b, ones)
    }

    /// Extracts one lane of a vector value.
    pub(super) fn lane(&mut self, value: Val, ty: Ty, lane: usize) -> Value {
        let value = if ty == Ty::Bool { self.mask(value, false) } else { value };
        match value {
            Val::One(part) => {
                let scalar = self.b.ins().extractlane(part, lane as u8);
                if ty == Ty::Bool { self.b.ins().icmp_imm_s(IntCC::NotEqual, scalar, 0) } else { scalar }
            }
            Val::Two(low, high) => self.b.ins().extractlane(if lane < 2 { low } else { high }, (lane % 2) as u8),
        }
    }

    /// Builds a vector value from its lanes.
    pub(super) fn join_lanes(&mut self, lanes: [Value; LANES], ty: Ty) -> Val {
        let part = self.part(ty);
        match ty {
            Ty::Bool => {
                let ints = lanes.map(|lane| self.lane_mask(lane, |_, ones| ones));
                self.join_lanes(ints, Ty::I32)
            }
            Ty::I32 | Ty::F32 => {
                let first = self.b.ins().splat(part, lanes[0]);
                let rest = lanes.into_iter().enumerate().skip(1);
                Val::One(rest.fold(first, |vector, (at, lane)| self.b.ins().insertlane(vector, lane, at as u8)))
            }
            Ty::I64 | Ty::F64 => {
                let mut pair = |a: Value, b: Value| {
                    let first = self.b.ins().splat(part, a);
                    self.b.ins().insertlane(first, b, 1u8)
                };
                Val::Two(pair(lanes[0], lanes[1]), pair(lanes[2], lanes[3]))
            }
        }
    }

    /// Applies `scalar` to every lane of operands of the given types.
    pub(super) fn by_lane(
        &mut self,
        args: &[(Val, Ty)],
        ty: Ty,
        mut scalar: impl FnMut(&mut Emit<'_, 'f>, &[Val]) -> Val,
    ) -> Val {
        let mut lanes = Vec::with_capacity(LANES);
        for lane in 0..LANES {
            let operands: Vec<Val> = args.iter().map(|&(arg, ty)| Val::One(self.lane(arg, ty, lane))).collect();
            lanes.push(scalar(&mut self.with_form(ValueForm::Scalar), &operands).one());
        }
        self.join_lanes([lanes[0], lanes[1], lanes[2], lanes[3]], ty)
    }
}
