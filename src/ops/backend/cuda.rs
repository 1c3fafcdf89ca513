//! The CUDA key: every op of the table runs on the GPU of its operands. An op without GPU code runs on the CPU.
//!
//! All operands are on one GPU, except plain numbers, and 0-dim CPU tensors in pointwise ops.

use crate::device::{Device, DeviceKind};
use crate::dispatch::key::set::KeySet;
use crate::eager::{self, Argument};
use crate::error::{Error, Result};
use crate::ir::{Attr, Meaning, Op};
use crate::ops::backend::{argument, meta};
use crate::runtime::cuda;
use crate::runtime::view;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use smallvec::SmallVec;

/// The CUDA kernel of every row of the op table. In an abstract trace operands have no elements, and neither has the
/// result.
pub(crate) fn kernel(op: Op, _: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let device = device_of(op, tensors)?;
    let has_data = tensors.iter().all(|tensor| tensor.has_data());
    if !has_data && observer::is_abstract() {
        return meta::shape_of(op, tensors, attrs, device);
    }
    if let Some(tensor) = tensors.iter().find(|tensor| !tensor.has_data()) {
        return Err(not_here(op, device, tensors, tensor));
    }
    if op.is_view() {
        return view(op, attrs, tensors[0].array()).map(|result| tensors[0].view_with(result));
    }
    let arguments: SmallVec<[Argument<'_>; 4]> = tensors.iter().map(|tensor| tensor.as_argument()).collect();
    eager::run_on(device, op, &arguments, attrs).map(Tensor::from_array)
}

/// The GPU that a call runs on.
fn device_of(op: Op, tensors: &[&Tensor]) -> Result<Device> {
    let device = match cuda::device_of(tensors.iter().map(|tensor| tensor.device())) {
        Some(device) => device,
        // No operand is on a GPU: the key alone chose this kernel.
        None => crate::device::current_device(DeviceKind::Cuda)?,
    };
    let is_pointwise = matches!(op.row().meaning, Meaning::Body(..));
    let may_be_elsewhere = |tensor: &Tensor| {
        let is_scalar = is_pointwise && tensor.dim() == 0 && tensor.device().kind == DeviceKind::Cpu;
        tensor.as_number().is_some() || is_scalar || is_key(op, tensor)
    };
    match tensors.iter().find(|tensor| tensor.device() != device && !may_be_elsewhere(tensor)) {
        Some(stray) => Err(not_here(op, device, tensors, stray)),
        None => Ok(device),
    }
}

/// Whether a tensor is the key of a random draw. Generators make keys on the host.
fn is_key(op: Op, tensor: &Tensor) -> bool {
    op.schema().contains("(Tensor key") && tensor.device().kind == DeviceKind::Cpu && tensor.numel() == 2
}

#[cold]
fn not_here(op: Op, device: Device, tensors: &[&Tensor], tensor: &Tensor) -> Error {
    Error::Device {
        op: op.name().into(),
        what: format!(
            "expected all tensors on {device}, but found one on {}: {}",
            tensor.device(),
            argument(op, tensors, tensor)
        ),
        hint: "move the operands to one device, as with to_device".into(),
    }
}
