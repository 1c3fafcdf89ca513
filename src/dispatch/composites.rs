//! Operators that are made of others.
//!
//! They are registered with their ATen schemas and a decomposition (`CompositeImplicitAutograd`), so that boxed
//! callers and out-of-tree code find them by name; every key sees their parts. The methods of [`Tensor`] call the same
//! functions directly. Arguments that say where and how to store a result are taken if they ask for what is done
//! anyway, and refused otherwise.

use super::factories::full_on;
use super::joins::{cat, stack};
use super::library::Library;
use super::register::call;
use super::tensor::Tensor;
use super::value::{MemoryFormat, TensorLayout};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ir::op::Schema;
use crate::ir::{DType, Op, Scalar};

/// Registers every composite operator in the registry of this process; dropping the library undoes it.
///
/// # Errors
/// If one is already defined.
pub(super) fn register(libraries: &mut Vec<Library>) -> Result<()> {
    let mut library = Library::fragment("aten")?;
    products(&mut library)?;
    views(&mut library)?;
    reductions(&mut library)?;
    factories(&mut library)?;
    number_overloads(&mut library)?;
    libraries.push(library);
    Ok(())
}

fn products(library: &mut Library) -> Result<()> {
    library
        .def_kernel("matmul(Tensor self, Tensor other) -> Tensor", Tensor::matmul)?
        .def_kernel("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", Tensor::linear)?
        .def_kernel("dot(Tensor self, Tensor tensor) -> Tensor", Tensor::dot)?
        .def_kernel("mv(Tensor self, Tensor vec) -> Tensor", Tensor::mv)?
        .def_kernel("outer(Tensor self, Tensor vec2) -> Tensor", Tensor::outer)?;
    Ok(())
}

fn views(library: &mut Library) -> Result<()> {
    library
        .def_kernel("reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", reshape)?
        .def_kernel(
            "flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)",
            Tensor::flatten,
        )?
        .def_kernel("unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)", unflatten)?
        .def_kernel("split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]", split)?
        .def_kernel("chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]", chunk)?
        .def_kernel("unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]", Tensor::unbind)?
        .def_kernel("narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", narrow)?
        .def_kernel("squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)", squeeze)?
        .def_kernel(
            "contiguous(Tensor(a) self, *, MemoryFormat memory_format=contiguous_format) -> Tensor(a)",
            contiguous,
        )?
        .def_kernel(
            "to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? \
             memory_format=None) -> Tensor(a)",
            to_dtype,
        )?
        .def_kernel("stack(Tensor[] tensors, int dim=0) -> Tensor", |tensors: &[Tensor], dim: i64| {
            stack(&tensors.iter().collect::<Vec<_>>(), dim)
        })?
        .def_kernel("concat(Tensor[] tensors, int dim=0) -> Tensor", |tensors: &[Tensor], dim: i64| {
            cat(&tensors.iter().collect::<Vec<_>>(), dim)
        })?;
    Ok(())
}

fn reductions(library: &mut Library) -> Result<()> {
    library
        .def_kernel("softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", softmax)?
        .def_kernel("log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", log_softmax)?
        .def_kernel("sum(Tensor self, *, ScalarType? dtype=None) -> Tensor", sum)?
        .def_kernel("mean(Tensor self, *, ScalarType? dtype=None) -> Tensor", mean)?
        .def_kernel("max(Tensor self) -> Tensor", Tensor::max_all)?
        .def_kernel("min(Tensor self) -> Tensor", Tensor::min_all)?
        .def_kernel("any(Tensor self) -> Tensor", |x: &Tensor| x.any((), false))?
        .def_kernel("all(Tensor self) -> Tensor", |x: &Tensor| x.all((), false))?
        .def_kernel(
            "max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
            Tensor::max_dim,
        )?
        .def_kernel(
            "min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
            Tensor::min_dim,
        )?;
    Ok(())
}

fn factories(library: &mut Library) -> Result<()> {
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

/// The overloads of binary rows that take a plain number.
fn number_overloads(library: &mut Library) -> Result<()> {
    for &op in Op::ALL {
        let Schema::Binary("Tensor") = op.row().schema else { continue };
        library.def_kernel(
            &format!("{}.Scalar(Tensor self, Scalar other) -> Tensor", op.name()),
            move |x: &Tensor, number: Scalar| call(op, &[x, &Tensor::number(number)?], &[]),
        )?;
    }
    library
        .def_kernel("pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", |x: &Tensor, number: Scalar| {
            x.pow(number)
        })?
        .def_kernel(
            "add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
            |x: &Tensor, number: Scalar, alpha: Scalar| x.add_scaled(number, alpha),
        )?
        .def_kernel(
            "sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
            |x: &Tensor, number: Scalar, alpha: Scalar| x.sub_scaled(number, alpha),
        )?;
    Ok(())
}

// The functions below take their arguments as the boxed caller has them: counts are signed, options are there.

fn reshape(x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    x.reshape(sizes)
}

fn unflatten(x: &Tensor, dim: i64, sizes: &[i64]) -> Result<Tensor> {
    x.unflatten(dim, sizes)
}

fn split(x: &Tensor, size: i64, dim: i64) -> Result<Vec<Tensor>> {
    x.split(count("split", size)?, dim)
}

fn chunk(x: &Tensor, n: i64, dim: i64) -> Result<Vec<Tensor>> {
    x.chunk(count("chunk", n)?, dim)
}

fn narrow(x: &Tensor, dim: i64, start: i64, length: i64) -> Result<Tensor> {
    x.narrow(dim, start, count("narrow", length)?)
}

fn squeeze(x: &Tensor, dim: i64) -> Result<Tensor> {
    x.squeeze(dim)
}

fn contiguous(x: &Tensor, format: MemoryFormat) -> Result<Tensor> {
    check_storage("contiguous", None, None, Some(format))?;
    x.contiguous()
}

fn to_dtype(x: &Tensor, dtype: DType, _: bool, copy: bool, format: Option<MemoryFormat>) -> Result<Tensor> {
    check_storage("to", None, None, format)?;
    if copy && x.dtype() == dtype { x.copy() } else { x.to_dtype(dtype) }
}

/// `x` in the dtype asked for, if one is.
fn converted(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    dtype.map_or_else(|| Ok(x.clone()), |dtype| x.to_dtype(dtype))
}

fn softmax(x: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    converted(x, dtype)?.softmax(dim)
}

fn log_softmax(x: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    converted(x, dtype)?.log_softmax(dim)
}

fn sum(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    converted(x, dtype)?.sum_all()
}

fn mean(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    converted(x, dtype)?.mean_all()
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

fn count(op: &str, number: i64) -> Result<usize> {
    usize::try_from(number).map_err(|_| Error::OutOfRange {
        op: op.into(),
        what: "a count".into(),
        low: 0,
        high: i64::MAX,
        got: number,
    })
}

/// Refuses what results are not stored like: sparse, pinned, channels last.
fn check_storage(
    op: &str,
    layout: Option<TensorLayout>,
    pin_memory: Option<bool>,
    format: Option<MemoryFormat>,
) -> Result<()> {
    let refuse = |what: &str| Err(Error::argument(op, format!("{what} is not supported; leave the argument out")));
    match (layout, pin_memory, format) {
        (Some(TensorLayout::Sparse | TensorLayout::SparseCsr), _, _) => refuse("a sparse layout"),
        (_, Some(true), _) => refuse("pinned memory"),
        (_, _, Some(MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d)) => refuse("a channels-last format"),
        (_, _, _) => Ok(()),
    }
}
