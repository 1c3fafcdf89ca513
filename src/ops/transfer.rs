//! The bytes of tensors from one device to another, through the host. `Tensor::to_device` stands in autograd, which
//! brings gradients back.

use crate::device::{Device, DeviceKind, Shared, Storage};
use crate::dispatch::copy_storage;
use crate::error::Result;
use crate::ir::Layout;
use crate::runtime::{Array, cuda};
use crate::tensor::handle::Tensor;

/// `x` on another device, as densely as it can lie; its history is not looked at.
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

/// Copies the elements of a tensor on a GPU to the host, densely. The GPU makes them dense first only where far more
/// bytes would be copied otherwise. So reading a result takes no memory on the GPU, and no compiler.
fn fetched(x: &Tensor) -> Result<Tensor> {
    let layout = x.array().layout();
    let (start, end) = (layout.offset, layout.extent());
    if end.saturating_sub(start) > SPARSE * x.numel() {
        return fetched(&x.copy()?);
    }
    let host = Tensor::from_array(cuda::fetched(x.array(), Storage::fetch)?);
    if host.is_contiguous() { Ok(host) } else { host.copy() }
}

/// How many elements are copied for one that is wanted.
const SPARSE: usize = 4;

/// The array with its storage on a device.
fn over(array: &Array, device: Device) -> Result<Array> {
    let storage = Shared::new(copy_storage(array.storage(), device)?);
    Array::from_storage(storage, array.dtype(), Layout::clone(array.layout()))
}
