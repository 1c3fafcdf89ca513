//! Factories: tensors from sizes and numbers, with all options of their ATen schemas.
//!
//! All results are row-major. The `_like` forms use the device of their tensor, the others the CPU. Every factory makes
//! a filled tensor or a range. Where contents are undefined nothing is written. In a trace they are zeros instead,
//! because a graph has no undefined values. Random factories are in `random.rs`.

use crate::device::{Device, DeviceKind};
use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::key::local::is_tracing;
use crate::dispatch::library::Library;
use crate::dispatch::rows::{call, call_on};
use crate::dispatch::value::TensorLayout;
use crate::error::{Error, Result};
use crate::ir::attrs::{Arange, Full};
use crate::ir::shape::{checked_numel, contiguous_strides, is_contiguous, strides_in_order};
use crate::ir::{Attr, Attrs, DType, Layout, MemoryFormat, Op, Scalar, Sizes, Strides, TensorType};
use crate::ops::arguments::ordered;
use crate::ops::arguments::{check_storage, count, counts, int, int_list};
use crate::ops::complex_numbers::of_parts;
use crate::ops::composite::Composite;
use crate::ops::dims::ints;
use crate::runtime::Array;
use crate::tensor::handle::Tensor;

/// The schema of a factory.
macro_rules! plain {
    ($name_and_arguments:literal) => {
        concat!(
            $name_and_arguments,
            ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
        )
    };
}

/// The schema of a factory with a memory format.
macro_rules! formatted {
    ($name_and_arguments:literal) => {
        concat!(
            $name_and_arguments,
            ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, \
             MemoryFormat? memory_format=None) -> Tensor"
        )
    };
}

static EMPTY: Composite = Composite::new(formatted!("empty.memory_format(SymInt[] size"));
static ZEROS: Composite = Composite::new(plain!("zeros(SymInt[] size"));
static ONES: Composite = Composite::new(plain!("ones(SymInt[] size"));
static FULL: Composite = Composite::new(plain!("full(SymInt[] size, Scalar fill_value"));
static ZEROS_LIKE: Composite = Composite::new(formatted!("zeros_like(Tensor self"));
static ONES_LIKE: Composite = Composite::new(formatted!("ones_like(Tensor self"));
static FULL_LIKE: Composite = Composite::new(formatted!("full_like(Tensor self, Scalar fill_value"));
static ARANGE: Composite = Composite::new(plain!("arange.start_step(Scalar start, Scalar end, Scalar step=1"));
static EYE: Composite = Composite::new(plain!("eye(SymInt n"));

// The options that methods leave out.
const NO_DTYPE: Option<DType> = None;
const NO_LAYOUT: Option<TensorLayout> = None;
const NO_DEVICE: Option<Device> = None;
const UNPINNED: Option<bool> = None;
const ROW_MAJOR: Option<MemoryFormat> = Some(MemoryFormat::Contiguous);

impl Tensor {
    /// A tensor of zeros (or false). It is row-major and on the CPU.
    ///
    /// # Errors
    /// If there are too many elements, or not enough memory.
    #[track_caller]
    pub fn zeros(sizes: &[usize], dtype: DType) -> Result<Tensor> {
        checked_numel("zeros", sizes, dtype.size())?;
        ZEROS.call((&int_list(sizes)[..], Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// A tensor of ones (or true). It is row-major and on the CPU.
    ///
    /// # Errors
    /// If there are too many elements, or not enough memory.
    #[track_caller]
    pub fn ones(sizes: &[usize], dtype: DType) -> Result<Tensor> {
        checked_numel("ones", sizes, dtype.size())?;
        ONES.call((&int_list(sizes)[..], Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// A tensor filled with `value`, which is converted to `dtype`. It is row-major and on the CPU.
    ///
    /// Without a dtype (`None`) it is bool for a bool, i64 for an integer, and the default floating dtype otherwise.
    ///
    /// # Errors
    /// If the value does not fit the dtype, if there are too many elements, or if there is not enough memory.
    #[track_caller]
    pub fn full(sizes: &[usize], value: impl Into<Scalar>, dtype: impl Into<Option<DType>>) -> Result<Tensor> {
        // Checked before the sizes become i64.
        checked_numel("full", sizes, 1)?;
        FULL.call((&int_list(sizes)[..], value.into(), dtype.into(), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// The numbers `start`, `start + step`, … below `end` (above it for a negative step), as a 1-dim tensor. The dtype
    /// is i64 if all three are integers, and the default floating dtype otherwise. It is row-major and on the CPU.
    ///
    /// # Errors
    /// If `step` is zero or leads away from `end`, or if a number is not finite.
    #[track_caller]
    pub fn arange(start: impl Into<Scalar>, end: impl Into<Scalar>, step: impl Into<Scalar>) -> Result<Tensor> {
        ARANGE.call((start.into(), end.into(), step.into(), None::<DType>, NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// Like [`Tensor::arange`], with the given dtype.
    ///
    /// # Errors
    /// Same as [`Tensor::arange`]. Also if the dtype is bool.
    #[track_caller]
    pub fn arange_of(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
    ) -> Result<Tensor> {
        ARANGE.call((start.into(), end.into(), step.into(), Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// A tensor with unspecified elements. It is row-major and on the CPU.
    ///
    /// # Errors
    /// If there are too many elements, or not enough memory.
    #[track_caller]
    pub fn empty(sizes: &[usize], dtype: DType) -> Result<Tensor> {
        checked_numel("empty", sizes, dtype.size())?;
        EMPTY.call((&int_list(sizes)[..], Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED, None::<MemoryFormat>))
    }

    /// The `n` by `n` identity matrix. It is row-major and on the CPU.
    ///
    /// # Errors
    /// If there are too many elements, or not enough memory.
    #[track_caller]
    pub fn eye(n: usize, dtype: DType) -> Result<Tensor> {
        checked_numel("eye", &[n, n], dtype.size())?;
        EYE.call((int(n), Some(dtype), NO_LAYOUT, NO_DEVICE, UNPINNED))
    }

    /// Zeros with the sizes, dtype and device of this tensor. Row-major.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Tensor> {
        ZEROS_LIKE.call((self, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED, ROW_MAJOR))
    }

    /// Ones with the sizes, dtype and device of this tensor. Row-major.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn ones_like(&self) -> Result<Tensor> {
        ONES_LIKE.call((self, NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED, ROW_MAJOR))
    }

    /// A tensor filled with `value`, with the sizes, dtype and device of this tensor. Row-major.
    ///
    /// # Errors
    /// If there is not enough memory, or if the device has no factories.
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        FULL_LIKE.call((self, value.into(), NO_DTYPE, NO_LAYOUT, NO_DEVICE, UNPINNED, ROW_MAJOR))
    }
}

/// A range on a device.
pub(crate) fn arange_on(
    device: Device,
    start: Scalar,
    end: Scalar,
    step: Scalar,
    dtype: Option<DType>,
) -> Result<Tensor> {
    made_on(device, Op::Arange, &Attrs::from(Arange { start, end, step, dtype }))
}

/// A filled row-major tensor on a device.
pub(crate) fn full_on(device: Device, sizes: &[usize], value: Scalar, dtype: Option<DType>) -> Result<Tensor> {
    if device.kind != DeviceKind::Meta {
        // Checked before the sizes become i64.
        checked_numel("full", sizes, 1)?;
    }
    if let Some(dtype) = dtype.filter(|dtype| dtype.is_complex()) {
        let real = full_on(device, sizes, value, Some(dtype.part()))?;
        return of_parts(&real, &real.zeros_like()?);
    }
    made_on(device, Op::Full, &Attrs::from(Full { size: ints(sizes), fill_value: value, dtype }))
}

/// The integers from `start` to below `end` on a device. The default dtype is i64.
pub(crate) fn range_on(device: Device, start: i64, end: i64, dtype: Option<DType>) -> Result<Tensor> {
    arange_on(device, Scalar::Int(start), Scalar::Int(end), Scalar::Int(1), dtype)
}

/// The result of an op without tensor operands, on a device.
pub(crate) fn made_on(device: Device, op: Op, attrs: &[Attr]) -> Result<Tensor> {
    match device.kind {
        DeviceKind::Cpu => call(op, &[], attrs),
        DeviceKind::Meta => Tensor::meta(&op.infer(&[], attrs)?),
        DeviceKind::Cuda => call_on(device, op, &[], attrs),
        DeviceKind::PrivateUse1 => call(op, &[], attrs)?.to_device(device),
    }
}

/// A filled dense tensor with these strides.
pub(crate) fn full_strided(
    device: Device,
    sizes: &[usize],
    strides: &[usize],
    value: Scalar,
    dtype: DType,
) -> Result<Tensor> {
    laid_out(sizes, strides, |sizes| full_on(device, sizes, value, Some(dtype)))
}

/// A tensor with these strides: `make` makes a row-major one with the dims in memory order, which is then permuted.
pub(crate) fn laid_out(
    sizes: &[usize],
    strides: &[usize],
    make: impl FnOnce(&[usize]) -> Result<Tensor>,
) -> Result<Tensor> {
    if is_contiguous(sizes, strides) {
        return make(sizes);
    }
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&dim| std::cmp::Reverse((strides[dim], sizes[dim])));
    let in_memory: Vec<usize> = order.iter().map(|&dim| sizes[dim]).collect();
    let mut places = vec![0i64; sizes.len()];
    for (place, &dim) in order.iter().enumerate() {
        places[dim] = place as i64;
    }
    make(&in_memory)?.permute(places)
}

/// A tensor with undefined contents. In a trace they are zeros.
pub(crate) fn blank(device: Device, op: &str, sizes: &[usize], strides: Strides, dtype: DType) -> Result<Tensor> {
    checked_numel(op, sizes, dtype.size())?;
    if dtype.is_complex() {
        let pairs = Layout { sizes: sizes.into(), strides, offset: 0 }.of_pairs();
        return Tensor::of_pairs(&blank(device, op, &pairs.sizes, pairs.strides, dtype.part())?);
    }
    match device.kind {
        DeviceKind::Cpu if is_tracing() && is_dense(sizes, &strides) => {
            full_strided(device, sizes, &strides, Scalar::Int(0), dtype)
        }
        DeviceKind::Cpu | DeviceKind::Meta | DeviceKind::Cuda | DeviceKind::PrivateUse1 => {
            let ty = TensorType { dtype, sizes: Sizes::from_slice(sizes), strides, number: false };
            Array::new(device, &ty).map(Tensor::from_array)
        }
    }
}

/// Whether elements are dense and do not overlap.
fn is_dense(sizes: &[usize], strides: &[usize]) -> bool {
    let mut order: Vec<usize> = (0..sizes.len()).filter(|&dim| sizes[dim] != 1).collect();
    order.sort_by_key(|&dim| strides[dim]);
    let mut step = 1;
    order.into_iter().all(|dim| {
        let fits = strides[dim] == step;
        step = step.saturating_mul(sizes[dim].max(1));
        fits
    })
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&EMPTY, empty)?
        .def_kernel(formatted!("empty_like(Tensor self"), empty_like)?
        .def_kernel(plain!("empty_strided(SymInt[] size, SymInt[] stride"), empty_strided)?
        .def_kernel(plain!("empty_permuted(SymInt[] size, int[] physical_layout"), empty_permuted)?
        .def_kernel(plain!("new_empty(Tensor self, SymInt[] size"), new_empty)?
        .def_kernel(plain!("new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride"), new_empty_strided)?
        .composite(&ZEROS, filled::<0>)?
        .composite(&ONES, filled::<1>)?
        .composite(&FULL, full)?
        .def_kernel(plain!("scalar_tensor(Scalar s"), scalar_tensor)?
        .def_kernel(plain!("new_zeros(Tensor self, SymInt[] size"), new_filled::<0>)?
        .def_kernel(plain!("new_ones(Tensor self, SymInt[] size"), new_filled::<1>)?
        .def_kernel(plain!("new_full(Tensor self, SymInt[] size, Scalar fill_value"), new_full)?
        .composite(&ZEROS_LIKE, filled_like::<0>)?
        .composite(&ONES_LIKE, filled_like::<1>)?
        .composite(&FULL_LIKE, full_like)?
        .def_kernel(plain!("arange(Scalar end"), arange_to)?
        .def_kernel(plain!("arange.start(Scalar start, Scalar end"), arange_from)?
        .composite(&ARANGE, arange_in_steps)?
        .composite(&EYE, square_eye)?
        .def_kernel(plain!("eye.m(SymInt n, SymInt m"), eye)?;
    Ok(())
}

fn empty(
    sizes: &[i64],
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    check_storage("empty", layout, pin_memory)?;
    let sizes = counts("empty", sizes)?;
    let strides = match format {
        None | Some(MemoryFormat::Contiguous | MemoryFormat::Preserve) => contiguous_strides(&sizes),
        Some(format) => {
            let model = TensorType::contiguous(DType::DEFAULT_FLOAT, &sizes);
            Op::Clone.infer(&[&model], &ordered(format))?.strides
        }
    };
    blank(device.unwrap_or(Device::CPU), "empty", &sizes, strides, dtype.unwrap_or(default_dtype()))
}

fn empty_like(
    x: &Tensor,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    check_storage("empty_like", layout, pin_memory)?;
    let device = device.unwrap_or(x.device());
    blank(device, "empty_like", x.sizes(), strides_like(x, format)?, dtype.unwrap_or(x.dtype()))
}

fn empty_strided(
    sizes: &[i64],
    strides: &[i64],
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    const NAME: &str = "empty_strided";
    check_storage(NAME, layout, pin_memory)?;
    if sizes.len() != strides.len() {
        let what = format!("there are {} sizes but {} strides", sizes.len(), strides.len());
        return Err(Error::shape(NAME, what, "give one stride per size"));
    }
    let strides = counts(NAME, strides)?.into();
    blank(device.unwrap_or(Device::CPU), NAME, &counts(NAME, sizes)?, strides, dtype.unwrap_or(default_dtype()))
}

/// Memory whose dims lie in the given order, the outermost first.
fn empty_permuted(
    sizes: &[i64],
    order: &[i64],
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    let op = "empty_permuted";
    check_storage(op, layout, pin_memory)?;
    let sizes = counts(op, sizes)?;
    let mut sorted: Vec<i64> = order.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..sizes.len() as i64) {
        let what = format!("physical_layout {order:?} for {} dims", sizes.len());
        return Err(Error::argument(op, what + "; it must have each dim once"));
    }
    let order: Vec<usize> = order.iter().map(|&dim| dim as usize).collect();
    let dtype = dtype.unwrap_or(default_dtype());
    blank(device.unwrap_or(Device::CPU), op, &sizes, strides_in_order(&sizes, &order), dtype)
}

fn new_empty(
    x: &Tensor,
    sizes: &[i64],
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    empty(sizes, dtype.or(Some(x.dtype())), layout, device.or(Some(x.device())), pin_memory, None)
}

fn new_empty_strided(
    x: &Tensor,
    sizes: &[i64],
    strides: &[i64],
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    empty_strided(sizes, strides, dtype.or(Some(x.dtype())), layout, device.or(Some(x.device())), pin_memory)
}

fn filled<const VALUE: i64>(
    sizes: &[i64],
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    full(sizes, Scalar::Int(VALUE), dtype.or(Some(default_dtype())), layout, device, pin_memory)
}

fn full(
    sizes: &[i64],
    value: Scalar,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    check_storage("full", layout, pin_memory)?;
    full_on(device.unwrap_or(Device::CPU), &counts("full", sizes)?, value, dtype)
}

fn scalar_tensor(
    value: Scalar,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    full(&[], value, dtype.or(Some(default_dtype())), layout, device, pin_memory)
}

fn new_filled<const VALUE: i64>(
    x: &Tensor,
    sizes: &[i64],
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    new_full(x, sizes, Scalar::Int(VALUE), dtype, layout, device, pin_memory)
}

fn new_full(
    x: &Tensor,
    sizes: &[i64],
    value: Scalar,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    full(sizes, value, dtype.or(Some(x.dtype())), layout, device.or(Some(x.device())), pin_memory)
}

fn filled_like<const VALUE: i64>(
    x: &Tensor,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    full_like(x, Scalar::Int(VALUE), dtype, layout, device, pin_memory, format)
}

fn full_like(
    x: &Tensor,
    value: Scalar,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    check_storage("full_like", layout, pin_memory)?;
    let device = device.unwrap_or(x.device());
    full_strided(device, x.sizes(), &strides_like(x, format)?, value, dtype.unwrap_or(x.dtype()))
}

/// The dense strides of a tensor like `x` in a memory format. The default is that of `x`.
pub(crate) fn strides_like(x: &Tensor, format: Option<MemoryFormat>) -> Result<Strides> {
    // Strides count elements, whatever they are.
    let like = TensorType { dtype: x.dtype().part(), ..x.ty() };
    Ok(Op::Clone.infer(&[&like], &ordered(format.unwrap_or(MemoryFormat::Preserve)))?.strides)
}

fn arange_to(
    end: Scalar,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    arange_from(Scalar::Int(0), end, dtype, layout, device, pin_memory)
}

fn arange_from(
    start: Scalar,
    end: Scalar,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    arange_in_steps(start, end, Scalar::Int(1), dtype, layout, device, pin_memory)
}

fn arange_in_steps(
    start: Scalar,
    end: Scalar,
    step: Scalar,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    check_storage("arange", layout, pin_memory)?;
    arange_on(device.unwrap_or(Device::CPU), start, end, step, dtype)
}

fn square_eye(
    n: i64,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    eye(n, n, dtype, layout, device, pin_memory)
}

fn eye(
    n: i64,
    m: i64,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    check_storage("eye", layout, pin_memory)?;
    let line = |length: i64| Tensor::arange(0, count("eye", length)? as i64, 1);
    let diagonal = line(n)?.unsqueeze(1)?.eq(&line(m)?)?;
    diagonal.to_dtype(dtype.unwrap_or(default_dtype()))?.to_device(device.unwrap_or(Device::CPU))
}
