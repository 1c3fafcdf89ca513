//! Linear algebra: factorizations of matrices, solutions, and functions of them.
//!
//! The last two dims are a matrix, and the dims before are a batch. Batches are broadcast. Rows of the op table compute
//! (`runtime::routine::matrices`); the composites here check, broadcast, and split packed results. Errors are in
//! the words of PyTorch's `linalg`.
//!
//! Complex numbers reach the rows as pairs (`transforms::complex::matrices`). Deliberately absent: 16-bit floats.

mod cholesky;
mod decompositions;
mod eigenvalues;
mod least_squares;
mod lu;
mod operands;
mod solving;

use crate::dispatch::library::Library;
use crate::error::Result;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    cholesky::register(library)?;
    solving::register(library)?;
    lu::register(library)?;
    decompositions::register(library)?;
    eigenvalues::register(library)?;
    least_squares::register(library)
}
