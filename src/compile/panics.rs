//! Converts panics into errors: those of a compiled function, and those of this crate.

use crate::error::{Error, Result};
use crate::tensor::structure::Flat;
use crate::transforms::function::Function;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls the function. A panic becomes [`Error::Panicked`].
pub(super) fn applied<A, F: Function<A>>(function: &F, inputs: &Flat) -> Result<F::Output> {
    caught(|| function.apply(inputs), |message| Error::Panicked { message })
}

/// Calls code of this crate. A panic becomes [`Error::Internal`].
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(work, |message| Error::Internal { message })
}

/// Converts a panic into an error. No state is left half changed, because state is only replaced as a whole.
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
