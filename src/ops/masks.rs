//! Masks, and other operators whose result's size depends on values.
//!
//! A mask is a bool tensor. The number of elements that it selects depends on data. So selecting by it is a graph
//! break, and filling by it is not.

use crate::device::roomy;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::attrs::Value;
use crate::ir::shape::broadcast;
use crate::ir::{Attrs, DType, Op, Scalar};
use crate::ops::arguments::{count, int};
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::ops::in_place::{in_place_methods, row_methods};
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;

static MASKED_FILL: Composite =
    Composite::new("masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor").with_writes();
static MASKED_SCATTER: Composite =
    Composite::new("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor").with_writes();
static NONZERO: Composite = Composite::new("nonzero(Tensor self) -> Tensor");
static MASKED_SELECT: Composite = Composite::new("masked_select(Tensor self, Tensor mask) -> Tensor");
static ONE_HOT: Composite = Composite::new("one_hot(Tensor self, int num_classes=-1) -> Tensor");

/// Elements selected by masks or by their values.
impl Tensor {
    row_methods! {
        /// `value`, converted to the dtype of `self`, where `mask` is true, else the element. Sizes are broadcast.
        ///
        /// # Errors
        /// If the mask is not bool, or if the sizes do not broadcast.
        masked_fill masked_fill_(mask: &Tensor, value: impl Into<Scalar>)
            |x, call| call(Op::MaskedFill, &[x, mask], &Attrs::from(Value { value: value.into() }));
    }

    /// The indices of all elements that are not 0, as an i64 tensor. It has one row per such element, in row-major
    /// order, and one column per dim. This is a graph break.
    ///
    /// # Errors
    /// If the tensor has no data (meta device), or in an abstract trace.
    #[track_caller]
    pub fn nonzero(&self) -> Result<Tensor> {
        NONZERO.call((self,))
    }

    /// The elements where `mask` is true, in row-major order. Sizes are broadcast. The result is 1-dim, with the same
    /// dtype. This is a graph break.
    ///
    /// # Errors
    /// If the mask is not bool, if the sizes do not broadcast, or if [`Tensor::nonzero`] fails.
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        MASKED_SELECT.call((self, mask))
    }

    /// A copy of the tensor in which the elements where `mask` is true are replaced by the first elements of `source`,
    /// in row-major order. The sizes of `self` and `mask` are broadcast. The dtype is kept.
    ///
    /// # Errors
    /// If the mask is not bool, if the sizes do not broadcast, if the dtypes differ, or if `source` has too few
    /// elements.
    #[track_caller]
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        MASKED_SCATTER.call((self, mask, source))
    }

    in_place_methods! {
        masked_scatter masked_scatter_ MASKED_SCATTER (mask: &Tensor, source: &Tensor) (self, mask, source);
    }

    /// One-hot vectors of class numbers: a new last dim of size `n_classes` has 1 at the class number and 0 elsewhere.
    /// From i64 to i64. Without a number of classes it is the greatest element plus one, which is a graph break.
    ///
    /// # Errors
    /// If the dtype is not i64, or if an element is negative or too large. Without a number of classes also if
    /// [`Tensor::nonzero`] fails.
    #[track_caller]
    pub fn one_hot(&self, n_classes: impl Into<Option<usize>>) -> Result<Tensor> {
        ONE_HOT.call((self, n_classes.into().map_or(-1, int)))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&MASKED_FILL, masked_fill)?
        .composite(&MASKED_SCATTER, masked_scatter)?
        .composite(&NONZERO, nonzero)?
        .def_kernel("argwhere(Tensor self) -> Tensor", Tensor::nonzero)?
        .def_kernel("where(Tensor condition) -> Tensor[]", places)?
        .composite(&MASKED_SELECT, masked_select)?
        .composite(&ONE_HOT, one_hot)?;
    Ok(())
}

fn masked_fill(x: &Tensor, mask: &Tensor, value: &Tensor) -> Result<Tensor> {
    if value.dim() != 0 {
        let what = format!("masked_fill only supports a 0-dimensional value tensor, but got {:?}", value.sizes());
        return Err(Error::shape("masked_fill", what, "pass a number or select one element"));
    }
    mask.where_(value.to_dtype(x.dtype())?, x)?.contiguous()
}

/// The indices where a condition is true: one tensor per dim. A 0-dim condition counts as 1-dim.
fn places(condition: &Tensor) -> Result<Vec<Tensor>> {
    let condition = if condition.dim() == 0 { condition.unsqueeze(0)? } else { condition.clone() };
    condition.nonzero()?.unbind(1)
}

fn one_hot(x: &Tensor, n_classes: i64) -> Result<Tensor> {
    let n_classes = if n_classes == -1 { None } else { Some(count("one_hot", n_classes)?) };
    if x.dtype() != DType::I64 {
        return Err(Error::dtype("one_hot", x.dtype(), "i64", "classes are whole numbers; convert them"));
    }
    let n_classes = match n_classes {
        Some(n_classes) => n_classes,
        None if x.numel() == 0 => {
            return Err(Error::argument("one_hot", "an empty tensor does not tell the number of classes"));
        }
        None => {
            observer::on_read(x, "one_hot")?;
            usize::try_from(x.max_all()?.item::<i64>()?.saturating_add(1)).unwrap_or(0)
        }
    };
    let sizes = [x.sizes(), &[n_classes]].concat();
    let zeros = full_on(x.device(), &sizes, Scalar::Int(0), Some(DType::I64))?;
    zeros.scatter_value(-1, &x.unsqueeze(-1)?, 1).map_err(|error| error.of("one_hot"))
}

fn need_mask(op: &str, mask: &Tensor) -> Result<()> {
    match mask.dtype() {
        DType::Bool => Ok(()),
        found => Err(Error::dtype(op, found, "bool", "compare first to make a mask")),
    }
}

fn nonzero(x: &Tensor) -> Result<Tensor> {
    observer::on_read(x, "nonzero")?;
    let holds = x.to_dtype(DType::Bool)?.to_vec::<bool>()?;
    let count = holds.iter().filter(|holds| **holds).count();
    let mut places: Vec<i64> = roomy(count.saturating_mul(x.dim()))?;
    for (at, _) in holds.iter().enumerate().filter(|(_, holds)| **holds) {
        let mut rest = at;
        let row = places.len();
        for &size in x.sizes().iter().rev() {
            places.push((rest % size) as i64);
            rest /= size;
        }
        places[row..].reverse();
    }
    Tensor::from_slice(&places, &[count, x.dim()])?.to_device(x.device())
}

fn masked_select(x: &Tensor, mask: &Tensor) -> Result<Tensor> {
    need_mask("masked_select", mask)?;
    let sizes = broadcast("masked_select", x.sizes(), mask.sizes())?;
    let places = mask.expand(&sizes[..])?.reshape([-1])?.nonzero()?.squeeze(1)?;
    x.expand(&sizes[..])?.reshape([-1])?.index_select(0, &places)
}

fn masked_scatter(x: &Tensor, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
    need_mask("masked_scatter", mask)?;
    if source.dtype() != x.dtype() {
        let hint = "x and source must have one dtype";
        return Err(Error::dtype("masked_scatter", source.dtype(), x.dtype().name(), hint));
    }
    let sizes = broadcast("masked_scatter", x.sizes(), mask.sizes())?;
    let (x, mask) = (x.expand(&sizes[..])?, mask.expand(&sizes[..])?);
    // The n-th true position takes element n, counted from 1. All others take the 0 in front.
    let mask = mask.reshape([-1])?;
    let number = mask.to_dtype(DType::I64)?.cumsum(0)?.mul(&mask)?;
    let front = full_on(x.device(), &[1], Scalar::Int(0), Some(x.dtype()))?;
    let source = cat(&[&front, &source.reshape([-1])?], 0)?;
    let values = source.gather(0, &number)?;
    mask.where_(&values, &x.reshape([-1])?)?.reshape(&sizes[..])
}
