//! Writes to single elements by index, and to parts of a tensor. They return a changed copy or write in place.
//!
//! A write by index has one index along `dim` for every element of the source. The index has the rank of tensor and
//! source, and is not larger than either in the other dims. Indices must not be negative. Results are row-major.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{Along, Diagonal, Select, Slice};
use crate::ir::shape::normalize_dim;
use crate::ir::{Attr, Attrs, DType, Op, Scalar};
use crate::ops::composite::Composite;
use crate::ops::dims::{Dims, ints};
use crate::ops::factories::{full_on, range_on};
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
static AS_STRIDED_SCATTER: Composite = Composite::new(
    "as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
);

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

    /// A copy of the tensor with `source` in place of the elements that [`Tensor::as_strided`] with the same numbers
    /// would show. Of several elements for one position, any may stay. Sizes, strides and dtype are kept.
    ///
    /// # Errors
    /// If the elements of `self` are not dense in memory, if `source` has other sizes than `sizes`, or if the numbers
    /// reach beyond the elements of `self`.
    #[track_caller]
    pub fn as_strided_scatter(
        &self,
        source: &Tensor,
        sizes: impl Into<Dims>,
        strides: impl Into<Dims>,
        offset: impl Into<Option<i64>>,
    ) -> Result<Tensor> {
        AS_STRIDED_SCATTER.call((self, source, &ints(sizes)[..], &ints(strides)[..], offset.into()))
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
        })?
        .def_kernel(
            "index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> \
             Tensor",
            index_reduce,
        )?
        .composite(&AS_STRIDED_SCATTER, as_strided_scatter)?;
    Ok(())
}

/// The positions that the view would show are those of a range under the same view, so a scatter along one dim writes
/// them. That has a gradient, which a write through an overlapping view would not have.
fn as_strided_scatter(
    x: &Tensor,
    source: &Tensor,
    sizes: &[i64],
    strides: &[i64],
    offset: Option<i64>,
) -> Result<Tensor> {
    let op = "as_strided_scatter";
    // The dims in the order of memory.
    let mut order: Vec<usize> = (0..x.dim()).collect();
    order.sort_by_key(|&dim| std::cmp::Reverse((x.strides()[dim], x.sizes()[dim] != 1)));
    let in_memory = x.permute(order.iter().map(|&dim| dim as i64).collect::<Vec<_>>())?;
    if !in_memory.is_contiguous() {
        let what = format!("shape {:?} with strides {:?} is not dense in memory", x.sizes(), x.strides());
        return Err(Error::argument(op, format!("{what}; make it contiguous first")));
    }
    if !source.sizes().iter().map(|&size| size as i64).eq(sizes.iter().copied()) {
        let what = format!("the source has shape {:?}, and the sizes are {sizes:?}", source.sizes());
        return Err(Error::shape(op, what, "they must be the same"));
    }
    let own = x.storage_offset() as i64;
    let start = offset.unwrap_or(own).checked_sub(own).filter(|&start| start >= 0);
    let Some(start) = start else {
        let what = format!("storage_offset {offset:?} lies before the first element, which is at {own}");
        return Err(Error::argument(op, what));
    };
    let count = x.numel() as i64;
    let positions = range_on(x.device(), 0, count, Some(DType::I64))?.as_strided(sizes, strides, start)?;
    let written = in_memory.reshape([count])?.scatter(0, &positions.reshape([-1])?, &source.reshape([-1])?)?;
    let mut back = vec![0; order.len()];
    for (at, &dim) in order.iter().enumerate() {
        back[dim] = at as i64;
    }
    written.view(in_memory.sizes())?.permute(back)
}

/// A `scatter_reduce` whose index is the same for the whole part of the source along `dim`.
fn index_reduce(
    x: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    reduce: &str,
    include_self: bool,
) -> Result<Tensor> {
    let op = "index_reduce";
    let along = normalize_dim(op, dim, x.dim())?;
    if index.dim() > 1 || source.dim() != x.dim() || source.sizes().get(along).copied().unwrap_or(1) != index.numel() {
        let what = format!("index {:?} and source {:?} for shape {:?}", index.sizes(), source.sizes(), x.sizes());
        return Err(Error::shape(op, what, "the index is a line with one place for each part of the source"));
    }
    let shape: Vec<i64> = (0..x.dim()).map(|other| if other == along { -1 } else { 1 }).collect();
    let index = index.reshape(shape)?.expand(source.sizes())?;
    x.scatter_reduce(dim, &index, source, reduce, include_self).map_err(|error| error.of(op))
}

/// A `scatter` that adds or multiplies, depending on `reduce`.
fn scatter_reduced(x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, reduce: &str) -> Result<Tensor> {
    match reduce {
        "add" => x.scatter_add(dim, index, source),
        "multiply" => x.scatter_reduce(dim, index, source, "prod", true),
        other => Err(Error::argument("scatter", format!("reduce is {other:?}; use \"add\" or \"multiply\""))),
    }
}
