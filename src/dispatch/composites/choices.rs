//! Choices between elements under their ATen schemas: conditions, bounds, the greater and the lesser.
//!
//! Each is made of `where`, whose derivative goes to the operand that was chosen.

use crate::dispatch::library::Library;
use crate::dispatch::tensor::Tensor;
use crate::error::{Error, Result};
use crate::ir::{Scalar, promote_all};

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            "where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor",
            |condition: &Tensor, yes: Scalar, no: &Tensor| condition.where_(yes, no),
        )?
        .def_kernel(
            "where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor",
            |condition: &Tensor, yes: &Tensor, no: Scalar| condition.where_(yes, no),
        )?
        .def_kernel(
            "where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor",
            |condition: &Tensor, yes: Scalar, no: Scalar| condition.where_(yes, no),
        )?
        .def_kernel("masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor", masked_fill)?
        .def_kernel("max.other(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| x.maximum(other))?
        .def_kernel("min.other(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| x.minimum(other))?
        .def_kernel("clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", clamp)?
        .def_kernel("clamp_min(Tensor self, Scalar min) -> Tensor", |x: &Tensor, min: Scalar| x.clamp_min(min))?
        .def_kernel("clamp_max(Tensor self, Scalar max) -> Tensor", |x: &Tensor, max: Scalar| x.clamp_max(max))?
        .def_kernel("clamp_min.Tensor(Tensor self, Tensor min) -> Tensor", |x: &Tensor, min: &Tensor| {
            clamp(x, Some(min), None)
        })?
        .def_kernel("clamp_max.Tensor(Tensor self, Tensor max) -> Tensor", |x: &Tensor, max: &Tensor| {
            clamp(x, None, Some(max))
        })?;
    Ok(())
}

fn masked_fill(x: &Tensor, mask: &Tensor, value: &Tensor) -> Result<Tensor> {
    if value.dim() != 0 {
        let what = format!("the value has shape {:?}", value.sizes());
        return Err(Error::shape("masked_fill", what, "it must be a 0-dim tensor"));
    }
    mask.where_(&value.to_dtype(x.dtype())?, x)?.contiguous()
}

/// Bounds and elements have one dtype. A NaN stays, and a NaN for a bound gives NaN.
fn clamp(x: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>) -> Result<Tensor> {
    if min.is_none() && max.is_none() {
        return Err(Error::argument("clamp", "at least one of min and max must be given"));
    }
    let operands = [Some(x), min, max].into_iter().flatten().map(|operand| operand.ty().promote_operand());
    let dtype = promote_all(operands).unwrap_or(x.dtype());
    let mut result = x.to_dtype(dtype)?;
    if let Some(min) = min {
        let min = min.to_dtype(dtype)?;
        result = result.lt(&min)?.logical_or(&min.isnan()?)?.where_(&min, &result)?;
    }
    if let Some(max) = max {
        let max = max.to_dtype(dtype)?;
        result = result.gt(&max)?.logical_or(&max.isnan()?)?.where_(&max, &result)?;
    }
    Ok(result)
}
