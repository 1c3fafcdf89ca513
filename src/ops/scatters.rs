//! Writes to elements by index: methods that give a changed copy, and their in-place forms.
//!
//! `index` says for every element of a source where along `dim` it goes; it has the rank of both and is in no other dim
//! larger. Indices are not negative here. Results are row-major.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{Attr, Op, Scalar};
use crate::ops::factories::full_on;
use crate::ops::in_place::row_methods;
use crate::tensor::handle::Tensor;

impl Tensor {
    row_methods! {
        /// A copy where, for `dim` 0, `out[index[i, j], j] = source[i, j]`. Of several writes to one place the last
        /// stays.
        ///
        /// # Errors
        /// If an index or the dim is out of range, the shapes do not fit, or the dtypes of `self` and `source` differ.
        scatter scatter_(dim: i64, index: &Tensor, source: &Tensor)
            |x, call| call(Op::Scatter, &[x, index, source], &[Attr::int(dim)]);
    }

    /// As [`Tensor::scatter`], the source being one number, converted to the dtype of `self`.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    pub fn scatter_value(&self, dim: i64, index: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.scatter(dim, index, &self.repeated(value.into(), index)?)
    }

    /// `value` in the dtype of `self`, as many times as there are indices.
    pub(crate) fn repeated(&self, value: Scalar, index: &Tensor) -> Result<Tensor> {
        full_on(self.device(), &[], value, Some(self.dtype()))?.expand(index.sizes())
    }

    row_methods! {
        /// A copy where, for `dim` 0, `source[i, j]` was added to `out[index[i, j], j]`, in row-major order of the
        /// source.
        ///
        /// # Errors
        /// As [`Tensor::scatter`].
        scatter_add scatter_add_(dim: i64, index: &Tensor, source: &Tensor)
            |x, call| call(Op::ScatterAdd, &[x, index, source], &[Attr::int(dim)]);

        /// A copy where every place that an index names holds the `sum`, `prod`, `mean`, `amax` or `amin` of what goes
        /// there, and of what was there if `include_self`.
        ///
        /// # Errors
        /// As [`Tensor::scatter`], and for another word.
        scatter_reduce scatter_reduce_(dim: i64, index: &Tensor, source: &Tensor, reduce: &str, include_self: bool)
            |x, call| call(
                Op::ScatterReduce,
                &[x, index, source],
                &[Attr::int(dim), Attr::Str(reduce.into()), Attr::bool(include_self)],
            );
    }
}

/// `scatter` that adds or multiplies, by the word.
pub(crate) fn scatter_reduced(x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, reduce: &str) -> Result<Tensor> {
    match reduce {
        "add" => x.scatter_add(dim, index, source),
        "multiply" => x.scatter_reduce(dim, index, source, "prod", true),
        other => Err(Error::argument("scatter", format!("reduce is {other:?}; use \"add\" or \"multiply\""))),
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            "scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar| x.scatter_value(dim, index, value),
        )?
        .def_kernel(
            "scatter_.value(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)",
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar| {
                x.scatter_(dim, index, &x.repeated(value, index)?).map(|()| x.clone())
            },
        )?
        .def_kernel(
            "scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor",
            scatter_reduced,
        )?
        .def_kernel(
            "scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor",
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar, reduce: &str| {
                scatter_reduced(x, dim, index, &x.repeated(value, index)?, reduce)
            },
        )?;
    Ok(())
}
