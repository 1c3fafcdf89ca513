//! What there is to know of a matrix product before it is computed, wherever that is.

use crate::ir::DType;

/// A product of matrices, or of batches of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProductShape {
    /// Of the operands.
    pub dtype: DType,
    /// Of the result: that of the operands, or f32 where those are 16-bit floats and their sums are not rounded.
    pub result: DType,
    /// Matrices.
    pub batch: usize,
    /// Rows of the result.
    pub m: usize,
    /// Elements of a chain.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    /// Strides of batch, row and column of the left operand, in elements.
    pub left: [usize; 3],
    /// The same of the right one.
    pub right: [usize; 3],
}
