//! Copies and conversions: dtype, device, memory format, and Rust numbers.
//!
//! A conversion without effect returns the same tensor, unless a copy is requested.

use crate::device::Device;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode::no_grad;
use crate::dispatch::key::local::exclude;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::dispatch::value::TensorLayout;
use crate::error::Result;
use crate::ir::attrs::{Cast, ToCopy};
use crate::ir::{Attrs, DType, MemoryFormat, Op, TensorType};
use crate::ops::arguments::{check_storage, ordered};
use crate::ops::complex_numbers::{as_pairs, of_pairs};
use crate::ops::composite::Composite;
use crate::ops::memory_formats::format_of;
use crate::tensor::handle::Tensor;
use std::cell::Cell;

macro_rules! to {
    ($overload:literal) => {
        concat!(
            "to.",
            $overload,
            ", bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)"
        )
    };
}

static TO_COPY: Composite = Composite::new(
    "_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, \
     bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
);
static TO_DTYPE: Composite = Composite::new(to!("dtype(Tensor(a) self, ScalarType dtype"));
static TO_DEVICE: Composite = Composite::new(to!("device(Tensor(a) self, Device device, ScalarType dtype"));
static CONTIGUOUS: Composite =
    Composite::new("contiguous(Tensor(a) self, *, MemoryFormat memory_format=contiguous_format) -> Tensor(a)");

/// The same elements in another dtype, memory format or memory.
impl Tensor {
    /// Converts the elements to `dtype`. Returns the same tensor if it has this dtype already, and otherwise a copy.
    /// Sizes and memory order are kept.
    ///
    /// Floats are truncated toward zero when they become integers. Every nonzero number becomes true.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        TO_DTYPE.call((self, dtype, false, false, None::<MemoryFormat>))
    }

    /// This tensor on `device`: the tensor itself if it is there already, and otherwise a dense copy. Sizes and dtype
    /// are kept.
    ///
    /// # Errors
    /// If a meta tensor is copied to another kind of device, if there is no such device, or if a device fails.
    #[track_caller]
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
        TO_DEVICE.call((self, device, self.dtype(), false, false, None::<MemoryFormat>))
    }

    /// A row-major tensor with the same elements. Returns the same tensor if it is row-major already, and otherwise a
    /// copy. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        CONTIGUOUS.call((self, MemoryFormat::Contiguous))
    }

    /// A dense copy of the elements in memory of its own, with the dims in the same memory order. (`clone` copies only
    /// the handle.) Sizes and dtype are kept.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn copy(&self) -> Result<Tensor> {
        call(Op::Clone, &[self], &ordered(MemoryFormat::Preserve))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&TO_COPY, to_copy)?
        .composite(&TO_DTYPE, to_dtype)?
        .composite(&TO_DEVICE, to_device)?
        .def_kernel(to!("other(Tensor(a) self, Tensor other"), to_other)?
        .def_kernel(
            to!("dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, \
                 bool? pin_memory=None"),
            to_options,
        )?
        .def_kernel("type_as(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| {
            x.to_dtype(other.dtype())?.to_device(other.device())
        })?
        .composite(&CONTIGUOUS, contiguous)?;
    Ok(())
}

fn to_copy(
    x: &Tensor,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
    _non_blocking: bool,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    check_storage("_to_copy", layout, pin_memory)?;
    let device = device.unwrap_or(x.device());
    let dtype = dtype.unwrap_or(x.dtype());
    if dtype.is_complex() {
        return of_pairs(&as_pairs(x, dtype)?.moved_to(device)?);
    }
    let attrs = match format {
        // The move makes the copy.
        None | Some(MemoryFormat::Preserve) if dtype == x.dtype() && device != x.device() => return x.moved_to(device),
        None | Some(MemoryFormat::Preserve) => Attrs::from(Cast { dtype: Some(dtype) }),
        Some(memory_format) => Attrs::from(ToCopy { dtype: Some(dtype), memory_format }),
    };
    call(Op::ToCopy, &[x], &attrs)?.moved_to(device)
}

/// A copy of `x` on the host, if anybody but this crate's kernels sees the call: a mode, a kernel from outside, or the
/// keys of a wrapper. A trace does not count. Calls that such a kernel makes itself read what is on the CPU directly.
#[track_caller]
pub(crate) fn host_copy(x: &Tensor) -> Result<Option<Tensor>> {
    thread_local! {
        static IS_COPYING: Cell<bool> = const { Cell::new(false) };
    }
    if TO_COPY.is_own(x.key_set())? || (IS_COPYING.get() && x.has_data()) {
        return Ok(None);
    }
    let _untraced = exclude(DispatchKey::Tracer);
    let _unrecorded = no_grad();
    let (dtype, layout, pin_memory, format): (Option<DType>, Option<TensorLayout>, Option<bool>, Option<MemoryFormat>) =
        (None, None, None, None);
    let outer = IS_COPYING.replace(true);
    let copy = TO_COPY.call((x, dtype, layout, Some(Device::CPU), pin_memory, false, format));
    IS_COPYING.set(outer);
    copy.map(Some)
}

fn to_dtype(x: &Tensor, dtype: DType, blocking: bool, copy: bool, format: Option<MemoryFormat>) -> Result<Tensor> {
    // A plain number becomes a tensor.
    to_device(x, x.device(), dtype, blocking, copy || x.as_number().is_some(), format)
}

fn to_device(
    x: &Tensor,
    device: Device,
    dtype: DType,
    non_blocking: bool,
    copy: bool,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    let ordered = match format.unwrap_or(MemoryFormat::Preserve) {
        MemoryFormat::Preserve => true,
        format => format == format_of(x),
    };
    if !copy && ordered && x.dtype() == dtype && x.device() == device {
        return Ok(x.clone());
    }
    TO_COPY.call((x, Some(dtype), None::<TensorLayout>, Some(device), None::<bool>, non_blocking, format))
}

fn to_other(
    x: &Tensor,
    other: &Tensor,
    non_blocking: bool,
    copy: bool,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    to_device(x, other.device(), other.dtype(), non_blocking, copy, format)
}

#[expect(clippy::too_many_arguments, reason = "the operator has as many")]
fn to_options(
    x: &Tensor,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
    non_blocking: bool,
    copy: bool,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    check_storage("to", layout, pin_memory)?;
    to_device(x, device.unwrap_or(x.device()), dtype.unwrap_or(x.dtype()), non_blocking, copy, format)
}

fn contiguous(x: &Tensor, format: MemoryFormat) -> Result<Tensor> {
    match format {
        MemoryFormat::Contiguous | MemoryFormat::Preserve if x.is_contiguous() => Ok(x.clone()),
        MemoryFormat::Contiguous | MemoryFormat::Preserve => call(Op::Clone, &[x], &ordered(MemoryFormat::Contiguous)),
        MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d => {
            let copy = || call(Op::Clone, &[x], &ordered(format));
            if x.numel() == 0 || dense_order(x) != Some(format) { copy() } else { Ok(x.clone()) }
        }
    }
}

/// The channels-last format that the tensor has exactly.
fn dense_order(x: &Tensor) -> Option<MemoryFormat> {
    let format = format_of(x);
    let like = TensorType { dtype: x.dtype().part(), ..x.ty() };
    let dense = Op::Clone.infer(&[&like], &ordered(format)).ok()?;
    let same = (0..x.dim()).all(|dim| x.sizes()[dim] == 1 || x.strides()[dim] == dense.strides[dim]);
    same.then_some(format)
}
