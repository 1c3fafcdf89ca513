//! Instruction selection for prims, with the bits of [`crate::ir::scalar::eval`].
//!
//! A value of 32-bit lanes is one register, one of 64-bit lanes as many as [`BlockShape`] says, and a bool one mask
//! (see [`super::masks`]). Where AVX2 has no instruction, [`super::emulated`] has several. Inactive lanes may hold
//! anything; no instruction faults on them.

use super::code::{BasicBlock, Class, Inst, Minus, Op, Origin, V};
use super::encoder::{Constant, Encoder, Width};
use super::level::Level;
use super::masks::Relation;
use super::opcode::{self, Opcode, Pair};
use super::register_list::RegisterList;
use crate::ir::scalar::half_bits::F16_NAN;
use crate::ir::scalar::{Lit, Prim, Ty};
use rustc_hash::FxHashMap;

/// A value: its registers.
pub(super) type Val = RegisterList<2>;

/// How many lanes a block works on, and in which registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockShape {
    /// As many elements as a vector has 32-bit lanes; two vectors of 64-bit lanes.
    Vector,
    /// One register for every type; a type counts at most as many lanes as 64-bit lanes fit.
    Half,
    /// One element, in the lowest lane.
    Row,
}

impl BlockShape {
    /// Registers of a value.
    pub(super) const fn parts(self, ty: Ty) -> usize {
        match self {
            BlockShape::Vector if is_wide(ty) => 2,
            BlockShape::Vector | BlockShape::Half | BlockShape::Row => 1,
        }
    }
}

/// Whether lanes have 64 bits.
pub(super) const fn is_wide(ty: Ty) -> bool {
    matches!(ty, Ty::I64 | Ty::F64)
}

/// A block under construction.
pub(super) struct Select<'e> {
    /// The block so far.
    pub(super) block: BasicBlock,
    /// Holds the constants.
    pub(super) encoder: &'e mut Encoder,
    /// The lanes of the block.
    pub(super) shape: BlockShape,
    /// Offset in the frame of a buffer for narrow elements that are copied one by one.
    pub(super) narrow: i32,
    /// The registers of constants, by number.
    constants: Vec<Option<V>>,
    /// Masks of no and of all lanes.
    pub(super) lanes: [Option<V>; 2],
    /// Parts of masks that are remembered.
    pub(super) mask_parts: FxHashMap<V, Val>,
    /// Lane distances: offsets in the frame, with their registers.
    pub(super) distances: Vec<(i32, V)>,
}

impl<'e> Select<'e> {
    /// An empty block with room for `n_insts` instructions; `narrow` is the offset in the frame of a buffer for a
    /// vector of narrow elements.
    pub(super) fn new(encoder: &'e mut Encoder, shape: BlockShape, narrow: i32, n_insts: usize) -> Select<'e> {
        let block = BasicBlock::new(encoder.level(), n_insts);
        let (constants, mask_parts, distances) = (Vec::new(), FxHashMap::default(), Vec::new());
        Select { block, encoder, shape, narrow, constants, lanes: [None; 2], mask_parts, distances }
    }

    /// The instruction set.
    pub(super) fn level(&self) -> Level {
        self.encoder.level()
    }

    /// The width of instructions.
    pub(super) fn width(&self) -> Width {
        match self.shape {
            BlockShape::Vector | BlockShape::Half => self.level().width(),
            BlockShape::Row => Width::X,
        }
    }

    /// Whether the level has no instruction for lanes of that type.
    fn lacks(&self, opcodes: &'static Pair, ty: Ty) -> bool {
        opcodes[is_wide(ty) as usize].form(self.level()).is_none()
    }

    /// Adds an instruction of the block's width.
    pub(super) fn push(&mut self, opcode: &'static Opcode, result: Option<V>, args: &[V], imm: Option<u8>) {
        self.push_as(opcode, self.width(), result, args, imm);
    }

    /// Adds an instruction of a given width.
    pub(super) fn push_as(
        &mut self,
        opcode: &'static Opcode,
        width: Width,
        result: Option<V>,
        args: &[V],
        imm: Option<u8>,
    ) {
        self.push_inst(Inst {
            op: Op::Machine(opcode),
            width,
            result,
            args: args.into(),
            lanes: None,
            address: None,
            imm,
        });
    }

    /// Adds an instruction.
    pub(super) fn push_inst(&mut self, inst: Inst) {
        self.block.insts.push(inst);
    }

    /// A new vector register.
    pub(super) fn vector(&mut self, wide: bool) -> V {
        self.block.register(Class::Vector, wide, Origin::Block)
    }

    /// The vector that an instruction makes.
    pub(super) fn op(&mut self, opcode: &'static Opcode, args: &[V]) -> V {
        self.op_imm(opcode, args, None)
    }

    /// The vector that an instruction with an immediate makes.
    pub(super) fn op_imm(&mut self, opcode: &'static Opcode, args: &[V], imm: Option<u8>) -> V {
        let result = self.vector(opcode.wide);
        self.push(opcode, Some(result), args, imm);
        result
    }

    /// A constant, uniform for all lanes.
    pub(super) fn shared(&mut self, constant: Constant, wide: bool) -> V {
        let number = self.encoder.constant(constant);
        if self.constants.len() <= number as usize {
            self.constants.resize(number as usize + 1, None);
        }
        if let Some(v) = self.constants[number as usize] {
            return v;
        }
        let v = self.block.register(Class::Vector, wide, Origin::Constant(number));
        self.constants[number as usize] = Some(v);
        v
    }

    /// A 32-bit constant, uniform for all lanes.
    pub(super) fn word(&mut self, bits: u32) -> V {
        self.shared(Constant::Word(bits), false)
    }

    /// A constant of the width, uniform for all lanes.
    pub(super) fn bits(&mut self, wide: bool, bits: u64) -> V {
        if wide { self.shared(Constant::Double(bits), true) } else { self.word(bits as u32) }
    }

    /// A literal, uniform for all lanes.
    pub(super) fn lit(&mut self, lit: Lit) -> Val {
        if lit.ty == Ty::Bool {
            return Val::from([self.all_lanes(lit.as_bool())]);
        }
        let v = self.bits(is_wide(lit.ty), lit.bits);
        Val::repeated(v, self.shape.parts(lit.ty))
    }

    fn each(&mut self, a: &Val, mut op: impl FnMut(&mut Self, V) -> V) -> Val {
        a.iter().map(|&a| op(self, a)).collect()
    }

    fn both(&mut self, a: &Val, b: &Val, opcodes: &'static Pair, ty: Ty) -> Val {
        let opcode = &opcodes[is_wide(ty) as usize];
        let swap = commutes(opcode) && self.is_shared(a[0]) && !self.is_shared(b[0]);
        let (a, b) = if swap { (b, a) } else { (a, b) };
        a.iter().zip(b).map(|(&a, &b)| self.op(opcode, &[a, b])).collect()
    }

    fn is_shared(&self, v: V) -> bool {
        self.block.info(v).origin != Origin::Block
    }

    /// The value of a prim on these operands.
    pub(super) fn prim(&mut self, prim: Prim, args: &[Val], ty: Ty) -> Val {
        let a = &args[0];
        match prim {
            Prim::Convert(to) => self.convert(a, ty, to),
            Prim::Select => {
                let parts = args[1].len();
                (0..parts).map(|part| self.blend(args[0][0], args[1][part], args[2][part], part)).collect()
            }
            Prim::Bitcast => *a,
            Prim::Eq => self.compare(Relation::Eq, a, &args[1], ty),
            Prim::Ne => self.compare(Relation::Ne, a, &args[1], ty),
            Prim::Lt => self.compare(Relation::Lt, a, &args[1], ty),
            Prim::Le => self.compare(Relation::Le, a, &args[1], ty),
            Prim::Quot | Prim::Rem | Prim::IntPow => unreachable!("kernels with these are declined before"),
            Prim::Not if ty == Ty::Bool => Val::from([self.not(a[0])]),
            Prim::And | Prim::Or | Prim::Xor if ty == Ty::Bool => Val::from([self.logic(prim, a[0], args[1][0])]),
            Prim::Add if ty.is_float() => self.both(a, &args[1], &opcode::ADD_F, ty),
            Prim::Sub if ty.is_float() => self.both(a, &args[1], &opcode::SUB_F, ty),
            Prim::Mul if ty.is_float() => self.both(a, &args[1], &opcode::MUL_F, ty),
            Prim::Max if ty.is_float() => self.both(a, &args[1], &opcode::MAX_F, ty),
            Prim::Min if ty.is_float() => self.both(a, &args[1], &opcode::MIN_F, ty),
            Prim::Add => self.both(a, &args[1], &opcode::ADD_I, ty),
            Prim::Sub => self.both(a, &args[1], &opcode::SUB_I, ty),
            Prim::Mul if self.lacks(&opcode::MUL_I, ty) => self.each_part(a, &args[1], Select::product_64),
            Prim::Max | Prim::Min if self.lacks(&opcode::MAX_I, ty) => {
                self.each_part(a, &args[1], |this, a, b| this.extreme_64(prim, a, b))
            }
            Prim::Mul => self.both(a, &args[1], &opcode::MUL_I, ty),
            Prim::Max => self.both(a, &args[1], &opcode::MAX_I, ty),
            Prim::Min => self.both(a, &args[1], &opcode::MIN_I, ty),
            Prim::Div => self.both(a, &args[1], &opcode::DIV_F, ty),
            Prim::And => self.both(a, &args[1], &opcode::AND, ty),
            Prim::Or => self.both(a, &args[1], &opcode::OR, ty),
            Prim::Xor => self.both(a, &args[1], &opcode::XOR, ty),
            Prim::Fma => self.fma(a, &args[1], &args[2], ty, Minus::default()),
            Prim::Neg => self.negate(a, ty),
            Prim::Abs if ty.is_float() => self.with_bits(a, &opcode::AND, ty, !sign_bit(ty)),
            Prim::Abs if self.lacks(&opcode::ABS_I, ty) => self.each(a, Select::absolute_64),
            Prim::Abs => self.each(a, |this, a| this.op(&opcode::ABS_I[is_wide(ty) as usize], &[a])),
            Prim::Not => self.with_bits(a, &opcode::XOR, ty, u64::MAX),
            Prim::Sqrt => self.each(a, |this, a| this.op(&opcode::SQRT[is_wide(ty) as usize], &[a])),
            Prim::RoundEven => self.round(a, ty, 0),
            Prim::Floor => self.round(a, ty, 1),
            Prim::Ceil => self.round(a, ty, 2),
            Prim::Trunc => self.round(a, ty, 3),
            Prim::Shl => self.shift(args, ty, &opcode::SHL, &opcode::SHL_IMM),
            Prim::Shr => self.shift(args, ty, &opcode::SAR, &opcode::SAR_IMM),
            Prim::ShrU => self.shift(args, ty, &opcode::SHR, &opcode::SHR_IMM),
            Prim::Canon => {
                let nan = if is_wide(ty) { f64::NAN.to_bits() } else { f32::NAN.to_bits() as u64 };
                self.unless_nan(a, a, ty, nan)
            }
            Prim::RoundF16 => self.round_f16(a),
            Prim::RoundBF16 => self.round_bf16(a),
            Prim::WrapU8 => self.with_bits(a, &opcode::AND, ty, 0xff),
            Prim::WrapI8 => self.sign_extend(a, 24),
            Prim::WrapI16 => self.sign_extend(a, 16),
        }
    }

    /// `a * b + c`, with the subtractions of `minus`.
    pub(super) fn fma(&mut self, a: &Val, b: &Val, c: &Val, ty: Ty, minus: Minus) -> Val {
        let wide = is_wide(ty);
        (0..a.len())
            .map(|part| {
                let result = self.vector(wide);
                self.push_inst(Inst {
                    op: Op::Fma { minus, wide },
                    width: self.width(),
                    result: Some(result),
                    args: RegisterList::from([a[part], b[part], c[part]]),
                    lanes: None,
                    address: None,
                    imm: None,
                });
                result
            })
            .collect()
    }

    /// `p 2^n` for an integer `n`.
    pub(super) fn scale(&mut self, p: &Val, n: &Val, ty: Ty) -> Val {
        self.both(p, n, &opcode::SCALE, ty)
    }

    fn negate(&mut self, a: &Val, ty: Ty) -> Val {
        if ty.is_float() {
            return self.with_bits(a, &opcode::XOR, ty, sign_bit(ty));
        }
        let zero = self.lit(Lit { ty, bits: 0 });
        self.both(&zero, a, &opcode::SUB_I, ty)
    }

    fn with_bits(&mut self, a: &Val, opcodes: &'static Pair, ty: Ty, bits: u64) -> Val {
        let constant = self.bits(is_wide(ty), bits);
        self.each(a, |this, a| this.op(&opcodes[is_wide(ty) as usize], &[a, constant]))
    }

    fn round(&mut self, a: &Val, ty: Ty, mode: u8) -> Val {
        // Bit 3: no floating-point exception for inexact results.
        self.each(a, |this, a| this.op_imm(&opcode::ROUND[is_wide(ty) as usize], &[a], Some(8 | mode)))
    }

    /// A shift. Amounts are taken modulo the width; the instructions would give zero for larger ones.
    fn shift(&mut self, args: &[Val], ty: Ty, by_lane: &'static Pair, by_imm: &'static Pair) -> Val {
        let wide = is_wide(ty) as usize;
        let modulus = if wide == 1 { 63 } else { 31 };
        let amount = args[1][0];
        if self.lacks(by_lane, ty) {
            let amounts = self.with_bits(&args[1], &opcode::AND, ty, modulus);
            return self.each_part(&args[0], &amounts, Select::shift_right_64);
        }
        if let Origin::Constant(number) = self.block.info(amount).origin {
            let bits = (self.encoder.constant_bits(number) & modulus) as u8;
            return self.each(&args[0], |this, a| this.op_imm(&by_imm[wide], &[a], Some(bits)));
        }
        let amounts = self.with_bits(&args[1], &opcode::AND, ty, modulus);
        args[0].iter().zip(&amounts).map(|(&a, &amount)| self.op(&by_lane[wide], &[a, amount])).collect()
    }

    fn sign_extend(&mut self, a: &Val, bits: u8) -> Val {
        let raised = self.each(a, |this, a| this.op_imm(&opcode::SHL_IMM[0], &[a], Some(bits)));
        self.each(&raised, |this, a| this.op_imm(&opcode::SAR_IMM[0], &[a], Some(bits)))
    }

    /// `value` where `a` is no NaN, the bits `nan` elsewhere.
    fn unless_nan(&mut self, a: &Val, value: &Val, ty: Ty, nan: u64) -> Val {
        let is_nan = self.is_nan(a, ty);
        let nan = self.bits(is_wide(ty), nan);
        (0..value.len()).map(|part| self.blend(is_nan, nan, value[part], part)).collect()
    }

    fn round_f16(&mut self, a: &Val) -> Val {
        let wide = Val::from([self.rounded_f16(a[0])]);
        let nan = ((F16_NAN as u64) << 13) | 0x7f80_0000;
        self.unless_nan(a, &wide, Ty::F32, nan)
    }

    /// Rounds each lane to f16 and widens it; a NaN keeps the upper bits of its payload.
    pub(super) fn rounded_f16(&mut self, a: V) -> V {
        let narrow = self.narrow_f16(a);
        self.op(&opcode::F16_TO_F32, &[narrow])
    }

    /// Rounds lanes to f16, in the lower half of a register.
    pub(super) fn narrow_f16(&mut self, a: V) -> V {
        self.op_imm(&opcode::F32_TO_F16, &[a], Some(0))
    }

    fn round_bf16(&mut self, a: &Val) -> Val {
        let odd = self.op_imm(&opcode::SHR_IMM[0], &[a[0]], Some(16));
        let one = self.word(1);
        let odd = self.op(&opcode::AND[0], &[odd, one]);
        let half = self.word(0x7fff);
        let bias = self.op(&opcode::ADD_I[0], &[odd, half]);
        let sum = self.op(&opcode::ADD_I[0], &[a[0], bias]);
        let high = self.word(0xffff_0000);
        let rounded = Val::from([self.op(&opcode::AND[0], &[sum, high])]);
        self.unless_nan(a, &rounded, Ty::F32, f32::NAN.to_bits() as u64)
    }

    /// Moves the upper half of a register of 32-bit lanes to the lower half of another.
    pub(super) fn upper(&mut self, a: V) -> V {
        let opcode = match self.level() {
            Level::Avx2 => &opcode::EXTRACT_X,
            Level::Avx512 => &opcode::EXTRACT_Y,
        };
        let result = self.vector(false);
        self.push(opcode, Some(result), &[a], Some(1));
        result
    }

    /// Splits 32-bit lanes into two halves of a register, as the lower halves of the parts of a 64-bit value.
    pub(super) fn halves(&mut self, a: V) -> Val {
        match self.shape {
            BlockShape::Vector => Val::from([a, self.upper(a)]),
            BlockShape::Half | BlockShape::Row => Val::from([a]),
        }
    }

    /// Joins 32-bit lanes from the lower halves of parts.
    pub(super) fn join_halves(&mut self, parts: &Val) -> Val {
        match parts[..] {
            [low, high] => {
                let opcode = match self.level() {
                    Level::Avx2 => &opcode::INSERT_X,
                    Level::Avx512 => &opcode::INSERT_Y,
                };
                let result = self.vector(false);
                self.push(opcode, Some(result), &[low, high], Some(1));
                Val::from([result])
            }
            _ => *parts,
        }
    }

    fn widen(&mut self, a: &Val, opcode: &'static Opcode) -> Val {
        let halves = self.halves(a[0]);
        halves.iter().map(|&half| self.widened(opcode, half)).collect()
    }

    /// Widens the lower half of a register to 64-bit lanes.
    pub(super) fn widened(&mut self, opcode: &'static Opcode, half: V) -> V {
        let result = self.vector(true);
        self.push(opcode, Some(result), &[half], None);
        result
    }

    fn narrowed(&mut self, a: &Val, opcode: &'static Opcode) -> Val {
        let parts: Val = a
            .iter()
            .map(|&a| {
                let result = self.vector(false);
                self.push(opcode, Some(result), &[a], None);
                result
            })
            .collect();
        self.join_halves(&parts)
    }

    fn convert(&mut self, a: &Val, from: Ty, to: Ty) -> Val {
        match (from, to) {
            _ if from == to => *a,
            (_, Ty::Bool) => {
                let zero = self.lit(Lit { ty: from, bits: 0 });
                self.compare(Relation::Ne, a, &zero, from)
            }
            (Ty::Bool, _) => {
                let one = self.bits(is_wide(to), Lit::number(to, 1.0).bits);
                (0..self.shape.parts(to)).map(|part| self.only(a[0], part, one)).collect()
            }
            (Ty::I32, Ty::F32) => self.each(a, |this, a| this.op(&opcode::I32_TO_F32, &[a])),
            (Ty::I32, Ty::I64) => self.widen(a, &opcode::I32_TO_I64),
            (Ty::I32, Ty::F64) => self.widen(a, &opcode::I32_TO_F64),
            (Ty::I64, Ty::I32) if self.level() == Level::Avx2 => Val::from([self.packed(a)]),
            (Ty::I64, Ty::F64) if self.level() == Level::Avx2 => self.each(a, Select::i64_to_f64),
            (Ty::I64, Ty::F32) if self.level() == Level::Avx2 => {
                let sticky = self.each(a, Select::sticky_64);
                let doubles = self.each(&sticky, Select::i64_to_f64);
                self.narrowed(&doubles, &opcode::F64_TO_F32)
            }
            (Ty::I64, Ty::I32) => self.narrowed(a, &opcode::I64_TO_I32),
            (Ty::I64, Ty::F32) => self.narrowed(a, &opcode::I64_TO_F32),
            (Ty::I64, Ty::F64) => self.each(a, |this, a| this.op(&opcode::I64_TO_F64, &[a])),
            (Ty::F32, Ty::F64) => self.widen(a, &opcode::F32_TO_F64),
            (Ty::F64, Ty::F32) => self.narrowed(a, &opcode::F64_TO_F32),
            (Ty::F32, Ty::I32) => {
                let cut = self.each(a, |this, a| this.op(&opcode::F32_TO_I32, &[a]));
                self.saturate(a, from, &cut, to)
            }
            (Ty::F32, Ty::I64) => {
                let cut = match self.level() {
                    Level::Avx2 => {
                        let doubles = self.widen(a, &opcode::F32_TO_F64);
                        self.each(&doubles, Select::f64_to_i64)
                    }
                    Level::Avx512 => self.widen(a, &opcode::F32_TO_I64),
                };
                self.saturate(a, from, &cut, to)
            }
            (Ty::F64, Ty::I32) => {
                let cut = self.narrowed(a, &opcode::F64_TO_I32);
                self.saturate(a, from, &cut, to)
            }
            (Ty::F64, Ty::I64) => {
                let cut = match self.level() {
                    Level::Avx2 => self.each(a, Select::f64_to_i64),
                    Level::Avx512 => self.each(a, |this, a| this.op(&opcode::F64_TO_I64, &[a])),
                };
                self.saturate(a, from, &cut, to)
            }
            (Ty::F32, Ty::F32) | (Ty::I32, Ty::I32) | (Ty::I64, Ty::I64) | (Ty::F64, Ty::F64) => *a,
        }
    }

    /// Saturates a conversion. The instruction gives the least integer for everything out of range and for NaN. Here,
    /// too large values give the greatest integer, and NaN gives zero.
    fn saturate(&mut self, a: &Val, from: Ty, cut: &Val, to: Ty) -> Val {
        let limit = Lit::number(from, if to == Ty::I32 { 2147483648.0 } else { 9223372036854775808.0 });
        let limit = self.lit(limit);
        let too_large = self.compare(Relation::Le, &limit, a, from)[0];
        let greatest = self.bits(is_wide(to), if to == Ty::I32 { i32::MAX as u64 } else { i64::MAX as u64 });
        let number = self.compare(Relation::Eq, a, a, from)[0];
        (0..cut.len())
            .map(|part| {
                let limited = self.blend(too_large, greatest, cut[part], part);
                self.only(number, part, limited)
            })
            .collect()
    }
}

fn sign_bit(ty: Ty) -> u64 {
    if is_wide(ty) { 1 << 63 } else { 1 << 31 }
}

/// Whether the operands may be swapped. The first of two NaNs gives the result its payload, which no output shows.
fn commutes(opcode: &'static Opcode) -> bool {
    [&opcode::ADD_F, &opcode::MUL_F, &opcode::ADD_I, &opcode::MUL_I, &opcode::AND, &opcode::OR, &opcode::XOR]
        .iter()
        .any(|pair| pair.contains(opcode))
}
