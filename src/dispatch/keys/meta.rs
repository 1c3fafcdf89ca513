//! The Meta key: shapes, dtypes and strides, no data.

use crate::device::{Device, DeviceKind};
use crate::dispatch::Tensor;
use crate::dispatch::keyset::KeySet;
use crate::eager::executable::view;
use crate::error::{Error, Result};
use crate::ir::{Attrs, Op, TensorType};
use smallvec::SmallVec;

/// The Meta kernel of every op of the table: its row's inference.
pub(in crate::dispatch) fn kernel(op: Op, _: KeySet, tensors: &[&Tensor], attrs: &Attrs) -> Result<Tensor> {
    let stray = tensors.iter().find(|tensor| tensor.device().kind != DeviceKind::Meta && tensor.as_number().is_none());
    if let Some(tensor) = stray {
        return Err(Error::Device {
            op: op.name().into(),
            what: format!("expected all tensors on meta, but found one on {}", tensor.device()),
            hint: "move the operands to one device".into(),
        });
    }
    shape_of(op, tensors, attrs, Device::META)
}

/// The result of a call without its elements; a view shares what its operand has instead of a storage.
pub(super) fn shape_of(op: Op, tensors: &[&Tensor], attrs: &Attrs, device: Device) -> Result<Tensor> {
    if op.is_view() {
        return Ok(tensors[0].view_with(view(op, attrs, tensors[0].array())?));
    }
    let types: SmallVec<[TensorType; 4]> = tensors.iter().map(|tensor| tensor.ty()).collect();
    let types: SmallVec<[&TensorType; 4]> = types.iter().collect();
    Tensor::abstracted(&op.infer(&types, attrs)?, device, None)
}
