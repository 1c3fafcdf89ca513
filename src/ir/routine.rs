//! Routines: procedures on whole arrays that are no loop over elements, and the types of their results.
//!
//! Scans, sorts, writes to places that an index names, and random words. A routine is never fused: it is a step of its own, and eager
//! calls and compiled graphs run the same code, so their bits agree. Its operands are those of the row, except that a
//! graph converts the one that [`Routine::converted`] names before the routine sees it. Results are dense and
//! row-major. How a routine computes is not said here.

use super::dtype::DType;
use super::infer::need_index;
use super::op::{Call, Meaning};
use super::shape::{self, normalize_dim};
use super::types::TensorType;
use crate::error::{Error, Result};

/// What a routine does.
#[derive(Debug, Clone, Copy)]
pub enum Routine {
    /// What came so far along the dim of argument 0, each element included.
    Scan(Scan),
    /// `y[i] = factor[i] * y[i - 1] + term[i]` along the dim of argument 0, or from the end if argument 1 holds.
    Recurrence,
    /// The places of the elements along a dim in the order of their values; equal ones stay in their order.
    Argsort,
    /// A copy of operand 0 with the elements of operand 2 written where operand 1, the index, says along a dim.
    Scatter(Write),
    /// Index tensors, one per dim, as one index into the dims joined, checked; negative ones count from the end if
    /// argument 1 holds.
    FlatIndex,
    /// Random words of operand 0, the key; see [`super::philox`].
    Bits,
}

/// What a scan keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scan {
    /// The sum so far.
    Sum,
    /// The product so far.
    Prod,
    /// The place of the greatest so far, the last of equal ones; a NaN is greater than any number.
    ArgMax,
    /// The place of the least so far, the last of equal ones; a NaN is less than any number.
    ArgMin,
}

/// What a write does with what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    /// Replaces it; of several writes to one place the last in row-major order stays.
    Overwrite,
    /// Adds to it.
    Add,
    /// What the word in argument 1 names: `sum`, `prod`, `mean`, `amax` or `amin`; whether what was there takes part is
    /// argument 2.
    Reduce,
}

impl Routine {
    /// The operand that is converted to the dtype of the result first.
    pub const fn converted(&self) -> Option<usize> {
        match self {
            Routine::Scan(Scan::Sum | Scan::Prod) => Some(0),
            Routine::Scan(Scan::ArgMax | Scan::ArgMin)
            | Routine::Recurrence
            | Routine::Argsort
            | Routine::Scatter(_)
            | Routine::FlatIndex
            | Routine::Bits => None,
        }
    }
}

fn dim_of(call: &Call<'_>, attr: usize, default: i64, rank: usize) -> Result<usize> {
    normalize_dim(call.name(), call.attrs[attr].as_int().unwrap_or(default), rank)
}

/// Running sums and products: integers and bools accumulate in i64 unless a dtype is asked for.
pub fn scan(call: &Call<'_>) -> Result<TensorType> {
    let input = call.args[0];
    dim_of(call, 0, 0, input.rank())?;
    let fitting = if input.dtype.is_float() { input.dtype } else { DType::I64 };
    Ok(TensorType::contiguous(call.attrs[1].dtype().unwrap_or(fitting), &input.sizes))
}

/// Places along the dim of argument 0: i64, sizes kept.
pub fn running_places(call: &Call<'_>) -> Result<TensorType> {
    dim_of(call, 0, 0, call.args[0].rank())?;
    Ok(TensorType::contiguous(DType::I64, &call.args[0].sizes))
}

/// Linear recurrences: operands of one floating dtype and one shape.
pub fn recurrence(call: &Call<'_>) -> Result<TensorType> {
    let (factor, term) = (call.args[0], call.args[1]);
    dim_of(call, 0, 0, term.rank())?;
    if !term.dtype.is_float() || factor.dtype != term.dtype {
        let found = if term.dtype.is_float() { factor.dtype } else { term.dtype };
        return Err(Error::dtype(call.name(), found, "one floating dtype", "convert both operands to it"));
    }
    if factor.sizes != term.sizes {
        let what = format!("factors of shape {:?} and terms of {:?}", &factor.sizes[..], &term.sizes[..]);
        return Err(Error::shape(call.name(), what, "expand both to one shape"));
    }
    Ok(TensorType::contiguous(term.dtype, &term.sizes))
}

/// Order along the dim of argument 1: i64, sizes kept.
pub fn argsort(call: &Call<'_>) -> Result<TensorType> {
    dim_of(call, 1, -1, call.args[0].rank())?;
    Ok(TensorType::contiguous(DType::I64, &call.args[0].sizes))
}

/// Writes along a dim: the index has the rank of both, is nowhere larger than the source, and in the other dims not
/// larger than what is written to.
pub fn scatter(call: &Call<'_>) -> Result<TensorType> {
    let (into, index, source) = (call.args[0], call.args[1], call.args[2]);
    let dim = dim_of(call, 0, 0, into.rank())?;
    if source.dtype != into.dtype {
        let hint = "the source must have the dtype of what it is written to; convert one of them";
        return Err(Error::dtype(call.name(), source.dtype, into.dtype.name(), hint));
    }
    // An index without elements may have any shape and dtype.
    if index.numel() > 0 {
        need_index(call.name(), index)?;
        let misfit = |what: &str, other: &TensorType| {
            let shapes = (&index.sizes[..], &other.sizes[..]);
            let what = format!("index shape {:?} does not fit {what} shape {:?} along dim {dim}", shapes.0, shapes.1);
            Err(Error::shape(call.name(), what, "ranks must be equal, and no other dim of the index may be larger"))
        };
        if !fits(&index.sizes, &into.sizes, Some(dim)) {
            return misfit("the written", into);
        }
        if !fits(&index.sizes, &source.sizes, None) {
            return misfit("the source", source);
        }
    }
    if let Meaning::Routine(Routine::Scatter(Write::Reduce)) = call.op.row().meaning {
        let word = call.attrs[1].word();
        if !["sum", "prod", "mean", "amax", "amin"].contains(&word) {
            let what = format!("reduce is {word:?}; use \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\"");
            return Err(Error::argument(call.name(), what));
        }
    }
    Ok(TensorType::contiguous(into.dtype, &into.sizes))
}

/// Whether an index of these sizes lies inside others, one dim aside. A 0-dim tensor counts as one element in a row.
pub fn fits(index: &[usize], other: &[usize], free: Option<usize>) -> bool {
    let (index, other) = (at_least_1d(index), at_least_1d(other));
    index.len() == other.len()
        && index.iter().zip(other).enumerate().all(|(dim, (index, other))| Some(dim) == free || index <= other)
}

fn at_least_1d(sizes: &[usize]) -> &[usize] {
    if sizes.is_empty() { &[1] } else { sizes }
}

/// Index tensors of one shape: i64 of that shape. Argument 0 has the size of each dim that is indexed.
pub fn flat_index(call: &Call<'_>) -> Result<TensorType> {
    let Some(first) = call.args.first() else {
        return Err(Error::argument(call.name(), "expected a non-empty list of index tensors"));
    };
    let sizes = call.attrs[0].list();
    if sizes.len() != call.args.len() {
        let what = format!("{} index tensors for {} dims", call.args.len(), sizes.len());
        return Err(Error::argument(call.name(), what));
    }
    for index in call.args {
        need_index(call.name(), index)?;
        if index.sizes != first.sizes {
            let what = format!("index shapes {:?} and {:?} differ", &first.sizes[..], &index.sizes[..]);
            return Err(Error::shape(call.name(), what, "broadcast them first"));
        }
    }
    shape::checked_numel(call.name(), &first.sizes, DType::I64.size())?;
    Ok(TensorType::contiguous(DType::I64, &first.sizes))
}
