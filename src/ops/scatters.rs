//! Writes to single elements by index, and to what a view shows: a changed copy, or in place.
//!
//! In the first case `index` says for every element of a source where along `dim` it goes. It has the rank of both and
//! is in no other dim larger. Indices are not negative here. Results are row-major.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{Along, Diagonal, Select, Slice};
use crate::ir::{Attr, Attrs, Op, Scalar};
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::ops::in_place::{in_place_methods, row_methods};
use crate::tensor::handle::Tensor;

static SCATTER_VALUE: Composite =
    Composite::new("scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor").with_writes();
static SCATTER_BY_WORD: Composite =
    Composite::new("scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor")
        .with_writes();
static SCATTER_VALUE_BY_WORD: Composite =
    Composite::new("scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor")
        .with_writes();

impl Tensor {
    row_methods! {
        /// A copy where, for `dim` 0, `out[index[i, j], j] = source[i, j]`. Of several writes to one place the last
        /// stays.
        ///
        /// # Errors
        /// If an index or the dim is out of range, the shapes do not fit, or the dtypes of `self` and `source` differ.
        scatter scatter_(dim: i64, index: &Tensor, source: &Tensor)
            |x, call| call(Op::Scatter, &[x, index, source], &Attrs::from(Along { dim }));
    }

    /// As [`Tensor::scatter`], the source being one number, converted to the dtype of `self`.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    pub fn scatter_value(&self, dim: i64, index: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.scatter(dim, index, &self.repeated(value.into(), index)?)
    }

    in_place_methods! {
        scatter_value scatter_value_ SCATTER_VALUE (dim: i64, index: &Tensor, value: impl Into<Scalar>)
            (self, dim, index, value.into());
    }

    /// `value` in the dtype of `self`, as many times as there are indices.
    fn repeated(&self, value: Scalar, index: &Tensor) -> Result<Tensor> {
        full_on(self.device(), &[], value, Some(self.dtype()))?.expand(index.sizes())
    }

    row_methods! {
        /// A copy where, for `dim` 0, `source[i, j]` was added to `out[index[i, j], j]`, in row-major order of the
        /// source.
        ///
        /// # Errors
        /// As [`Tensor::scatter`].
        scatter_add scatter_add_(dim: i64, index: &Tensor, source: &Tensor)
            |x, call| call(Op::ScatterAdd, &[x, index, source], &Attrs::from(Along { dim }));

        /// A copy where every place that an index names holds the `sum`, `prod`, `mean`, `amax` or `amin` of what goes
        /// there, and of what was there if `include_self`.
        ///
        /// # Errors
        /// As [`Tensor::scatter`], and for another word.
        scatter_reduce scatter_reduce_(dim: i64, index: &Tensor, source: &Tensor, reduce: &str, include_self: bool)
            // The word is the user's; inference refuses one that it does not know.
            |x, call| call(
                Op::ScatterReduce,
                &[x, index, source],
                &[Attr::int(dim), Attr::Str(reduce.into()), Attr::bool(include_self)],
            );
    }
}

/// Writes to what a view shows.
impl Tensor {
    /// A copy with index `index` of `dim` replaced by `src`, which lacks that dim and is converted. Sizes and dtype are
    /// kept.
    ///
    /// # Errors
    /// If the dim or the index is out of range, or the sizes differ.
    pub fn select_scatter(&self, src: &Tensor, dim: i64, index: i64) -> Result<Tensor> {
        call(Op::SelectScatter, &[self, src], &Attrs::from(Select { dim, index }))
    }

    /// A copy with what [`Tensor::slice`] shows replaced by `src`, which is converted. Sizes and dtype are kept.
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
        let attrs = Attrs::from(Slice { dim, start: start.into(), end: end.into(), step });
        call(Op::SliceScatter, &[self, src], &attrs)
    }

    /// A copy with what [`Tensor::diagonal`] shows replaced by `src`, which is converted. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If a dim is out of range, both are the same, or the sizes differ.
    pub fn diagonal_scatter(&self, src: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        call(Op::DiagonalScatter, &[self, src], &Attrs::from(Diagonal { offset, dim1, dim2 }))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite_and_in_place(
            &SCATTER_VALUE,
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar| x.scatter_value(dim, index, value),
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar| {
                x.scatter_(dim, index, &x.repeated(value, index)?).map(|()| x.clone())
            },
        )?
        .composite(&SCATTER_BY_WORD, scatter_reduced)?
        .composite(&SCATTER_VALUE_BY_WORD, |x: &Tensor, dim: i64, index: &Tensor, value: Scalar, reduce: &str| {
            scatter_reduced(x, dim, index, &x.repeated(value, index)?, reduce)
        })?;
    Ok(())
}

/// `scatter` that adds or multiplies, by the word.
fn scatter_reduced(x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, reduce: &str) -> Result<Tensor> {
    match reduce {
        "add" => x.scatter_add(dim, index, source),
        "multiply" => x.scatter_reduce(dim, index, source, "prod", true),
        other => Err(Error::argument("scatter", format!("reduce is {other:?}; use \"add\" or \"multiply\""))),
    }
}
