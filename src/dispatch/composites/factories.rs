//! Filled tensors under their ATen schemas.

use super::{check_storage, count};
use crate::device::Device;
use crate::dispatch::factories::full_on;
use crate::dispatch::library::Library;
use crate::dispatch::tensor::Tensor;
use crate::dispatch::value::{MemoryFormat, TensorLayout};
use crate::error::Result;
use crate::ir::{DType, Scalar};

pub(super) fn register(library: &mut Library) -> Result<()> {
    const OPTIONS: &str = "*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None";
    let filled_schema = |name: &str| format!("{name}(SymInt[] size, {OPTIONS}) -> Tensor");
    let like_schema = |name_and_arguments: &str| {
        format!("{name_and_arguments}, {OPTIONS}, MemoryFormat? memory_format=None) -> Tensor")
    };
    library
        .def_kernel(&filled_schema("zeros"), filled::<0>)?
        .def_kernel(&filled_schema("ones"), filled::<1>)?
        .def_kernel(&like_schema("zeros_like(Tensor self"), filled_like::<0>)?
        .def_kernel(&like_schema("ones_like(Tensor self"), filled_like::<1>)?
        .def_kernel(&like_schema("full_like(Tensor self, Scalar fill_value"), full_like)?;
    Ok(())
}

fn filled<const VALUE: i64>(
    sizes: &[i64],
    dtype: Option<DType>,
    layout: Option<TensorLayout>,
    device: Option<Device>,
    pin_memory: Option<bool>,
) -> Result<Tensor> {
    check_storage("full", layout, pin_memory, None)?;
    let sizes = sizes.iter().map(|&size| count("full", size)).collect::<Result<Vec<_>>>()?;
    full_on(device.unwrap_or(Device::CPU), &sizes, Scalar::Int(VALUE), dtype.or(Some(DType::DEFAULT_FLOAT)))
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
    check_storage("full_like", layout, pin_memory, format)?;
    full_on(device.unwrap_or(x.device()), x.sizes(), value, dtype.or(Some(x.dtype())))
}
