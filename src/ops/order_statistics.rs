//! Order statistics: medians, quantiles, the k-th least element, and the most frequent one.
//!
//! All follow from one stable sort, where NaN is greater than any number. Among equal elements the index is that of the
//! first, and for [`Tensor::mode`] that of the last. Values are gathered by their indices, so their gradients flow to
//! these elements. The gradient of a median of all elements is spread evenly over those that equal it.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::shape::normalize_dim;
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{count, int};
use crate::ops::composite::Composite;
use crate::ops::factories::{full_on, range_on};
use crate::ops::indexing::at_least_1d;
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;

static MEDIAN: Composite = Composite::new("median(Tensor self) -> Tensor");
static MEDIAN_DIM: Composite =
    Composite::new("median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)");
static NANMEDIAN: Composite = Composite::new("nanmedian(Tensor self) -> Tensor");
static NANMEDIAN_DIM: Composite =
    Composite::new("nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)");
static KTHVALUE: Composite = Composite::new(
    "kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
);
static MODE: Composite =
    Composite::new("mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)");
static QUANTILE: Composite = Composite::new(
    "quantile(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor",
);
static NANQUANTILE: Composite = Composite::new(
    "nanquantile(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor",
);
static QUANTILE_SCALAR: Composite = Composite::new(
    "quantile.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor",
);
static NANQUANTILE_SCALAR: Composite = Composite::new(
    "nanquantile.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> \
     Tensor",
);

/// Elements by their rank.
impl Tensor {
    /// The median of all elements: the lesser of the two in the middle, if their number is even. It is NaN if an
    /// element is, or if there are none. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is bool, or if there are no elements and the dtype is an integer.
    #[track_caller]
    pub fn median(&self) -> Result<Tensor> {
        MEDIAN.call((self,))
    }

    /// The median along `dim`, and its index (i64). If an element is NaN, it is the first of these. The dim is removed,
    /// or keeps size 1 if `keepdim`. The dtype of the first is kept.
    ///
    /// # Errors
    /// If the dtype is bool, if the dim is out of range, or if it has no elements.
    #[track_caller]
    pub fn median_dim(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        MEDIAN_DIM.call((self, dim, keepdim))
    }

    /// The median of the elements that are not NaN. See [`Tensor::median`].
    ///
    /// # Errors
    /// Same as [`Tensor::median`].
    #[track_caller]
    pub fn nanmedian(&self) -> Result<Tensor> {
        NANMEDIAN.call((self,))
    }

    /// The median along `dim` of the elements that are not NaN, and its index. See [`Tensor::median_dim`].
    ///
    /// # Errors
    /// Same as [`Tensor::median_dim`].
    #[track_caller]
    pub fn nanmedian_dim(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        NANMEDIAN_DIM.call((self, dim, keepdim))
    }

    /// The `k`-th least element along `dim`, counted from 1, and its index (i64). The dim is removed, or keeps size 1
    /// if `keepdim`. The dtype of the first is kept.
    ///
    /// # Errors
    /// If the dim is out of range, or if `k` is not between 1 and its size.
    #[track_caller]
    pub fn kthvalue(&self, k: usize, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        KTHVALUE.call((self, int(k), dim, keepdim))
    }

    /// The most frequent element along `dim`, and the index (i64) of its last occurrence. Among several it is the
    /// least. The dim is removed, or keeps size 1 if `keepdim`. The dtype of the first is kept.
    ///
    /// # Errors
    /// If the dim is out of range, or if it has no elements.
    #[track_caller]
    pub fn mode(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        MODE.call((self, dim, keepdim))
    }

    /// The `q`-quantile along `dim`, or of all elements without a dim. Between two elements it is interpolated
    /// linearly; `aten::quantile` takes other ways. It is NaN if an element is. The dim is removed, or keeps size 1 if
    /// `keepdim`. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not f32 or f64, if `q` is not between 0 and 1, if there are no elements, or if the dim is out of
    /// range.
    #[track_caller]
    pub fn quantile(&self, q: f64, dim: impl Into<Option<i64>>, keepdim: bool) -> Result<Tensor> {
        QUANTILE_SCALAR.call((self, q, dim.into(), keepdim, "linear"))
    }

    /// Several quantiles at once: the first dim of the result has one index per element of `q`, which has one dim and
    /// the dtype of `self`. An element of `q` that is not between 0 and 1 gives NaN. See [`Tensor::quantile`].
    ///
    /// # Errors
    /// Same as [`Tensor::quantile`]. Also if `q` has another dtype, or several dims.
    #[track_caller]
    pub fn quantiles(&self, q: &Tensor, dim: impl Into<Option<i64>>, keepdim: bool) -> Result<Tensor> {
        QUANTILE.call((self, q, dim.into(), keepdim, "linear"))
    }

    /// The `q`-quantile of the elements that are not NaN. See [`Tensor::quantile`].
    ///
    /// # Errors
    /// Same as [`Tensor::quantile`].
    #[track_caller]
    pub fn nanquantile(&self, q: f64, dim: impl Into<Option<i64>>, keepdim: bool) -> Result<Tensor> {
        NANQUANTILE_SCALAR.call((self, q, dim.into(), keepdim, "linear"))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&MEDIAN, |x: &Tensor| median("median", x, Nans::Count))?
        .composite(&MEDIAN_DIM, |x: &Tensor, dim: i64, keepdim: bool| {
            median_dim("median", x, dim, keepdim, Nans::Count)
        })?
        .composite(&NANMEDIAN, |x: &Tensor| median("nanmedian", x, Nans::LeaveOut))?
        .composite(&NANMEDIAN_DIM, |x: &Tensor, dim: i64, keepdim: bool| {
            median_dim("nanmedian", x, dim, keepdim, Nans::LeaveOut)
        })?
        .composite(&KTHVALUE, kthvalue)?
        .composite(&MODE, mode)?;
    for (name, of_tensor, of_number, nans) in [
        ("quantile", &QUANTILE, &QUANTILE_SCALAR, Nans::Count),
        ("nanquantile", &NANQUANTILE, &NANQUANTILE_SCALAR, Nans::LeaveOut),
    ] {
        library
            .composite(of_tensor, move |x: &Tensor, q: &Tensor, dim: Option<i64>, keepdim: bool, way: &str| {
                quantile(name, x, q, dim, keepdim, way, nans)
            })?
            .composite(of_number, move |x: &Tensor, q: f64, dim: Option<i64>, keepdim: bool, way: &str| {
                if !(0.0..=1.0).contains(&q) {
                    return Err(Error::argument(name, format!("q must be in the range [0, 1] but got {q}")));
                }
                need_wide(name, x)?;
                let q = full_on(x.device(), &[], Scalar::Float(q), Some(x.dtype()))?;
                quantile(name, x, &q, dim, keepdim, way, nans)
            })?;
    }
    Ok(())
}

/// What becomes of NaNs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nans {
    /// If there is one, the result is NaN.
    Count,
    LeaveOut,
}

/// The elements of a dim in order. A 0-dim tensor counts as one line of one element.
struct Line {
    x: Tensor,
    dim: usize,
    size: usize,
    was_0_dim: bool,
}

impl Line {
    fn of(op: &str, x: &Tensor, dim: i64) -> Result<Line> {
        let was_0_dim = x.dim() == 0;
        let x = at_least_1d(x)?;
        let dim = normalize_dim(op, dim, x.dim())?;
        let size = x.sizes()[dim];
        if size == 0 {
            let what = format!("dim {dim} of shape {:?} has no elements", x.sizes());
            return Err(Error::index(op, what, "choose a dim with elements"));
        }
        Ok(Line { x, dim, size, was_0_dim })
    }

    fn along(&self) -> i64 {
        self.dim as i64
    }

    /// How many elements are not NaN, with the dim kept. For integers that is nothing new.
    fn n_numbers(&self) -> Result<Option<Tensor>> {
        if !self.x.dtype().is_float() {
            return Ok(None);
        }
        let n_nans = self.x.isnan()?.to_dtype(DType::I64)?.sum(self.along(), true)?;
        n_nans.neg()?.add(int(self.size)).map(Some)
    }

    /// The elements at indices with the dim kept, and the indices.
    fn at(&self, indices: &Tensor, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let values = self.x.gather(self.along(), indices)?;
        if keepdim && !self.was_0_dim {
            return Ok((values, indices.clone()));
        }
        Ok((values.squeeze(self.along())?, indices.squeeze(self.along())?))
    }
}

fn need_order(op: &str, x: &Tensor) -> Result<()> {
    if x.dtype() != DType::Bool {
        return Ok(());
    }
    Err(Error::unsupported(op, x.dtype(), "numbers", "convert with to_dtype(DType::U8) first"))
}

fn median_dim(op: &str, x: &Tensor, dim: i64, keepdim: bool, nans: Nans) -> Result<(Tensor, Tensor)> {
    need_order(op, x)?;
    let line = Line::of(op, x, dim)?;
    let order = line.x.argsort(line.along(), false)?;
    let middle = int(line.size - 1) / 2;
    let indices = match (line.n_numbers()?, nans) {
        (None, _) => order.narrow(line.along(), middle, 1)?.contiguous()?,
        // NaNs come last, so the first of them is after all numbers.
        (Some(n_numbers), Nans::Count) => {
            let rank = n_numbers.eq(int(line.size))?.where_(middle, &n_numbers)?;
            order.gather(line.along(), &rank)?
        }
        (Some(n_numbers), Nans::LeaveOut) => {
            let rank = n_numbers.sub(1)?.clamp_min(0)?.floor_divide(2)?;
            order.gather(line.along(), &rank)?
        }
    };
    line.at(&indices, keepdim)
}

fn median(op: &str, x: &Tensor, nans: Nans) -> Result<Tensor> {
    need_order(op, x)?;
    let flat = x.reshape([-1])?;
    if x.numel() == 0 {
        if !x.dtype().is_float() {
            let what = format!("a tensor of shape {:?} has no elements, and {} has no NaN", x.sizes(), x.dtype());
            return Err(Error::shape(op, what, "take the median of at least one element"));
        }
        return full_on(x.device(), &[], Scalar::Float(f64::NAN), Some(x.dtype()));
    }
    let (value, _) = median_dim(op, &flat, 0, false, nans)?;
    if !x.dtype().is_float() {
        return Ok(value);
    }
    // The greatest of those that equal it, which all get an equal share of the gradient.
    let value = value.detach()?;
    let is_equal = flat.eq(&value)?.logical_or(&flat.isnan()?.logical_and(&value.isnan()?)?)?;
    is_equal.where_(&flat, f64::NEG_INFINITY)?.amax((), false)
}

fn kthvalue(x: &Tensor, k: i64, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let op = "kthvalue";
    need_order(op, x)?;
    let k = count(op, k)?;
    let line = Line::of(op, x, dim)?;
    if k == 0 || k > line.size {
        let what = format!("selected number k out of range for dimension {}: k is {k}, its size {}", dim, line.size);
        return Err(Error::argument(op, what));
    }
    let indices = line.x.argsort(line.along(), false)?.narrow(line.along(), int(k) - 1, 1)?.contiguous()?;
    line.at(&indices, keepdim)
}

fn mode(x: &Tensor, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let line = Line::of("mode", x, dim)?;
    let (along, n) = (line.along(), line.size);
    let order = line.x.detach()?.argsort(along, false)?;
    let sorted = line.x.detach()?.gather(along, &order)?;
    let starts = sorted.narrow(along, 1, n - 1)?.ne(&sorted.narrow(along, 0, n - 1)?)?;
    let first = full_on(x.device(), sorted.narrow(along, 0, 1)?.sizes(), true.into(), None)?;
    let starts = cat(&[&first, &starts], along)?;
    // The length of its run up to each element: the longest run is where that is greatest first.
    let mut sizes = vec![1; sorted.dim()];
    sizes[line.dim] = n;
    let places = range_on(x.device(), 0, int(n), None)?.view(&sizes[..])?.expand(sorted.sizes())?;
    let (begins, _) = starts.where_(&places, 0)?.cummax(along)?;
    let last = places.sub(&begins)?.argmax(along, true)?;
    line.at(&order.gather(along, &last)?, keepdim)
}

fn need_wide(op: &str, x: &Tensor) -> Result<()> {
    match x.dtype() {
        DType::F32 | DType::F64 => Ok(()),
        DType::F16
        | DType::BF16
        | DType::Bool
        | DType::U8
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::Complex64
        | DType::Complex128 => {
            Err(Error::dtype(op, x.dtype(), "f32 or f64", "convert with to_dtype(DType::F32) first"))
        }
    }
}

fn quantile(
    op: &str,
    x: &Tensor,
    q: &Tensor,
    dim: Option<i64>,
    keepdim: bool,
    way: &str,
    nans: Nans,
) -> Result<Tensor> {
    need_wide(op, x)?;
    if q.dtype() != x.dtype() {
        return Err(Error::dtype(op, q.dtype(), x.dtype().name(), "q must have the dtype of the input"));
    }
    if q.dim() > 1 {
        return Err(Error::shape(op, format!("q has shape {:?}", q.sizes()), "q must be a number or 1-dim"));
    }
    if x.numel() == 0 {
        return Err(Error::shape(op, format!("input of shape {:?} has no elements", x.sizes()), "give it some"));
    }
    let sorted = match dim {
        Some(dim) => at_least_1d(x)?.movedim(normalize_dim(op, dim, x.dim().max(1))? as i64, -1)?,
        None => x.reshape([-1])?,
    };
    let (sorted, _) = sorted.sort(-1, false)?;
    let values = interpolated(op, &sorted, &q.reshape([-1])?, way, nans)?;
    // The dim of the quantiles comes first, or goes.
    let values = values.movedim(-1, 0)?;
    let mut sizes: Vec<usize> = if q.dim() == 1 { q.sizes().to_vec() } else { Vec::new() };
    let mut rest = x.sizes().to_vec();
    match (dim, keepdim) {
        (None, true) => rest.fill(1),
        (None, false) => rest.clear(),
        (Some(dim), _) if !rest.is_empty() => {
            let dim = normalize_dim(op, dim, x.dim())?;
            rest[dim] = 1;
            if !keepdim {
                rest.remove(dim);
            }
        }
        (Some(_), _) => {}
    }
    sizes.extend(rest);
    values.reshape(&sizes[..])
}

/// The quantiles of sorted lines along the last dim, which then has one index per quantile.
fn interpolated(op: &str, sorted: &Tensor, q: &Tensor, way: &str, nans: Nans) -> Result<Tensor> {
    let last = int(sorted.sizes()[sorted.dim() - 1]) - 1;
    let mut sizes = sorted.sizes().to_vec();
    sizes[sorted.dim() - 1] = q.numel();
    let n_nans = sorted.detach()?.isnan()?.to_dtype(DType::I64)?.sum(-1, true)?;
    let (rank, is_nan) = match nans {
        // A NaN is the greatest element.
        Nans::Count => (q.mul(last as f64)?.expand(&sizes[..])?, n_nans.gt(0)?),
        Nans::LeaveOut => {
            let n_before = n_nans.neg()?.add(last)?.clamp_min(0)?.to_dtype(sorted.dtype())?;
            (q.mul(&n_before)?, n_nans.gt(last)?)
        }
    };
    let is_bad = q.ge(0.0)?.logical_and(&q.le(1.0)?)?.logical_not()?.logical_or(&is_nan)?;
    let rank = is_bad.where_(0.0, &rank)?;
    let rank = match way {
        "lower" => rank.floor()?,
        "higher" => rank.ceil()?,
        "nearest" => rank.round()?,
        "linear" | "midpoint" => rank,
        other => {
            let what =
                format!("interpolation must be one of linear, lower, higher, midpoint or nearest, but got {other}");
            return Err(Error::argument(op, what));
        }
    };
    let at = |rank: &Tensor| {
        let places = rank.detach()?.to_dtype(DType::I64)?.clamp(Some(0.into()), Some(last.into()))?;
        sorted.gather(-1, &places)
    };
    let below = rank.floor()?;
    let values = match way {
        "linear" => at(&below)?.lerp(&at(&rank.ceil()?)?, &rank.sub(&below)?)?,
        "midpoint" => at(&below)?.lerp(&at(&rank.ceil()?)?, 0.5)?,
        _ => at(&rank)?,
    };
    is_bad.where_(f64::NAN, &values)
}
