//! Types of the results of gathers, and checks of index tensors.

use crate::error::{Error, Result};
use crate::ir::attrs::{Along, Attributes};
use crate::ir::dtype::DType;
use crate::ir::row::Call;
use crate::ir::shape::{self, normalize_dim};
use crate::ir::types::TensorType;

/// The type of `index_select`: one index vector along a dim.
pub fn index_select(call: &Call<'_>) -> Result<TensorType> {
    let (input, index) = (call.args[0], call.args[1]);
    need_index(call.name(), index)?;
    let dim = normalize_dim(call.name(), Along::read(call.attrs).dim, input.rank())?;
    if index.rank() > 1 {
        let what = format!("index has shape {:?}", &index.sizes[..]);
        return Err(Error::index(call.name(), what, "it must be 1-d; embedding and gather take more dims"));
    }
    let mut sizes = input.sizes.clone();
    if !sizes.is_empty() {
        sizes[dim] = index.numel();
    } else if index.numel() != 1 {
        let what = format!("index of a 0-dim tensor has shape {:?}", &index.sizes[..]);
        return Err(Error::index(call.name(), what, "it must hold one index"));
    }
    shape::checked_numel(call.name(), &sizes, input.dtype.size())?;
    Ok(TensorType::contiguous(input.dtype, &sizes))
}

/// The type of `gather`: the shape of the index. That may not exceed the input in dims other than `dim`. An index
/// without elements may have any shape and dtype.
pub fn gather(call: &Call<'_>) -> Result<TensorType> {
    let (input, index) = (call.args[0], call.args[1]);
    let dim = normalize_dim(call.name(), Along::read(call.attrs).dim, input.rank())?;
    if index.numel() > 0 {
        need_index(call.name(), index)?;
        if !fits(&index.sizes, &input.sizes, Some(dim)) {
            let shapes = (&index.sizes[..], &input.sizes[..]);
            let what = format!("index shape {:?} does not fit input shape {:?} along dim {dim}", shapes.0, shapes.1);
            return Err(Error::shape(call.name(), what, "ranks must be equal, and other dims at most the input's"));
        }
    }
    shape::checked_numel(call.name(), &index.sizes, input.dtype.size())?;
    Ok(TensorType::contiguous(input.dtype, &index.sizes))
}

/// The type of `embedding`: the shape of the index, and a dim for the row of the 2-d table.
pub fn embedding(call: &Call<'_>) -> Result<TensorType> {
    let (table, index) = (call.args[0], call.args[1]);
    need_index(call.name(), index)?;
    if table.rank() != 2 {
        return Err(Error::shape(call.name(), format!("the table has shape {:?}", &table.sizes[..]), "it must be 2-d"));
    }
    let mut sizes = index.sizes.clone();
    sizes.push(table.sizes[1]);
    shape::checked_numel(call.name(), &sizes, table.dtype.size())?;
    Ok(TensorType::contiguous(table.dtype, &sizes))
}

/// Checks that the dtype of an index is i64 or i32.
pub fn need_index(op: &str, index: &TensorType) -> Result<()> {
    if matches!(index.dtype, DType::I64 | DType::I32) {
        return Ok(());
    }
    Err(Error::dtype(op, index.dtype, "i64 or i32", "indices are whole numbers; convert with to_dtype(DType::I64)"))
}

/// Whether the sizes of an index have the rank of `other` and are at most as large, except in dim `free`. A 0-dim
/// tensor counts as one with a dim of size 1.
pub fn fits(index: &[usize], other: &[usize], free: Option<usize>) -> bool {
    let (index, other) = (at_least_1d(index), at_least_1d(other));
    index.len() == other.len()
        && index.iter().zip(other).enumerate().all(|(dim, (index, other))| Some(dim) == free || index <= other)
}

fn at_least_1d(sizes: &[usize]) -> &[usize] {
    if sizes.is_empty() { &[1] } else { sizes }
}
