//! The same elements under another shape.
//!
//! Everything here shares the storage of its input, but for [`Tensor::reshape`] and [`Tensor::flatten`] where strides
//! cannot express the shape. Negative dims count from the end, except in [`Tensor::as_strided`], which counts memory.

use super::dims::Dims;
use super::register::call;
use super::tensor::Tensor;
use crate::error::{Error, Result};
use crate::ir::shape::{infer_sizes, normalize_dim};
use crate::ir::{Attr, DType, Op};

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

/// Views made of others.
impl Tensor {
    /// The same elements in the same order under other sizes: a view if strides can express it, else a copy.
    ///
    /// # Errors
    /// If the number of elements differs.
    pub fn reshape(&self, sizes: impl Into<Dims>) -> Result<Tensor> {
        let sizes = infer_sizes("reshape", sizes.into().as_slice(), self.numel())?;
        if self.array().layout.view(&sizes).is_some() {
            return self.view(&sizes[..]);
        }
        call(Op::Clone, &[self], &[Attr::Str("contiguous".into())])?.view(&sizes[..])
    }

    /// `length` elements of `dim` from `start`; a negative start counts from the end.
    ///
    /// # Errors
    /// If they do not lie inside the dim.
    pub fn narrow(&self, dim: i64, start: i64, length: usize) -> Result<Tensor> {
        let size = self.size_of("narrow", dim)?;
        let out_of_range = |what: &str, low, high, got| {
            Err(Error::OutOfRange { op: "narrow".into(), what: what.into(), low, high, got })
        };
        if start < -size || start > size {
            return out_of_range("start", -size, size, start);
        }
        let start = if start < 0 { start + size } else { start };
        match i64::try_from(length) {
            Ok(length) if length <= size - start => self.slice(dim, start, start + length, 1),
            Ok(length) => out_of_range("length", 0, size - start, length),
            Err(_) => out_of_range("length", 0, size - start, i64::MAX),
        }
    }

    /// The dims from `start` to `end`, both included, as one; a 0-dim tensor gets one dim. See [`Tensor::reshape`].
    ///
    /// # Errors
    /// If a dim is out of range, or `start` comes after `end`.
    pub fn flatten(&self, start: i64, end: i64) -> Result<Tensor> {
        let first = normalize_dim("flatten", start, self.dim())?;
        let last = normalize_dim("flatten", end, self.dim())?;
        if self.dim() == 0 {
            return self.view(1);
        }
        if first > last {
            let what = format!("start {start} comes after end {end}");
            return Err(Error::shape("flatten", what, "name the first and the last of the dims to join"));
        }
        if first == last {
            return Ok(self.clone());
        }
        let sizes = self.sizes();
        let joined = sizes[first..=last].iter().product();
        self.reshape(&[&sizes[..first], &[joined], &sizes[last + 1..]].concat()[..])
    }

    /// Dim `dim` split into several, whose sizes multiply to its size; one may be −1 and is computed.
    ///
    /// # Errors
    /// If the dim is out of range or the sizes do not fit.
    pub fn unflatten(&self, dim: i64, sizes: impl Into<Dims>) -> Result<Tensor> {
        let sizes = sizes.into();
        let size = self.size_of("unflatten", dim)? as usize;
        let dim = normalize_dim("unflatten", dim, self.dim())?;
        if sizes.as_slice().is_empty() {
            return Err(Error::shape("unflatten", "no sizes are given", "name at least one"));
        }
        let inner = infer_sizes("unflatten", sizes.as_slice(), size)?;
        let own = self.sizes();
        self.view(&[&own[..dim], &inner, &own[dim + 1..]].concat()[..])
    }

    /// Pieces of `size` elements along `dim`; the last one may be shorter.
    ///
    /// # Errors
    /// If the dim is out of range, or `size` is 0 although the dim has elements.
    pub fn split(&self, size: usize, dim: i64) -> Result<Vec<Tensor>> {
        let total = self.size_of("split", dim)? as usize;
        if size == 0 && total != 0 {
            let what = format!("pieces of 0 elements never cover the size {total} of dim {dim}");
            return Err(Error::shape("split", what, "pass a positive size"));
        }
        let n_pieces = if size == 0 { 1 } else { total.div_ceil(size).max(1) };
        (0..n_pieces).map(|piece| self.piece(dim, piece * size, (piece * size).saturating_add(size))).collect()
    }

    /// At most `n` pieces along `dim`, all of the same size but the last; fewer if elements run out.
    ///
    /// # Errors
    /// If the dim is out of range or `n` is 0.
    pub fn chunk(&self, n: usize, dim: i64) -> Result<Vec<Tensor>> {
        let total = self.size_of("chunk", dim)? as usize;
        match (n, total) {
            (0, _) => Err(Error::argument("chunk", "cannot make 0 pieces; pass a positive number")),
            // Nothing runs out where there is nothing.
            (n, 0) => (0..n).map(|_| self.piece(dim, 0, 0)).collect(),
            (n, total) => self.split(total.div_ceil(n), dim),
        }
    }

    /// One tensor per index of `dim`, which goes away.
    ///
    /// # Errors
    /// If the dim is out of range.
    pub fn unbind(&self, dim: i64) -> Result<Vec<Tensor>> {
        (0..self.size_of("unbind", dim)?).map(|index| self.select(dim, index)).collect()
    }

    fn piece(&self, dim: i64, start: usize, end: usize) -> Result<Tensor> {
        self.slice(dim, start as i64, end.min(i64::MAX as usize) as i64, 1)
    }

    /// The size of a dim, which a 0-dim tensor does not have.
    fn size_of(&self, op: &str, dim: i64) -> Result<i64> {
        let index = normalize_dim(op, dim, self.dim())?;
        match self.sizes().get(index) {
            Some(&size) => Ok(size as i64),
            None => Err(Error::shape(op, "a 0-dim tensor has no dims", "unsqueeze it first")),
        }
    }
}
