//! Tensors from one device to another.
//!
//! The bytes go through the host, so the memory of both devices must be within its reach. A gradient goes the way back.

use super::autograd::{Context, Function, apply, is_grad_enabled};
use super::keys::tracer::on_read;
use super::tensor::Tensor;
use crate::device::{Device, DeviceKind, Shared, Storage};
use crate::eager::Array;
use crate::error::{Error, Result};
use crate::ir::{Layout, TensorType};

impl Tensor {
    /// This tensor on a device: itself if it is there, else a copy that lies as densely as it can.
    ///
    /// # Errors
    /// If a meta tensor is to get data, or the host cannot reach the memory of one of the devices.
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
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
    let dense = if x.device().kind == DeviceKind::Cpu { x.copy()? } else { x.clone() };
    let moved = over(dense.array(), device).map(Tensor::from_array)?;
    if device.kind == DeviceKind::Cpu { moved.copy() } else { Ok(moved) }
}

/// The array with its storage on a device.
fn over(array: &Array, device: Device) -> Result<Array> {
    let storage = Shared::new(copy_storage(array.storage(), device)?);
    Array::from_storage(storage, array.dtype(), Layout::clone(array.layout()))
}

/// The bytes of a storage in a new one on a device.
pub(super) fn copy_storage(storage: &Storage, device: Device) -> Result<Storage> {
    storage.read(|bytes| {
        if bytes.len() == storage.len() {
            return Storage::copy_of(device, bytes);
        }
        let what = format!("the host cannot read the memory of {}", storage.device());
        Err(Error::Device { op: "to".into(), what, hint: "copy it with an op of that device".into() })
    })
}
