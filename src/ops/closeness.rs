//! How close are two tensors, and where do they differ most?

use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::shape::broadcast;
use crate::ir::{DType, Scalar, promote_all};
use crate::ops::composite::Composite;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use std::fmt;

static ALLCLOSE: Composite = Composite::new(
    "allclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> bool",
);
static ISCLOSE: Composite = Composite::new(
    "isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
);

/// Where two tensors differ, and by how much: the result of [`Tensor::closeness`].
#[derive(Debug, Clone, PartialEq)]
pub struct Closeness {
    /// The number of elements that are not close.
    pub n_different: usize,
    /// The number of elements.
    pub n_elements: usize,
    /// The first element that is not close, in row-major order.
    pub first: Option<Vec<usize>>,
    /// The element with the greatest absolute difference, if one differs.
    pub at: Option<Vec<usize>>,
    /// Both numbers there.
    pub values: [Scalar; 2],
    /// The greatest absolute difference. It is infinite for a NaN on one side.
    pub greatest: f64,
    /// The greatest difference divided by the magnitude of the second number.
    pub greatest_relative: f64,
}

impl Closeness {
    /// Whether all elements are close.
    pub fn is_close(&self) -> bool {
        self.n_different == 0
    }
}

impl fmt::Display for Closeness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (differ, all) = (self.n_different, self.n_elements);
        let [ours, theirs] = self.values;
        match (&self.first, &self.at) {
            (Some(first), Some(at)) => write!(
                f,
                "{differ} of {all} elements are not close, the first at {first:?}; the greatest difference is {:e} \
                 ({ours} and {theirs} at {at:?}), the greatest relative one {:e}",
                self.greatest, self.greatest_relative
            ),
            (_, _) => write!(f, "all {all} elements are close; the greatest difference is {:e}", self.greatest),
        }
    }
}

/// Comparisons within tolerances.
impl Tensor {
    /// Whether each element is within `atol + rtol * |other|` of that of `other`. NaNs are not close. Sizes are
    /// broadcast. The result is bool.
    ///
    /// # Errors
    /// If the dtypes differ, if the sizes do not broadcast, or if a tolerance is negative.
    #[track_caller]
    pub fn isclose(&self, other: &Tensor, rtol: f64, atol: f64) -> Result<Tensor> {
        ISCLOSE.call((self, other, rtol, atol, false))
    }

    /// Whether all elements are close. The answer is a value, so this is a graph break. See [`Tensor::isclose`], and
    /// [`Tensor::closeness`] for a report.
    ///
    /// # Errors
    /// Same as [`Tensor::isclose`]. Also if a tensor has no data (meta device), or in an abstract trace.
    #[track_caller]
    pub fn allclose(&self, other: &Tensor, rtol: f64, atol: f64) -> Result<bool> {
        ALLCLOSE.call((self, other, rtol, atol, false))
    }

    /// Where two tensors are not close, and how far apart they are. Its text is a sentence for a message. Equal NaNs
    /// count as close here. Sizes are broadcast, dtypes promoted. This is a graph break.
    ///
    /// ```
    /// # use opfuse::{Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let (ours, theirs) = (Tensor::try_from([1.0, 2.0, 3.5])?, Tensor::try_from([1.0, 2.0, 3.0])?);
    /// let report = ours.closeness(&theirs, 1e-5, 1e-8)?;
    /// assert!(!report.is_close());
    /// assert_eq!((report.n_different, report.at, report.greatest), (1, Some(vec![2]), 0.5));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Tensor::allclose`], except that dtypes may differ.
    #[track_caller]
    pub fn closeness(&self, other: &Tensor, rtol: f64, atol: f64) -> Result<Closeness> {
        observer::on_read(self, "closeness")?;
        let sizes = broadcast("closeness", self.sizes(), other.sizes())?;
        let dtype = promote_all([self.ty().promote_operand(), other.ty().promote_operand()]).unwrap_or(self.dtype());
        let line = |x: &Tensor| x.detach()?.to_dtype(dtype)?.expand(&sizes[..])?.reshape([-1]);
        let (ours, theirs) = (line(self)?, line(other)?);
        let is_far: Tensor = ISCLOSE.call::<_, Tensor>((&ours, &theirs, rtol, atol, true))?.logical_not()?;
        let (ours, theirs) = (ours.to_dtype(DType::F64)?, theirs.to_dtype(DType::F64)?);
        let both_nan = ours.isnan()?.logical_and(&theirs.isnan()?)?;
        let same = ours.eq(&theirs)?.logical_or(&both_nan)?;
        let distance = same.where_(0.0, &ours.sub(&theirs)?.abs()?)?;
        let distance = distance.masked_fill(&distance.isnan()?, f64::INFINITY)?;
        let relative = same.where_(0.0, &distance.div(&theirs.abs()?)?)?;
        let relative = relative.masked_fill(&relative.isnan()?, f64::INFINITY)?;
        let n_elements = distance.numel();
        let mut report = Closeness {
            n_different: is_far.count_nonzero(())?.item::<i64>()? as usize,
            n_elements,
            first: None,
            at: None,
            values: [Scalar::Int(0); 2],
            greatest: 0.0,
            greatest_relative: 0.0,
        };
        if n_elements == 0 {
            return Ok(report);
        }
        report.greatest = distance.max_all()?.item()?;
        report.greatest_relative = relative.max_all()?.item()?;
        if report.n_different > 0 {
            report.first = Some(indices(is_far.to_dtype(DType::U8)?.argmax(0, false)?.item::<i64>()?, &sizes));
        }
        if report.greatest > 0.0 {
            let place = distance.argmax(0, false)?.item::<i64>()?;
            report.at = Some(indices(place, &sizes));
            report.values = [ours.select(0, place)?.to_scalar()?, theirs.select(0, place)?.to_scalar()?];
        }
        Ok(report)
    }
}

/// The index of each dim at a place in row-major order.
fn indices(place: i64, sizes: &[usize]) -> Vec<usize> {
    let mut rest = place as usize;
    let mut indices: Vec<usize> = Vec::new();
    for &size in sizes.iter().rev() {
        indices.push(rest % size);
        rest /= size;
    }
    indices.reverse();
    indices
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library.composite(&ISCLOSE, isclose)?.composite(&ALLCLOSE, allclose)?;
    Ok(())
}

fn allclose(x: &Tensor, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<bool> {
    isclose(x, other, rtol, atol, equal_nan).map_err(|error| error.of("allclose"))?.all((), false)?.item::<bool>()
}

fn isclose(x: &Tensor, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
    let op = "isclose";
    if x.dtype() != other.dtype() {
        return Err(Error::argument(op, format!("{} did not match {}; convert one side", x.dtype(), other.dtype())));
    }
    // Rejects NaN too.
    let is_tolerance = |value: f64| value >= 0.0;
    if !is_tolerance(rtol) || !is_tolerance(atol) {
        return Err(Error::argument(op, format!("rtol is {rtol} and atol {atol}; they must not be negative")));
    }
    let equal = x.eq(other)?;
    let is_float = x.dtype().is_float();
    let close = if equal_nan && is_float { equal.logical_or(x.isnan()?.logical_and(other.isnan()?)?)? } else { equal };
    if rtol == 0.0 && atol == 0.0 {
        return Ok(close);
    }
    let other = if is_float { other.clone() } else { other.to_dtype(default_dtype())? };
    let allowed = other.mul(rtol)?.abs()?.add(atol)?;
    let actual = x.sub(&other)?.abs()?;
    close.logical_or(actual.isfinite()?.logical_and(actual.le(&allowed)?)?)
}
