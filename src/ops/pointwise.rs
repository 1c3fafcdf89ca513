//! Overloads of pointwise operators with numbers or tensors in other places, and what is made of several of them.
//!
//! Each has the dtype and the memory order that its parts give it. Those that PyTorch defines by parts round where its
//! parts do.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::row::Schema;
use crate::ir::{DType, Op, Scalar};
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    choices(library)?;
    powers(library)?;
    library
        .def_kernel("rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", rsub)?
        .def_kernel(
            "rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
            |x: &Tensor, number: Scalar, alpha: Scalar| rsub(x, &Tensor::number(number)?, alpha),
        )?
        .def_kernel(
            "div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",
            |x: &Tensor, number: Scalar, mode: Option<&str>| x.div_rounded(number, mode.unwrap_or_default()),
        )?
        .def_kernel("floor_divide.Scalar(Tensor self, Scalar other) -> Tensor", |x: &Tensor, number: Scalar| {
            x.floor_divide(number)
        })?
        .def_kernel("positive(Tensor(a) self) -> Tensor(a)", positive)?
        .def_kernel(
            "nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
            nan_to_num,
        )?
        .def_kernel(
            "isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
            isclose,
        )?;
    Ok(())
}

/// What takes one operand or the other.
fn choices(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            "where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor",
            |mask: &Tensor, yes: Scalar, no: &Tensor| mask.where_(yes, no),
        )?
        .def_kernel(
            "where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor",
            |mask: &Tensor, yes: &Tensor, no: Scalar| mask.where_(yes, no),
        )?
        .def_kernel(
            "where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor",
            |mask: &Tensor, yes: Scalar, no: Scalar| mask.where_(yes, no),
        )?
        .def_kernel("masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor", masked_fill)?
        .def_kernel("clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", clamp)?
        .def_kernel("clamp_min(Tensor self, Scalar min) -> Tensor", |x: &Tensor, min: Scalar| x.clamp_min(min))?
        .def_kernel("clamp_max(Tensor self, Scalar max) -> Tensor", |x: &Tensor, max: Scalar| x.clamp_max(max))?
        .def_kernel("clamp_min.Tensor(Tensor self, Tensor min) -> Tensor", |x: &Tensor, min: &Tensor| x.maximum(min))?
        .def_kernel("clamp_max.Tensor(Tensor self, Tensor max) -> Tensor", |x: &Tensor, max: &Tensor| x.minimum(max))?;
    Ok(())
}

/// Powers of a number, and powers in f64.
fn powers(library: &mut Library) -> Result<()> {
    library
        .def_kernel("pow.Scalar(Scalar self, Tensor exponent) -> Tensor", |base: Scalar, exponent: &Tensor| {
            call(Op::Pow, &[&Tensor::number(base)?, exponent], &[])
        })?
        .def_kernel(
            "float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
            |x: &Tensor, exponent: &Tensor| x.to_dtype(DType::F64)?.pow(exponent.to_dtype(DType::F64)?),
        )?
        .def_kernel(
            "float_power.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
            |x: &Tensor, exponent: Scalar| x.to_dtype(DType::F64)?.pow(exponent),
        )?
        .def_kernel(
            "float_power.Scalar(Scalar self, Tensor exponent) -> Tensor",
            |base: Scalar, exponent: &Tensor| {
                call(Op::Pow, &[&Tensor::number(base)?, &exponent.to_dtype(DType::F64)?], &[])
            },
        )?;
    Ok(())
}

fn rsub(x: &Tensor, other: &Tensor, alpha: Scalar) -> Result<Tensor> {
    other.sub_scaled(x, alpha)
}

fn positive(x: &Tensor) -> Result<Tensor> {
    if x.dtype() == DType::Bool {
        return Err(Error::dtype("positive", DType::Bool, "a number", "convert first"));
    }
    Ok(x.clone())
}

fn masked_fill(x: &Tensor, mask: &Tensor, value: &Tensor) -> Result<Tensor> {
    if value.dim() != 0 {
        let what = format!("masked_fill only supports a 0-dimensional value tensor, but got {:?}", value.sizes());
        return Err(Error::shape("masked_fill", what, "pass a number or select one element"));
    }
    mask.where_(value.to_dtype(x.dtype())?, x)?.contiguous()
}

fn clamp(x: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>) -> Result<Tensor> {
    match (min, max) {
        (Some(min), Some(max)) => x.maximum(min)?.minimum(max),
        (Some(min), None) => x.maximum(min),
        (None, Some(max)) => x.minimum(max),
        (None, None) => Err(Error::argument("clamp", "At least one of 'min' or 'max' must not be None")),
    }
}

fn nan_to_num(x: &Tensor, nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
    let Some(greatest) = greatest_finite(x.dtype()) else { return x.copy() };
    let numbers = x.isnan()?.where_(nan.unwrap_or(0.0), x)?;
    let below = x.isposinf()?.where_(posinf.unwrap_or(greatest), &numbers)?;
    x.isneginf()?.where_(neginf.unwrap_or(-greatest), &below)
}

/// The greatest finite number of a floating dtype.
fn greatest_finite(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F16 => Some(65504.0),
        // 2^128 less half a last place of the width before it.
        DType::BF16 => Some((2.0 - 1.0 / 128.0) * 2_f64.powi(127)),
        DType::F32 => Some(f64::from(f32::MAX)),
        DType::F64 => Some(f64::MAX),
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => None,
    }
}

fn isclose(x: &Tensor, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
    let op = "isclose";
    if x.dtype() != other.dtype() {
        return Err(Error::argument(op, format!("{} did not match {}; convert one side", x.dtype(), other.dtype())));
    }
    // A NaN is refused too.
    let is_tolerance = |value: f64| value >= 0.0;
    if !is_tolerance(rtol) || !is_tolerance(atol) {
        return Err(Error::argument(op, format!("rtol is {rtol} and atol {atol}; they must not be negative")));
    }
    let equal = x.eq(other)?;
    let is_float = x.dtype().is_float();
    let close = if equal_nan && is_float { equal.logical_or(x.isnan()?.logical_and(other.isnan()?)?)? } else { equal };
    if rtol == 0.0 && atol == 0.0 {
        return Ok(close);
    }
    let other = if is_float { other.clone() } else { other.to_dtype(DType::DEFAULT_FLOAT)? };
    let allowed = other.mul(rtol)?.abs()?.add(atol)?;
    let actual = x.sub(&other)?.abs()?;
    close.logical_or(actual.isfinite()?.logical_and(actual.le(&allowed)?)?)
}

pub(crate) fn register_numbers(library: &mut Library) -> Result<()> {
    for &op in Op::ALL {
        let Schema::Binary("Tensor") = op.row().schema else { continue };
        let (right, left) = overloads(op);
        library.def_kernel(
            &format!("{}.{right}(Tensor self, Scalar other) -> Tensor", op.name()),
            move |x: &Tensor, number: Scalar| call(op, &[x, &Tensor::number(number)?], &[]),
        )?;
        if let Some(left) = left {
            library.def_kernel(
                &format!("{}.{left}(Scalar self, Tensor other) -> Tensor", op.name()),
                move |number: Scalar, x: &Tensor| call(op, &[&Tensor::number(number)?, x], &[]),
            )?;
        }
    }
    library
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

/// The names of the overloads with the number on the right and, where there is one, with the number on the left.
/// Operators are named as they came to be; only these differ from the rest.
fn overloads(op: Op) -> (&'static str, Option<&'static str>) {
    match op.name() {
        "bitwise_left_shift" | "bitwise_right_shift" => ("Tensor_Scalar", Some("Scalar_Tensor")),
        "bitwise_and" | "bitwise_or" | "bitwise_xor" | "remainder" => ("Scalar", Some("Scalar_Tensor")),
        "xlogy" => ("Scalar_Other", Some("Scalar_Self")),
        _ => ("Scalar", None),
    }
}

pub(crate) fn register_choices(library: &mut Library) -> Result<()> {
    library
        .def_kernel("max.other(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| x.maximum(other))?
        .def_kernel("min.other(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| x.minimum(other))?;
    Ok(())
}
