//! Loads and stores of every dtype, contiguous or strided, in both forms.
//!
//! An element is first *raw*: the bits of narrow dtypes in an i32, others unchanged. Widening and narrowing are
//! separate, so a strided vector access is four raw scalars and one conversion. Memory is little-endian;
//! [`super::host`] declines other processors.

use super::value::{Emit, LANES, Val, ValueForm, flags};
use crate::ir::DType;
use crate::ir::scalar::Ty;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

/// The distance of the lanes of an access in memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum LaneStride {
    /// Neighbours.
    Contiguous,
    /// That many bytes apart.
    Bytes(Value),
}

/// The type of a raw element.
const fn raw_type(dtype: DType) -> Ty {
    match dtype {
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::F16 | DType::BF16 => Ty::I32,
        DType::I64 => Ty::I64,
        DType::F32 => Ty::F32,
        DType::F64 => Ty::F64,
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    }
}

impl<'f> Emit<'_, 'f> {
    /// Loads the elements at `address + offset`, in their computation type.
    pub(super) fn load(&mut self, dtype: DType, address: Value, offset: i32, step: LaneStride) -> Val {
        let raw = match (self.form, step) {
            (ValueForm::Scalar, _) => Val::One(self.load_raw(dtype, address, offset)),
            (ValueForm::Vector, LaneStride::Contiguous) => self.load_raw_vector(dtype, address, offset),
            (ValueForm::Vector, LaneStride::Bytes(stride)) => {
                let addresses = self.lane_addresses(address, stride);
                let lanes = addresses.map(|address| self.load_raw(dtype, address, offset));
                self.join_lanes(lanes, raw_type(dtype))
            }
        };
        match dtype {
            DType::Bool => {
                let zero = self.int(0);
                raw.zip(zero, |raw, zero| self.b.ins().icmp(IntCC::NotEqual, raw, zero))
            }
            DType::F16 => self.widen_f16(raw),
            DType::BF16 => self.widen_bf16(raw),
            DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => raw,
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    }

    /// Stores elements that are in their computation type and already rounded.
    pub(super) fn store(&mut self, dtype: DType, value: Val, address: Value, offset: i32, step: LaneStride) {
        let raw = self.narrow(dtype, value);
        match (self.form, step) {
            (ValueForm::Scalar, _) => self.store_raw(dtype, raw.one(), address, offset),
            (ValueForm::Vector, LaneStride::Contiguous) => self.store_raw_vector(dtype, raw, address, offset),
            (ValueForm::Vector, LaneStride::Bytes(stride)) => {
                let addresses = self.lane_addresses(address, stride);
                for (lane, address) in addresses.into_iter().enumerate() {
                    let scalar = self.lane(raw, raw_type(dtype), lane);
                    self.store_raw(dtype, scalar, address, offset);
                }
            }
        }
    }

    fn narrow(&mut self, dtype: DType, value: Val) -> Val {
        match dtype {
            DType::Bool if self.form == ValueForm::Scalar => value.map(|value| self.b.ins().uextend(types::I32, value)),
            DType::Bool => {
                let (mask, one) = (self.mask(value, false), self.int(1));
                mask.zip(one, |mask, one| self.b.ins().band(mask, one))
            }
            DType::F16 => self.narrow_f16(value),
            DType::BF16 => self.narrow_bf16(value),
            DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => value,
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    }

    fn lane_addresses(&mut self, address: Value, stride: Value) -> [Value; LANES] {
        let mut next = address;
        std::array::from_fn(|lane| {
            if lane > 0 {
                next = self.b.ins().iadd(next, stride);
            }
            next
        })
    }

    fn load_raw(&mut self, dtype: DType, address: Value, offset: i32) -> Value {
        let ins = self.b.ins();
        match dtype {
            DType::Bool | DType::U8 => ins.uload8(types::I32, flags(), address, offset),
            DType::I8 => ins.sload8(types::I32, flags(), address, offset),
            DType::I16 => ins.sload16(types::I32, flags(), address, offset),
            DType::F16 | DType::BF16 => ins.uload16(types::I32, flags(), address, offset),
            DType::I32 => ins.load(types::I32, flags(), address, offset),
            DType::I64 => ins.load(types::I64, flags(), address, offset),
            DType::F32 => ins.load(types::F32, flags(), address, offset),
            DType::F64 => ins.load(types::F64, flags(), address, offset),
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    }

    fn store_raw(&mut self, dtype: DType, raw: Value, address: Value, offset: i32) {
        let ins = self.b.ins();
        match dtype {
            DType::Bool | DType::U8 | DType::I8 => ins.istore8(flags(), raw, address, offset),
            DType::I16 | DType::F16 | DType::BF16 => ins.istore16(flags(), raw, address, offset),
            DType::I32 | DType::I64 | DType::F32 | DType::F64 => ins.store(flags(), raw, address, offset),
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        };
    }

    fn load_raw_vector(&mut self, dtype: DType, address: Value, offset: i32) -> Val {
        let part = self.part(raw_type(dtype));
        match dtype {
            DType::Bool | DType::U8 | DType::I8 => {
                let bytes = self.b.ins().load(types::I32, flags(), address, offset);
                let vector = self.b.ins().scalar_to_vector(types::I32X4, bytes);
                let bytes = self.cast(types::I8X16, vector);
                Val::One(if dtype == DType::I8 {
                    let words = self.b.ins().swiden_low(bytes);
                    self.b.ins().swiden_low(words)
                } else {
                    let words = self.b.ins().uwiden_low(bytes);
                    self.b.ins().uwiden_low(words)
                })
            }
            DType::I16 => Val::One(self.b.ins().sload16x4(flags(), address, offset)),
            DType::F16 | DType::BF16 => Val::One(self.b.ins().uload16x4(flags(), address, offset)),
            DType::I32 | DType::F32 => Val::One(self.b.ins().load(part, flags(), address, offset)),
            DType::I64 | DType::F64 => {
                let low = self.b.ins().load(part, flags(), address, offset);
                Val::Two(low, self.b.ins().load(part, flags(), address, offset + 16))
            }
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    }

    fn store_raw_vector(&mut self, dtype: DType, raw: Val, address: Value, offset: i32) {
        match dtype {
            DType::Bool | DType::U8 | DType::I8 => {
                let bytes = [0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12];
                let packed = self.shuffle(raw.one(), raw.one(), bytes, types::I32X4);
                let packed = self.b.ins().extractlane(packed, 0u8);
                self.b.ins().store(flags(), packed, address, offset);
            }
            DType::I16 | DType::F16 | DType::BF16 => {
                let bytes = [0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13];
                let packed = self.shuffle(raw.one(), raw.one(), bytes, types::I64X2);
                let packed = self.b.ins().extractlane(packed, 0u8);
                self.b.ins().store(flags(), packed, address, offset);
            }
            DType::I32 | DType::I64 | DType::F32 | DType::F64 => {
                for (index, part) in raw.parts().enumerate() {
                    self.b.ins().store(flags(), part, address, offset + 16 * index as i32);
                }
            }
            DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
        }
    }
}
