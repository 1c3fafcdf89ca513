//! Scans and sorts.
//!
//! Indices are i64. NaN is greater than any number. Every sort is stable, whether requested or not.

use crate::device::DeviceKind;
use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{Along, Argsort, Cumsum, TopkIndices};
use crate::ir::shape::normalize_dim;
use crate::ir::{Attrs, Op};
use crate::ops::arguments::{count, int, widened};
use crate::ops::composite::Composite;
use crate::ops::in_place::{in_place_methods, row_methods};
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;

static CUMMAX: Composite = Composite::new("cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)");
static CUMMIN: Composite = Composite::new("cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)");
static SORT: Composite =
    Composite::new("sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)");
static TOPK: Composite = Composite::new(
    "topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
);

static LOGCUMSUMEXP: Composite = Composite::new("logcumsumexp(Tensor self, int dim) -> Tensor").with_writes();

impl Tensor {
    /// The logarithm of the cumulative sum of exponentials along `dim`. No exponential overflows, because sums of
    /// halves are combined as logarithms. Sizes are kept; integers become the default float.
    ///
    /// # Errors
    /// If the dim is out of range.
    #[track_caller]
    pub fn logcumsumexp(&self, dim: i64) -> Result<Tensor> {
        LOGCUMSUMEXP.call((self, dim))
    }

    in_place_methods! {
        logcumsumexp logcumsumexp_ LOGCUMSUMEXP (dim: i64) (self, dim);
    }

    row_methods! {
        /// Cumulative sum along `dim`. Sizes are kept. Integers and bools are summed in i64, floats in their own dtype.
        ///
        /// # Errors
        /// If the dim is out of range.
        cumsum cumsum_(dim: i64) |x, call| call(Op::Cumsum, &[x], &Attrs::from(Cumsum { dim, dtype: None }));

        /// Cumulative product along `dim`. Sizes are kept. Integers and bools are multiplied in i64, floats in their
        /// own dtype.
        ///
        /// # Errors
        /// If the dim is out of range.
        cumprod cumprod_(dim: i64) |x, call| call(Op::Cumprod, &[x], &Attrs::from(Cumsum { dim, dtype: None }));
    }

    /// Cumulative maximum along `dim`, and its index (i64). Among equal elements it is the last index. Sizes are kept,
    /// and the dtype of the first.
    ///
    /// # Errors
    /// If the dim is out of range.
    #[track_caller]
    pub fn cummax(&self, dim: i64) -> Result<(Tensor, Tensor)> {
        CUMMAX.call((self, dim))
    }

    /// Cumulative minimum along `dim`, and its index (i64). NaN is the least. See [`Tensor::cummax`].
    ///
    /// # Errors
    /// If the dim is out of range.
    #[track_caller]
    pub fn cummin(&self, dim: i64) -> Result<(Tensor, Tensor)> {
        CUMMIN.call((self, dim))
    }

    fn running(&self, op: Op, dim: i64) -> Result<(Tensor, Tensor)> {
        let indices = call(op, &[self], &Attrs::from(Along { dim }))?;
        Ok((self.gather(dim, &indices)?, indices))
    }

    /// The indices (i64) that sort `dim` in ascending or descending order. Sizes are kept.
    ///
    /// # Errors
    /// If the dim is out of range.
    #[track_caller]
    pub fn argsort(&self, dim: i64, descending: bool) -> Result<Tensor> {
        call(Op::Argsort, &[self], &Attrs::from(Argsort { stable: true, dim, descending }))
    }

    /// Sorts `dim` in ascending or descending order. Also returns the indices (i64) of the elements. Sizes are kept,
    /// and the dtype of the first.
    ///
    /// # Errors
    /// If the dim is out of range.
    #[track_caller]
    pub fn sort(&self, dim: i64, descending: bool) -> Result<(Tensor, Tensor)> {
        SORT.call((self, dim, descending))
    }

    /// The `k` greatest elements along `dim` in descending order, or the least in ascending order. Also returns their
    /// indices (i64). Both results have size `k` along `dim`. The dtype of the first is kept.
    ///
    /// # Errors
    /// If the dim is out of range, or if it has fewer than `k` elements.
    #[track_caller]
    pub fn topk(&self, k: usize, dim: i64, largest: bool) -> Result<(Tensor, Tensor)> {
        TOPK.call((self, int(k), dim, largest, true))
    }
}

/// A scan by steps of 1, 2, 4, …: each combines an element with what is so many places before it.
pub(crate) fn doubled(
    op: &str,
    x: &Tensor,
    dim: i64,
    combine: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let at = normalize_dim(op, dim, x.dim())?;
    let size = x.sizes().get(at).copied().unwrap_or(1);
    let (along, mut x, mut step) = (at as i64, x.clone(), 1);
    while step < size {
        let first = x.narrow(along, 0, step)?;
        let rest = combine(&x.narrow(along, int(step), size - step)?, &x.narrow(along, 0, size - step)?)?;
        x = cat(&[&first, &rest], along)?;
        step *= 2;
    }
    x.copy()
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&CUMMAX, |x: &Tensor, dim: i64| x.running(Op::CummaxIndices, dim))?
        .composite(&CUMMIN, |x: &Tensor, dim: i64| x.running(Op::CumminIndices, dim))?
        .composite(&LOGCUMSUMEXP, |x: &Tensor, dim: i64| {
            let x = if x.dtype().is_float() { x.clone() } else { x.to_dtype(default_dtype())? };
            doubled("logcumsumexp", &widened(&x)?, dim, |x, y| x.logaddexp(y))?.to_dtype(x.dtype())
        })?
        .def_kernel("argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor", Tensor::argsort)?
        .composite(&SORT, sort)?
        .def_kernel(
            "sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor \
             indices)",
            |x: &Tensor, _: Option<bool>, dim: i64, descending: bool| x.sort(dim, descending),
        )?
        .def_kernel("msort(Tensor self) -> Tensor", |x: &Tensor| Ok(x.sort(0, false)?.0))?
        .composite(&TOPK, topk)?;
    Ok(())
}

fn sort(x: &Tensor, dim: i64, descending: bool) -> Result<(Tensor, Tensor)> {
    let indices = x.argsort(dim, descending).map_err(|error| error.of("sort"))?;
    Ok((x.gather(dim, &indices)?, indices))
}

fn topk(x: &Tensor, k: i64, dim: i64, largest: bool, _sorted: bool) -> Result<(Tensor, Tensor)> {
    let k = count("topk", k)?;
    let along = normalize_dim("topk", dim, x.dim())?;
    let size = x.sizes().get(along).copied().unwrap_or(1);
    if k > size {
        let what = format!("k is {k}, but dim {dim} of shape {:?} has {size} elements", x.sizes());
        return Err(Error::shape("topk", what, "ask for at most as many as there are"));
    }
    let indices = if x.dim() == 0 {
        x.argsort(dim, largest)?
    } else if x.device().kind == DeviceKind::Cpu {
        call(Op::TopkIndices, &[x], &Attrs::from(TopkIndices { k: k as i64, dim, largest }))?
    } else {
        // GPUs have a sort, and no selection.
        x.argsort(dim, largest)?.narrow(dim, 0, k)?.contiguous()?
    };
    Ok((x.gather(dim, &indices)?, indices))
}
