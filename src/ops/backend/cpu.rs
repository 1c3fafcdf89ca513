//! The CPU key: every op of the table runs its eager kernel.

use crate::device::{Device, DeviceKind};
use crate::dispatch::key::set::KeySet;
use crate::eager::{self, Argument};
use crate::error::{Error, Result};
use crate::ir::{Attr, Op};
use crate::ops::backend::{argument, meta, view_of};
use crate::ops::element::number_of;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use smallvec::SmallVec;

/// The CPU kernel of every row of the op table. In an abstract trace operands have no elements, and neither has the
/// result.
pub(crate) fn kernel(op: Op, _: KeySet, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    if tensors.first().is_some_and(|first| first.as_number().is_some())
        && let Some(number) = number_of(op, tensors, attrs)?
    {
        return Tensor::number(number);
    }
    // The fast path: most calls repeat an earlier one.
    let again = match *tensors {
        [a] => eager::run_again(op, &[a.as_argument()], attrs, Tensor::from_array),
        [a, b] => eager::run_again(op, &[a.as_argument(), b.as_argument()], attrs, Tensor::from_array),
        _ => None,
    };
    match again {
        Some(result) => result.map_err(|error| described(op, tensors, *error)),
        None => kernel_anew(op, tensors, attrs).map_err(|error| described(op, tensors, error)),
    }
}

#[inline(never)]
fn kernel_anew(op: Op, tensors: &[&Tensor], attrs: &[Attr]) -> Result<Tensor> {
    let mut has_data = true;
    for tensor in tensors {
        if tensor.device().kind != DeviceKind::Cpu {
            return Err(not_here(op, tensors, tensor));
        }
        has_data &= tensor.has_data();
    }
    if !has_data && observer::is_abstract() {
        return meta::shape_of(op, tensors, attrs, Device::CPU);
    }
    let arguments: SmallVec<[Argument<'_>; 4]> = tensors.iter().map(|tensor| tensor.as_argument()).collect();
    if op.is_view() {
        return view_of(tensors[0], eager::run(op, &arguments, attrs)?);
    }
    eager::run_as(op, &arguments, attrs, Tensor::from_array)
}

#[cold]
fn described(op: Op, tensors: &[&Tensor], error: Error) -> Error {
    let types = || tensors.iter().map(|tensor| tensor.ty().to_string()).collect::<Vec<String>>().join(", ");
    error.in_call(|| format!("{}({})", op.name(), types()))
}

#[cold]
fn not_here(op: Op, tensors: &[&Tensor], tensor: &Tensor) -> Error {
    Error::Device {
        op: op.name().into(),
        what: format!(
            "expected all tensors on cpu, but found one on {}: {}",
            tensor.device(),
            argument(op, tensors, tensor)
        ),
        hint: "move the operands to one device".into(),
    }
}
