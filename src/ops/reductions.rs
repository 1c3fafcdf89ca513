//! Reductions.
//!
//! `dims` names the dims that go away, in any order; an empty list means all of them. With `keepdim` they stay with
//! size 1. Results are row-major.

use crate::dispatch::rows::call;
use crate::error::Result;
use crate::ir::{Attr, DType, Op, Scalar};
use crate::ops::dims::Dims;
use crate::tensor::handle::Tensor;

impl Tensor {
    fn fold(&self, op: Op, dims: Attr, keepdim: bool) -> Result<Tensor> {
        call(op, &[self], &[dims, Attr::bool(keepdim), Attr::None])
    }

    /// Sum over dims. Integers and bools add up in i64, floats in their own dtype. The dims go away, or keep size 1 if
    /// `keepdim`; no dims (`()`) are all of them.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    pub fn sum(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        self.fold(Op::Sum, list(dims), keepdim)
    }

    /// Sum of all elements, 0-dim. Integers and bools give i64, floats their own dtype.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn sum_all(&self) -> Result<Tensor> {
        self.sum((), false)
    }

    /// Mean over dims, in the tensor's dtype. The dims go away, or keep size 1 if `keepdim`; no dims (`()`) are all of
    /// them.
    ///
    /// # Errors
    /// If the dtype is not floating, or a dim is out of range or named twice.
    pub fn mean(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        self.fold(Op::Mean, list(dims), keepdim)
    }

    /// Mean of all elements, 0-dim. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating.
    pub fn mean_all(&self) -> Result<Tensor> {
        self.mean((), false)
    }

    /// Product over one dim. Integers and bools multiply in i64, floats in their own dtype. The dim goes away, or keeps
    /// size 1 if `keepdim`.
    ///
    /// # Errors
    /// If the dim is out of range.
    pub fn prod(&self, dim: i64, keepdim: bool) -> Result<Tensor> {
        self.fold(Op::Prod, Attr::int(dim), keepdim)
    }

    /// Product of all elements, 0-dim. Integers and bools give i64, floats their own dtype.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn prod_all(&self) -> Result<Tensor> {
        self.reshape([self.numel() as i64])?.prod(0, false)
    }

    /// Greatest element over dims; a NaN wins. The dtype is kept. The dims go away, or keep size 1 if `keepdim`; no
    /// dims (`()`) are all of them.
    ///
    /// # Errors
    /// If there is nothing to reduce, or a dim is out of range or named twice.
    pub fn amax(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        call(Op::Amax, &[self], &[list(dims), Attr::bool(keepdim)])
    }

    /// Least element over dims; a NaN wins. The dtype is kept. The dims go away, or keep size 1 if `keepdim`; no dims
    /// (`()`) are all of them.
    ///
    /// # Errors
    /// If there is nothing to reduce, or a dim is out of range or named twice.
    pub fn amin(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        call(Op::Amin, &[self], &[list(dims), Attr::bool(keepdim)])
    }

    /// Greatest of all elements, 0-dim; a NaN wins. The dtype is kept.
    ///
    /// # Errors
    /// If there are no elements.
    pub fn max_all(&self) -> Result<Tensor> {
        self.amax((), false).map_err(|error| error.of("max"))
    }

    /// Least of all elements, 0-dim; a NaN wins. The dtype is kept.
    ///
    /// # Errors
    /// If there are no elements.
    pub fn min_all(&self) -> Result<Tensor> {
        self.amin((), false).map_err(|error| error.of("min"))
    }

    /// Greatest element along one dim and the index of the first such. Both lack the dim, or keep it with size 1 if
    /// `keepdim`; the first has the dtype of `self`, the second is i64.
    ///
    /// # Errors
    /// If there is nothing to reduce, or the dim is out of range.
    pub fn max_dim(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let places = self.numbers()?.argmax(dim, true).map_err(|error| error.of("max"))?;
        self.extremum(places, dim, keepdim)
    }

    /// Least element along one dim and the index of the first such. Both lack the dim, or keep it with size 1 if
    /// `keepdim`; the first has the dtype of `self`, the second is i64.
    ///
    /// # Errors
    /// If there is nothing to reduce, or the dim is out of range.
    pub fn min_dim(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let places = self.numbers()?.argmin(dim, true).map_err(|error| error.of("min"))?;
        self.extremum(places, dim, keepdim)
    }

    /// As numbers, which bools are not: false is less than true.
    fn numbers(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool { self.to_dtype(DType::U8) } else { Ok(self.clone()) }
    }

    fn extremum(&self, indices: Tensor, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let values = self.gather(dim, &indices)?;
        if keepdim { Ok((values, indices)) } else { Ok((values.squeeze(dim)?, indices.squeeze(dim)?)) }
    }

    /// Whether any element over dims is nonzero: bool, or u8 from u8. The dims go away, or keep size 1 if `keepdim`; no
    /// dims (`()`) are all of them.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    pub fn any(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        call(Op::Any, &[self], &[list(dims), Attr::bool(keepdim)])
    }

    /// Whether all elements over dims are nonzero: bool, or u8 from u8. The dims go away, or keep size 1 if `keepdim`;
    /// no dims (`()`) are all of them.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    pub fn all(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        call(Op::All, &[self], &[list(dims), Attr::bool(keepdim)])
    }

    /// Index (i64) of the first greatest element along a dim, or over all elements in row-major order if `dim` is
    /// `None`; the first NaN wins. The dim goes away, or keeps size 1 if `keepdim`.
    ///
    /// # Errors
    /// If there is nothing to reduce, the dim is out of range, or for bools.
    pub fn argmax(&self, dim: impl Into<Option<i64>>, keepdim: bool) -> Result<Tensor> {
        call(Op::Argmax, &[self], &[dim.into().map_or(Attr::None, Attr::int), Attr::bool(keepdim)])
    }

    /// Index (i64) of the first least element; see [`Tensor::argmax`].
    ///
    /// # Errors
    /// If there is nothing to reduce, the dim is out of range, or for bools.
    pub fn argmin(&self, dim: impl Into<Option<i64>>, keepdim: bool) -> Result<Tensor> {
        call(Op::Argmin, &[self], &[dim.into().map_or(Attr::None, Attr::int), Attr::bool(keepdim)])
    }

    /// Variance over dims: squared distances from the mean, summed and divided by their number less `correction` (1 for
    /// a sample, 0 for a population). The dims go away, or keep size 1 if `keepdim`; no dims (`()`) are all of them.
    /// The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or a dim is out of range or named twice.
    pub fn var(&self, dims: impl Into<Dims>, correction: impl Into<Scalar>, keepdim: bool) -> Result<Tensor> {
        call(Op::Var, &[self], &[list(dims), Attr::Scalar(correction.into()), Attr::bool(keepdim)])
    }

    /// Standard deviation over dims: the root of [`Tensor::var`]. The dims go away, or keep size 1 if `keepdim`; no
    /// dims (`()`) are all of them. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or a dim is out of range or named twice.
    pub fn std(&self, dims: impl Into<Dims>, correction: impl Into<Scalar>, keepdim: bool) -> Result<Tensor> {
        call(Op::Std, &[self], &[list(dims), Attr::Scalar(correction.into()), Attr::bool(keepdim)])
    }

    /// `log(sum(exp(x)))` over dims without overflow. Integers are raised to the default float. The dims go away, or
    /// keep size 1 if `keepdim`; no dims (`()`) are all of them.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    pub fn logsumexp(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        call(Op::Logsumexp, &[self], &[list(dims), Attr::bool(keepdim)])
    }
}

fn list(dims: impl Into<Dims>) -> Attr {
    Attr::ints(dims.into().as_slice())
}
