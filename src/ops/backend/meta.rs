//! The Meta key: shapes, dtypes and strides, no data.

use crate::device::{Device, DeviceKind};
use crate::dispatch::key::set::KeySet;
use crate::error::{Error, Result};
use crate::ir::{Attr, Meaning, Op, TensorType};
use crate::ops::backend::{argument, view_of};
use crate::runtime::view;
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;

/// The Meta kernel of every row of the op table: shape and dtype inference.
pub(crate) fn kernel(op: Op, _: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    check_devices(op, tensors)?;
    shape_of(op, tensors, attrs, Device::META)
}

/// The result of a call without its elements. A view shares its operand's storage, which has no bytes.
pub(crate) fn shape_of(op: Op, tensors: &[&Tensor], attrs: &[Attr], device: Device) -> Result<Tensor> {
    if op.is_view() {
        return view_of(tensors[0], view(op, attrs, tensors[0].array())?);
    }
    let types: SmallVec<[TensorType; 4]> = tensors.iter().map(|tensor| tensor.ty()).collect();
    let types: SmallVec<[&TensorType; 4]> = types.iter().collect();
    Tensor::abstracted(&op.infer(&types, attrs)?, device, None)
}

/// All operands must be on meta or be plain numbers. In pointwise ops, one 0-dim CPU tensor counts as a number.
fn check_devices(op: Op, tensors: &[&Tensor]) -> Result<()> {
    let is_stray = |tensor: &&&Tensor| tensor.device().kind != DeviceKind::Meta && tensor.as_number().is_none();
    let mut strays = tensors.iter().filter(is_stray);
    let is_pointwise = matches!(op.row().meaning, Meaning::Body(..));
    let is_scalar = |tensor: &Tensor| is_pointwise && tensor.dim() == 0 && tensor.device().kind == DeviceKind::Cpu;
    let Some(first) = strays.next() else { return Ok(()) };
    let refused = if is_scalar(first) { strays.next() } else { Some(first) };
    let Some(tensor) = refused else { return Ok(()) };
    let and = if is_scalar(first) { "or one 0-dim tensor on the cpu, " } else { "" };
    Err(Error::Device {
        op: op.name().into(),
        what: format!(
            "expected all tensors on meta, {and}but found one on {}: {}",
            tensor.device(),
            argument(op, tensors, tensor)
        ),
        hint: "move the operands to one device".into(),
    })
}
