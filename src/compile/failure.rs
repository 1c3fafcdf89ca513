//! Errors of values: which call of the function found one, and where it stands.
//!
//! An executable says what is wrong, and not in which line of the program. So after an error the calls of its graph run
//! one by one on the same inputs, up to the one that fails. Until then nothing is kept for this.

use crate::autograd::replay_until;
use crate::device::Device;
use crate::dispatch::key::grad_mode::no_grad;
use crate::error::{Error, Reason};
use crate::ir::Graph;
use crate::tensor::handle::Tensor;

/// The error of a run of `traced` on these inputs, with the place of the recorded call. A run that failed has changed
/// nothing. If the calls succeed one by one, or lack memory, the error stays as it is.
#[cold]
pub(super) fn located(error: Error, traced: &Graph, inputs: &[&Tensor]) -> Error {
    if is_of_memory(&error) {
        return error;
    }
    let _unrecorded = no_grad();
    let plain: Vec<Tensor> = inputs.iter().map(|input| input.fresh_handle()).collect();
    let device = inputs.first().map_or(Device::CPU, |input| input.device());
    match replay_until(traced, &plain, device) {
        (_, Some(failed)) if !is_of_memory(&failed) => failed,
        (_, Some(_) | None) => error,
    }
}

/// Whether an error says nothing about values.
pub(super) fn is_of_memory(error: &Error) -> bool {
    matches!(error, Error::OutOfMemory { .. } | Error::Panicked { .. })
}

/// The error of an eager run of a function whose program has failed. It has the place of the program's error if it is
/// the same otherwise.
#[cold]
pub(super) fn as_located(eager: Error, compiled: &Error) -> Error {
    let Some(place) = compiled.recorded_place() else { return eager };
    let located = eager.clone().recorded_at(&place);
    if located == *compiled { located } else { eager }
}

/// The error of a call that must be captured whole and cannot be.
pub(super) fn refused(reason: &Reason) -> Error {
    let op = if let Reason::ReadsValue { op } = reason { op } else { "compile" };
    let policy = "the break policy is BreakPolicy::Error; allow graph breaks, or leave this call outside the function";
    Error::argument(op, format!("{reason}, and {policy}"))
}
