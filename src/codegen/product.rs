//! The shape of a matrix product: what every device needs to compute it.

use crate::ir::DType;

/// A product of matrices, or of batches of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProductShape {
    /// Dtype of the operands.
    pub dtype: DType,
    /// Dtype of the result: that of the operands, or f32 where 16-bit floats are multiplied and sums stay unrounded.
    pub result: DType,
    /// Number of matrices.
    pub batch: usize,
    /// Rows of the result.
    pub m: usize,
    /// The contracted size: columns of the left operand, rows of the right one.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    /// Strides of batch, row and column of the left operand, in elements.
    pub left: [usize; 3],
    /// The same of the right one.
    pub right: [usize; 3],
}
