//! The same elements under another shape: views that are one row of the op table.
//!
//! Everything here shares the storage of its input. Views made of these are in `reshaping.rs` and `pieces.rs`. The
//! forms of views that copy or write are in `view_forms.rs`. Negative dims count from the end, except in
//! [`Tensor::as_strided`], which counts memory.

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
    /// The same elements in the same order under other sizes; one size may be −1 and is computed.
    ///
    /// # Errors
    /// If the number of elements differs, or strides cannot express it; see [`Tensor::reshape`].
    pub fn view(&self, sizes: impl Into<Dims>) -> Result<Tensor> {
        call(Op::View, &[self], &Attrs::from(Shape { size: ints(sizes) }))
    }

    /// Dimensions in the order of `dims`.
    ///
    /// # Errors
    /// If `dims` does not name every dim once.
    pub fn permute(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Permute, &[self], &Attrs::from(attrs::Dims { dims: ints(dims) }))
    }

    /// Two dimensions swapped.
    ///
    /// # Errors
    /// If a dim is out of range.
    pub fn transpose(&self, dim0: i64, dim1: i64) -> Result<Tensor> {
        call(Op::Transpose, &[self], &Attrs::from(Transpose { dim0, dim1 }))
    }

    /// A matrix transposed; a tensor of fewer dims as it is.
    ///
    /// # Errors
    /// If there are more than two dims.
    pub fn t(&self) -> Result<Tensor> {
        call(Op::T, &[self], &[])
    }

    /// Dims of size 1 repeated, and new dims in front; −1 keeps a size. Nothing is copied: the stride is 0.
    ///
    /// # Errors
    /// If a dim of another size than 1 would change.
    pub fn expand(&self, sizes: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Expand, &[self], &Attrs::from(Expand { size: ints(sizes), implicit: false }))
    }

    /// Without those of the named dims that have size 1; an empty list (`()`) names all.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    pub fn squeeze(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        let dims = dims.into();
        let all: Vec<i64> = (0..self.dim() as i64).collect();
        let dims = if dims.as_slice().is_empty() { &all } else { dims.as_slice() };
        call(Op::Squeeze, &[self], &Attrs::from(DimList { dim: ints(dims) }))
    }

    /// With a new dim of size 1 in front of `dim`; −1 puts it last.
    ///
    /// # Errors
    /// If the dim is out of range.
    pub fn unsqueeze(&self, dim: i64) -> Result<Tensor> {
        call(Op::Unsqueeze, &[self], &Attrs::from(Along { dim }))
    }

    /// Index `index` of `dim`, which goes away; a negative index counts from the end.
    ///
    /// # Errors
    /// If the dim or the index is out of range.
    pub fn select(&self, dim: i64, index: i64) -> Result<Tensor> {
        call(Op::Select, &[self], &Attrs::from(Select { dim, index }))
    }

    /// Every `step`-th element of `dim` from `start` up to but without `end`. A bound that is `None` does not limit, a
    /// negative one counts from the end, and one beyond the end is clamped.
    ///
    /// # Errors
    /// If the dim is out of range or the step is not positive.
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

/// Views of memory.
impl Tensor {
    /// The same elements under another handle.
    ///
    /// # Errors
    /// None but those of the dispatcher.
    pub fn alias(&self) -> Result<Tensor> {
        call(Op::Alias, &[self], &[])
    }

    /// The same elements, cut from the history that gradients follow. Nothing is copied.
    ///
    /// # Errors
    /// None but those of the dispatcher.
    pub fn detach(&self) -> Result<Tensor> {
        call(Op::Detach, &[self], &[])
    }

    /// The diagonal of the dims `dim1` and `dim2`, which go away; it comes last. A positive `offset` is above the main
    /// one, a negative one below. Nothing is copied.
    ///
    /// # Errors
    /// If a dim is out of range or both are the same.
    pub fn diagonal(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        call(Op::Diagonal, &[self], &Attrs::from(Diagonal { offset, dim1, dim2 }))
    }

    /// Windows of `size` elements of `dim`, `step` apart: `dim` counts the windows, and a new last dim their elements.
    /// Nothing is copied, so windows may overlap.
    ///
    /// # Errors
    /// If the dim is out of range, a window does not fit, or the step is 0.
    pub fn unfold(&self, dim: i64, size: usize, step: usize) -> Result<Tensor> {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let attrs = Unfold { dimension: dim, size: count(size), step: count(step) };
        call(Op::Unfold, &[self], &Attrs::from(attrs))
    }

    /// The storage under `sizes` and `strides` from storage element `offset` on; `None` is the tensor's own offset.
    /// What the tensor's sizes and strides are does not matter.
    ///
    /// # Errors
    /// If there is not one stride per size, a number is negative, or the storage is too short.
    pub fn as_strided(
        &self,
        sizes: impl Into<Dims>,
        strides: impl Into<Dims>,
        offset: impl Into<Option<i64>>,
    ) -> Result<Tensor> {
        let attrs = AsStrided { size: ints(sizes), stride: ints(strides), storage_offset: offset.into() };
        call(Op::AsStrided, &[self], &Attrs::from(attrs))
    }

    /// The same bytes as elements of `dtype`. Where the widths differ, the last dim grows or shrinks.
    ///
    /// # Errors
    /// If the widths differ and the last dim is missing, not dense, or not divisible; the same goes for the other
    /// strides and the offset.
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
