//! Types of the results of routines: scans, sorts and writes by index.

use super::indexing::{fits, need_index};
use crate::error::{Error, Result};
use crate::ir::attrs::*;
use crate::ir::dtype::DType;
use crate::ir::routine::{Routine, Write};
use crate::ir::row::{Call, Meaning};
use crate::ir::shape::{self, normalize_dim};
use crate::ir::types::TensorType;

/// The type of cumulative sums and products. The default dtype of integers and bools is i64.
pub fn scan(call: &Call<'_>) -> Result<TensorType> {
    let input = call.args[0];
    dim_of(call, input.rank())?;
    let fitting = if input.dtype.is_float() { input.dtype } else { DType::I64 };
    Ok(TensorType::contiguous(Cumsum::read(call.attrs).dtype.unwrap_or(fitting), &input.sizes))
}

/// The type of the indices of cumulative extrema: i64. Sizes are kept.
pub fn cumulative_indices(call: &Call<'_>) -> Result<TensorType> {
    dim_of(call, call.args[0].rank())?;
    Ok(TensorType::contiguous(DType::I64, &call.args[0].sizes))
}

/// The type of a linear recurrence. The operands must have one floating dtype and one shape.
pub fn recurrence(call: &Call<'_>) -> Result<TensorType> {
    let (factor, term) = (call.args[0], call.args[1]);
    dim_of(call, term.rank())?;
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

/// The type of `argsort`: i64. Sizes are kept.
pub fn argsort(call: &Call<'_>) -> Result<TensorType> {
    normalize_dim(call.name(), Argsort::read(call.attrs).dim, call.args[0].rank())?;
    Ok(TensorType::contiguous(DType::I64, &call.args[0].sizes))
}

/// The type of the indices of the first elements of a sort: i64. The dim has `k` elements, at most as many as before.
pub fn topk_indices(call: &Call<'_>) -> Result<TensorType> {
    let input = call.args[0];
    let TopkIndices { k, dim, .. } = TopkIndices::read(call.attrs);
    let along = normalize_dim(call.name(), dim, input.rank())?;
    let size = input.sizes.get(along).copied().unwrap_or(1);
    let Some(k) = usize::try_from(k).ok().filter(|&k| k <= size) else {
        let what = format!("k is {k}, but dim {dim} of shape {:?} has {size} elements", &input.sizes[..]);
        return Err(Error::shape(call.name(), what, "ask for at most as many as there are"));
    };
    let mut sizes = input.sizes.clone();
    match sizes.get_mut(along) {
        Some(size) => *size = k,
        None if k == 1 => {}
        None => return Err(Error::argument(call.name(), "k is 0 for a 0-dim tensor; ask for its one element")),
    }
    Ok(TensorType::contiguous(DType::I64, &sizes))
}

/// The type of writes along a dim. The index must have the rank of both. It may not be larger than the source, nor
/// larger than the target in dims other than `dim`.
pub fn scatter(call: &Call<'_>) -> Result<TensorType> {
    let (into, index, source) = (call.args[0], call.args[1], call.args[2]);
    let dim = dim_of(call, into.rank())?;
    if source.dtype != into.dtype {
        let hint = "the source must have the dtype of the target; convert one of them";
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
    let reduces = matches!(call.op.row().meaning, Meaning::Routine(Routine::Scatter(Write::Reduce)));
    if reduces && ScatterReduce::read(call.attrs).reduce.is_none() {
        let word = ScatterReduce::misfit(call.attrs).map_or("", |(_, attr)| attr.word());
        let what = format!("reduce is {word:?}; use \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\"");
        return Err(Error::argument(call.name(), what));
    }
    Ok(TensorType::contiguous(into.dtype, &into.sizes))
}

/// The type of a flat index: i64, in the one shape of the index tensors. Argument 0 has the size of each indexed dim.
pub fn flat_index(call: &Call<'_>) -> Result<TensorType> {
    let Some(first) = call.args.first() else {
        return Err(Error::argument(call.name(), "expected a non-empty list of index tensors"));
    };
    let FlatIndex { sizes, .. } = FlatIndex::read(call.attrs);
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

/// The dim of a call, which is its first argument.
fn dim_of(call: &Call<'_>, rank: usize) -> Result<usize> {
    normalize_dim(call.name(), Along::read(call.attrs).dim, rank)
}
