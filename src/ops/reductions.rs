//! Reductions, including statistics.
//!
//! `dims` names the reduced dims in any order. An empty list means all dims. They are removed, or keep size 1 with
//! `keepdim`. Results are row-major.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{Argmax, Fold, FoldTo, Prod, Var};
use crate::ir::{Attrs, DType, Op, Scalar};
use crate::ops::arguments::converted;
use crate::ops::composite::Composite;
use crate::ops::dims::{Dims, ints};
use crate::tensor::handle::Tensor;

static SUM_ALL: Composite = Composite::new("sum(Tensor self, *, ScalarType? dtype=None) -> Tensor");
static MEAN_ALL: Composite = Composite::new("mean(Tensor self, *, ScalarType? dtype=None) -> Tensor");
static PROD_ALL: Composite = Composite::new("prod(Tensor self, *, ScalarType? dtype=None) -> Tensor");
static MAX_ALL: Composite = Composite::new("max(Tensor self) -> Tensor");
static MIN_ALL: Composite = Composite::new("min(Tensor self) -> Tensor");
static ANY: Composite = Composite::new("any(Tensor self) -> Tensor");
static ALL: Composite = Composite::new("all(Tensor self) -> Tensor");
static COUNT_NONZERO: Composite = Composite::new("count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor");
static MAX_DIM: Composite =
    Composite::new("max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)");
static MIN_DIM: Composite =
    Composite::new("min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)");

impl Tensor {
    /// Sum over dims. Integers and bools are summed in i64, floats in their own dtype. The dims are removed, or keep
    /// size 1 if `keepdim`; no dims (`()`) means all.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    #[track_caller]
    pub fn sum(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        match Over::of(dims, keepdim) {
            Over::All => SUM_ALL.call((self, None::<DType>)),
            Over::Dims(dims) => summed(self, dims.as_slice(), keepdim, None),
        }
    }

    /// Sum of all elements, 0-dim. Integers and bools give i64, floats keep their dtype.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn sum_all(&self) -> Result<Tensor> {
        self.sum((), false)
    }

    /// Mean over dims. The dtype is kept. The dims are removed, or keep size 1 if `keepdim`; no dims (`()`) means all.
    ///
    /// # Errors
    /// If the dtype is not floating, or if a dim is out of range or named twice.
    #[track_caller]
    pub fn mean(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        match Over::of(dims, keepdim) {
            Over::All => MEAN_ALL.call((self, None::<DType>)),
            Over::Dims(dims) => call(Op::Mean, &[self], &fold_to(dims, keepdim, None)),
        }
    }

    /// Mean of all elements, 0-dim. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating.
    #[track_caller]
    pub fn mean_all(&self) -> Result<Tensor> {
        self.mean((), false)
    }

    /// Product over one dim. Integers and bools are multiplied in i64, floats in their own dtype. The dim is removed,
    /// or keeps size 1 if `keepdim`.
    ///
    /// # Errors
    /// If the dim is out of range.
    #[track_caller]
    pub fn prod(&self, dim: i64, keepdim: bool) -> Result<Tensor> {
        call(Op::Prod, &[self], &Attrs::from(Prod { dim, keepdim, dtype: None }))
    }

    /// Product of all elements, 0-dim. Integers and bools give i64, floats keep their dtype.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn prod_all(&self) -> Result<Tensor> {
        PROD_ALL.call((self, None::<DType>))
    }

    /// Maximum over dims. NaN is the greatest. The dtype is kept. The dims are removed, or keep size 1 if `keepdim`; no
    /// dims (`()`) means all.
    ///
    /// # Errors
    /// If a reduced dim has no elements, or if a dim is out of range or named twice.
    #[track_caller]
    pub fn amax(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        call(Op::Amax, &[self], &fold(dims, keepdim))
    }

    /// Minimum over dims. NaN is the least. The dtype is kept. The dims are removed, or keep size 1 if `keepdim`; no
    /// dims (`()`) means all.
    ///
    /// # Errors
    /// If a reduced dim has no elements, or if a dim is out of range or named twice.
    #[track_caller]
    pub fn amin(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        call(Op::Amin, &[self], &fold(dims, keepdim))
    }

    /// Maximum of all elements, 0-dim. NaN is the greatest. The dtype is kept.
    ///
    /// # Errors
    /// If there are no elements.
    #[track_caller]
    pub fn max_all(&self) -> Result<Tensor> {
        MAX_ALL.call((self,))
    }

    /// Minimum of all elements, 0-dim. NaN is the least. The dtype is kept.
    ///
    /// # Errors
    /// If there are no elements.
    #[track_caller]
    pub fn min_all(&self) -> Result<Tensor> {
        MIN_ALL.call((self,))
    }

    /// Maximum along one dim, and the index (i64) of its first occurrence. The dtype of the first is kept. In both the
    /// dim is removed, or keeps size 1 if `keepdim`.
    ///
    /// # Errors
    /// If the dim has no elements, or if it is out of range.
    #[track_caller]
    pub fn max_dim(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        MAX_DIM.call((self, dim, keepdim))
    }

    /// Minimum along one dim, and the index (i64) of its first occurrence. The dtype of the first is kept. In both the
    /// dim is removed, or keeps size 1 if `keepdim`.
    ///
    /// # Errors
    /// If the dim has no elements, or if it is out of range.
    #[track_caller]
    pub fn min_dim(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        MIN_DIM.call((self, dim, keepdim))
    }

    /// Bools as numbers: false is less than true. Other dtypes are unchanged.
    fn numbers(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool { self.to_dtype(DType::U8) } else { Ok(self.clone()) }
    }

    fn extremum(&self, indices: Tensor, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let values = self.gather(dim, &indices)?;
        if keepdim { Ok((values, indices)) } else { Ok((values.squeeze(dim)?, indices.squeeze(dim)?)) }
    }

    /// Whether any element over dims is nonzero. The result is bool, or u8 for u8. The dims are removed, or keep size 1
    /// if `keepdim`; no dims (`()`) means all.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    #[track_caller]
    pub fn any(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        match Over::of(dims, keepdim) {
            Over::All => ANY.call((self,)),
            Over::Dims(dims) => call(Op::Any, &[self], &fold(dims, keepdim)),
        }
    }

    /// Whether all elements over dims are nonzero. The result is bool, or u8 for u8. The dims are removed, or keep size
    /// 1 if `keepdim`; no dims (`()`) means all.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    #[track_caller]
    pub fn all(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        match Over::of(dims, keepdim) {
            Over::All => ALL.call((self,)),
            Over::Dims(dims) => call(Op::All, &[self], &fold(dims, keepdim)),
        }
    }

    /// Index (i64) of the first maximum along `dim`. Without a dim it is the index into all elements in row-major
    /// order. NaN is the greatest. The dim is removed, or keeps size 1 if `keepdim`.
    ///
    /// # Errors
    /// If the dim has no elements, if it is out of range, or if the dtype is bool.
    #[track_caller]
    pub fn argmax(&self, dim: impl Into<Option<i64>>, keepdim: bool) -> Result<Tensor> {
        call(Op::Argmax, &[self], &Attrs::from(Argmax { dim: dim.into(), keepdim }))
    }

    /// Index (i64) of the first minimum. NaN is the least. See [`Tensor::argmax`].
    ///
    /// # Errors
    /// If the dim has no elements, if it is out of range, or if the dtype is bool.
    #[track_caller]
    pub fn argmin(&self, dim: impl Into<Option<i64>>, keepdim: bool) -> Result<Tensor> {
        call(Op::Argmin, &[self], &Attrs::from(Argmax { dim: dim.into(), keepdim }))
    }

    /// Variance over dims: the sum of squared distances from the mean, divided by their number minus `correction`. A
    /// correction of 1 gives the variance of a sample, 0 that of a population. The dims are removed, or keep size 1 if
    /// `keepdim`; no dims (`()`) means all. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or if a dim is out of range or named twice.
    #[track_caller]
    pub fn var(&self, dims: impl Into<Dims>, correction: impl Into<Scalar>, keepdim: bool) -> Result<Tensor> {
        call(Op::Var, &[self], &Attrs::from(Var { dim: ints(dims), correction: Some(correction.into()), keepdim }))
    }

    /// Standard deviation over dims: the square root of [`Tensor::var`]. The dims are removed, or keep size 1 if
    /// `keepdim`; no dims (`()`) means all. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or if a dim is out of range or named twice.
    #[track_caller]
    pub fn std(&self, dims: impl Into<Dims>, correction: impl Into<Scalar>, keepdim: bool) -> Result<Tensor> {
        call(Op::Std, &[self], &Attrs::from(Var { dim: ints(dims), correction: Some(correction.into()), keepdim }))
    }

    /// `log(sum(exp(x)))` over dims, computed without overflow. Integers become the default floating dtype. The dims
    /// are removed, or keep size 1 if `keepdim`; no dims (`()`) means all.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    #[track_caller]
    pub fn logsumexp(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        call(Op::Logsumexp, &[self], &fold(dims, keepdim))
    }

    /// The number (i64) of nonzero elements over dims. The dims are removed; no dims (`()`) means all.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    #[track_caller]
    pub fn count_nonzero(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        COUNT_NONZERO.call((self, dims.into().as_slice()))
    }
}

/// What a reduction is over. ATen has operators of their own for reductions of all elements.
enum Over {
    All,
    Dims(Dims),
}

impl Over {
    fn of(dims: impl Into<Dims>, keepdim: bool) -> Over {
        let dims = dims.into();
        if dims.as_slice().is_empty() && !keepdim { Over::All } else { Over::Dims(dims) }
    }
}

fn fold(dims: impl Into<Dims>, keepdim: bool) -> Attrs {
    Fold { dim: ints(dims), keepdim }.into()
}

fn fold_to(dims: impl Into<Dims>, keepdim: bool, dtype: Option<DType>) -> Attrs {
    FoldTo { dim: ints(dims), keepdim, dtype }.into()
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&SUM_ALL, sum)?
        .composite(&MEAN_ALL, mean)?
        .composite(&PROD_ALL, prod)?
        .composite(&MAX_ALL, max_all)?
        .composite(&MIN_ALL, min_all)?
        .composite(&ANY, |x: &Tensor| call(Op::Any, &[x], &fold((), false)))?
        .composite(&ALL, |x: &Tensor| call(Op::All, &[x], &fold((), false)))?
        .def_kernel("any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", |x: &Tensor, dim: i64, keepdim| {
            x.any(dim, keepdim)
        })?
        .def_kernel("all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", |x: &Tensor, dim: i64, keepdim| {
            x.all(dim, keepdim)
        })?
        .def_kernel("count_nonzero(Tensor self, int? dim=None) -> Tensor", |x: &Tensor, dim: Option<i64>| {
            count_nonzero(x, dim.as_slice())
        })?
        .composite(&COUNT_NONZERO, count_nonzero)?
        .def_kernel("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)", aminmax)?
        .composite(&MAX_DIM, max_dim)?
        .composite(&MIN_DIM, min_dim)?;
    spreads(library)
}

/// Variance or standard deviation.
type Spread = fn(&Tensor, Dims, Scalar, bool) -> Result<Tensor>;

fn sum(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    summed(&converted(x, dtype)?, &[], false, dtype)
}

fn mean(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    call(Op::Mean, &[&converted(x, dtype)?], &fold_to((), false, None))
}

fn prod(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    let flat = converted(x, dtype)?.reshape([x.numel() as i64])?;
    call(Op::Prod, &[&flat], &Attrs::from(Prod { dim: 0, keepdim: false, dtype }))
}

/// Sum over dims after conversion to `dtype`. The elements are summed in that dtype, even if it is a narrow integer.
#[track_caller]
pub(crate) fn summed(x: &Tensor, dims: &[i64], keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    call(Op::Sum, &[x], &fold_to(dims, keepdim, dtype))
}

/// Checks that `x` has elements.
fn some<'a>(op: &str, x: &'a Tensor) -> Result<&'a Tensor> {
    if x.numel() > 0 {
        return Ok(x);
    }
    let what = format!("a tensor of shape {:?} has no elements to choose from, and {op} has no identity", x.sizes());
    Err(Error::shape(op, what, "specify a dim that has some"))
}

fn count_nonzero(x: &Tensor, dims: &[i64]) -> Result<Tensor> {
    x.to_dtype(DType::Bool)?.sum(dims, false)
}

fn aminmax(x: &Tensor, dim: Option<i64>, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let x = if dim.is_none() { some("aminmax", x)? } else { x };
    let dims = dim.as_slice();
    // A reduction of all dims with `keepdim` needs a list of dims.
    let all: Vec<i64> = (0..x.dim() as i64).collect();
    let dims = if dims.is_empty() { &all[..] } else { dims };
    Ok((x.amin(dims, keepdim)?, x.amax(dims, keepdim)?))
}

/// The older overloads of `var` and `std`, which distinguish samples and populations by a bool, and the forms that also
/// return the mean.
fn spreads(library: &mut Library) -> Result<()> {
    for (name, spread) in [("var", Tensor::var as Spread), ("std", Tensor::std as Spread)] {
        let free = |unbiased: bool| Scalar::Int(unbiased.into());
        let with_mean = move |x: &Tensor, dims: &[i64], correction: Scalar, keepdim: bool| {
            Ok((spread(x, dims.into(), correction, keepdim)?, x.mean(dims, keepdim)?))
        };
        library
            .def_kernel(&format!("{name}(Tensor self, bool unbiased=True) -> Tensor"), move |x: &Tensor, unbiased| {
                spread(x, ().into(), free(unbiased), false)
            })?
            .def_kernel(
                &format!("{name}.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor"),
                move |x: &Tensor, dims: Option<&[i64]>, unbiased: bool, keepdim: bool| {
                    spread(x, dims.unwrap_or(&[]).into(), free(unbiased), keepdim)
                },
            )?
            .def_kernel(
                &format!("{name}_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)"),
                move |x: &Tensor, unbiased: bool| with_mean(x, &[], free(unbiased), false),
            )?
            .def_kernel(
                &format!(
                    "{name}_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, \
                     Tensor)"
                ),
                move |x: &Tensor, dims: Option<&[i64]>, unbiased: bool, keepdim: bool| {
                    with_mean(x, dims.unwrap_or(&[]), free(unbiased), keepdim)
                },
            )?
            .def_kernel(
                &format!(
                    "{name}_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool \
                     keepdim=False) -> (Tensor, Tensor)"
                ),
                move |x: &Tensor, dims: Option<&[i64]>, correction: Option<Scalar>, keepdim: bool| {
                    with_mean(x, dims.unwrap_or(&[]), correction.unwrap_or(Scalar::Int(1)), keepdim)
                },
            )?;
    }
    Ok(())
}

fn max_all(x: &Tensor) -> Result<Tensor> {
    some("max", x)?.amax((), false).map_err(|error| error.of("max"))
}

fn min_all(x: &Tensor) -> Result<Tensor> {
    some("min", x)?.amin((), false).map_err(|error| error.of("min"))
}

fn max_dim(x: &Tensor, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let places = x.numbers()?.argmax(dim, true).map_err(|error| error.of("max"))?;
    x.extremum(places, dim, keepdim)
}

fn min_dim(x: &Tensor, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let places = x.numbers()?.argmin(dim, true).map_err(|error| error.of("min"))?;
    x.extremum(places, dim, keepdim)
}
