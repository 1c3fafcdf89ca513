//! The portable JIT tier: kernels as CLIF, with 128-bit vectors, compiled by Cranelift.
//!
//! [`super::native`] prepares the loops. [`function`] and [`body`] write them as a function, with the values of
//! [`value`], [`prims`], [`elements`] and [`partials`]. [`compile()`] runs Cranelift, and [`code`] owns the memory of
//! the result. Without the feature `cranelift`, it declines every kernel.

#[cfg(feature = "cranelift")]
mod body;
#[cfg(feature = "cranelift")]
mod code;
#[cfg(feature = "cranelift")]
mod compile;
#[cfg(feature = "cranelift")]
mod elements;
#[cfg(feature = "cranelift")]
mod function;
#[cfg(feature = "cranelift")]
mod host;
#[cfg(feature = "cranelift")]
mod partials;
#[cfg(feature = "cranelift")]
mod prims;
#[cfg(feature = "cranelift")]
mod value;

use super::geometry::{Class, Lanes};
use super::kernel::Kernel;
use super::native::NativeProgram;
use crate::error::Reason;

/// Whether this build has the tier.
pub const IS_BUILT: bool = cfg!(feature = "cranelift");

/// Compiles a valid `kernel` for accesses of these `classes`, operands first.
///
/// # Errors
/// The reason why this tier declines the kernel.
#[cfg(feature = "cranelift")]
pub fn compile(kernel: &Kernel, lanes: Lanes, classes: &[Class]) -> Result<NativeProgram, Reason> {
    use super::native::deinterleaved::Deinterleave;
    NativeProgram::new(compile::compile, false, kernel, lanes, classes, Deinterleave::Never)
}

/// The CLIF that [`compile()`] gives to Cranelift.
///
/// # Errors
/// The reason why this tier declines the kernel.
#[cfg(feature = "cranelift")]
pub fn emit_text(kernel: &Kernel, classes: &[Class]) -> Result<String, Reason> {
    compile::listing(kernel, classes)
}

/// Declines every kernel.
///
/// # Errors
/// That this build lacks the tier.
#[cfg(not(feature = "cranelift"))]
pub fn compile(_: &Kernel, _: Lanes, _: &[Class]) -> Result<NativeProgram, Reason> {
    Err(crate::error::TierLimit::NoCranelift.into())
}

/// Declines every kernel.
///
/// # Errors
/// That this build lacks the tier.
#[cfg(not(feature = "cranelift"))]
pub fn emit_text(_: &Kernel, _: &[Class]) -> Result<String, Reason> {
    Err(crate::error::TierLimit::NoCranelift.into())
}
