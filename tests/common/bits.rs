//! The bits of a tensor's elements, which tests compare.

use opfuse::{DType, Result, Tensor};

/// The bits of all elements, in logical order.
pub(crate) fn bits(tensor: &Tensor) -> Result<Vec<u64>> {
    macro_rules! read {
        ($ty:ty) => {
            tensor.to_vec::<$ty>()?.into_iter()
        };
    }
    Ok(match tensor.dtype() {
        DType::F16 => read!(opfuse::f16).map(|x| x.to_bits().into()).collect(),
        DType::BF16 => read!(opfuse::bf16).map(|x| x.to_bits().into()).collect(),
        DType::F32 => read!(f32).map(|x| x.to_bits().into()).collect(),
        DType::Complex64 | DType::Complex128 => return bits(&tensor.view_as_real()?),
        DType::F64 => read!(f64).map(f64::to_bits).collect(),
        DType::I8 => read!(i8).map(|x| x as u64).collect(),
        DType::I16 => read!(i16).map(|x| x as u64).collect(),
        DType::I32 => read!(i32).map(|x| x as u64).collect(),
        DType::I64 => read!(i64).map(|x| x as u64).collect(),
        DType::U8 => read!(u8).map(u64::from).collect(),
        DType::Bool => read!(bool).map(u64::from).collect(),
    })
}
