//! `randint_like`: random whole numbers in the shape of a tensor.

use crate::device::Device;
use crate::dispatch::library::Library;
use crate::dispatch::value::TensorLayout;
use crate::error::Result;
use crate::ir::{DType, MemoryFormat};
use crate::ops::factories::{laid_out, strides_like};
use crate::ops::random::draw;
use crate::tensor::handle::Tensor;

/// The schema of an operator with these bounds.
macro_rules! schema {
    ($bounds:literal) => {
        concat!(
            "randint_like",
            $bounds,
            ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, ",
            "MemoryFormat? memory_format=None) -> Tensor"
        )
    };
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            schema!("(Tensor self, SymInt high"),
            |model: &Tensor,
             high: i64,
             dtype: Option<DType>,
             layout: Option<TensorLayout>,
             device: Option<Device>,
             pin_memory: Option<bool>,
             format: Option<MemoryFormat>| {
                randint_like(model, 0, high, dtype, layout, device, pin_memory, format)
            },
        )?
        .def_kernel(schema!(".low_dtype(Tensor self, SymInt low, SymInt high"), randint_like)?;
    Ok(())
}

/// Whole numbers from `low` up to `high`, in the dtype of the model: floats may hold them.
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn randint_like(
    model: &Tensor,
    low: i64,
    high: i64,
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
    format: Option<MemoryFormat>,
) -> Result<Tensor> {
    let draw = draw("randint_like", None, layout, device.or(Some(model.device())), pin_memory)?;
    let dtype = dtype.unwrap_or(model.dtype());
    let drawn = if dtype.is_float() { DType::I64 } else { dtype };
    let make = |sizes: &[usize]| draw.integers(low, high, sizes, drawn)?.to_dtype(dtype);
    laid_out(model.sizes(), &strides_like(model, format)?, make)
}
