//! The CPU key: every op of the table runs its eager kernel.

use super::{meta, tracer};
use crate::device::{Device, DeviceKind};
use crate::dispatch::Tensor;
use crate::dispatch::keyset::KeySet;
use crate::eager::{self, Argument};
use crate::error::{Error, Result};
use crate::ir::{Attrs, Op};
use smallvec::SmallVec;

/// The CPU kernel of every op of the table. In an abstract trace operands have only shapes, and so has the result.
pub(in crate::dispatch) fn kernel(op: Op, _: KeySet, tensors: &[&Tensor], attrs: &Attrs) -> Result<Tensor> {
    if let Some(tensor) = tensors.iter().find(|tensor| tensor.device().kind != DeviceKind::Cpu) {
        return Err(Error::Device {
            op: op.name().into(),
            what: format!("expected all tensors on cpu, but found one on {}", tensor.device()),
            hint: "move the operands to one device".into(),
        });
    }
    if tensors.iter().any(|tensor| !tensor.has_data()) && tracer::is_abstract() {
        return meta::shape_of(op, tensors, attrs, Device::CPU);
    }
    let arguments: SmallVec<[Argument<'_>; 4]> = tensors.iter().map(|tensor| tensor.as_argument()).collect();
    let result = eager::run(op, &arguments, attrs)?;
    Ok(if op.is_view() { tensors[0].view_with(result) } else { Tensor::from_array(result) })
}
