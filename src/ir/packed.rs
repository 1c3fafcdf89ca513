//! Results of several parts in one tensor.
//!
//! A row of the op table has one result. A factorization that has several puts them one after another into the last
//! dim, each in row-major order: [`Packed`] says where. Operators split them with views, and derivatives are formulas
//! over the parts.

use super::shape::Sizes;
use smallvec::{SmallVec, smallvec};

/// The parts of a packed result: rows and columns of each, in order. A vector is one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    parts: SmallVec<[[usize; 2]; 3]>,
}

/// One part: where it begins, and its rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its first element.
    pub start: usize,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
}

impl Packed {
    /// Of `P L U`: the transposed triangles in one matrix, and the pivots.
    pub fn lu(rows: usize, columns: usize) -> Packed {
        Packed { parts: smallvec![[columns, rows], [1, rows.min(columns)]] }
    }

    /// Of `Q R`: both transposed. If `complete`, `Q` is square.
    pub fn qr(rows: usize, columns: usize, complete: bool) -> Packed {
        let width = if complete { rows } else { rows.min(columns) };
        Packed { parts: smallvec![[width, rows], [columns, width]] }
    }

    /// One row of numbers.
    pub fn row(columns: usize) -> Packed {
        Packed { parts: smallvec![[1, columns]] }
    }

    /// Of a square matrix: its eigenvalues and the transposed eigenvectors.
    pub fn eigen(order: usize) -> Packed {
        Packed { parts: smallvec![[1, order], [order, order]] }
    }

    /// Of `U S Vᵀ`: the transposed `U`, the diagonal of `S`, and `Vᵀ`. If `full`, `U` and `V` are square.
    pub fn svd(rows: usize, columns: usize, full: bool) -> Packed {
        let size = rows.min(columns);
        let [left, right] = if full { [rows, columns] } else { [size, size] };
        Packed { parts: smallvec![[left, rows], [1, size], [right, columns]] }
    }

    /// The number of elements, or `usize::MAX` if it is greater.
    pub fn len(&self) -> usize {
        self.parts.iter().fold(0, |sum: usize, [rows, columns]| sum.saturating_add(rows.saturating_mul(*columns)))
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part by its position.
    pub fn part(&self, index: usize) -> Part {
        let [rows, columns] = self.parts[index];
        let start = self.parts[..index].iter().map(|[rows, columns]| rows * columns).sum();
        Part { start, rows, columns }
    }

    /// The sizes of a packed result for a batch of these sizes.
    pub fn sizes(&self, batch: &[usize]) -> Sizes {
        batch.iter().copied().chain([self.len()]).collect()
    }
}
