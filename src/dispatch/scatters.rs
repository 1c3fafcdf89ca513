//! Writes to elements by index: methods that give a changed copy.
//!
//! `index` says for every element of a source where along `dim` it goes; it has the rank of both and is in no other
//! dim larger. Indices are not negative here. Results are row-major.

use super::factories::full_on;
use super::register::call;
use super::tensor::Tensor;
use crate::error::{Error, Result};
use crate::ir::{Attr, Op, Scalar};

impl Tensor {
    /// A copy where, for `dim` 0, `out[index[i, j], j] = source[i, j]`. Of several writes to one place the last stays.
    ///
    /// # Errors
    /// If an index or the dim is out of range, the shapes do not fit, or the dtypes of `self` and `source` differ.
    pub fn scatter(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        call(Op::Scatter, &[self, index, source], &[Attr::int(dim)])
    }

    /// As [`Tensor::scatter`], the source being one number, converted to the dtype of `self`.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    pub fn scatter_value(&self, dim: i64, index: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.scatter(dim, index, &self.repeated(value.into(), index)?)
    }

    /// `value` in the dtype of `self`, as many times as there are indices.
    pub(super) fn repeated(&self, value: Scalar, index: &Tensor) -> Result<Tensor> {
        full_on(self.device(), &[], value, Some(self.dtype()))?.expand(index.sizes())
    }

    /// A copy where, for `dim` 0, `source[i, j]` was added to `out[index[i, j], j]`, in row-major order of the source.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    pub fn scatter_add(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        call(Op::ScatterAdd, &[self, index, source], &[Attr::int(dim)])
    }

    /// A copy where every place that an index names holds the `sum`, `prod`, `mean`, `amax` or `amin` of what goes
    /// there, and of what was there if `include_self`.
    ///
    /// # Errors
    /// As [`Tensor::scatter`], and for another word.
    pub fn scatter_reduce(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        reduce: &str,
        include_self: bool,
    ) -> Result<Tensor> {
        let attrs = [Attr::int(dim), Attr::Str(reduce.into()), Attr::bool(include_self)];
        call(Op::ScatterReduce, &[self, index, source], &attrs)
    }
}

/// The same, in place: views of the same elements see it. A target keeps its dtype.
impl Tensor {
    /// [`Tensor::scatter`] in place.
    ///
    /// # Errors
    /// As [`Tensor::scatter`] and [`Tensor::copy_`].
    pub fn scatter_(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<()> {
        self.copy_(&self.scatter(dim, index, source)?)
    }

    /// [`Tensor::scatter_add`] in place.
    ///
    /// # Errors
    /// As [`Tensor::scatter_add`] and [`Tensor::copy_`].
    pub fn scatter_add_(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<()> {
        self.copy_(&self.scatter_add(dim, index, source)?)
    }

    /// [`Tensor::index_put`] in place.
    ///
    /// # Errors
    /// As [`Tensor::index_put`] and [`Tensor::copy_`].
    pub fn index_put_(&self, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool) -> Result<()> {
        self.copy_(&self.index_put(indices, values, accumulate)?)
    }

    /// [`Tensor::index_add`] in place.
    ///
    /// # Errors
    /// As [`Tensor::index_add`] and [`Tensor::copy_`].
    pub fn index_add_(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<()> {
        self.copy_(&self.index_add(dim, index, source)?)
    }

    /// [`Tensor::index_copy`] in place.
    ///
    /// # Errors
    /// As [`Tensor::index_copy`] and [`Tensor::copy_`].
    pub fn index_copy_(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<()> {
        self.copy_(&self.index_copy(dim, index, source)?)
    }

    /// [`Tensor::index_fill`] in place.
    ///
    /// # Errors
    /// As [`Tensor::index_fill`] and [`Tensor::copy_`].
    pub fn index_fill_(&self, dim: i64, index: &Tensor, value: impl Into<Scalar>) -> Result<()> {
        self.copy_(&self.index_fill(dim, index, value)?)
    }

    /// [`Tensor::masked_scatter`] in place; `self` is not broadcast.
    ///
    /// # Errors
    /// As [`Tensor::masked_scatter`] and [`Tensor::copy_`].
    pub fn masked_scatter_(&self, mask: &Tensor, source: &Tensor) -> Result<()> {
        self.copy_(&self.masked_scatter(mask, source)?)
    }
}

/// `scatter` that adds or multiplies, by the word.
pub(super) fn scatter_reduced(x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, reduce: &str) -> Result<Tensor> {
    match reduce {
        "add" => x.scatter_add(dim, index, source),
        "multiply" => x.scatter_reduce(dim, index, source, "prod", true),
        other => Err(Error::argument("scatter", format!("reduce is {other:?}; use \"add\" or \"multiply\""))),
    }
}
