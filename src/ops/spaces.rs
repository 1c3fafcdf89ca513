//! Numbers at equal distances, and their powers.

use crate::device::Device;
use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::dispatch::value::TensorLayout;
use crate::error::{Error, Result};
use crate::ir::{DType, Op, Scalar};
use crate::ops::arguments::{check_storage, int};
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::tensor::handle::Tensor;

/// The schema of one of them.
macro_rules! schema {
    ($name_and_arguments:literal) => {
        concat!(
            $name_and_arguments,
            ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
        )
    };
}

static LINSPACE: Composite = Composite::new(schema!("linspace(Scalar start, Scalar end, int steps"));
static LOGSPACE: Composite = Composite::new(schema!("logspace(Scalar start, Scalar end, int steps, float base=10."));

/// Numbers at equal distances.
impl Tensor {
    /// `steps` numbers from `start` to `end`, both included, of the default dtype.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn linspace(start: impl Into<Scalar>, end: impl Into<Scalar>, steps: usize) -> Result<Tensor> {
        let (layout, device, pinned) = (None::<TensorLayout>, None::<Device>, None::<bool>);
        LINSPACE.call((start.into(), end.into(), int(steps), None::<DType>, layout, device, pinned))
    }

    /// `base` to the powers of [`Tensor::linspace`].
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn logspace(start: impl Into<Scalar>, end: impl Into<Scalar>, steps: usize, base: f64) -> Result<Tensor> {
        let (layout, device, pinned) = (None::<TensorLayout>, None::<Device>, None::<bool>);
        LOGSPACE.call((start.into(), end.into(), int(steps), base, None::<DType>, layout, device, pinned))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&LINSPACE, linspace)?
        .composite(&LOGSPACE, logspace)?
        .def_kernel(
            schema!("linspace.Tensor_Tensor(Tensor start, Tensor end, int steps"),
            |start: &Tensor, end: &Tensor, steps: i64, dtype: Option<DType>, layout, device, pin_memory| {
                linspace(bound(start)?, bound(end)?, steps, dtype, layout, device, pin_memory)
            },
        )?
        .def_kernel(
            schema!("linspace.Tensor_Scalar(Tensor start, Scalar end, int steps"),
            |start: &Tensor, end: Scalar, steps: i64, dtype: Option<DType>, layout, device, pin_memory| {
                linspace(bound(start)?, end, steps, dtype, layout, device, pin_memory)
            },
        )?
        .def_kernel(
            schema!("linspace.Scalar_Tensor(Scalar start, Tensor end, int steps"),
            |start: Scalar, end: &Tensor, steps: i64, dtype: Option<DType>, layout, device, pin_memory| {
                linspace(start, bound(end)?, steps, dtype, layout, device, pin_memory)
            },
        )?;
    Ok(())
}

/// `steps` numbers from `start` to `end`, inclusive. The first half counts from `start` up and the second half from
/// `end` down, so both ends are exact.
fn linspace(
    start: Scalar,
    end: Scalar,
    steps: i64,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    check_storage("linspace", layout, pin_memory)?;
    let device = device.unwrap_or(Device::CPU);
    let dtype = dtype.unwrap_or(default_dtype());
    let sizes = [usize::try_from(steps).map_err(|_| {
        Error::argument("linspace", format!("the number of steps is {steps}, but must be non-negative"))
    })?];
    if steps <= 1 {
        return full_on(device, &sizes, start, Some(dtype));
    }
    // Integers are truncated from floats that hold all of them.
    let wide = match dtype {
        DType::F16 | DType::BF16 | DType::F32 => DType::F32,
        DType::F64 | DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8 | DType::Bool => DType::F64,
        DType::Complex64 => DType::F32,
        DType::Complex128 => DType::F64,
    };
    let whole = |x: Scalar| if dtype.is_float() { x.as_f64() } else { x.as_i64() as f64 };
    let (start, end) = (whole(start), whole(end));
    let step = match wide {
        DType::F32 => f64::from((end as f32 - start as f32) / (steps - 1) as f32),
        _other => (end - start) / (steps - 1) as f64,
    };
    let index = Tensor::arange(0, steps, 1)?;
    let near_start = index.to_dtype(wide)?.mul(step)?.add(start)?;
    let left = Tensor::arange(steps - 1, -1, -1)?;
    let near_end = left.to_dtype(wide)?.mul(-step)?.add(end)?;
    let halves = index.lt(steps / 2)?.where_(&near_start, &near_end)?;
    halves.to_dtype(dtype)?.to_device(device)
}

/// `steps` powers of `base`, whose exponents are those of [`linspace`].
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn logspace(
    start: Scalar,
    end: Scalar,
    steps: i64,
    base: f64,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    let exponents = linspace(start, end, steps, Some(DType::F64), layout, device, pin_memory)?;
    let powers = call(Op::Pow, &[&Tensor::number(base)?, &exponents], &[])?;
    powers.to_dtype(dtype.unwrap_or(default_dtype()))
}

/// An end of a range, given as a tensor.
fn bound(x: &Tensor) -> Result<Scalar> {
    if x.dim() != 0 {
        let what = format!("start and end must be 0-dim tensors, but one has {} dims", x.dim());
        return Err(Error::shape("linspace", what, "select one element first"));
    }
    x.to_scalar()
}
