//! The same elements under another shape: the views that are one row of the op table each.
//!
//! Everything here shares the storage of its input; views made of these are in `reshaping.rs` and `pieces.rs`.
//! Negative dims count from the end, except in [`Tensor::as_strided`], which counts memory.

use crate::dispatch::rows::call;
use crate::error::Result;
use crate::ir::{Attr, DType, Op};
use crate::ops::dims::Dims;
use crate::tensor::handle::Tensor;

/// Views that are one row of the op table.
impl Tensor {
    /// The same elements in the same order under other sizes; one size may be −1 and is computed.
    ///
    /// # Errors
    /// If the number of elements differs, or strides cannot express it; see [`Tensor::reshape`].
    pub fn view(&self, sizes: impl Into<Dims>) -> Result<Tensor> {
        call(Op::View, &[self], &[Attr::ints(sizes.into().as_slice())])
    }

    /// Dimensions in the order of `dims`.
    ///
    /// # Errors
    /// If `dims` does not name every dim once.
    pub fn permute(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        call(Op::Permute, &[self], &[Attr::ints(dims.into().as_slice())])
    }

    /// Two dimensions swapped.
    ///
    /// # Errors
    /// If a dim is out of range.
    pub fn transpose(&self, dim0: i64, dim1: i64) -> Result<Tensor> {
        call(Op::Transpose, &[self], &[Attr::int(dim0), Attr::int(dim1)])
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
        call(Op::Expand, &[self], &[Attr::ints(sizes.into().as_slice()), Attr::bool(false)])
    }

    /// Without those of the named dims that have size 1; an empty list (`()`) names all.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    pub fn squeeze(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        let dims = dims.into();
        let all: Vec<i64> = (0..self.dim() as i64).collect();
        let dims = if dims.as_slice().is_empty() { &all } else { dims.as_slice() };
        call(Op::Squeeze, &[self], &[Attr::ints(dims)])
    }

    /// With a new dim of size 1 in front of `dim`; −1 puts it last.
    ///
    /// # Errors
    /// If the dim is out of range.
    pub fn unsqueeze(&self, dim: i64) -> Result<Tensor> {
        call(Op::Unsqueeze, &[self], &[Attr::int(dim)])
    }

    /// Index `index` of `dim`, which goes away; a negative index counts from the end.
    ///
    /// # Errors
    /// If the dim or the index is out of range.
    pub fn select(&self, dim: i64, index: i64) -> Result<Tensor> {
        call(Op::Select, &[self], &[Attr::int(dim), Attr::int(index)])
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
        let bound = |bound: Option<i64>| bound.map_or(Attr::None, Attr::int);
        call(Op::Slice, &[self], &[Attr::int(dim), bound(start.into()), bound(end.into()), Attr::int(step)])
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
        call(Op::Diagonal, &[self], &[Attr::int(offset), Attr::int(dim1), Attr::int(dim2)])
    }

    /// Windows of `size` elements of `dim`, `step` apart: `dim` counts the windows, and a new last dim their elements.
    /// Nothing is copied, so windows may overlap.
    ///
    /// # Errors
    /// If the dim is out of range, a window does not fit, or the step is 0.
    pub fn unfold(&self, dim: i64, size: usize, step: usize) -> Result<Tensor> {
        let count = |count: usize| Attr::int(i64::try_from(count).unwrap_or(i64::MAX));
        call(Op::Unfold, &[self], &[Attr::int(dim), count(size), count(step)])
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
        let ints = |dims: Dims| Attr::ints(dims.as_slice());
        let offset = offset.into().map_or(Attr::None, Attr::int);
        call(Op::AsStrided, &[self], &[ints(sizes.into()), ints(strides.into()), offset])
    }

    /// The same bytes as elements of `dtype`. Where the widths differ, the last dim grows or shrinks.
    ///
    /// # Errors
    /// If the widths differ and the last dim is missing, not dense, or not divisible; the same goes for the other
    /// strides and the offset.
    pub fn view_dtype(&self, dtype: DType) -> Result<Tensor> {
        call(Op::ViewDtype, &[self], &[Attr::DType(dtype)])
    }
}
