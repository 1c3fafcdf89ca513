//! Panics as errors: those of a compiled function, and our own.

use crate::error::{Error, Result};
use crate::tensor::structure::Flat;
use crate::transforms::function::Function;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The function's result; a panic of it is its own, so an error says so.
pub(super) fn applied<A, F: Function<A>>(function: &F, inputs: &Flat) -> Result<F::Output> {
    caught(|| function.apply(inputs), |message| Error::Panicked { message })
}

/// Turns a panic of ours into an internal error.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(work, |message| Error::Internal { message })
}

/// Turns a panic into an error: the state behind it is only ever replaced whole.
fn caught<T>(work: impl FnOnce() -> Result<T>, error: impl FnOnce(String) -> Error) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".into());
        Err(error(message))
    })
}
