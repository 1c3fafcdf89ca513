//! Writes to single elements by index, and to parts of a tensor. They return a changed copy or write in place.
//!
//! A write by index has one index along `dim` for every element of the source. The index has the rank of tensor and
//! source, and is not larger than either in the other dims. Indices must not be negative. Results are row-major.

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
        /// A copy of the tensor with elements of `source` at given indices. For `dim` 0: `out[index[i, j], j] =
        /// source[i, j]`. If several elements go to one position, the last one stays. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If an index or the dim is out of range, if the shapes do not fit, or if the dtypes of `self` and `source`
        /// differ.
        scatter scatter_(dim: i64, index: &Tensor, source: &Tensor)
            |x, call| call(Op::Scatter, &[x, index, source], &Attrs::from(Along { dim }));
    }

    /// Like [`Tensor::scatter`], with one number in place of `source`. It is converted to the dtype of `self`.
    ///
    /// # Errors
    /// Same as [`Tensor::scatter`].
    #[track_caller]
    pub fn scatter_value(&self, dim: i64, index: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        SCATTER_VALUE.call((self, dim, index, value.into()))
    }

    in_place_methods! {
        scatter_value scatter_value_ SCATTER_VALUE (dim: i64, index: &Tensor, value: impl Into<Scalar>)
            (self, dim, index, value.into());
    }

    /// `value` in the dtype of `self`, with the sizes of the index.
    fn repeated(&self, value: Scalar, index: &Tensor) -> Result<Tensor> {
        full_on(self.device(), &[], value, Some(self.dtype()))?.expand(index.sizes())
    }

    row_methods! {
        /// A copy of the tensor with elements of `source` added at given indices. For `dim` 0: `out[index[i, j], j] +=
        /// source[i, j]`, in row-major order. Sizes and dtype are kept.
        ///
        /// # Errors
        /// Same as [`Tensor::scatter`].
        scatter_add scatter_add_(dim: i64, index: &Tensor, source: &Tensor)
            |x, call| call(Op::ScatterAdd, &[x, index, source], &Attrs::from(Along { dim }));

        /// A copy of the tensor in which every indexed position holds the `sum`, `prod`, `mean`, `amax` or `amin` of
        /// the elements of `source` that go there. With `include_self` the old element is included. Sizes and dtype are
        /// kept.
        ///
        /// # Errors
        /// Same as [`Tensor::scatter`]. Also if `reduce` is another word.
        scatter_reduce scatter_reduce_(dim: i64, index: &Tensor, source: &Tensor, reduce: &str, include_self: bool)
            // The word comes from the user. Inference rejects one that it does not know.
            |x, call| call(
                Op::ScatterReduce,
                &[x, index, source],
                &[Attr::int(dim), Attr::Str(reduce.into()), Attr::bool(include_self)],
            );
    }
}

/// Writes to parts of a tensor.
impl Tensor {
    /// A copy of the tensor in which index `index` of `dim` is replaced by `src`. `src` lacks that dim, and is
    /// converted to the dtype of `self`. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dim or the index is out of range, or if the sizes differ.
    #[track_caller]
    pub fn select_scatter(&self, src: &Tensor, dim: i64, index: i64) -> Result<Tensor> {
        call(Op::SelectScatter, &[self, src], &Attrs::from(Select { dim, index }))
    }

    /// A copy of the tensor in which the elements of [`Tensor::slice`] are replaced by `src`, which is converted to the
    /// dtype of `self`. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dim is out of range, if the step is not positive, or if the sizes differ.
    #[track_caller]
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

    /// A copy of the tensor in which the elements of [`Tensor::diagonal`] are replaced by `src`, which is converted to
    /// the dtype of `self`. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If a dim is out of range, if both are the same, or if the sizes differ.
    #[track_caller]
    pub fn diagonal_scatter(&self, src: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        call(Op::DiagonalScatter, &[self, src], &Attrs::from(Diagonal { offset, dim1, dim2 }))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite_and_in_place(
            &SCATTER_VALUE,
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar| x.scatter(dim, index, &x.repeated(value, index)?),
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

/// A `scatter` that adds or multiplies, depending on `reduce`.
fn scatter_reduced(x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, reduce: &str) -> Result<Tensor> {
    match reduce {
        "add" => x.scatter_add(dim, index, source),
        "multiply" => x.scatter_reduce(dim, index, source, "prod", true),
        other => Err(Error::argument("scatter", format!("reduce is {other:?}; use \"add\" or \"multiply\""))),
    }
}
