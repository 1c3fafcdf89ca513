//! Views that are one row of the op table.
//!
//! All results share the storage of the input. Views made of these are in `reshaping.rs` and `pieces.rs`, and the forms
//! of views that copy or write in `view_forms.rs`. Negative dims count from the end, except in [`Tensor::as_strided`],
//! which addresses memory.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::Result;
use crate::ir::attrs::{
    self, Along, AsStrided, Diagonal, DimList, Expand, Select, Shape, Slice, Transpose, Unfold, ViewDtype,
};
use crate::ir::{Attrs, DType, Op};
use crate::ops::composite::Composite;
use crate::ops::dims::{Dims, ints};
use crate::tensor::handle::Tensor;

static SQUEEZE: Composite = Composite::new("squeeze(Tensor(a) self) -> Tensor(a)").with_copy().with_view_in_place();
static SQUEEZE_DIM: Composite =
    Composite::new("squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)").with_copy().with_view_in_place();

/// Views that are one row of the op table.
impl Tensor {
    /// A view of the elements in row-major order with other sizes. One size may be −1, and is then computed. The dtype
    /// is kept.
    ///
    /// # Errors
    /// If the number of elements differs, or if strides cannot express the shape; see [`Tensor::reshape`].
    #[track_caller]
    pub fn view(&self, sizes: impl Into<Dims>) -> Result<Tensor> {
        call(Op::View, &[self], &Attrs::from(Shape { size: ints(sizes) }))
    }

    /// A view with the dims in the order of `dims`.
    ///
    /// # Errors
    /// If `dims` does not name every dim exactly once.
    #[track_caller]
    pub fn permute(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Permute, &[self], &Attrs::from(attrs::Dims { dims: ints(dims) }))
    }

    /// A view with two dims swapped.
    ///
    /// # Errors
    /// If a dim is out of range.
    #[track_caller]
    pub fn transpose(&self, dim0: i64, dim1: i64) -> Result<Tensor> {
        call(Op::Transpose, &[self], &Attrs::from(Transpose { dim0, dim1 }))
    }

    /// The transpose of a matrix, as a view. A tensor with fewer than two dims is unchanged.
    ///
    /// # Errors
    /// If there are more than two dims.
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        call(Op::T, &[self], &[])
    }

    /// A view in which dims of size 1 are repeated. New dims come first. −1 keeps a size. Nothing is copied: the stride
    /// of a repeated dim is 0.
    ///
    /// # Errors
    /// If a dim of another size than 1 would change.
    #[track_caller]
    pub fn expand(&self, sizes: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Expand, &[self], &Attrs::from(Expand { size: ints(sizes), implicit: false }))
    }

    /// A view without those of the named dims that have size 1. An empty list (`()`) means all dims.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    #[track_caller]
    pub fn squeeze(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        let dims = dims.into();
        let all: Vec<i64> = (0..self.dim() as i64).collect();
        let dims = if dims.as_slice().is_empty() { &all } else { dims.as_slice() };
        call(Op::Squeeze, &[self], &Attrs::from(DimList { dim: ints(dims) }))
    }

    /// A view with a new dim of size 1 at index `dim`. −1 puts it last.
    ///
    /// # Errors
    /// If the dim is out of range.
    #[track_caller]
    pub fn unsqueeze(&self, dim: i64) -> Result<Tensor> {
        call(Op::Unsqueeze, &[self], &Attrs::from(Along { dim }))
    }

    /// A view of index `index` of `dim`, which is removed. A negative index counts from the end.
    ///
    /// # Errors
    /// If the dim or the index is out of range.
    #[track_caller]
    pub fn select(&self, dim: i64, index: i64) -> Result<Tensor> {
        call(Op::Select, &[self], &Attrs::from(Select { dim, index }))
    }

    /// A view of every `step`-th element of `dim` from `start` to below `end`. `None` is no bound. A negative bound
    /// counts from the end. A bound beyond the dim is clamped.
    ///
    /// # Errors
    /// If the dim is out of range, or if the step is not positive.
    #[track_caller]
    pub fn slice(
        &self,
        dim: i64,
        start: impl Into<Option<i64>>,
        end: impl Into<Option<i64>>,
        step: i64,
    ) -> Result<Tensor> {
        call(Op::Slice, &[self], &Attrs::from(Slice { dim, start: start.into(), end: end.into(), step }))
    }
}

/// Views by memory.
impl Tensor {
    /// A view with the same layout.
    ///
    /// # Errors
    /// Only errors of the dispatcher.
    #[track_caller]
    pub fn alias(&self) -> Result<Tensor> {
        call(Op::Alias, &[self], &[])
    }

    /// A view of the same elements without autograd history.
    ///
    /// # Errors
    /// Only errors of the dispatcher.
    #[track_caller]
    pub fn detach(&self) -> Result<Tensor> {
        call(Op::Detach, &[self], &[])
    }

    /// The diagonal of the dims `dim1` and `dim2`, which are removed, as a view. It is the last dim of the result. A
    /// positive `offset` is above the main diagonal, a negative one below.
    ///
    /// # Errors
    /// If a dim is out of range, or if both are the same.
    #[track_caller]
    pub fn diagonal(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        call(Op::Diagonal, &[self], &Attrs::from(Diagonal { offset, dim1, dim2 }))
    }

    /// Windows of `size` elements of `dim`, at a distance of `step`, as a view. `dim` counts the windows, and a new
    /// last dim their elements. Windows may overlap.
    ///
    /// # Errors
    /// If the dim is out of range, if no window fits, or if the step is 0.
    #[track_caller]
    pub fn unfold(&self, dim: i64, size: usize, step: usize) -> Result<Tensor> {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let attrs = Unfold { dimension: dim, size: count(size), step: count(step) };
        call(Op::Unfold, &[self], &Attrs::from(attrs))
    }

    /// A view of the storage with these `sizes` and `strides`, in elements, from storage element `offset` on. `None` is
    /// the tensor's own offset. The tensor's own sizes and strides are not used.
    ///
    /// # Errors
    /// If there is not one stride per size, if a number is negative, or if the storage is too short.
    #[track_caller]
    pub fn as_strided(
        &self,
        sizes: impl Into<Dims>,
        strides: impl Into<Dims>,
        offset: impl Into<Option<i64>>,
    ) -> Result<Tensor> {
        let attrs = AsStrided { size: ints(sizes), stride: ints(strides), storage_offset: offset.into() };
        call(Op::AsStrided, &[self], &Attrs::from(attrs))
    }

    /// A view of the same bytes as elements of `dtype`. If the widths differ, the size of the last dim changes.
    ///
    /// # Errors
    /// If the widths differ, and the last dim is missing, not dense or not divisible. Also if the other strides or the
    /// offset are not divisible.
    #[track_caller]
    pub fn view_dtype(&self, dtype: DType) -> Result<Tensor> {
        call(Op::ViewDtype, &[self], &Attrs::from(ViewDtype { dtype: Some(dtype) }))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&SQUEEZE, |x: &Tensor| x.squeeze(()))?
        .composite(&SQUEEZE_DIM, |x: &Tensor, dim: i64| x.squeeze(dim))?;
    Ok(())
}
