//! A matrix product as cublasLt is asked for it: plain data, which every build has.

use crate::ir::DType;
use std::fmt;

/// Which elements of a matrix lie side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    /// Those of a row.
    Rows,
    /// Those of a column.
    Columns,
}

/// How an operand lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Matrix {
    pub(crate) order: Order,
    /// Elements from a row to the next, or from a column to the next; at least as many as lie side by side.
    pub(crate) pitch: usize,
    /// Elements from a matrix to the next.
    pub(crate) batch: usize,
}

/// The function behind a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Activation {
    Nothing,
    Relu,
    /// By way of the hyperbolic tangent.
    Gelu,
}

/// What is computed of the sums of a product before they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tail {
    /// Whether each column has a number that is added first.
    pub(crate) has_bias: bool,
    pub(crate) activation: Activation,
}

/// A product of batches of matrices whose dense result lies row by row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Problem {
    /// Of both operands: a float.
    pub(crate) dtype: DType,
    /// Of the result and the columns' numbers: the same, or f32 where that is a 16-bit float.
    pub(crate) result: DType,
    pub(crate) n_batches: usize,
    /// Rows of the result.
    pub(crate) m: usize,
    /// Elements of a sum.
    pub(crate) k: usize,
    /// Columns of the result.
    pub(crate) n: usize,
    pub(crate) left: Matrix,
    pub(crate) right: Matrix,
    pub(crate) tail: Tail,
}

/// Where the operands of a product are on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) left: u64,
    pub(crate) right: u64,
    pub(crate) result: u64,
    /// Of the columns' numbers; 0 if there are none.
    pub(crate) bias: u64,
    /// Of memory to work in; 0 if none is needed.
    pub(crate) workspace: u64,
}

impl Tail {
    /// The sums are stored.
    pub(crate) const NOTHING: Tail = Tail { has_bias: false, activation: Activation::Nothing };
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { dtype, result, n_batches, m, k, n, .. } = self;
        let batch = if *n_batches == 1 { String::new() } else { format!("{n_batches}, ") };
        write!(f, "{dtype}[{batch}{m}, {k}] @ {dtype}[{batch}{k}, {n}]")?;
        if self.tail.has_bias {
            f.write_str(" + bias")?;
        }
        f.write_str(match self.tail.activation {
            Activation::Nothing => "",
            Activation::Relu => ", relu",
            Activation::Gelu => ", gelu",
        })?;
        if result == dtype { Ok(()) } else { write!(f, " as {result}") }
    }
}
