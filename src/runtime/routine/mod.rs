//! How does a routine run on the CPU?
//!
//! There is one file per kind: scans, sorts, writes by index, joined indices, random words. Work on matrices and
//! Fourier transforms have folders.
//!
//! Operands may have any strides and offsets. Results are dense, row-major and in new memory. The exception is a write
//! by index, whose result may be its first operand, in any layout. Results depend on the operands alone, never on
//! threads: scans and writes go in row-major order, and sorts are stable. Nothing here knows graphs or tensors.

mod destinations;
mod elements;
mod fourier;
mod index;
mod matrices;
mod number;
mod random;
mod scan;
mod scatter;
mod sort;
mod walk;

pub(super) use elements::Operands;

use super::array::Array;
use super::product;
use crate::error::{Error, Result};
use crate::ir::{Attr, Meaning, Op, Routine};

/// Runs the routine of an op on operands that its inference has checked.
///
/// # Errors
/// If an index is out of range.
pub(super) fn run(op: Op, attrs: &[Attr], operands: Operands<'_>) -> Result<()> {
    let Meaning::Routine(routine) = &op.row().meaning else {
        return Err(Error::invalid("plan", format!("{} is no routine", op.name())));
    };
    // Lines without elements may be too many to visit. Indices are checked even if nothing is written.
    let checks_indices = matches!(routine, Routine::Scatter(_) | Routine::FlatIndex);
    if !checks_indices && operands.output.array().layout().numel() == 0 {
        return Ok(());
    }
    match routine {
        Routine::Scan(kind) => scan::run(op, *kind, attrs, operands),
        Routine::Recurrence => scan::recurrence(op, attrs, operands),
        Routine::Argsort => sort::run(op, attrs, operands),
        Routine::First => sort::first(op, attrs, operands),
        Routine::Scatter(write) => scatter::run(op, *write, attrs, operands),
        Routine::FlatIndex => index::run(op, attrs, operands),
        Routine::Bits => random::run(operands),
        Routine::WindowProduct => {
            let [left, windows] = [0, 1].map(|index| operands.inputs.array(index));
            product::of_windows(left, windows, operands.output.array(), attrs)
        }
        Routine::Matrix(work) => matrices::run(op, *work, attrs, operands),
        Routine::Fourier(kind) => fourier::run(op, *kind, attrs, operands),
    }
}

/// Runs a write by index in place of its first operand; the others have other memory.
///
/// # Errors
/// If an index is out of range, or a slice of the first operand is borrowed; then nothing was written.
pub fn write_by_index(op: Op, attrs: &[Attr], operands: [&Array; 3]) -> Result<()> {
    elements::write_by_index(operands, |operands| run(op, attrs, operands))
}
