//! Types of the results of factories: `full` and `arange`.

use crate::error::{Error, Result};
use crate::ir::attrs::{Arange, Attributes, Full};
use crate::ir::dtype::DType;
use crate::ir::row::Call;
use crate::ir::shape::{self, Sizes};
use crate::ir::types::TensorType;

/// The type of `full`. The default dtype follows from the value.
pub fn full(call: &Call<'_>) -> Result<TensorType> {
    let Full { size: sizes, fill_value: value, dtype } = Full::read(call.attrs);
    let fitting = if value.dtype().is_float() { DType::DEFAULT_FLOAT } else { value.dtype() };
    let dtype = dtype.unwrap_or(fitting);
    if let Some(bad) = sizes.iter().find(|size| **size < 0) {
        return Err(Error::shape("full", format!("size {bad} is negative"), "sizes count elements"));
    }
    let sizes: Sizes = sizes.iter().map(|&size| size as usize).collect();
    shape::checked_numel("full", &sizes, dtype.size())?;
    value.need_fit("full", dtype)?;
    Ok(TensorType::contiguous(dtype, &sizes))
}

/// The type of `arange`. The default dtype is i64 if all three numbers are integers, else the default float.
pub fn arange(call: &Call<'_>) -> Result<TensorType> {
    let Arange { start, end, step, dtype } = Arange::read(call.attrs);
    let whole = [start, end, step].iter().all(|value| !value.dtype().is_float());
    let dtype = dtype.unwrap_or(if whole { DType::I64 } else { DType::DEFAULT_FLOAT });
    if dtype == DType::Bool {
        return Err(Error::unsupported("arange", dtype, "a number", "compare a range to make bools"));
    }
    let invalid = |what: String| Err(Error::shape("arange", what, "end must be reached from start in steps of step"));
    if step.as_f64() == 0.0 || !(start.as_f64().is_finite() && end.as_f64().is_finite() && step.as_f64().is_finite()) {
        return invalid(format!("range from {start} to {end} in steps of {step} does not end"));
    }
    let count = if whole {
        let (span, step) = (end.as_i64() as i128 - start.as_i64() as i128, step.as_i64() as i128);
        span.signum() * step.signum() * ((span.abs() + step.abs() - 1) / step.abs())
    } else {
        ((end.as_f64() - start.as_f64()) / step.as_f64()).ceil() as i128
    };
    if count < 0 {
        return invalid(format!("range from {start} to {end} in steps of {step} runs the wrong way"));
    }
    let Ok(count) = usize::try_from(count) else {
        let what = format!("range from {start} to {end} in steps of {step} has {count} elements or more");
        return Err(Error::shape("arange", what, "they do not fit the address space; pass a longer step"));
    };
    shape::checked_numel("arange", &[count], dtype.size())?;
    Ok(TensorType::contiguous(dtype, &[count]))
}
