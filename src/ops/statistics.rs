//! Statistics of observations: covariances, correlations, and means without NaNs.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{converted, int, only_floats};
use crate::ops::composite::Composite;
use crate::ops::dims::Dims;
use crate::ops::reductions::summed;
use crate::tensor::handle::Tensor;

static COV: Composite =
    Composite::new("cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor");
static CORRCOEF: Composite = Composite::new("corrcoef(Tensor self) -> Tensor");
static NANMEAN: Composite =
    Composite::new("nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor");
static NANSUM: Composite =
    Composite::new("nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor");

/// Statistics.
impl Tensor {
    /// The covariance matrix of variables, one per row, over observations, one per column. A `correction` of 1 gives
    /// that of a sample, 0 that of a population. Integers become the default floating dtype.
    ///
    /// # Errors
    /// If there are more than two dims, or if the dtype is bool.
    #[track_caller]
    pub fn cov(&self, correction: i64) -> Result<Tensor> {
        COV.call((self, correction, None::<&Tensor>, None::<&Tensor>))
    }

    /// The matrix of correlation coefficients of variables, one per row. Integers become the default floating dtype.
    ///
    /// # Errors
    /// Same as [`Tensor::cov`].
    #[track_caller]
    pub fn corrcoef(&self) -> Result<Tensor> {
        CORRCOEF.call((self,))
    }

    /// The mean over dims of the elements that are not NaN. Where all are, it is NaN. The dims are removed, or keep
    /// size 1 if `keepdim`; no dims (`()`) means all. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or if a dim is out of range or named twice.
    #[track_caller]
    pub fn nanmean(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        NANMEAN.call((self, Some(dims.into().as_slice()), keepdim, None::<DType>))
    }

    /// The sum over dims of the elements that are not NaN. Integers and bools are summed in i64. The dims are removed,
    /// or keep size 1 if `keepdim`; no dims (`()`) means all.
    ///
    /// # Errors
    /// If a dim is out of range or named twice.
    #[track_caller]
    pub fn nansum(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        NANSUM.call((self, Some(dims.into().as_slice()), keepdim, None::<DType>))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&COV, cov)?
        .composite(&CORRCOEF, corrcoef)?
        .composite(&NANSUM, nansum)?
        .composite(&NANMEAN, nanmean)?;
    Ok(())
}

/// Sum of the elements that are not NaN.
fn nansum(x: &Tensor, dims: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    let x = converted(x, dtype)?;
    let dims = dims.unwrap_or(&[]);
    let numbers = if x.dtype().is_float() { x.masked_fill(&x.isnan()?, 0)? } else { x };
    summed(&numbers, dims, keepdim, dtype)
}

fn nanmean(x: &Tensor, dims: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    only_floats("nanmean", x)?;
    let dims = dims.unwrap_or(&[]);
    let n_numbers = x.detach()?.isnan()?.logical_not()?.sum(dims, keepdim)?;
    nansum(x, Some(dims), keepdim, dtype)?.div(&n_numbers)
}

fn cov(x: &Tensor, correction: i64, frequencies: Option<&Tensor>, importances: Option<&Tensor>) -> Result<Tensor> {
    let op = "cov";
    if x.dim() > 2 {
        let what = format!("expected input to have two or fewer dimensions but got shape {:?}", x.sizes());
        return Err(Error::shape(op, what, "give variables as rows, observations as columns"));
    }
    if x.dtype() == DType::Bool {
        return Err(Error::dtype(op, x.dtype(), "a number", "convert with to_dtype(DType::I64) first"));
    }
    let rows = if x.dim() < 2 { x.reshape([1, -1])? } else { x.clone() };
    let n = rows.sizes()[1];
    for (weights, are_whole) in [(frequencies, true), (importances, false)] {
        let Some(weights) = weights else { continue };
        if weights.sizes() != [n] || weights.dtype().is_float() == are_whole {
            let what = format!("weights {} for {n} observations", weights.ty());
            let hint = "fweights are integers and aweights floats, one per observation";
            return Err(Error::shape(op, what, hint));
        }
    }
    let weights = match (frequencies, importances) {
        (Some(frequencies), Some(importances)) => Some(frequencies.mul(importances)?),
        (one, other) => one.or(other).cloned(),
    };
    let weighted = |x: &Tensor| weights.as_ref().map_or_else(|| Ok(x.clone()), |weights| x.mul(weights));
    let total = match &weights {
        Some(weights) => weights.sum((), false)?,
        None => Tensor::number(Scalar::Int(int(n)))?,
    };
    let mean = weighted(&rows)?.sum(1, true)?.div(&total)?;
    let centred = rows.sub(&mean)?;
    let freedom = match (&weights, importances) {
        (Some(weights), Some(importances)) if correction != 0 => {
            let spread = weights.mul(importances)?.sum((), false)?.div(&total)?.mul(correction)?;
            total.sub(&spread)?
        }
        (_, _) => total.sub(correction)?,
    };
    let product = centred.mm(&weighted(&centred)?.to_dtype(centred.dtype())?.t()?)?;
    product.div(&freedom.clamp_min(0)?)?.squeeze(())
}

fn corrcoef(x: &Tensor) -> Result<Tensor> {
    let c = x.cov(1).map_err(|error| error.of("corrcoef"))?;
    if c.dim() == 0 {
        return c.div(&c);
    }
    let spread = c.diag(0)?.sqrt()?;
    let scaled = c.div(&spread.unsqueeze(1)?)?.div(&spread.unsqueeze(0)?)?;
    scaled.clamp(Some((-1.0).into()), Some(1.0.into()))
}
