//! Conversions, parts and writes.

use crate::device::Device;
use crate::dispatch::library::Library;
use crate::dispatch::value::TensorLayout;
use crate::error::{Error, Result};
use crate::ir::{DType, MemoryFormat, Scalar};
use crate::ops::complex_numbers::{as_pairs, of_pairs, of_parts};
use crate::tensor::handle::Tensor;
use crate::transforms::complex::operands::parts;

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .impl_("copy_", copy_into)?
        .impl_(
            "_to_copy",
            |x: &Tensor,
             dtype: Option<DType>,
             _layout: Option<TensorLayout>,
             device: Option<Device>,
             _pin_memory: Option<bool>,
             _non_blocking: bool,
             _format: Option<MemoryFormat>| converted("_to_copy", x, dtype, device),
        )?
        .impl_("_convert", |x: &Tensor, dtype: Option<DType>, _format: Option<MemoryFormat>| {
            converted("_convert", x, dtype, None)
        })?
        .impl_("view_as_real", pairs)?
        .impl_("real", |x: &Tensor| pairs(x)?.select(-1, 0))?
        .impl_("imag", |x: &Tensor| pairs(x)?.select(-1, 1))?
        .impl_("fill.Scalar", |x: &Tensor, value: Scalar| by_parts(x, |re| re.full_like(value), |im| im.zeros_like()))?
        .impl_("masked_fill.Scalar", |x: &Tensor, mask: &Tensor, value: Scalar| {
            if mask.is_complex() {
                return Err(Error::dtype("masked_fill", mask.dtype(), "bool", "compare it first, as with ne(0)"));
            }
            by_parts(x, |re| re.masked_fill(mask, value), |im| im.masked_fill(mask, 0))
        })?
        .impl_("constant_pad_nd", |x: &Tensor, pad: &[i64], value: Scalar| {
            by_parts(x, |re| re.constant_pad_nd(pad, value), |im| im.constant_pad_nd(pad, 0))
        })?
        .impl_("as_strided", |x: &Tensor, sizes: &[i64], strides: &[i64], offset: Option<i64>| {
            let strides: Vec<i64> = strides.iter().map(|stride| 2 * stride).chain([1]).collect();
            let offset = offset.unwrap_or(x.storage_offset() as i64);
            let sizes = [sizes, &[2]].concat();
            of_pairs(&pairs(x)?.as_strided(&sizes[..], &strides[..], Some(2 * offset))?)
        })?;
    for name in ["conj", "_conj", "conj_physical"] {
        library.impl_(name, |x: &Tensor| by_parts(x, |re| Ok(re.clone()), Tensor::neg))?;
    }
    Ok(())
}

/// The pairs of a complex tensor, as a view.
fn pairs(x: &Tensor) -> Result<Tensor> {
    as_pairs(x, x.dtype())?.alias()
}

/// The complex numbers whose parts are functions of parts.
fn by_parts(
    x: &Tensor,
    real: impl FnOnce(&Tensor) -> Result<Tensor>,
    imag: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let (re, im) = parts(x)?;
    of_parts(&real(&re)?, &imag(&im)?)
}

fn copy_into(target: &Tensor, source: &Tensor, _non_blocking: bool) -> Result<Tensor> {
    let Some(pairs) = target.pairs() else { return Err(no_real_number("copy_", source, target.dtype())) };
    pairs.copy_(&as_pairs(source, target.dtype())?)?;
    Ok(target.clone())
}

/// A copy in another dtype or on another device.
fn converted(op: &str, x: &Tensor, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    let dtype = dtype.unwrap_or(x.dtype());
    if dtype == DType::Bool {
        return x.ne(0);
    }
    if !dtype.is_complex() {
        return Err(no_real_number(op, x, dtype));
    }
    let here = as_pairs(x, x.dtype())?;
    let there = here.to_dtype(dtype.part())?.to_device(device.unwrap_or(x.device()))?;
    of_pairs(&if there.has_storage_of(&here) { there.copy()? } else { there })
}

fn no_real_number(op: &str, x: &Tensor, dtype: DType) -> Error {
    let hint = format!("take real() or abs() first; as {dtype}, the imaginary part would be lost");
    Error::dtype(op, x.dtype(), "a complex dtype to convert to", hint)
}
