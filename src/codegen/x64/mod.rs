//! The fast tier of x86-64: AVX-512 machine code, written directly.
//!
//! From the loops of [`super::native`], [`function`] and [`body`] write blocks of straight-line [`code`] over virtual
//! registers: [`select`] chooses instructions for prims, [`scaling`] a shorter one for powers of two, [`elements`] those of
//! loads and stores, [`folds`] those of partial results. [`registers`] gives every value a machine register and hands the instructions of [`opcode`] to the
//! [`encoder`]; [`memory`] makes the bytes executable.
//!
//! What always holds: bits are those of [`super::interp`]; code has no relocations; a kernel that cannot be expressed is
//! declined with a reason. Absent: vectors along the rows, gathers, and machines without AVX-512.

mod body;
mod code;
mod elements;
pub mod encoder;
mod folds;
mod function;
mod memory;
pub mod opcode;
mod registers;
mod scaling;
mod select;

use super::geometry::{Class, Lanes};
use super::kernel::Kernel;
use super::native::code::Code;
use super::native::{self, Program, Shape};
use crate::error::Reason;
use crate::ir::DType;

/// Whether this machine runs such code, and the system lets it be made.
pub fn is_available() -> bool {
    static AVAILABLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *AVAILABLE.get_or_init(|| cfg!(unix) && has_instructions())
}

#[cfg(target_arch = "x86_64")]
fn has_instructions() -> bool {
    super::vm::Isa::Avx512.is_available() && is_x86_feature_detected!("bmi2")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_instructions() -> bool {
    false
}

/// Compiles a valid `kernel` for accesses of these `classes`, operands first.
///
/// # Errors
/// The reason why this tier does not take it.
pub fn compile(kernel: &Kernel, lanes: Lanes, classes: &[Class]) -> Result<Program, Reason> {
    Program::new(compiled, kernel, lanes, classes)
}

/// The code of a kernel before registers are chosen, block by block.
///
/// # Errors
/// The reason why this tier does not take the kernel.
pub fn emit_text(kernel: &Kernel, classes: &[Class]) -> Result<String, Reason> {
    let (flat, passes) = native::prepare(kernel, classes)?;
    Ok(function::text(kernel, classes, &flat, &passes))
}

/// Why this tier makes no code for a kernel whose accesses move as the classes say, on any machine.
pub(super) fn declined(kernel: &Kernel, classes: &[Class]) -> Option<Reason> {
    let narrow = |(dtype, &class): (DType, &Class)| class == Class::Strided && dtype.size() < 4;
    if kernel.dtypes().zip(classes).any(narrow) {
        return Some(Reason::TierCannot("it gathers and scatters elements of four and eight bytes only".into()));
    }
    native::declined(kernel)
}

fn compiled(kernel: &Kernel, classes: &[Class]) -> Result<(Code, Shape), Reason> {
    if !is_available() {
        return Err(Reason::TierCannot("this machine has no AVX-512".into()));
    }
    if let Some(reason) = declined(kernel, classes) {
        return Err(reason);
    }
    let (flat, passes) = native::prepare(kernel, classes)?;
    let bytes = function::write(kernel, classes, &flat, &passes);
    Ok((memory::load(&bytes)?, native::shape(kernel, &passes)))
}
