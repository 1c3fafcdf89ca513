//! Tensors from one device to another.
//!
//! The bytes go through the host, so the memory of both devices must be within its reach.

use super::keys::tracer::on_read;
use super::tensor::Tensor;
use crate::device::{Device, DeviceKind, Storage};
use crate::eager::Array;
use crate::error::{Error, Result};
use crate::ir::{Layout, TensorType};
use std::sync::Arc;

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
        let dense = if self.device().kind == DeviceKind::Cpu { self.copy()? } else { self.clone() };
        let moved = over(dense.array(), device).map(Tensor::from_array)?;
        if device.kind == DeviceKind::Cpu { moved.copy() } else { Ok(moved) }
    }
}

/// The array with its storage on a device.
fn over(array: &Array, device: Device) -> Result<Array> {
    let storage = Arc::new(copy_storage(array.storage(), device)?);
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
