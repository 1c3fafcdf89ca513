//! The portable JIT tier: kernels as CLIF, with 128-bit vectors, compiled by Cranelift.
//!
//! [`super::native`] prepares the loops. [`function`] and [`body`] write them as a function, with the values of
//! [`value`], [`prims`], [`elements`] and [`partials`]. [`compile()`] runs Cranelift, and [`code`] owns the memory of
//! the result.

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
/// The reason why this tier declines the kernel.
pub fn compile(kernel: &Kernel, lanes: Lanes, classes: &[Class]) -> Result<NativeProgram, Reason> {
    NativeProgram::new(compile::compile, false, kernel, lanes, classes, Deinterleave::Never)
}

/// The CLIF that [`compile()`] gives to Cranelift.
///
/// # Errors
/// The reason why this tier declines the kernel.
pub fn emit_text(kernel: &Kernel, classes: &[Class]) -> Result<String, Reason> {
    compile::listing(kernel, classes)
}
