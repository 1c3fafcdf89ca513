//! Tensors from one device to another.
//!
//! The bytes go through the host. A gradient goes the way back.

use crate::autograd::{Context, Function, apply};
use crate::device::{Device, DeviceKind, Shared, Storage, current_device};
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::error::{Error, Result};
use crate::ir::{Layout, TensorType};
use crate::runtime::{Array, cuda};
use crate::tensor::handle::Tensor;
use crate::tensor::observer::on_read;

impl Tensor {
    /// This tensor on a device: itself if it is there, else a copy that lies as densely as it can.
    ///
    /// # Errors
    /// If a meta tensor is to get data, there is no such device, or one of the devices fails.
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
        let device = match (device.kind, device.index) {
            (DeviceKind::Cuda, None) => current_device(DeviceKind::Cuda)?,
            _ => device,
        };
        if self.device() == device {
            return Ok(self.clone());
        }
        if device.kind == DeviceKind::Meta {
            return Tensor::meta(&TensorType { number: false, ..self.ty() });
        }
        on_read(self, "to")?;
        if !(is_grad_enabled() && self.requires_grad()) {
            return moved(self, device);
        }
        let results = apply(Transfer { from: self.device(), to: device }, &[self])?;
        results.into_iter().next().ok_or_else(|| Error::Internal { message: "a transfer has one result".into() })
    }
}

/// A move that is recorded for gradients.
struct Transfer {
    from: Device,
    to: Device,
}

impl Function for Transfer {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        moved(&inputs[0], self.to).map(|result| vec![result])
    }

    fn backward(&self, _: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        gradients[0].to_device(self.from).map(|gradient| vec![Some(gradient)])
    }
}

fn moved(x: &Tensor, device: Device) -> Result<Tensor> {
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

/// The elements of a tensor of a GPU on the host, densely. The GPU is asked to lay them out only where far more would have
/// to be copied than there is: reading a result takes no memory there, and no compiler.
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

/// The bytes of a storage in a new one on a device.
pub(crate) fn copy_storage(storage: &Storage, device: Device) -> Result<Storage> {
    if storage.device().kind == DeviceKind::Meta && !storage.is_empty() {
        let what = format!("{} has no data to copy to {device}", storage.device());
        return Err(Error::Device { op: "to".into(), what, hint: "meta tensors have shapes only".into() });
    }
    storage.copy_to(device)
}
