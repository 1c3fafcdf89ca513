//! The portable JIT tier: kernels as CLIF, 128-bit vectors, compiled by Cranelift.
//!
//! From the loops of [`super::native`], [`function`] and [`body`] write a function, [`value`], [`prims`], [`elements`]
//! and [`partials`] what is in it. [`compile()`] runs Cranelift, [`code`] owns the memory of the result.

mod body;
mod code;
mod compile;
mod elements;
mod function;
mod host;
mod partials;
mod prims;
mod value;

use super::geometry::{Class, Lanes};
use super::kernel::Kernel;
use super::native::NativeProgram;
use super::native::deinterleaved::Deinterleave;
use crate::error::Reason;

/// Compiles a valid `kernel` for accesses of these `classes`, operands first.
///
/// # Errors
/// The reason why this tier does not take it.
pub fn compile(kernel: &Kernel, lanes: Lanes, classes: &[Class]) -> Result<NativeProgram, Reason> {
    NativeProgram::new(compile::compile, false, kernel, lanes, classes, Deinterleave::Never)
}

/// The CLIF that [`compile()`] hands to Cranelift.
///
/// # Errors
/// The reason why this tier does not take the kernel.
pub fn emit_text(kernel: &Kernel, classes: &[Class]) -> Result<String, Reason> {
    compile::text(kernel, classes)
}
