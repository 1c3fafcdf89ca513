//! Types of the results of pointwise ops, and of copies in another dtype or memory format.

use crate::error::{Error, Result};
use crate::ir::attr::MemoryFormat;
use crate::ir::attrs::*;
use crate::ir::dtype::DType;
use crate::ir::row::{Call, Meaning};
use crate::ir::scalar::Scalar;
use crate::ir::shape::{self, Sizes, broadcast};
use crate::ir::types::TensorType;

/// The type of a pointwise result: broadcast sizes, the dtype of the row's rule, and strides that follow the operands.
pub fn pointwise(call: &Call<'_>) -> Result<TensorType> {
    let Meaning::Body(rule, _) = call.op.row().meaning else {
        unreachable!("{} has no body", call.name());
    };
    let dtype = rule.compute(call.name(), call.args, call.attrs)?.result;
    if rule.keeps_numbers(call.args) {
        return Ok(TensorType::number(dtype));
    }
    let mut sizes = Sizes::from_slice(&call.args[0].sizes);
    for arg in &call.args[1..] {
        sizes = broadcast(call.name(), &sizes, &arg.sizes)?;
    }
    shape::checked_numel(call.name(), &sizes, dtype.size())?;
    let inputs: Vec<(&[usize], &[usize])> = call.args.iter().map(|arg| (&arg.sizes[..], &arg.strides[..])).collect();
    let strides = shape::elementwise_strides(&sizes, &inputs);
    Ok(TensorType { dtype, sizes, strides, number: false })
}

/// Like [`pointwise`], but strides follow the second operand before the first.
pub fn second_leads(call: &Call<'_>) -> Result<TensorType> {
    pointwise(&Call { args: &[call.args[1], call.args[0]], ..*call })
}

/// Like [`pointwise`], for ops with a factor `alpha`. It must be a whole number if the result is an integer.
pub fn scaled(call: &Call<'_>, alpha: Scalar) -> Result<TensorType> {
    let result = pointwise(call)?;
    match alpha {
        Scalar::Bool(_) if result.dtype != DType::Bool => Err(Error::argument(
            call.name(),
            format!("alpha is a bool, but the result is {}; pass a number", result.dtype),
        )),
        Scalar::Float(alpha) if !result.dtype.is_float() => Err(Error::argument(
            call.name(),
            format!("alpha is {alpha}, but the result is {}; pass a whole number", result.dtype),
        )),
        Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float(_) => Ok(result),
    }
}

/// Like [`pointwise`], but row-major.
pub fn row_major(call: &Call<'_>) -> Result<TensorType> {
    let dense = pointwise(call)?;
    Ok(TensorType::contiguous(dense.dtype, &dense.sizes))
}

/// Like [`row_major`], and checks that the value fits the dtype of the first operand.
pub fn masked_fill(call: &Call<'_>) -> Result<TensorType> {
    let result = row_major(call)?;
    Value::read(call.attrs).value.need_fit(call.name(), result.dtype).map(|()| result)
}

/// Like [`pointwise`], for operands that must have one dtype.
pub fn one_dtype(call: &Call<'_>) -> Result<TensorType> {
    let dtype = call.args[0].dtype;
    match call.args.iter().find(|arg| arg.dtype != dtype) {
        Some(other) => Err(Error::dtype(
            call.name(),
            other.dtype,
            dtype.name(),
            "this op does not promote operands; convert one of them",
        )),
        None => pointwise(call),
    }
}

/// Like [`pointwise`], and checks `rounding_mode`.
pub fn division(call: &Call<'_>) -> Result<TensorType> {
    match DivMode::misfit(call.attrs) {
        None => pointwise(call),
        Some((name, word)) => {
            Err(Error::argument("div", format!("{name} is {word}; use none, \"trunc\" or \"floor\"")))
        }
    }
}

/// Like [`pointwise`], and rejects negative powers of integers, and powers of bools.
pub fn power_of_number(call: &Call<'_>) -> Result<TensorType> {
    let result = pointwise(call)?;
    let PowScalar { exponent } = PowScalar::read(call.attrs);
    if result.dtype == DType::Bool {
        return Err(Error::unsupported("pow", DType::Bool, "a number", "convert first"));
    }
    if !result.dtype.is_float() && exponent.as_i64() < 0 {
        let what = format!("Integers to negative integer powers are not allowed: the exponent is {exponent}");
        return Err(Error::argument("pow", format!("{what}; convert to a floating dtype first")));
    }
    Ok(result)
}

/// Like [`pointwise`], and checks the order: the factorial of a larger one is far beyond the range of f32.
pub fn polygamma(call: &Call<'_>) -> Result<TensorType> {
    match Polygamma::read(call.attrs).n {
        0..=30 => pointwise(call),
        order => Err(Error::argument("polygamma", format!("order {order} is not supported; use 0 to 30"))),
    }
}

/// Like [`pointwise`], and rejects negative bounds of unsigned integers.
pub fn hardtanh(call: &Call<'_>) -> Result<TensorType> {
    let Hardtanh { min_val, max_val } = Hardtanh::read(call.attrs);
    let is_negative = |bound: Option<Scalar>| bound.is_some_and(|bound| bound.as_f64() < 0.0);
    if call.args[0].dtype == DType::U8 && (is_negative(min_val) || is_negative(max_val)) {
        return Err(Error::argument("hardtanh", "u8 elements cannot have negative limits; convert first"));
    }
    pointwise(call)
}

/// Like [`pointwise`], and rejects a negative `lambd`.
pub fn softshrink(call: &Call<'_>) -> Result<TensorType> {
    let Softshrink { lambd } = Softshrink::read(call.attrs);
    if lambd.as_f64() < 0.0 {
        return Err(Error::argument("softshrink", format!("lambd is {lambd}; it must not be negative")));
    }
    pointwise(call)
}

/// Like [`pointwise`], and checks that the value is a 0-dim tensor.
pub fn fill(call: &Call<'_>) -> Result<TensorType> {
    if call.args[1].rank() != 0 {
        let what = format!("the value has shape {:?}", &call.args[1].sizes[..]);
        return Err(Error::shape("fill", what, "it must be a 0-dim tensor"));
    }
    pointwise(call)
}

/// Like [`pointwise`], and checks `approximate`.
pub fn gelu(call: &Call<'_>) -> Result<TensorType> {
    match Gelu::misfit(call.attrs) {
        None => pointwise(call),
        Some((name, word)) => Err(Error::argument("gelu", format!("{name} is {word}; use \"none\" or \"tanh\""))),
    }
}

/// Like [`pointwise`], and requires a bound.
pub fn clamp(call: &Call<'_>) -> Result<TensorType> {
    let Clamp { min, max } = Clamp::read(call.attrs);
    if min.is_none() && max.is_none() {
        return Err(Error::argument("clamp", "at least one of min and max must be given"));
    }
    if call.args[0].dtype == DType::Bool {
        return Err(Error::unsupported("clamp", DType::Bool, "a number", "convert first"));
    }
    pointwise(call)
}

/// Like [`pointwise`], in the memory format of the argument.
pub fn clone(call: &Call<'_>) -> Result<TensorType> {
    ordered(call, Ordered::read(call.attrs).memory_format)
}

/// Like [`clone`], in the dtype of the argument.
pub fn to_copy(call: &Call<'_>) -> Result<TensorType> {
    ordered(call, ToCopy::read(call.attrs).memory_format)
}

/// A dense result in a memory format.
fn ordered(call: &Call<'_>, format: MemoryFormat) -> Result<TensorType> {
    let kept = pointwise(call)?;
    let Some(order) = format.order() else {
        return Ok(match format {
            MemoryFormat::Contiguous => TensorType::contiguous(kept.dtype, &kept.sizes),
            MemoryFormat::Preserve | MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d => kept,
        });
    };
    if order.len() != kept.rank() {
        let what = format!("shape {:?} has no memory format {}", &kept.sizes[..], format.name());
        return Err(Error::shape(call.name(), what, format!("it needs {} dims", order.len())));
    }
    Ok(TensorType { strides: shape::strides_in_order(&kept.sizes, order), ..kept })
}
