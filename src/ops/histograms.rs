//! Counts of numbers, histograms, and reductions of segments.

use crate::device::DeviceKind;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::shape::normalize_dim;
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{count, int, need_float, only_floats};
use crate::ops::composite::Composite;
use crate::ops::factories::{full_on, range_on};
use crate::ops::searching::Side;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;

static BINCOUNT: Composite =
    Composite::new("bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor");
static HISTC: Composite = Composite::new("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor");
static HISTOGRAM: Composite = Composite::new(
    "histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> (Tensor hist, \
     Tensor bin_edges)",
);
static SEGMENT_REDUCE: Composite = Composite::new(
    "segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None, \
     int axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor",
);

/// Counts.
impl Tensor {
    /// How often each number from 0 on occurs (i64), or the sum of its weights (f32 for f32, f64 otherwise). The
    /// elements are whole numbers that are not negative, in one dim. The result has at least `min_length` elements.
    /// This is a graph break.
    ///
    /// # Errors
    /// If the dtype is bool or floating, if there are several dims, if an element is negative, if the weights have
    /// another shape, or if the tensor has no data.
    #[track_caller]
    pub fn bincount<'a>(&self, weights: impl Into<Option<&'a Tensor>>, min_length: usize) -> Result<Tensor> {
        BINCOUNT.call((self, weights.into(), int(min_length)))
    }

    /// How many elements are in each of `bins` equal intervals from `min` to `max`; the last one has both its ends.
    /// Elements outside and NaNs are not counted. If `min` equals `max`, they are the least and the greatest element,
    /// which is a graph break. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, if `bins` is 0, if `max` is less than `min`, or if a bound is not finite.
    #[track_caller]
    pub fn histc(&self, bins: usize, min: impl Into<Scalar>, max: impl Into<Scalar>) -> Result<Tensor> {
        HISTC.call((self, int(bins), min.into(), max.into()))
    }

    /// How many elements are between each two neighbours of the sorted `edges`, or the sum of their weights. The last
    /// interval has both its ends. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, if dtypes differ, if the edges are not 1-dim, or if the weights have another
    /// shape.
    #[track_caller]
    pub fn histogram<'a>(&self, edges: &Tensor, weight: impl Into<Option<&'a Tensor>>) -> Result<Tensor> {
        HISTOGRAM.call::<_, (Tensor, Tensor)>((self, edges, weight.into(), false)).map(|(hist, _)| hist)
    }

    /// Reduces segments of a dim by "sum", "mean", "max", "min" or "prod". The lengths of the segments stand in the
    /// last dim of `lengths`, whose dims before it are those of `self`. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, if the shapes do not fit, or if the lengths do not add up to the size of the dim.
    #[track_caller]
    pub fn segment_reduce(&self, reduce: &str, lengths: &Tensor, initial: Option<Scalar>) -> Result<Tensor> {
        let axis = int(lengths.dim().saturating_sub(1));
        SEGMENT_REDUCE.call((self, reduce, Some(lengths), None::<&Tensor>, None::<&Tensor>, axis, false, initial))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&BINCOUNT, bincount)?
        .composite(&HISTC, histc)?
        .composite(&HISTOGRAM, histogram)?
        .def_kernel(
            "histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, bool \
             density=False) -> (Tensor hist, Tensor bin_edges)",
            histogram_between,
        )?
        .composite(&SEGMENT_REDUCE, segment_reduce)?;
    Ok(())
}

fn bincount(x: &Tensor, weights: Option<&Tensor>, min_length: i64) -> Result<Tensor> {
    let op = "bincount";
    let min_length = count(op, min_length)?;
    if x.dtype().is_float() || x.dtype() == DType::Bool {
        return Err(Error::unsupported(op, x.dtype(), "integers", "bincount counts whole numbers; convert them"));
    }
    if x.dim() != 1 || weights.is_some_and(|weights| weights.sizes() != x.sizes()) {
        let shapes = (x.sizes(), weights.map(Tensor::sizes));
        let what = format!("numbers of shape {:?} with weights of shape {:?}", shapes.0, shapes.1);
        return Err(Error::shape(op, what, "bincount only supports 1-d non-negative integral inputs; flatten both"));
    }
    observer::on_read(x, op)?;
    let mut size = min_length;
    if x.numel() > 0 {
        let numbers = x.detach()?;
        let (least, most) = (numbers.min_all()?.to_scalar()?.as_i64(), numbers.max_all()?.to_scalar()?.as_i64());
        if least < 0 {
            return Err(Error::argument(op, format!("{op} only supports non-negative inputs, but one is {least}")));
        }
        size = size.max(most as usize + 1);
    }
    let places = x.to_dtype(DType::I64)?;
    let zeros = |dtype| full_on(x.device(), &[size], 0.into(), Some(dtype));
    match weights {
        None => {
            let one = full_on(x.device(), &[], 1.into(), Some(DType::I64))?;
            zeros(DType::I64)?.index_add(0, &places, &one.expand(places.sizes())?)
        }
        Some(weights) => {
            let dtype = if weights.dtype() == DType::F32 { DType::F32 } else { DType::F64 };
            zeros(dtype)?.index_add(0, &places, &weights.to_dtype(dtype)?)
        }
    }
}

/// Lower and upper bound of a histogram. Equal bounds are widened.
fn bounds(op: &str, x: &Tensor, bins: i64, min: f64, max: f64) -> Result<(f64, f64)> {
    if bins <= 0 {
        return Err(Error::argument(op, format!("bins must be > 0, but got {bins}")));
    }
    let (mut min, mut max) = (min, max);
    if min == max && x.numel() > 0 {
        observer::on_read(x, op)?;
        let numbers = x.detach()?;
        let number = |x: Tensor| x.to_scalar().map(|number| number.as_f64());
        (min, max) = (number(numbers.min_all()?)?, number(numbers.max_all()?)?);
    }
    if !min.is_finite() || !max.is_finite() {
        return Err(Error::argument(op, format!("range of [{min}, {max}] is not finite")));
    }
    if max < min {
        return Err(Error::argument(op, format!("max must be larger than min, but they are {max} and {min}")));
    }
    Ok(if min == max { (min - 1.0, max + 1.0) } else { (min, max) })
}

fn histc(x: &Tensor, bins: i64, min: Scalar, max: Scalar) -> Result<Tensor> {
    let op = "histc";
    only_floats(op, x)?;
    let (min, max) = bounds(op, x, bins, min.as_f64(), max.as_f64())?;
    let x = x.detach()?.reshape([-1])?;
    let is_inside = x.ge(min)?.logical_and(&x.le(max)?)?;
    let place = is_inside.where_(x.sub(min)?.mul(bins)?.div(max - min)?, 0)?;
    let place = place.to_dtype(DType::I64)?.clamp_max(bins - 1)?;
    // Counted in i64, because a narrow float stops counting early.
    let counts = full_on(x.device(), &[bins as usize], 0.into(), Some(DType::I64))?;
    counts.index_add(0, &place, &is_inside.to_dtype(DType::I64)?)?.to_dtype(x.dtype())
}

fn histogram_between(
    x: &Tensor,
    bins: i64,
    range: Option<&[f64]>,
    weight: Option<&Tensor>,
    density: bool,
) -> Result<(Tensor, Tensor)> {
    let op = "histogram";
    only_floats(op, x)?;
    let (min, max) = match range {
        None => (0.0, 0.0),
        Some(&[min, max]) => (min, max),
        Some(other) => {
            return Err(Error::argument(op, format!("range should have 2 elements, but has {}", other.len())));
        }
    };
    let (min, max) = bounds(op, x, bins, min, max)?;
    // Symmetric, so both ends are exact.
    let steps = range_on(x.device(), 0, bins.saturating_add(1), Some(DType::F64))?;
    let from_end = steps.sub(bins)?.mul((max - min) / bins as f64)?.add(max)?;
    let edges = steps.lt(bins as f64 / 2.0)?.where_(steps.mul((max - min) / bins as f64)?.add(min)?, &from_end)?;
    histogram(x, &edges.to_dtype(x.dtype())?, weight, density)
}

fn histogram(x: &Tensor, edges: &Tensor, weight: Option<&Tensor>, density: bool) -> Result<(Tensor, Tensor)> {
    let op = "histogram";
    only_floats(op, x)?;
    if edges.dim() != 1 || edges.numel() == 0 {
        let what = format!("bin edges have shape {:?}", edges.sizes());
        return Err(Error::shape(op, what, "they must be 1-dim, with at least one element"));
    }
    if let Some(other) = [Some(edges), weight].into_iter().flatten().find(|other| other.dtype() != x.dtype()) {
        let hint = "edges and weights must have the dtype of the input";
        return Err(Error::dtype(op, other.dtype(), x.dtype().name(), hint));
    }
    if weight.is_some_and(|weight| weight.sizes() != x.sizes()) {
        let what = format!("weights of shape {:?} for input {:?}", weight.map(Tensor::sizes), x.sizes());
        return Err(Error::shape(op, what, "give one weight per element"));
    }
    let bins = edges.numel() - 1;
    let flat = x.detach()?.reshape([-1])?;
    let (first, last) = (edges.select(0, 0)?, edges.select(0, -1)?);
    let is_inside = flat.ge(&first)?.logical_and(&flat.le(&last)?)?;
    let counts = full_on(x.device(), &[bins], 0.into(), Some(x.dtype()))?;
    if bins == 0 {
        return Ok((counts, edges.copy()?));
    }
    let place = edges.searchsorted(&flat, Side::Right)?.sub(1)?.clamp(Some(0.into()), Some((int(bins) - 1).into()))?;
    let share = match weight {
        Some(weight) => is_inside.where_(&weight.reshape([-1])?, 0)?,
        None => is_inside.to_dtype(x.dtype())?,
    };
    let hist = counts.index_add(0, &place, &share)?;
    if !density {
        return Ok((hist, edges.copy()?));
    }
    let widths = edges.narrow(0, 1, bins)?.sub(&edges.narrow(0, 0, bins)?)?;
    Ok((hist.div(&hist.sum((), false)?)?.div(&widths)?, edges.copy()?))
}

#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn segment_reduce(
    data: &Tensor,
    reduce: &str,
    lengths: Option<&Tensor>,
    indices: Option<&Tensor>,
    offsets: Option<&Tensor>,
    axis: i64,
    unchecked: bool,
    initial: Option<Scalar>,
) -> Result<Tensor> {
    let op = "segment_reduce";
    need_float(op, &[data])?;
    let lengths = match (lengths, offsets, indices) {
        (_, _, Some(_)) => return Err(Error::argument(op, "indices are not supported; give lengths or offsets")),
        (Some(lengths), _, None) => lengths.clone(),
        (None, Some(offsets), None) => {
            let ends = offsets.slice(-1, 1, None, 1)?;
            ends.sub(&offsets.slice(-1, 0, Some(-1), 1)?)?
        }
        (None, None, None) => return Err(Error::argument(op, "either lengths or offsets must be defined")),
    };
    let axis = normalize_dim(op, axis, data.dim())?;
    let fits = axis + 1 == lengths.dim() && data.dim() > axis && data.sizes()[..axis] == lengths.sizes()[..axis];
    if !fits || lengths.dtype().is_float() || lengths.dtype() == DType::Bool {
        let what = format!("lengths {} for data of shape {:?} along dim {axis}", lengths.ty(), data.sizes());
        return Err(Error::shape(op, what, "lengths are integers with the dims of the data up to the reduced one"));
    }
    let (n, n_segments) = (data.sizes()[axis], lengths.sizes()[axis]);
    let n_lines: usize = data.sizes()[..axis].iter().product();
    let n_inner: usize = data.sizes()[axis + 1..].iter().product();
    let lengths = lengths.to_dtype(DType::I64)?.reshape([int(n_lines), int(n_segments)])?;
    if !unchecked && lengths.device().kind != DeviceKind::Meta {
        observer::on_read(&lengths, op)?;
        let adds_up =
            lengths.sum(1, false)?.eq(int(n))?.all((), false)?.logical_and(&lengths.ge(0)?.all((), false)?)?;
        if !adds_up.item::<bool>()? {
            let what =
                format!("the lengths along dim {axis} do not add up to its size, which is {n}, or one is negative");
            return Err(Error::argument(op, what));
        }
    }
    // The segment of each element, numbered over all lines.
    let places = range_on(data.device(), 0, int(n), None)?.expand([int(n_lines), int(n)])?.contiguous()?;
    let segment = lengths.cumsum(1)?.searchsorted(&places, Side::Right)?;
    let line = range_on(data.device(), 0, int(n_lines), None)?.mul(int(n_segments))?.unsqueeze(1)?;
    let segment = segment.add(&line)?.reshape([-1])?;
    let flat = data.reshape([int(n_lines * n), int(n_inner)])?;
    let reduced = reduced(op, &flat, &segment, reduce, &lengths.reshape([-1, 1])?, initial)?;
    let mut sizes = data.sizes().to_vec();
    sizes[axis] = n_segments;
    reduced.reshape(&sizes[..])
}

/// The reduction of rows by their segment.
fn reduced(
    op: &str,
    rows: &Tensor,
    segment: &Tensor,
    reduce: &str,
    lengths: &Tensor,
    initial: Option<Scalar>,
) -> Result<Tensor> {
    let (identity, word) = match reduce {
        "sum" | "mean" => (0.0, "sum"),
        "prod" => (1.0, "prod"),
        "max" => (f64::NEG_INFINITY, "amax"),
        "min" => (f64::INFINITY, "amin"),
        other => {
            return Err(Error::argument(
                op,
                format!("reduce is {other:?}; use \"sum\", \"mean\", \"max\", \"min\" or \"prod\""),
            ));
        }
    };
    let start = initial.unwrap_or(Scalar::Float(identity));
    let sizes = [lengths.sizes()[0], rows.sizes()[1]];
    let into = full_on(rows.device(), &sizes, start, Some(rows.dtype()))?;
    if word == "sum" {
        let sums = into.index_add(0, segment, rows)?;
        if reduce == "sum" {
            return Ok(sums);
        }
        // The mean of no elements is the initial value, or else NaN.
        let means = sums.div(&lengths.to_dtype(rows.dtype())?)?;
        return if initial.is_some() { lengths.eq(0)?.where_(&into, &means) } else { Ok(means) };
    }
    let index = segment.unsqueeze(1)?.expand(rows.sizes())?;
    into.scatter_reduce(0, &index, rows, word, true)
}
