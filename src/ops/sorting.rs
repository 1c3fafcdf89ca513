//! Scans and sorts: operators that need all elements of a dim in order.
//!
//! Places are i64. A NaN counts as greater than any number. Equal elements stay in their order, so every sort is
//! stable, asked for or not.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{Along, Argsort, Cumsum};
use crate::ir::shape::normalize_dim;
use crate::ir::{Attrs, Op};
use crate::ops::arguments::count;
use crate::ops::in_place::row_methods;
use crate::tensor::handle::Tensor;

impl Tensor {
    row_methods! {
        /// Running sums along `dim`, sizes kept. Integers and bools add up in i64, floats in their own dtype.
        ///
        /// # Errors
        /// If the dim is out of range.
        cumsum cumsum_(dim: i64) |x, call| call(Op::Cumsum, &[x], &Attrs::from(Cumsum { dim, dtype: None }));

        /// Running products along `dim`, sizes kept. Integers and bools multiply in i64, floats in their own dtype.
        ///
        /// # Errors
        /// If the dim is out of range.
        cumprod cumprod_(dim: i64) |x, call| call(Op::Cumprod, &[x], &Attrs::from(Cumsum { dim, dtype: None }));
    }

    /// The greatest element so far along `dim`, and its place, the last one among equals. Sizes and dtype are kept.
    /// Places are i64.
    ///
    /// # Errors
    /// If the dim is out of range.
    pub fn cummax(&self, dim: i64) -> Result<(Tensor, Tensor)> {
        self.running(Op::CummaxIndices, dim)
    }

    /// The least element so far along `dim`, a NaN counting as less than any number, and its place; see
    /// [`Tensor::cummax`].
    ///
    /// # Errors
    /// If the dim is out of range.
    pub fn cummin(&self, dim: i64) -> Result<(Tensor, Tensor)> {
        self.running(Op::CumminIndices, dim)
    }

    fn running(&self, op: Op, dim: i64) -> Result<(Tensor, Tensor)> {
        let indices = call(op, &[self], &Attrs::from(Along { dim }))?;
        Ok((self.gather(dim, &indices)?, indices))
    }

    /// The places of the elements along `dim` in ascending or descending order of their values; sizes kept, i64.
    ///
    /// # Errors
    /// If the dim is out of range.
    pub fn argsort(&self, dim: i64, descending: bool) -> Result<Tensor> {
        call(Op::Argsort, &[self], &Attrs::from(Argsort { stable: true, dim, descending }))
    }

    /// The elements along `dim` in ascending or descending order, and their places. Sizes and dtype are kept. Places
    /// are i64.
    ///
    /// # Errors
    /// If the dim is out of range.
    pub fn sort(&self, dim: i64, descending: bool) -> Result<(Tensor, Tensor)> {
        let indices = self.argsort(dim, descending).map_err(|error| error.of("sort"))?;
        Ok((self.gather(dim, &indices)?, indices))
    }

    /// The `k` greatest elements along `dim` in descending order, or the least in ascending order, and their places.
    /// Both have size `k` along `dim`; the first has the dtype of `self`, the second is i64.
    ///
    /// # Errors
    /// If the dim is out of range, or has fewer elements.
    pub fn topk(&self, k: usize, dim: i64, largest: bool) -> Result<(Tensor, Tensor)> {
        let along = normalize_dim("topk", dim, self.dim())?;
        let size = self.sizes().get(along).copied().unwrap_or(1);
        if k > size {
            let what = format!("k is {k}, but dim {dim} of shape {:?} has {size} elements", self.sizes());
            return Err(Error::shape("topk", what, "ask for at most as many as there are"));
        }
        let order = self.argsort(dim, largest)?;
        let indices = if self.dim() == 0 { order } else { order.narrow(dim, 0, k)?.contiguous()? };
        Ok((self.gather(dim, &indices)?, indices))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)", Tensor::cummax)?
        .def_kernel("cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)", Tensor::cummin)?
        .def_kernel("argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor", Tensor::argsort)?
        .def_kernel(
            "sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
            Tensor::sort,
        )?
        .def_kernel(
            "sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor \
             indices)",
            |x: &Tensor, _: Option<bool>, dim: i64, descending: bool| x.sort(dim, descending),
        )?
        .def_kernel(
            "topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor \
             indices)",
            |x: &Tensor, k: i64, dim: i64, largest: bool, _: bool| x.topk(count("topk", k)?, dim, largest),
        )?;
    Ok(())
}
