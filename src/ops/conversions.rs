//! Copies and conversions: dtype, device, memory format, and Rust numbers.
//!
//! A conversion without effect returns the same tensor, unless a copy is requested.

use crate::device::Device;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::dispatch::value::TensorLayout;
use crate::error::Result;
use crate::ir::attrs::{Cast, Ordered, ToCopy};
use crate::ir::{Attrs, DType, MemoryFormat, Op};
use crate::ops::arguments::check_storage;
use crate::tensor::handle::Tensor;

/// The same elements in another dtype or memory format.
impl Tensor {
    /// Converts the elements to `dtype`. Returns the same tensor if it has this dtype already, and otherwise a copy.
    /// Sizes and memory order are kept.
    ///
    /// Floats are truncated toward zero when they become integers. Every nonzero number becomes true.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype && self.as_number().is_none() {
            return Ok(self.clone());
        }
        call(Op::ToCopy, &[self], &Attrs::from(Cast { dtype: Some(dtype) }))
    }

    /// A row-major tensor with the same elements. Returns the same tensor if it is row-major already, and otherwise a
    /// copy. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        call(Op::Clone, &[self], &ordered(MemoryFormat::Contiguous))
    }

    /// A dense copy of the elements in memory of its own, with the dims in the same memory order. (`clone` copies only
    /// the handle.) Sizes and dtype are kept.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn copy(&self) -> Result<Tensor> {
        call(Op::Clone, &[self], &ordered(MemoryFormat::Preserve))
    }
}

/// The attributes of a copy in a memory format.
pub(crate) fn ordered(memory_format: MemoryFormat) -> Attrs {
    Ordered { memory_format }.into()
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    const HOW: &str = "bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)";
    library
        .def_kernel(
            "_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? \
             pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
            to_copy,
        )?
        .def_kernel(&format!("to.dtype(Tensor(a) self, ScalarType dtype, {HOW}"), to_dtype)?
        .def_kernel(&format!("to.device(Tensor(a) self, Device device, ScalarType dtype, {HOW}"), to_device)?
        .def_kernel(&format!("to.other(Tensor(a) self, Tensor other, {HOW}"), to_other)?
        .def_kernel(
            &format!(
                "to.dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, \
                 bool? pin_memory=None, {HOW}"
            ),
            to_options,
        )?
        .def_kernel("type_as(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| {
            x.to_dtype(other.dtype())?.to_device(other.device())
        })?
        .def_kernel(
            "contiguous(Tensor(a) self, *, MemoryFormat memory_format=contiguous_format) -> Tensor(a)",
            contiguous,
        )?
        .def_kernel("item(Tensor self) -> Scalar", Tensor::to_scalar)?
        .def_kernel("_local_scalar_dense(Tensor self) -> Scalar", Tensor::to_scalar)?;
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
    let memory_format = format.unwrap_or(MemoryFormat::Preserve);
    let attrs = ToCopy { dtype: Some(dtype.unwrap_or(x.dtype())), memory_format };
    call(Op::ToCopy, &[x], &Attrs::from(attrs))?.to_device(device.unwrap_or(x.device()))
}

fn to_dtype(x: &Tensor, dtype: DType, blocking: bool, copy: bool, format: Option<MemoryFormat>) -> Result<Tensor> {
    to_device(x, x.device(), dtype, blocking, copy, format)
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
        format => format == suggested_format(x),
    };
    if !copy && ordered && x.dtype() == dtype && x.device() == device {
        return Ok(x.clone());
    }
    to_copy(x, Some(dtype), None, Some(device), None, non_blocking, format)
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
        MemoryFormat::Contiguous | MemoryFormat::Preserve => x.contiguous(),
        MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d => {
            let copy = || call(Op::Clone, &[x], &ordered(format));
            if x.numel() == 0 || dense_order(x) != Some(format) { copy() } else { Ok(x.clone()) }
        }
    }
}

/// The memory format that the strides suggest.
fn suggested_format(x: &Tensor) -> MemoryFormat {
    let (order, format): (&[usize], _) = match x.dim() {
        4 => (&[1, 3, 2, 0], MemoryFormat::ChannelsLast),
        5 => (&[1, 4, 3, 2, 0], MemoryFormat::ChannelsLast3d),
        _ => return MemoryFormat::Contiguous,
    };
    let (sizes, strides) = (x.sizes(), x.strides());
    let mut least = 0;
    for &dim in order {
        // An image with one channel and one pixel fits both formats. It counts as row-major.
        let undecided = dim == 0 && least == strides[1];
        if sizes[dim] == 0 || strides[dim] < least || strides[1] == 0 || undecided {
            return MemoryFormat::Contiguous;
        }
        least = strides[dim] * sizes[dim];
    }
    format
}

/// The channels-last format that the tensor has exactly.
fn dense_order(x: &Tensor) -> Option<MemoryFormat> {
    let format = suggested_format(x);
    let dense = Op::Clone.infer(&[&x.ty()], &ordered(format)).ok()?;
    let same = (0..x.dim()).all(|dim| x.sizes()[dim] == 1 || x.strides()[dim] == dense.strides[dim]);
    same.then_some(format)
}
