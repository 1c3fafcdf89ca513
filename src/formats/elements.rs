//! Elements of tensors as the bytes of files, which are little-endian and row-major.

use crate::device::Device;
use crate::dispatch::key::grad_mode::no_grad;
use crate::error::{Error, Result};
use crate::tensor::handle::Tensor;
use crate::tensor::observer;

/// Calls `put` with the elements of a tensor as bytes.
///
/// # Errors
/// If the tensor has no elements, as on the meta device and in a trace; or those of `put`.
pub(super) fn with_bytes(op: &str, tensor: &Tensor, put: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
    observer::on_read(tensor, op)?;
    need_little_endian(op)?;
    let _unrecorded = no_grad();
    let dense = tensor.to_device(Device::CPU)?.contiguous()?;
    observer::need_data(&dense, op)?;
    let array = dense.as_real().array();
    let (width, count) = (array.dtype().size(), array.layout().numel());
    let start = if count == 0 { 0 } else { array.layout().offset * width };
    array.storage().read(|bytes| put(&bytes[start..start + count * width]))
}

/// Files hold little-endian numbers, which are used as they are.
///
/// # Errors
/// On other machines.
pub(super) fn need_little_endian(op: &str) -> Result<()> {
    if cfg!(target_endian = "little") {
        return Ok(());
    }
    Err(Error::argument(op, "files of tensors are read and written on little-endian machines alone"))
}
