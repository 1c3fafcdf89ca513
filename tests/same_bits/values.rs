//! Arrays for the inputs of a graph: ordinary numbers, and awkward ones.
//!
//! The whole storage is filled, so that elements a layout steps over hold something too.

use super::random::Random;
use opfuse::device::{Device, Shared, Storage};
use opfuse::dispatch::Array;
use opfuse::internals::ir::scalar::half_bits::{round_bf16, round_f16};
use opfuse::ir::{DType, Layout, TensorType};

/// The kind of values that an input holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// About normally distributed; small whole numbers for integers.
    Normal,
    /// Small whole numbers.
    #[allow(dead_code, reason = "tests/programs shares this file, and makes none")]
    Whole,
    /// Everything: extremes, denormals, infinities, zeros of both signs, NaNs with payloads.
    Wild,
    /// Positive numbers that are not large, for logarithms and roots.
    Positive,
    /// Numbers between −1 and 1, for inverse sines.
    #[allow(dead_code, reason = "for tests/same_bits/gradients.rs, which shares this file")]
    Unit,
    /// Numbers above 1, for inverse hyperbolic cosines.
    #[allow(dead_code, reason = "for tests/same_bits/gradients.rs, which shares this file")]
    AboveOne,
    /// Indices of a dimension of that size.
    Index(usize),
}

/// An array of type `ty`, somewhere in a storage of its own.
pub(crate) fn array(random: &mut Random, ty: &TensorType, fill: Fill) -> Array {
    let offset = if random.percent(50) { 0 } else { random.below(9) };
    let layout = Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset };
    let count = layout.extent().max(offset) + random.below(3);
    let mut bytes = Vec::with_capacity(count * ty.dtype.size());
    for _ in 0..count {
        let bits = element(random, ty.dtype, fill);
        bytes.extend_from_slice(&bits.to_le_bytes()[..ty.dtype.size()]);
    }
    let storage = Storage::copy_of(Device::CPU, &bytes).expect("memory is there");
    Array::from_storage(Shared::new(storage), ty.dtype, layout).expect("the storage was made for the layout")
}

/// The bits of one element.
fn element(random: &mut Random, dtype: DType, fill: Fill) -> u64 {
    let number = match fill {
        Fill::Normal => random.normal() * 2.0,
        Fill::Whole => random.below(9) as f64 - 4.0,
        Fill::Positive => random.unit().abs() * 4.0 + 0.01,
        Fill::Unit => random.unit() * 0.95,
        Fill::AboveOne => random.unit().abs() * 3.0 + 1.05,
        Fill::Index(size) => random.below(size.max(1)) as f64,
        Fill::Wild if random.percent(60) => random.normal() * 4.0,
        Fill::Wild => return wild(random, dtype),
    };
    match dtype {
        DType::Bool => (number > 0.0) as u64,
        DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => (number as i64) as u64,
        DType::F16 => round_f16(number as f32) as u64,
        DType::BF16 => round_bf16(number as f32) as u64,
        DType::F32 => (number as f32).to_bits() as u64,
        DType::Complex64 | DType::Complex128 => unreachable!("no case is complex"),
        DType::F64 => number.to_bits(),
    }
}

fn wild(random: &mut Random, dtype: DType) -> u64 {
    // Exponent and mantissa widths.
    let (exponent, mantissa) = match dtype {
        DType::Bool => return random.next() & 1,
        DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            let (top, any) = (1u64 << (dtype.size() * 8 - 1), random.next());
            return random.pick(&[0, 1, top - 1, top, top + 1, u64::MAX, any, any >> 32, any >> 50]);
        }
        DType::F16 => (5, 10),
        DType::BF16 => (8, 7),
        DType::F32 => (8, 23),
        DType::Complex64 | DType::Complex128 => unreachable!("no case is complex"),
        DType::F64 => (11, 52),
    };
    let sign = (random.next() & 1) << (exponent + mantissa);
    let infinity = ((1u64 << exponent) - 1) << mantissa;
    let low = random.next() & ((1 << mantissa) - 1);
    let one = ((1u64 << (exponent - 1)) - 1) << mantissa;
    sign | match random.below(9) {
        0 => 0,
        1 => infinity,
        2 => infinity | 1 << (mantissa - 1),
        // Payloads, of quiet and of signalling NaNs.
        3 => infinity | low.max(1),
        4 => low,
        5 => infinity - 1,
        6 => one,
        7 => one + ((random.next() % 16) << mantissa) + low,
        _ => random.next() & ((1 << (exponent + mantissa)) - 1),
    }
}
