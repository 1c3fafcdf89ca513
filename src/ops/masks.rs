//! Elements that masks name, and what else depends on values.
//!
//! A mask is a bool tensor. What it names, and how much, depends on data: so reading it breaks a trace, and filling by
//! it does not.

use crate::device::roomy;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::attrs::Value;
use crate::ir::shape::broadcast;
use crate::ir::{Attrs, DType, Op, Scalar};
use crate::ops::arguments::count;
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

/// Elements that masks name, and what depends on values.
impl Tensor {
    row_methods! {
        /// `value`, converted to the dtype of `self`, where `mask` holds, else the element. Sizes are broadcast.
        ///
        /// # Errors
        /// If the mask is not bool or the sizes do not broadcast.
        masked_fill masked_fill_(mask: &Tensor, value: impl Into<Scalar>)
            |x, call| call(Op::MaskedFill, &[x, mask], &Attrs::from(Value { value: value.into() }));
    }

    /// The places of the elements that are not 0: one row per element, in row-major order, one column per dim. i64.
    ///
    /// # Errors
    /// If there is no data (meta device), or in an abstract trace; a trace is broken by it.
    pub fn nonzero(&self) -> Result<Tensor> {
        observer::on_read(self, "nonzero")?;
        let holds = self.to_dtype(DType::Bool)?.to_vec::<bool>()?;
        let count = holds.iter().filter(|holds| **holds).count();
        let mut places: Vec<i64> = roomy(count.saturating_mul(self.dim()))?;
        for (at, _) in holds.iter().enumerate().filter(|(_, holds)| **holds) {
            let mut rest = at;
            let row = places.len();
            for &size in self.sizes().iter().rev() {
                places.push((rest % size) as i64);
                rest /= size;
            }
            places[row..].reverse();
        }
        Tensor::from_slice(&places, &[count, self.dim()])?.to_device(self.device())
    }

    /// The elements where `mask` holds, in row-major order; sizes are broadcast. The dtype is kept.
    ///
    /// # Errors
    /// If the mask is not bool or the sizes do not broadcast; as [`Tensor::nonzero`].
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        need_mask("masked_select", mask)?;
        let sizes = broadcast("masked_select", self.sizes(), mask.sizes())?;
        let places = mask.expand(&sizes[..])?.reshape([-1])?.nonzero()?.squeeze(1)?;
        self.expand(&sizes[..])?.reshape([-1])?.index_select(0, &places)
    }

    /// A copy whose elements where `mask` holds are, in row-major order, the first ones of `source`; sizes of `self`
    /// and mask are broadcast. The dtype is kept.
    ///
    /// # Errors
    /// If the mask is not bool, sizes do not broadcast, dtypes differ, or `source` has too few elements.
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        need_mask("masked_scatter", mask)?;
        if source.dtype() != self.dtype() {
            let hint = "self and source must have one dtype";
            return Err(Error::dtype("masked_scatter", source.dtype(), self.dtype().name(), hint));
        }
        let sizes = broadcast("masked_scatter", self.sizes(), mask.sizes())?;
        let (x, mask) = (self.expand(&sizes[..])?, mask.expand(&sizes[..])?);
        // The n-th true place takes element n, counted from 1; all others take the 0 in front.
        let mask = mask.reshape([-1])?;
        let number = mask.to_dtype(DType::I64)?.cumsum(0)?.mul(&mask)?;
        let front = full_on(self.device(), &[1], Scalar::Int(0), Some(self.dtype()))?;
        let source = cat(&[&front, &source.reshape([-1])?], 0)?;
        let values = source.gather(0, &number)?;
        mask.where_(&values, &x.reshape([-1])?)?.reshape(&sizes[..])
    }

    in_place_methods! {
        masked_scatter masked_scatter_ MASKED_SCATTER (mask: &Tensor, source: &Tensor) (self, mask, source);
    }

    /// 1 at the place that each element names in a new last dim of `n_classes`, else 0. From i64 to i64. Without a
    /// number of classes it is one more than the greatest element.
    ///
    /// # Errors
    /// If the dtype is not i64, or an element is negative or too large; without a number of classes as
    /// [`Tensor::nonzero`].
    pub fn one_hot(&self, n_classes: impl Into<Option<usize>>) -> Result<Tensor> {
        if self.dtype() != DType::I64 {
            return Err(Error::dtype("one_hot", self.dtype(), "i64", "classes are whole numbers; convert them"));
        }
        let n_classes = match n_classes.into() {
            Some(n_classes) => n_classes,
            None if self.numel() == 0 => {
                return Err(Error::argument("one_hot", "an empty tensor does not tell the number of classes"));
            }
            None => {
                observer::on_read(self, "one_hot")?;
                usize::try_from(self.max_all()?.item::<i64>()?.saturating_add(1)).unwrap_or(0)
            }
        };
        let sizes = [self.sizes(), &[n_classes]].concat();
        let zeros = full_on(self.device(), &sizes, Scalar::Int(0), Some(DType::I64))?;
        zeros.scatter_value(-1, &self.unsqueeze(-1)?, 1).map_err(|error| error.of("one_hot"))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&MASKED_FILL, masked_fill)?
        .composite(&MASKED_SCATTER, Tensor::masked_scatter)?
        .def_kernel("nonzero(Tensor self) -> Tensor", Tensor::nonzero)?
        .def_kernel("argwhere(Tensor self) -> Tensor", Tensor::nonzero)?
        .def_kernel("where(Tensor condition) -> Tensor[]", places)?
        .def_kernel("masked_select(Tensor self, Tensor mask) -> Tensor", Tensor::masked_select)?
        .def_kernel("one_hot(Tensor self, int num_classes=-1) -> Tensor", one_hot)?;
    Ok(())
}

fn masked_fill(x: &Tensor, mask: &Tensor, value: &Tensor) -> Result<Tensor> {
    if value.dim() != 0 {
        let what = format!("masked_fill only supports a 0-dimensional value tensor, but got {:?}", value.sizes());
        return Err(Error::shape("masked_fill", what, "pass a number or select one element"));
    }
    mask.where_(value.to_dtype(x.dtype())?, x)?.contiguous()
}

/// The places where a condition holds: one tensor per dim. A 0-dim condition has one place, if it holds.
fn places(condition: &Tensor) -> Result<Vec<Tensor>> {
    let condition = if condition.dim() == 0 { condition.unsqueeze(0)? } else { condition.clone() };
    condition.nonzero()?.unbind(1)
}

fn one_hot(x: &Tensor, n_classes: i64) -> Result<Tensor> {
    x.one_hot(if n_classes == -1 { None } else { Some(count("one_hot", n_classes)?) })
}

fn need_mask(op: &str, mask: &Tensor) -> Result<()> {
    match mask.dtype() {
        DType::Bool => Ok(()),
        found => Err(Error::dtype(op, found, "bool", "compare first to make a mask")),
    }
}
