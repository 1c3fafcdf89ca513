//! A matrix product as it is described to cublasLt: plain data, in every build.

use crate::ir::DType;
use std::fmt;

/// Which elements of a matrix are contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    /// Those of a row.
    Rows,
    /// Those of a column.
    Columns,
}

/// The layout of an operand in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Matrix {
    pub(crate) order: Order,
    /// Elements from one row (or column) to the next; at least the length of a row (or column).
    pub(crate) pitch: usize,
    /// Elements from one matrix to the next.
    pub(crate) batch: usize,
}

/// The function applied to the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Activation {
    Nothing,
    Relu,
    /// The approximation with the hyperbolic tangent.
    Gelu,
}

/// What is computed from the sums of a product before they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LtEpilogue {
    /// Whether a number per column is added first.
    pub(crate) has_bias: bool,
    pub(crate) activation: Activation,
}

/// A product of batches of matrices, with a dense row-major result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Problem {
    /// Dtype of both operands: a float.
    pub(crate) dtype: DType,
    /// Dtype of the result and the bias: the same, or f32 where that is a 16-bit float.
    pub(crate) result: DType,
    pub(crate) n_batches: usize,
    /// Rows of the result.
    pub(crate) m: usize,
    /// The contracted size.
    pub(crate) k: usize,
    /// Columns of the result.
    pub(crate) n: usize,
    pub(crate) left: Matrix,
    pub(crate) right: Matrix,
    pub(crate) epilogue: LtEpilogue,
}

/// The device addresses of a product's operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) left: u64,
    pub(crate) right: u64,
    pub(crate) result: u64,
    /// The numbers per column; 0 if there are none.
    pub(crate) bias: u64,
    /// The workspace; 0 if none is needed.
    pub(crate) workspace: u64,
}

impl LtEpilogue {
    /// Stores the sums.
    pub(crate) const NOTHING: LtEpilogue = LtEpilogue { has_bias: false, activation: Activation::Nothing };
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { dtype, result, n_batches, m, k, n, .. } = self;
        let batch = if *n_batches == 1 { String::new() } else { format!("{n_batches}, ") };
        write!(f, "{dtype}[{batch}{m}, {k}] @ {dtype}[{batch}{k}, {n}]")?;
        if self.epilogue.has_bias {
            f.write_str(" + bias")?;
        }
        f.write_str(match self.epilogue.activation {
            Activation::Nothing => "",
            Activation::Relu => ", relu",
            Activation::Gelu => ", gelu",
        })?;
        if result == dtype { Ok(()) } else { write!(f, " as {result}") }
    }
}
