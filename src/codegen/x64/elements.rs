//! Loads and stores of every dtype, contiguous or strided, masked or not.
//!
//! AVX2 masks loads and stores of 32-bit and 64-bit lanes only. So the narrow elements of a partial iteration are
//! copied through the frame, one by one.

use super::code::{Address, Class, CopyDirection, Inst, Lanes, Op, Origin, Start, Those, V};
use super::encoder::Width;
use super::level::Level;
use super::opcode::{self, Opcode};
use super::register_list::RegisterList;
use super::select::{BlockShape, Select, Val};
use crate::ir::DType;
use crate::ir::scalar::Ty;

/// How the elements of an access lie in memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layout {
    /// Contiguous, starting at this address.
    Contiguous(Address),
    /// Strided, starting at the address that was computed last. The distances are 64-bit lanes at this offset in the
    /// frame.
    Strided(i32),
}

/// When a vector is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Now: an output written before its use may be the same memory.
    Here,
    /// At each use.
    Needed,
}

/// Whether the payloads of f16 NaNs must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payloads {
    /// An output may show them.
    Kept,
    /// No output shows them.
    Lost,
}

impl Select<'_> {
    /// Loads elements in their computation type. Lanes outside the mask read nothing.
    pub(super) fn load(
        &mut self,
        dtype: DType,
        layout: Layout,
        mask: Option<V>,
        payloads: Payloads,
        when: When,
    ) -> Val {
        let address = match layout {
            Layout::Contiguous(address) => address,
            Layout::Strided(distances) => return self.gather(dtype, distances, mask),
        };
        let (address, mask) = self.readable(dtype, address, mask);
        let width = self.width();
        match dtype {
            DType::F32 | DType::I32 | DType::F64 | DType::I64 if mask.is_none() && when == When::Needed => {
                let wide = dtype.size() == 8;
                (0..self.shape.parts(dtype.compute()))
                    .map(|part| {
                        let origin = Origin::Memory(ahead(address, part as i32 * width.bytes()));
                        self.block.register(Class::Vector, wide, origin)
                    })
                    .collect()
            }
            DType::F32 | DType::I32 | DType::F64 | DType::I64 => {
                let wide = dtype.size() == 8;
                (0..self.shape.parts(dtype.compute()))
                    .map(|part| {
                        let mask = mask.map(|mask| self.mask_part(mask, part, wide));
                        let address = ahead(address, part as i32 * width.bytes());
                        self.load_as(&opcode::LOAD[wide as usize], width, address, mask, wide)
                    })
                    .collect()
            }
            DType::U8 => Val::from([self.load_as(&opcode::LOAD_U8, width, address, mask, false)]),
            DType::I8 => Val::from([self.load_as(&opcode::LOAD_I8, width, address, mask, false)]),
            DType::I16 => Val::from([self.load_as(&opcode::LOAD_I16, width, address, mask, false)]),
            DType::BF16 => {
                let raw = self.load_as(&opcode::LOAD_U16, width, address, mask, false);
                Val::from([self.op_imm(&opcode::SHL_IMM[0], &[raw], Some(16))])
            }
            DType::F16 => {
                let value = self.load_as(&opcode::F16_TO_F32, width, address, mask, false);
                if payloads == Payloads::Lost {
                    return Val::from([value]);
                }
                let raw = self.load_as(&opcode::LOAD_U16, width, address, mask, false);
                Val::from([self.widened_nan(value, raw)])
            }
            DType::Bool if self.level() == Level::Avx2 => {
                let bytes = self.load_as(&opcode::LOAD_U8, width, address, mask, false);
                let zero = self.word(0);
                Val::from([self.op(&opcode::GT_I[0], &[bytes, zero])])
            }
            DType::Bool => {
                let bytes = self.load_as(&opcode::LOAD_BYTES, Width::X, address, mask, false);
                let result = self.mask_register();
                self.push_inst(Inst {
                    op: Op::Machine(&opcode::TEST_BYTES),
                    width: Width::X,
                    result: Some(result),
                    args: RegisterList::from([bytes, bytes]),
                    lanes: None,
                    address: None,
                    imm: None,
                });
                Val::from([result])
            }
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    }

    /// Stores elements that were rounded to their dtype. Lanes outside the mask write nothing.
    pub(super) fn store(&mut self, dtype: DType, value: &Val, layout: Layout, mask: Option<V>, payloads: Payloads) {
        let address = match layout {
            Layout::Contiguous(address) => address,
            Layout::Strided(distances) => return self.scatter(dtype, value, distances, mask),
        };
        if self.level() == Level::Avx2 && dtype.size() < 4 {
            return self.store_narrow(dtype, value[0], address, mask, payloads);
        }
        let width = self.width();
        match dtype {
            DType::F32 | DType::I32 | DType::F64 | DType::I64 => {
                let wide = dtype.size() == 8;
                for (part, &v) in value.iter().enumerate() {
                    let mask = mask.map(|mask| self.mask_part(mask, part, wide));
                    let address = ahead(address, part as i32 * width.bytes());
                    self.store_as(&opcode::STORE[wide as usize], width, v, address, mask, None);
                }
            }
            DType::U8 | DType::I8 => self.store_as(&opcode::STORE_8, width, value[0], address, mask, None),
            DType::I16 => self.store_as(&opcode::STORE_16, width, value[0], address, mask, None),
            DType::BF16 => {
                let raw = self.op_imm(&opcode::SHR_IMM[0], &[value[0]], Some(16));
                self.store_as(&opcode::STORE_16, width, raw, address, mask, None);
            }
            DType::F16 if payloads == Payloads::Lost => {
                self.store_as(&opcode::F32_TO_F16, width, value[0], address, mask, Some(0));
            }
            DType::F16 => {
                let raw = self.narrowed_nan(value[0]);
                self.store_as(&opcode::STORE_16, width, raw, address, mask, None);
            }
            DType::Bool => {
                let ones = self.word(0x0101_0101);
                let bytes = self.vector(false);
                self.push_inst(Inst {
                    op: Op::Machine(&opcode::LOAD_BYTES),
                    width: Width::X,
                    result: Some(bytes),
                    args: RegisterList::from([ones]),
                    lanes: Some(Lanes { mask: value[0], zero: true }),
                    address: None,
                    imm: None,
                });
                self.store_as(&opcode::STORE_BYTES, Width::X, bytes, address, mask, None);
            }
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    }

    /// Stores whole vectors of four-byte or eight-byte elements with non-temporal stores. The address must be a
    /// multiple of the vector's bytes.
    pub(super) fn stream(&mut self, dtype: DType, value: &Val, address: Address) {
        let (width, wide) = (self.width(), dtype.size() == 8);
        for (part, &v) in value.iter().enumerate() {
            let address = ahead(address, part as i32 * width.bytes());
            self.store_as(&opcode::STREAM[wide as usize], width, v, address, None, None);
        }
    }

    /// The address to load from: the frame, for narrow elements under a mask, which AVX2 cannot load.
    fn readable(&mut self, dtype: DType, address: Address, mask: Option<V>) -> (Address, Option<V>) {
        if self.level() == Level::Avx512 || dtype.size() >= 4 || mask.is_none() {
            return (address, mask);
        }
        self.copy(CopyDirection::In, dtype.size(), address);
        (Address { start: Start::Frame, scale: None, disp: self.narrow }, None)
    }

    /// Stores narrow elements with AVX2.
    fn store_narrow(&mut self, dtype: DType, value: V, address: Address, mask: Option<V>, payloads: Payloads) {
        let frame = Address { start: Start::Frame, scale: None, disp: self.narrow };
        let to = if mask.is_some() { frame } else { address };
        match dtype {
            DType::F32 | DType::I32 | DType::F64 | DType::I64 => unreachable!("these are not narrow"),
            DType::F16 if payloads == Payloads::Lost => {
                let narrow = self.narrow_f16(value);
                self.store_as(&opcode::STORE[0], Width::X, narrow, to, None, None);
            }
            DType::I16 | DType::BF16 | DType::F16 => {
                let raw = match dtype {
                    DType::BF16 => self.op_imm(&opcode::SHR_IMM[0], &[value], Some(16)),
                    DType::F16 => self.narrowed_nan(value),
                    DType::Bool | DType::U8 | DType::I8 | DType::I16 => value,
                    DType::I32 | DType::I64 | DType::F32 | DType::F64 => unreachable!("these are not narrow"),
                    DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
                };
                let halves = self.low_halves(raw);
                self.store_as(&opcode::STORE[0], Width::X, halves, to, None, None);
            }
            DType::U8 | DType::I8 | DType::Bool => {
                let raw = match dtype == DType::Bool {
                    true => self.op_imm(&opcode::SHR_IMM[0], &[value], Some(31)),
                    false => value,
                };
                let bytes = self.low_bytes(raw);
                self.store_as(&opcode::STORE_HALF, Width::X, bytes, to, None, None);
            }
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
        if mask.is_some() {
            self.copy(CopyDirection::Out, dtype.size(), address);
        }
    }

    /// Copies the active narrow elements of an iteration between an address and the frame.
    fn copy(&mut self, way: CopyDirection, bytes: usize, address: Address) {
        let those = match self.shape {
            BlockShape::Row => Those::First,
            BlockShape::Vector | BlockShape::Half => Those::Left(address.disp / bytes as i32),
        };
        let op = Op::Copy { way, bytes: bytes as u8, those, frame: self.narrow };
        let (width, args, address) = (Width::X, RegisterList::NONE, Some(address));
        self.push_inst(Inst { op, width, result: None, args, lanes: None, address, imm: None });
    }

    /// Loads a register from an address.
    pub(super) fn load_as(
        &mut self,
        opcode: &'static Opcode,
        width: Width,
        address: Address,
        mask: Option<V>,
        wide: bool,
    ) -> V {
        let result = self.vector(wide);
        let (opcode, args, lanes) = match (self.level(), mask) {
            (Level::Avx2, Some(mask)) => (&opcode::LOAD_SOME[wide as usize], RegisterList::from([mask]), None),
            (_, mask) => (opcode, RegisterList::NONE, mask.map(|mask| Lanes { mask, zero: true })),
        };
        let (op, result_of) = (Op::Machine(opcode), Some(result));
        self.push_inst(Inst { op, width, result: result_of, args, lanes, address: Some(address), imm: None });
        result
    }

    /// Stores a register to an address.
    pub(super) fn store_as(
        &mut self,
        opcode: &'static Opcode,
        width: Width,
        value: V,
        address: Address,
        mask: Option<V>,
        imm: Option<u8>,
    ) {
        let (opcode, args, lanes) = match (self.level(), mask) {
            (Level::Avx2, Some(mask)) => {
                (&opcode::STORE_SOME[opcode.wide as usize], RegisterList::from([value, mask]), None)
            }
            (_, mask) => (opcode, RegisterList::from([value]), mask.map(|mask| Lanes { mask, zero: false })),
        };
        let op = Op::Machine(opcode);
        self.push_inst(Inst { op, width, result: None, args, lanes, address: Some(address), imm });
    }

    /// The lane distances of a part.
    pub(super) fn distances(&mut self, at: i32, part: usize) -> V {
        let at = at + self.level().width().bytes() * part as i32;
        let existing = self.distances.iter().find(|pair| pair.0 == at).map(|pair| pair.1);
        existing.unwrap_or_else(|| {
            let v = self.block.register(Class::Vector, true, Origin::Whole(at));
            self.distances.push((at, v));
            v
        })
    }

    /// A mask that an indexed access may clobber.
    pub(super) fn fresh_mask(&mut self, mask: Option<V>, part: usize, wide: bool) -> V {
        let mask = mask.unwrap_or_else(|| self.all_lanes(true));
        match self.level() {
            Level::Avx2 if part == 1 && !wide => self.upper(mask),
            Level::Avx2 => {
                let mask = self.mask_part(mask, part, wide);
                self.op(&opcode::MOVE[wide as usize], &[mask])
            }
            Level::Avx512 => {
                let mask = self.mask_part(mask, part, wide);
                self.mask_op(&opcode::MASK_MOVE, &[mask], None)
            }
        }
    }

    /// Gathers elements at 64-bit distances, hence two registers of them.
    fn gather(&mut self, dtype: DType, distances: i32, mask: Option<V>) -> Val {
        let wide = dtype.size() == 8;
        let parts: Val = (0..2)
            .map(|part| {
                let (index, mask) = (self.distances(distances, part), self.fresh_mask(mask, part, wide));
                let result = self.vector(wide);
                let (opcode, args, lanes) = match self.level() {
                    Level::Avx2 => (&opcode::GATHER_SOME, RegisterList::from([index, mask]), None),
                    Level::Avx512 => (&opcode::GATHER, RegisterList::from([index]), Some(Lanes { mask, zero: false })),
                };
                let (op, width) = (Op::Machine(&opcode[wide as usize]), self.level().width());
                let address = Some(PLACED);
                self.push_inst(Inst { op, width, result: Some(result), args, lanes, address, imm: None });
                result
            })
            .collect();
        if wide { parts } else { self.join_halves(&parts) }
    }

    /// Scatters elements. AVX2 has no such instruction; kernels with strided outputs are declined for it.
    fn scatter(&mut self, dtype: DType, value: &Val, distances: i32, mask: Option<V>) {
        let wide = dtype.size() == 8;
        let parts: Val = if wide { *value } else { Val::from([value[0], self.upper(value[0])]) };
        for (part, &v) in parts.iter().enumerate() {
            let (index, mask) = (self.distances(distances, part), self.fresh_mask(mask, part, wide));
            self.push_inst(Inst {
                op: Op::Machine(&opcode::SCATTER[wide as usize]),
                width: Width::Z,
                result: None,
                args: RegisterList::from([index, v]),
                lanes: Some(Lanes { mask, zero: false }),
                address: Some(PLACED),
                imm: None,
            });
        }
    }

    /// `value`, which was widened from f16 with quieted NaNs, with the original NaN payloads.
    fn widened_nan(&mut self, value: V, raw: V) -> V {
        let (sign, magnitude, exponent) = (self.word(0x8000), self.word(0x7fff), self.word(0x7f80_0000));
        let sign = self.op(&opcode::AND[0], &[raw, sign]);
        let sign = self.op_imm(&opcode::SHL_IMM[0], &[sign], Some(16));
        let magnitude = self.op(&opcode::AND[0], &[raw, magnitude]);
        let magnitude = self.op_imm(&opcode::SHL_IMM[0], &[magnitude], Some(13));
        let bits = self.op(&opcode::OR[0], &[sign, magnitude]);
        let bits = self.op(&opcode::OR[0], &[bits, exponent]);
        let is_nan = self.is_nan(&Val::from([value]), Ty::F32);
        self.blend(is_nan, bits, value, 0)
    }

    /// The f16 bits of f32 lanes that hold f16 values, with their NaN payloads.
    fn narrowed_nan(&mut self, value: V) -> V {
        let narrow = self.narrow_f16(value);
        let narrow = {
            let result = self.vector(false);
            self.push(&opcode::LOAD_U16, Some(result), &[narrow], None);
            result
        };
        let (sign, payload, exponent) = (self.word(0x8000), self.word(0x3ff), self.word(0x7c00));
        let high = self.op_imm(&opcode::SHR_IMM[0], &[value], Some(16));
        let sign = self.op(&opcode::AND[0], &[high, sign]);
        let low = self.op_imm(&opcode::SHR_IMM[0], &[value], Some(13));
        let payload = self.op(&opcode::AND[0], &[low, payload]);
        let bits = self.op(&opcode::OR[0], &[sign, payload]);
        let bits = self.op(&opcode::OR[0], &[bits, exponent]);
        let is_nan = self.is_nan(&Val::from([value]), Ty::F32);
        self.blend(is_nan, bits, narrow, 0)
    }
}

/// The address that the last [`Op::Place`] computed.
pub(super) const PLACED: Address = Address { start: Start::Placed, scale: None, disp: 0 };

/// The address so many bytes after another.
fn ahead(address: Address, bytes: i32) -> Address {
    Address { disp: address.disp + bytes, ..address }
}
