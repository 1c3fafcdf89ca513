//! Tensors joined, padded, written over, reversed and repeated. Everything here copies.

use super::dims::Dims;
use super::register::call;
use super::tensor::Tensor;
use crate::error::{Error, Result};
use crate::ir::{Attr, Op, Scalar};

/// Tensors side by side along `dim`. All other sizes must be equal; dtypes are promoted. A 1-dim tensor without
/// elements goes with any shape.
///
/// # Errors
/// If there are no tensors, they are 0-dim, other sizes differ, or the dim is out of range.
pub fn cat(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
    if tensors.is_empty() {
        return Err(Error::argument("cat", "expected a non-empty list of tensors"));
    }
    call(Op::Cat, tensors, &[Attr::int(dim)])
}

/// Tensors of one shape along a new dim in front of `dim`; −1 puts it last. Dtypes are promoted.
///
/// # Errors
/// If there are no tensors, sizes differ, or the dim is out of range.
pub fn stack(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::argument("stack", "expected a non-empty list of tensors"));
    };
    if let Some(other) = tensors.iter().find(|tensor| tensor.sizes() != first.sizes()) {
        let what = format!("shapes {:?} and {:?} differ", first.sizes(), other.sizes());
        return Err(Error::shape("stack", what, "all must have one shape; cat joins along a dim"));
    }
    let lifted = tensors.iter().map(|tensor| tensor.unsqueeze(dim)).collect::<Result<Vec<_>>>()?;
    cat(&lifted.iter().collect::<Vec<_>>(), dim)
}

/// Rows of the 2-dim `weight` named by the integer tensor `ids`: the sizes of `ids`, then that of a row.
///
/// # Errors
/// If the weight is not 2-dim, the ids are not integers, or an id is out of range.
pub fn embedding(weight: &Tensor, ids: &Tensor) -> Result<Tensor> {
    call(Op::Embedding, &[weight, ids], &[Attr::int(-1), Attr::bool(false), Attr::bool(false)])
}

/// Elements copied to other places.
impl Tensor {
    /// Room around the elements, filled with `value`; negative numbers cut off. `pad` holds pairs (before, behind), the
    /// last dim's first; dims without a pair stay. Dtype is kept.
    ///
    /// # Errors
    /// If `pad` is no list of pairs, has too many of them, or cuts off more than there is.
    pub fn constant_pad_nd(&self, pad: impl Into<Dims>, value: impl Into<Scalar>) -> Result<Tensor> {
        call(Op::ConstantPadNd, &[self], &[Attr::ints(pad.into().as_slice()), Attr::Scalar(value.into())])
    }

    /// A copy with index `index` of `dim` replaced by `src`, which lacks that dim and is converted.
    ///
    /// # Errors
    /// If the dim or the index is out of range, or the sizes differ.
    pub fn select_scatter(&self, src: &Tensor, dim: i64, index: i64) -> Result<Tensor> {
        call(Op::SelectScatter, &[self, src], &[Attr::int(dim), Attr::int(index)])
    }

    /// A copy with what [`Tensor::slice`] shows replaced by `src`, which is converted.
    ///
    /// # Errors
    /// If the dim is out of range, the step is not positive, or the sizes differ.
    pub fn slice_scatter(
        &self,
        src: &Tensor,
        dim: i64,
        start: impl Into<Option<i64>>,
        end: impl Into<Option<i64>>,
        step: i64,
    ) -> Result<Tensor> {
        let bound = |bound: Option<i64>| bound.map_or(Attr::None, Attr::int);
        let attrs = [Attr::int(dim), bound(start.into()), bound(end.into()), Attr::int(step)];
        call(Op::SliceScatter, &[self, src], &attrs)
    }

    /// A copy with what [`Tensor::diagonal`] shows replaced by `src`, which is converted.
    ///
    /// # Errors
    /// If a dim is out of range, both are the same, or the sizes differ.
    pub fn diagonal_scatter(&self, src: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        call(Op::DiagonalScatter, &[self, src], &[Attr::int(offset), Attr::int(dim1), Attr::int(dim2)])
    }

    /// Elements in reverse order along `dims`; `()` reverses nothing. A copy.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    pub fn flip(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Flip, &[self], &[Attr::ints(dims.into().as_slice())])
    }

    /// The tensor `repeats` times along each dim; counts of dims that it lacks come first. A copy.
    ///
    /// # Errors
    /// If there are fewer counts than dims, or a count is negative.
    pub fn repeat(&self, repeats: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Repeat, &[self], &[Attr::ints(repeats.into().as_slice())])
    }
}
