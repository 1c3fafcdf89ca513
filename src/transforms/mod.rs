//! What else may a call do? One folder or file per key with behaviour: complex numbers, tracing, `vmap`, autocast,
//! profiles.

pub(crate) mod autocast;
pub(crate) mod batched;
mod complex;
mod default_dtype;
pub(crate) mod function;
pub(crate) mod observer;
pub(crate) mod profiled;
pub mod tracer;
pub mod vmap;
mod whole;

use crate::dispatch::builtins::Builtins;
use crate::dispatch::kernel::Kernel;
use crate::dispatch::key::DispatchKey;
use crate::dispatch::library::Library;
use crate::error::Result;

pub use autocast::{AutocastGuard, AutocastState, autocast, autocast_on, no_autocast, no_autocast_on};
pub use function::{Function, Input, Inputs, TensorRefs};

/// Registers the kernels of the transforms' keys.
///
/// # Errors
/// If a registration fails.
pub(crate) fn register(builtins: &mut Builtins) -> Result<()> {
    observer::install();
    whole::install();
    let mut mapped = Library::impl_block("aten", DispatchKey::FuncTorchBatched)?;
    for (op, operator) in builtins.rows() {
        mapped.impl_operator(operator, Kernel::of_row(op, batched::kernel).named("batched"))?;
    }
    mapped.impl_operator(builtins.copy()?, Kernel::typed(batched::copy_kernel))?;
    builtins.libraries.push(mapped);
    complex::register(&mut builtins.libraries)?;
    autocast::register(&mut builtins.libraries)
}

/// Registers what the transforms' keys do for operators without a kernel of their own there.
///
/// # Errors
/// If a registration fails.
pub(crate) fn register_fallbacks(builtins: &mut Builtins) -> Result<()> {
    builtins.register_fallbacks([
        (DispatchKey::Tracer, Kernel::boxed(tracer::fallback).named("tracer")),
        (DispatchKey::FuncTorchBatched, Kernel::boxed(batched::fallback).named("batched")),
        (DispatchKey::Complex, Kernel::boxed(complex::fallback).named("complex")),
        (DispatchKey::PythonTLSSnapshot, Kernel::boxed(profiled::fallback).named("profiled")),
        (DispatchKey::PreDispatch, Kernel::boxed(default_dtype::fallback).named("default_dtype")),
    ])
}
