//! Carries and results as structures: flattened, compared, and built again.

use crate::debug;
use crate::error::{Error, Reason, Result};
use crate::ir::TensorType;
use crate::tensor::structure::Flat;
use crate::tensor::{Tensor, TensorStruct};

/// The structure of these parts.
pub(super) fn of_parts<T: TensorStruct>(op: &str, parts: Flat) -> Result<T> {
    let other = || Error::argument(op, "a structure does not unflatten to what it was flattened from");
    parts.tree_unflatten().ok_or_else(other)
}

/// Turns plain numbers into tensors of no dims, which a step can return.
pub(super) fn plain_numbers_as_tensors(tensors: &mut [Tensor]) -> Result<()> {
    for tensor in tensors {
        if let Some(number) = tensor.as_number() {
            *tensor = Tensor::full(&[], number, tensor.dtype())?;
        }
    }
    Ok(())
}

/// How a structure differs from the one that it should be like.
pub(super) fn differs(from: &Flat, to: &Flat) -> Option<String> {
    if from.words != to.words || from.tensors.len() != to.tensors.len() {
        let (n_from, n_to) = (from.tensors.len(), to.tensors.len());
        return Some(format!("has another structure, of {n_to} tensors where there were {n_from}"));
    }
    let is_other = |(from, to): &(&Tensor, &Tensor)| from.dtype() != to.dtype() || from.sizes() != to.sizes();
    let at = from.tensors.iter().zip(&to.tensors).position(|pair| is_other(&pair))?;
    let (from, to) = (dense_type(&from.tensors[at]), dense_type(&to.tensors[at]));
    Some(format!("has {to} as tensor {at}, where there was {from}"))
}

/// The type of a row-major copy of a tensor.
pub(super) fn dense_type(tensor: &Tensor) -> TensorType {
    TensorType::contiguous(tensor.dtype(), tensor.sizes())
}

/// Checks the carry after a step of a loop.
///
/// # Errors
/// If it is not like the first one.
pub(super) fn check_carry(op: &str, init: &Flat, step: usize, carry: &Flat) -> Result<()> {
    let Some(how) = differs(init, carry) else { return Ok(()) };
    let what = format!("step {step} changes the carry: it {how}");
    Err(Error::shape(op, what, "a carry keeps its structure, shapes and dtypes; cast or reshape it"))
}

/// Prints why a body runs as it is written, where that is asked for.
pub(super) fn note(op: &str, reason: &Reason) {
    if debug::explains() {
        debug::print(&format!("{op} runs step by step: {reason}"));
    }
}
