//! Distinct elements and rows, and operations on sets of elements.
//!
//! Their number depends on values, so each reads them, which is a graph break. Every NaN is distinct from all others.
//! Distinct elements come in ascending order, whether that is requested or not, except for the consecutive forms.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ir::shape::normalize_dim;
use crate::ops::arguments::int;
use crate::ops::composite::Composite;
use crate::ops::factories::{full_on, range_on};
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;

static UNIQUE: Composite = Composite::new(
    "_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, \
     Tensor)",
);
static UNIQUE_DIM: Composite = Composite::new(
    "unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> \
     (Tensor, Tensor, Tensor)",
);
static UNIQUE_CONSECUTIVE: Composite = Composite::new(
    "unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor, \
     Tensor, Tensor)",
);

/// Distinct elements.
impl Tensor {
    /// The distinct elements in ascending order, as a 1-dim tensor. This is a graph break.
    ///
    /// ```
    /// # use opfuse::{Result, Tensor};
    /// # fn main() -> Result<()> {
    /// assert_eq!(Tensor::try_from([3i64, 1, 3, 2])?.unique()?.to_vec::<i64>()?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the tensor has no data (meta device), or in an abstract trace.
    #[track_caller]
    pub fn unique(&self) -> Result<Tensor> {
        UNIQUE.call::<_, (Tensor, Tensor, Tensor)>((self, true, false, false)).map(|(values, _, _)| values)
    }

    /// The distinct elements, the place (i64) of each element among them, and how often each occurs (i64). This is a
    /// graph break.
    ///
    /// # Errors
    /// Same as [`Tensor::unique`].
    #[track_caller]
    pub fn unique_with_counts(&self) -> Result<(Tensor, Tensor, Tensor)> {
        UNIQUE.call((self, true, true, true))
    }

    /// The distinct slices along `dim` in lexicographic order, the place (i64) of each slice among them, and how often
    /// each occurs (i64). This is a graph break.
    ///
    /// # Errors
    /// Same as [`Tensor::unique`]. Also if the dim is out of range.
    #[track_caller]
    pub fn unique_dim(&self, dim: i64) -> Result<(Tensor, Tensor, Tensor)> {
        UNIQUE_DIM.call((self, dim, true, true, true))
    }

    /// The first of each run of equal elements, or of equal slices along `dim`. Also the run (i64) of each element and
    /// the length (i64) of each run. This is a graph break.
    ///
    /// # Errors
    /// Same as [`Tensor::unique_dim`].
    #[track_caller]
    pub fn unique_consecutive(&self, dim: impl Into<Option<i64>>) -> Result<(Tensor, Tensor, Tensor)> {
        UNIQUE_CONSECUTIVE.call((self, true, true, dim.into()))
    }

    /// The distinct elements of both tensors in ascending order. This is a graph break.
    ///
    /// # Errors
    /// Same as [`Tensor::unique`].
    #[track_caller]
    pub fn union1d(&self, other: &Tensor) -> Result<Tensor> {
        cat(&[&self.reshape([-1])?, &other.reshape([-1])?], 0)?.unique()
    }

    /// The distinct elements that are in both tensors, in ascending order. This is a graph break.
    ///
    /// # Errors
    /// Same as [`Tensor::unique`].
    #[track_caller]
    pub fn intersect1d(&self, other: &Tensor) -> Result<Tensor> {
        let values = self.unique()?;
        values.masked_select(&values.isin(other)?)
    }

    /// The distinct elements that are not in `other`, in ascending order. This is a graph break.
    ///
    /// # Errors
    /// Same as [`Tensor::unique`].
    #[track_caller]
    pub fn setdiff1d(&self, other: &Tensor) -> Result<Tensor> {
        let values = self.unique()?;
        values.masked_select(&values.isin(other)?.logical_not()?)
    }

    /// The distinct elements that are in one of both tensors alone, in ascending order. This is a graph break.
    ///
    /// # Errors
    /// Same as [`Tensor::unique`].
    #[track_caller]
    pub fn setxor1d(&self, other: &Tensor) -> Result<Tensor> {
        self.setdiff1d(other)?.union1d(&other.setdiff1d(self)?)
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&UNIQUE, |x: &Tensor, _sorted: bool, inverse: bool, counts: bool| unique(x, inverse, counts))?
        .def_kernel(
            "_unique(Tensor self, bool sorted=True, bool return_inverse=False) -> (Tensor, Tensor)",
            |x: &Tensor, _sorted: bool, inverse: bool| {
                unique(x, inverse, false).map(|(values, inverse, _)| (values, inverse))
            },
        )?
        .composite(&UNIQUE_DIM, |x: &Tensor, dim: i64, _sorted: bool, _inverse: bool, _counts: bool| {
            unique_dim(x, dim)
        })?
        .composite(&UNIQUE_CONSECUTIVE, unique_consecutive)?
        .def_kernel(
            "unique_dim_consecutive(Tensor self, int dim, bool return_inverse=False, bool return_counts=False) -> \
             (Tensor, Tensor, Tensor)",
            |x: &Tensor, dim: i64, _inverse: bool, _counts: bool| {
                let runs = rows_of("unique_dim_consecutive", x, dim)?.runs()?;
                Ok::<_, Error>((runs.values.movedim(0, runs.dim)?, runs.number, runs.counts))
            },
        )?;
    Ok(())
}

/// Slices along the first dim, in some order.
struct Rows {
    x: Tensor,
    /// The dim that they came from.
    dim: i64,
}

/// The runs of equal neighbours.
struct Runs {
    /// The first of each.
    values: Tensor,
    /// The run of each row.
    number: Tensor,
    counts: Tensor,
    dim: i64,
}

impl Rows {
    fn len(&self) -> usize {
        self.x.sizes()[0]
    }

    /// The rows as lines of a matrix.
    fn lines(&self) -> Result<Tensor> {
        self.x.detach()?.reshape([self.len() as i64, self.x.numel().checked_div(self.len()).unwrap_or(0) as i64])
    }

    fn runs(&self) -> Result<Runs> {
        let n = self.len();
        let device = self.x.device();
        let lines = self.lines()?;
        if n == 0 {
            let none = || full_on(device, &[0], 0.into(), Some(DType::I64));
            return Ok(Runs { values: self.x.copy()?, number: none()?, counts: none()?, dim: self.dim });
        }
        let starts = lines.narrow(0, 1, n - 1)?.ne(&lines.narrow(0, 0, n - 1)?)?.any(1, false)?;
        let starts = cat(&[&full_on(device, &[1], true.into(), None)?, &starts], 0)?;
        let number = starts.to_dtype(DType::I64)?.cumsum(0)?.sub(1)?;
        let places = starts.nonzero()?.squeeze(1)?;
        let end = full_on(device, &[1], int(n).into(), Some(DType::I64))?;
        let counts = cat(&[&places.narrow(0, 1, places.numel() - 1)?, &end], 0)?.sub(&places)?;
        Ok(Runs { values: self.x.index_select(0, &places)?, number, counts, dim: self.dim })
    }

    /// The order of the rows: sorted by the last column first, and stably by each before it.
    fn order(&self) -> Result<Tensor> {
        let lines = self.lines()?;
        let mut order = range_on(self.x.device(), 0, int(self.len()), None)?;
        for column in (0..lines.sizes()[1]).rev() {
            let keys = lines.select(1, column as i64)?.index_select(0, &order)?;
            order = order.index_select(0, &keys.argsort(0, false)?)?;
        }
        Ok(order)
    }

    /// The runs after sorting, where each row keeps the number of its run.
    fn sorted_runs(&self) -> Result<Runs> {
        let order = self.order()?;
        let sorted = Rows { x: self.x.index_select(0, &order)?, dim: self.dim };
        let runs = sorted.runs()?;
        let number = runs.number.zeros_like()?.index_copy(0, &order, &runs.number)?;
        Ok(Runs { number, ..runs })
    }
}

fn rows_of(op: &str, x: &Tensor, dim: i64) -> Result<Rows> {
    observer::on_read(x, op)?;
    let at = normalize_dim(op, dim, x.dim())?;
    if x.dim() == 0 {
        return Err(Error::index(op, "a 0-dim tensor has no dims", "leave the dim out"));
    }
    if x.sizes()[at] > 0 && x.numel() == 0 {
        let what = format!("shape {:?} has empty dims besides dim {dim}, so its slices have no elements", x.sizes());
        return Err(Error::shape(op, what, "give slices with elements"));
    }
    Ok(Rows { x: x.movedim(at as i64, 0)?, dim: at as i64 })
}

fn none(x: &Tensor) -> Result<Tensor> {
    full_on(x.device(), &[0], 0.into(), Some(DType::I64))
}

/// The parts of a result that were asked for; the others are empty.
fn parts(x: &Tensor, runs: Runs, inverse: bool, counts: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let number = if inverse { runs.number.reshape(x.sizes())? } else { none(x)? };
    Ok((runs.values, number, if counts { runs.counts } else { none(x)? }))
}

fn unique(x: &Tensor, inverse: bool, counts: bool) -> Result<(Tensor, Tensor, Tensor)> {
    observer::on_read(x, "_unique2")?;
    let runs = Rows { x: x.reshape([-1])?, dim: 0 }.sorted_runs()?;
    parts(x, runs, inverse, counts)
}

fn unique_dim(x: &Tensor, dim: i64) -> Result<(Tensor, Tensor, Tensor)> {
    let runs = rows_of("unique_dim", x, dim)?.sorted_runs()?;
    Ok((runs.values.movedim(0, runs.dim)?, runs.number, runs.counts))
}

fn unique_consecutive(x: &Tensor, inverse: bool, counts: bool, dim: Option<i64>) -> Result<(Tensor, Tensor, Tensor)> {
    match dim {
        Some(dim) => {
            let runs = rows_of("unique_consecutive", x, dim)?.runs()?;
            Ok((runs.values.movedim(0, runs.dim)?, runs.number, runs.counts))
        }
        None => {
            observer::on_read(x, "unique_consecutive")?;
            parts(x, Rows { x: x.reshape([-1])?, dim: 0 }.runs()?, inverse, counts)
        }
    }
}
