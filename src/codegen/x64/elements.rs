//! Loads and stores of every dtype, contiguous or strided, of all lanes or some.

use super::code::{Address, Class, Home, Inst, Lanes, Op, Start, V};
use super::encoder::Width;
use super::opcode::{self, Opcode};
use super::select::{LANES, Select, Val};
use crate::ir::DType;
use crate::ir::scalar::Ty;
use smallvec::{SmallVec, smallvec};

/// How the elements of an access lie in memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layout {
    /// One behind another from this address on.
    Contiguous(Address),
    /// At distances that lie as 64-bit lanes at this place of the frame, from the address that was placed.
    Strided(i32),
}

/// When a vector is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Here: an output that is written meanwhile may lie in the same place.
    Here,
    /// Where it is needed, which may be more than once.
    Needed,
}

/// Whether NaN payloads of f16 have to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payloads {
    /// Somebody may see them.
    Kept,
    /// Nobody can.
    Lost,
}

impl Select<'_> {
    /// The elements of an access in their computation type; lanes outside the mask read nothing.
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
        let width = self.shape.width();
        match dtype {
            DType::F32 | DType::I32 | DType::F64 | DType::I64 if mask.is_none() && when == When::Needed => {
                let wide = dtype.size() == 8;
                (0..self.shape.parts(dtype.compute()))
                    .map(|part| {
                        let home = Home::Memory(ahead(address, part as i32 * 64));
                        self.block.register(Class::Vector, wide, home)
                    })
                    .collect()
            }
            DType::F32 | DType::I32 | DType::F64 | DType::I64 => {
                let wide = dtype.size() == 8;
                (0..self.shape.parts(dtype.compute()))
                    .map(|part| {
                        let mask = mask.map(|mask| self.mask_part(mask, part));
                        self.load_as(&opcode::LOAD[wide as usize], width, ahead(address, part as i32 * 64), mask, wide)
                    })
                    .collect()
            }
            DType::U8 => smallvec![self.load_as(&opcode::LOAD_U8, width, address, mask, false)],
            DType::I8 => smallvec![self.load_as(&opcode::LOAD_I8, width, address, mask, false)],
            DType::I16 => smallvec![self.load_as(&opcode::LOAD_I16, width, address, mask, false)],
            DType::BF16 => {
                let raw = self.load_as(&opcode::LOAD_U16, width, address, mask, false);
                smallvec![self.op_imm(&opcode::SHL_IMM[0], &[raw], Some(16))]
            }
            DType::F16 => {
                let value = self.load_as(&opcode::F16_TO_F32, width, address, mask, false);
                if payloads == Payloads::Lost {
                    return smallvec![value];
                }
                let raw = self.load_as(&opcode::LOAD_U16, width, address, mask, false);
                smallvec![self.widened_nan(value, raw)]
            }
            DType::Bool => {
                let bytes = self.load_as(&opcode::LOAD_BYTES, Width::X, address, mask, false);
                let result = self.mask_register();
                self.push_inst(Inst {
                    op: Op::Machine(&opcode::TEST_BYTES),
                    width: Width::X,
                    result: Some(result),
                    args: smallvec![bytes, bytes],
                    lanes: None,
                    address: None,
                    imm: None,
                });
                smallvec![result]
            }
        }
    }

    /// Writes elements that were rounded to their dtype; lanes outside the mask write nothing.
    pub(super) fn store(&mut self, dtype: DType, value: &Val, layout: Layout, mask: Option<V>, payloads: Payloads) {
        let address = match layout {
            Layout::Contiguous(address) => address,
            Layout::Strided(distances) => return self.scatter(dtype, value, distances, mask),
        };
        let width = self.shape.width();
        match dtype {
            DType::F32 | DType::I32 | DType::F64 | DType::I64 => {
                let opcode = &opcode::STORE[(dtype.size() == 8) as usize];
                for (part, &v) in value.iter().enumerate() {
                    let mask = mask.map(|mask| self.mask_part(mask, part));
                    self.store_as(opcode, width, v, ahead(address, part as i32 * 64), mask, None);
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
                    args: smallvec![ones],
                    lanes: Some(Lanes { mask: value[0], zero: true }),
                    address: None,
                    imm: None,
                });
                self.store_as(&opcode::STORE_BYTES, Width::X, bytes, address, mask, None);
            }
        }
    }

    /// A register read from an address.
    pub(super) fn load_as(
        &mut self,
        opcode: &'static Opcode,
        width: Width,
        address: Address,
        mask: Option<V>,
        wide: bool,
    ) -> V {
        let result = self.vector(wide);
        let lanes = mask.map(|mask| Lanes { mask, zero: true });
        let (op, result_of, args) = (Op::Machine(opcode), Some(result), SmallVec::new());
        self.push_inst(Inst { op, width, result: result_of, args, lanes, address: Some(address), imm: None });
        result
    }

    /// A register written to an address.
    pub(super) fn store_as(
        &mut self,
        opcode: &'static Opcode,
        width: Width,
        value: V,
        address: Address,
        mask: Option<V>,
        imm: Option<u8>,
    ) {
        let lanes = mask.map(|mask| Lanes { mask, zero: false });
        let (op, args) = (Op::Machine(opcode), smallvec![value]);
        self.push_inst(Inst { op, width, result: None, args, lanes, address: Some(address), imm });
    }

    /// The distances of the lanes of a part.
    pub(super) fn distances(&mut self, at: i32, part: usize) -> V {
        let at = at + 64 * part as i32;
        let known = self.distances.iter().find(|known| known.0 == at).map(|known| known.1);
        known.unwrap_or_else(|| {
            let v = self.block.register(Class::Vector, true, Home::Whole(at));
            self.distances.push((at, v));
            v
        })
    }

    /// A mask that an indexed access may use up.
    fn fresh_mask(&mut self, mask: Option<V>, part: usize) -> V {
        let mask = match mask {
            Some(mask) => self.mask_part(mask, part),
            None => self.all_lanes(true),
        };
        self.mask_op(&opcode::MASK_MOVE, &[mask], None)
    }

    fn gather(&mut self, dtype: DType, distances: i32, mask: Option<V>) -> Val {
        let wide = dtype.size() == 8;
        let parts: Val = (0..LANES / 8)
            .map(|part| {
                let (index, mask) = (self.distances(distances, part), self.fresh_mask(mask, part));
                let result = self.vector(wide);
                self.push_inst(Inst {
                    op: Op::Machine(&opcode::GATHER[wide as usize]),
                    width: Width::Z,
                    result: Some(result),
                    args: smallvec![index],
                    lanes: Some(Lanes { mask, zero: false }),
                    address: Some(PLACED),
                    imm: None,
                });
                result
            })
            .collect();
        if wide { parts } else { self.join_halves(&parts) }
    }

    fn scatter(&mut self, dtype: DType, value: &Val, distances: i32, mask: Option<V>) {
        let wide = dtype.size() == 8;
        let parts: Val = if wide { value.clone() } else { smallvec![value[0], self.upper(value[0])] };
        for (part, &v) in parts.iter().enumerate() {
            let (index, mask) = (self.distances(distances, part), self.fresh_mask(mask, part));
            self.push_inst(Inst {
                op: Op::Machine(&opcode::SCATTER[wide as usize]),
                width: Width::Z,
                result: None,
                args: smallvec![index, v],
                lanes: Some(Lanes { mask, zero: false }),
                address: Some(PLACED),
                imm: None,
            });
        }
    }

    /// `value`, which the machine widened from f16 bits and made quiet, with the payloads that NaN had.
    fn widened_nan(&mut self, value: V, raw: V) -> V {
        let (sign, magnitude, exponent) = (self.word(0x8000), self.word(0x7fff), self.word(0x7f80_0000));
        let sign = self.op(&opcode::AND[0], &[raw, sign]);
        let sign = self.op_imm(&opcode::SHL_IMM[0], &[sign], Some(16));
        let magnitude = self.op(&opcode::AND[0], &[raw, magnitude]);
        let magnitude = self.op_imm(&opcode::SHL_IMM[0], &[magnitude], Some(13));
        let bits = self.op(&opcode::OR[0], &[sign, magnitude]);
        let bits = self.op(&opcode::OR[0], &[bits, exponent]);
        let is_nan = self.is_nan(&smallvec![value], Ty::F32);
        self.blend(is_nan, bits, value, 0)
    }

    /// The f16 bits of f32 lanes that hold f16 values, with the payloads that NaN have.
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
        let is_nan = self.is_nan(&smallvec![value], Ty::F32);
        self.blend(is_nan, bits, narrow, 0)
    }
}

/// What the last placing computed.
const PLACED: Address = Address { start: Start::Placed, scale: None, disp: 0 };

/// An address so many bytes ahead.
fn ahead(address: Address, bytes: i32) -> Address {
    Address { disp: address.disp + bytes, ..address }
}
