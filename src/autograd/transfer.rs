//! What `Tensor::to_device` does: a copy between devices, whose gradient is copied back.

use crate::autograd::function::{Context, Function, apply};
use crate::device::{Device, DeviceKind, current_device};
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::error::{Error, Result};
use crate::ir::TensorType;
use crate::ops::transfer::moved;
use crate::tensor::handle::Tensor;
use crate::tensor::observer::on_read;

impl Tensor {
    /// A dense copy on another device, or the same tensor if it is there already.
    pub(crate) fn moved_to(&self, device: Device) -> Result<Tensor> {
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

/// A copy between devices that is recorded for gradients.
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
