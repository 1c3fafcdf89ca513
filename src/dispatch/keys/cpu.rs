//! The CPU key: every op of the table runs its eager kernel.

use crate::device::DeviceKind;
use crate::dispatch::Tensor;
use crate::eager::{self, Argument};
use crate::error::{Error, Result};
use crate::ir::{Attrs, Op};
use smallvec::SmallVec;

/// The CPU kernel of every op of the table.
pub fn kernel(op: Op, tensors: &[&Tensor], attrs: &Attrs) -> Result<Tensor> {
    if let Some(tensor) = tensors.iter().find(|tensor| tensor.device().kind != DeviceKind::Cpu) {
        return Err(Error::Device {
            op: op.name().into(),
            what: format!("expected all tensors on cpu, but found one on {}", tensor.device()),
            hint: "move the operands to one device".into(),
        });
    }
    let arguments: SmallVec<[Argument<'_>; 4]> =
        tensors.iter().map(|tensor| Argument { array: tensor.array(), number: tensor.as_number().is_some() }).collect();
    eager::run(op, &arguments, attrs).map(Tensor::from_array)
}
