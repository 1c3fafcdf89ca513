//! Types of the results of work on matrices: factorizations, solutions, functions.
//!
//! Operands are f32 or f64, have a matrix in their last two dims, and agree in the dims before. Operators broadcast
//! first, and check in their own words. If the argument `pairs` holds, operands and result have one more dim, for the
//! parts of complex numbers.

use crate::error::{Error, Result};
use crate::ir::attr::Attr;
use crate::ir::attrs::*;
use crate::ir::dtype::DType;
use crate::ir::op::Op;
use crate::ir::packed::Packed;
use crate::ir::routine::Routine;
use crate::ir::row::{Call, Meaning};
use crate::ir::shape::{Sizes, checked_numel};
use crate::ir::types::TensorType;

/// The name for errors.
fn name(call: &Call<'_>) -> &'static str {
    match &call.op.row().meaning {
        Meaning::Routine(Routine::Matrix(work)) => work.name(),
        _others => call.op.name(),
    }
}

/// The rows and columns of a matrix, after the sizes of its batch.
fn matrix<'a>(call: &Call<'a>, index: usize) -> Result<(&'a [usize], [usize; 2])> {
    let ty = call.args[index];
    if !matches!(ty.dtype, DType::F32 | DType::F64) {
        return Err(Error::unsupported(name(call), ty.dtype, "f32 and f64", "convert with to_dtype(DType::F32) first"));
    }
    let sizes = match (&ty.sizes[..], of_pairs(call.op, call.attrs)) {
        (sizes, false) => sizes,
        ([sizes @ .., 2], true) => sizes,
        (other, true) => {
            let what = format!("complex numbers are pairs in a last dim of size 2, but the shape is {other:?}");
            return Err(Error::shape(name(call), what, "pass view_as_real()"));
        }
    };
    match sizes {
        [batch @ .., rows, columns] => Ok((batch, [*rows, *columns])),
        other => {
            let what = format!("the input must have at least 2 dimensions, but its shape is {other:?}");
            Err(Error::shape(name(call), what, "a matrix has two"))
        }
    }
}

/// Whether matrices are of complex numbers, which are pairs.
pub fn of_pairs(op: Op, attrs: &[Attr]) -> bool {
    let at = op.attr_names().iter().position(|name| *name == "pairs");
    at.and_then(|at| attrs.get(at)).and_then(<bool as Attribute>::read).unwrap_or(false)
}

fn square<'a>(call: &Call<'a>) -> Result<(&'a [usize], usize)> {
    match matrix(call, 0)? {
        (batch, [rows, columns]) if rows == columns => Ok((batch, rows)),
        (_, [rows, columns]) => {
            let what = format!("A must be batches of square matrices, but they are {rows} by {columns} matrices");
            Err(Error::shape(name(call), what, "pass square matrices"))
        }
    }
}

/// A result of these sizes, and of pairs if the operands are.
fn made(call: &Call<'_>, sizes: &[usize]) -> Result<TensorType> {
    if of_pairs(call.op, call.attrs) { made_of_pairs(call, sizes) } else { made_of_numbers(call, sizes) }
}

fn made_of_pairs(call: &Call<'_>, sizes: &[usize]) -> Result<TensorType> {
    made_of_numbers(call, &with(sizes, 2))
}

fn made_of_numbers(call: &Call<'_>, sizes: &[usize]) -> Result<TensorType> {
    let dtype = call.args[0].dtype;
    checked_numel(name(call), sizes, dtype.size())?;
    Ok(TensorType::contiguous(dtype, sizes))
}

/// A square matrix for a square matrix.
pub fn square_to_square(call: &Call<'_>) -> Result<TensorType> {
    square(call)?;
    made_of_numbers(call, &call.args[0].sizes)
}

/// A number for a square matrix.
pub fn square_to_number(call: &Call<'_>) -> Result<TensorType> {
    let (batch, _) = square(call)?;
    made(call, batch)
}

/// Two numbers for a square matrix.
pub fn square_to_pair(call: &Call<'_>) -> Result<TensorType> {
    let (batch, _) = square(call)?;
    made(call, &with(batch, 2))
}

/// One number per row of a square matrix.
pub fn eigenvalues(call: &Call<'_>) -> Result<TensorType> {
    let (batch, order) = square(call)?;
    made(call, &with(batch, order))
}

/// One number for each row or column, whichever are fewer.
pub fn singular_values(call: &Call<'_>) -> Result<TensorType> {
    let (batch, [rows, columns]) = matrix(call, 0)?;
    made(call, &with(batch, rows.min(columns)))
}

/// The transposed solution of a square system.
pub fn solution(call: &Call<'_>) -> Result<TensorType> {
    let (batch, order) = square(call)?;
    let (others, [rows, columns]) = matrix(call, 1)?;
    if batch != others || rows != order || call.args[0].dtype != call.args[1].dtype {
        let what = format!("{} and {}", call.args[0], call.args[1]);
        return Err(Error::shape(name(call), what, "dtypes, batches and rows must agree"));
    }
    let sizes: Sizes = batch.iter().copied().chain([columns, order]).collect();
    made(call, &sizes)
}

/// The transposed pseudoinverse. There is one tolerance of each kind per matrix.
pub fn pseudoinverse(call: &Call<'_>) -> Result<TensorType> {
    let (batch, _) = matrix(call, 0)?;
    for index in [1, 2] {
        let (others, sizes) = matrix(call, index)?;
        if batch != others || sizes != [1, 1] || call.args[index].dtype != call.args[0].dtype {
            let what = format!("tolerances {} for {}", call.args[index], call.args[0]);
            return Err(Error::shape(name(call), what, "there must be one per matrix, of its dtype"));
        }
    }
    made_of_numbers(call, &call.args[0].sizes)
}

/// The parts of `P L U`.
pub fn lu(call: &Call<'_>) -> Result<TensorType> {
    /// Whole numbers up to it are f32s.
    const EXACT: usize = 1 << 24;
    let (batch, [rows, columns]) = matrix(call, 0)?;
    if call.args[0].dtype == DType::F32 && rows.min(columns) > 0 && rows > EXACT {
        let what = format!("a matrix of {rows} rows, of which f32 cannot count more than {EXACT}");
        return Err(Error::shape(name(call), what, "convert to f64"));
    }
    made(call, &Packed::lu(rows, columns).sizes(batch))
}

/// The parts of `Q R`.
pub fn qr(call: &Call<'_>) -> Result<TensorType> {
    let (batch, [rows, columns]) = matrix(call, 0)?;
    made(call, &Packed::qr(rows, columns, QrFactors::read(call.attrs).complete).sizes(batch))
}

/// The parts of an eigenvalue decomposition.
pub fn eigen(call: &Call<'_>) -> Result<TensorType> {
    let (batch, order) = square(call)?;
    made(call, &Packed::eigen(order).sizes(batch))
}

/// The parts of an eigenvalue decomposition, as pairs.
pub fn general_eigen(call: &Call<'_>) -> Result<TensorType> {
    let (batch, order) = square(call)?;
    made_of_pairs(call, &Packed::eigen(order).sizes(batch))
}

/// One pair per row of a square matrix.
pub fn general_eigenvalues(call: &Call<'_>) -> Result<TensorType> {
    let (batch, order) = square(call)?;
    made_of_pairs(call, &with(batch, order))
}

/// The parts of a singular value decomposition.
pub fn svd(call: &Call<'_>) -> Result<TensorType> {
    let (batch, [rows, columns]) = matrix(call, 0)?;
    made(call, &Packed::svd(rows, columns, SvdFactors::read(call.attrs).full).sizes(batch))
}

/// The order (i64) of so many rows after swaps with pivots.
pub fn permutation(call: &Call<'_>) -> Result<TensorType> {
    let pivots = call.args[0];
    let rows = usize::try_from(LuPermutation::read(call.attrs).rows).unwrap_or(usize::MAX);
    let [batch @ .., swaps] = &pivots.sizes[..] else {
        return Err(Error::shape(name(call), "pivots without dims", "pass one vector of pivots per matrix"));
    };
    if pivots.dtype != DType::I32 || *swaps > rows {
        let what = format!("pivots {pivots} for {rows} rows");
        return Err(Error::shape(name(call), what, "pass i32 pivots, at most one per row"));
    }
    let sizes = with(batch, rows);
    checked_numel(name(call), &sizes, DType::I64.size())?;
    Ok(TensorType::contiguous(DType::I64, &sizes))
}

fn with(batch: &[usize], last: usize) -> Sizes {
    batch.iter().copied().chain([last]).collect()
}
