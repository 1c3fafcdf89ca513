//! Operands of calls on complex tensors: their parts, their common dtype, their pairs.

use crate::device::Device;
use crate::error::Result;
use crate::ir::DType;
use crate::ir::dtype::{PromoteOperand, PromoteRank, promote_all};
use crate::ops::arguments::device_of;
use crate::ops::complex_numbers::as_pairs;
use crate::tensor::handle::Tensor;

/// The common dtype of operands, one of which is complex.
pub(super) fn common(operands: &[&Tensor]) -> DType {
    let operand = |x: &&Tensor| {
        let rank = match x.dim() {
            _ if x.as_number().is_some() => PromoteRank::Number,
            0 => PromoteRank::ZeroDim,
            _ => PromoteRank::Tensor,
        };
        PromoteOperand { dtype: x.dtype(), rank }
    };
    promote_all(operands.iter().map(operand)).unwrap_or(DType::Complex64)
}

/// Operands as pairs of their common dtype.
pub(super) fn paired<const N: usize>(operands: [&Tensor; N]) -> Result<[Tensor; N]> {
    let (dtype, device) = (common(&operands), device_of(&operands));
    let mut pairs = operands.map(Tensor::clone);
    for x in &mut pairs {
        *x = as_pairs(&on(device, x)?, dtype)?;
    }
    Ok(pairs)
}

/// A plain number as a tensor on that device, where what is made of it is no plain number any more.
pub(super) fn on(device: Device, x: &Tensor) -> Result<Tensor> {
    if x.as_number().is_some() && device != Device::CPU { x.to_device(device) } else { Ok(x.clone()) }
}

/// Both parts of a complex tensor, in the dtype of the parts of `dtype`.
pub(super) fn both(x: &Tensor, dtype: DType) -> Result<(Tensor, Tensor)> {
    let pairs = as_pairs(x, dtype)?;
    Ok((pairs.select(-1, 0)?, pairs.select(-1, 1)?))
}

/// Both parts of a complex tensor.
pub(super) fn parts(z: &Tensor) -> Result<(Tensor, Tensor)> {
    both(z, z.dtype())
}
