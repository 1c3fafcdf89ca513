//! Copies the bytes of tensors between devices, through the host. Its caller is in `autograd/transfer.rs`, because that
//! records gradients.

use crate::device::{Device, DeviceKind, Shared, Storage};
use crate::dispatch::copy_storage;
use crate::error::Result;
use crate::ir::Layout;
use crate::runtime::{Array, cuda};
use crate::tensor::handle::Tensor;

/// A dense copy of `x` on another device, without its history.
pub(crate) fn moved(x: &Tensor, device: Device) -> Result<Tensor> {
    if x.device().kind == DeviceKind::Cuda {
        let host = fetched(x)?;
        return if device.kind == DeviceKind::Cpu {
            Ok(host)
        } else {
            over(host.array(), device).map(Tensor::from_array)
        };
    }
    let dense = if x.device().kind == DeviceKind::Cpu { x.copy()? } else { x.clone() };
    let moved = over(dense.array(), device).map(Tensor::from_array)?;
    if device.kind == DeviceKind::Cpu { moved.copy() } else { Ok(moved) }
}

/// A dense copy of a GPU tensor on the host. If its elements are sparse in memory, the GPU first makes a dense copy.
/// Otherwise reading needs no memory and no compiler there.
fn fetched(x: &Tensor) -> Result<Tensor> {
    let layout = x.array().layout();
    let (start, end) = (layout.offset, layout.extent());
    if end.saturating_sub(start) > SPARSE * x.numel() {
        return fetched(&x.copy()?);
    }
    let host = Tensor::from_array(cuda::fetched(x.array(), Storage::fetch)?);
    if host.is_contiguous() { Ok(host) } else { host.copy() }
}

/// The maximum number of elements to copy per element of the tensor.
const SPARSE: usize = 4;

/// An array with a copy of the storage on a device.
fn over(array: &Array, device: Device) -> Result<Array> {
    let storage = Shared::new(copy_storage(array.storage(), device)?);
    Array::from_storage(storage, array.dtype(), Layout::clone(array.layout()))
}
