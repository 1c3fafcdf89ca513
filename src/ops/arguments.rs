//! Checks and conversions of composites' arguments: counts, dtypes, storage options.

use crate::device::Device;
use crate::dispatch::value::TensorLayout;
use crate::error::{Error, Result};
use crate::ir::attrs::Ordered;
use crate::ir::{Attrs, DType, MemoryFormat};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;

/// Converts `x` to `dtype`, if there is one.
pub(crate) fn converted(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    dtype.map_or_else(|| Ok(x.clone()), |dtype| x.to_dtype(dtype))
}

pub(crate) fn count(op: &str, number: i64) -> Result<usize> {
    usize::try_from(number).map_err(|_| Error::out_of_range(op, "a count", [0, i64::MAX], number))
}

/// Converts sizes or strides to counts.
pub(crate) fn counts(op: &str, numbers: &[i64]) -> Result<Vec<usize>> {
    numbers.iter().map(|&number| count(op, number)).collect()
}

/// A count as an argument of an operator. No tensor is as large as the bound, so operators reject it.
pub(crate) fn int(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Sizes as an argument of an operator.
pub(crate) fn int_list(counts: &[usize]) -> SmallVec<[i64; 6]> {
    counts.iter().map(|&count| int(count)).collect()
}

/// Tensors as an argument of an operator.
pub(crate) fn tensor_list(tensors: &[&Tensor]) -> Vec<Tensor> {
    tensors.iter().map(|&tensor| tensor.clone()).collect()
}

/// The attributes of a copy in a memory format.
pub(crate) fn ordered(memory_format: MemoryFormat) -> Attrs {
    Ordered { memory_format }.into()
}

/// Rejects storage options that are not supported: sparse layouts and pinned memory.
pub(crate) fn check_storage(op: &str, layout: Option<TensorLayout>, pin_memory: Option<bool>) -> Result<()> {
    let refuse = |what: &str| Err(Error::argument(op, format!("{what} is not supported; leave the argument out")));
    match (layout, pin_memory) {
        (Some(TensorLayout::Sparse | TensorLayout::SparseCsr), _) => refuse("a sparse layout"),
        (_, Some(true)) => refuse("pinned memory"),
        (_, _) => Ok(()),
    }
}

/// Converts `x` to the dtype in which sums over it are computed.
pub(crate) fn widened(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(wide(x.dtype()))
}

/// The device of operands, which plain numbers have not.
pub(crate) fn device_of(operands: &[&Tensor]) -> Device {
    operands.iter().find(|x| x.as_number().is_none()).map_or(Device::CPU, |x| x.device())
}

/// The dtype in which values of `dtype` are computed.
pub(crate) fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::F32 | DType::F64 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::Bool => dtype,
        DType::Complex64 | DType::Complex128 => dtype,
    }
}

/// Rejects a tensor that is not floating, of an operator that only floats have.
pub(crate) fn only_floats(op: &str, x: &Tensor) -> Result<()> {
    if x.dtype().is_float() {
        return Ok(());
    }
    Err(Error::unsupported(op, x.dtype(), "a floating dtype", "convert with to_dtype(DType::F32) first"))
}

/// Rejects operands that are not floating.
pub(crate) fn need_float(op: &str, tensors: &[&Tensor]) -> Result<()> {
    match tensors.iter().find(|tensor| !tensor.dtype().is_float()) {
        Some(tensor) => {
            let hint = "convert with to_dtype(DType::F32) first";
            Err(Error::dtype(op, tensor.dtype(), "a floating dtype", hint))
        }
        None => Ok(()),
    }
}
