//! The gradient of the gated linear unit.

use super::{need_float, widened};
use crate::dispatch::joins::cat;
use crate::dispatch::library::Library;
use crate::dispatch::tensor::Tensor;
use crate::error::{Error, Result};
use crate::ir::shape::normalize_dim;

pub(super) fn register(library: &mut Library) -> Result<()> {
    library.def_kernel("glu_backward(Tensor grad_output, Tensor self, int dim) -> Tensor", glu_backward)?;
    Ok(())
}

/// Of `a sigmoid(b)`, where `a` and `b` are the halves of the input.
fn glu_backward(gradient: &Tensor, x: &Tensor, dim: i64) -> Result<Tensor> {
    let op = "glu_backward";
    need_float(op, &[gradient, x])?;
    let at = normalize_dim(op, dim, x.dim())?;
    let size = x.sizes().get(at).copied().unwrap_or(0);
    if x.dim() == 0 || size % 2 != 0 {
        let what = format!("dim {dim} of input shape {:?}", x.sizes());
        return Err(Error::shape(op, what, "it must be even, to be cut in halves"));
    }
    let (half, wide) = (size / 2, widened(x)?);
    let (a, b) = (wide.narrow(dim, 0, half)?, wide.narrow(dim, half as i64, half)?);
    let gate = b.sigmoid()?;
    let by_a = widened(gradient)?.mul(&gate)?;
    let by_b = by_a.mul(a.mul(gate.neg()?.add(1.0)?)?)?;
    cat(&[&by_a, &by_b], dim)?.to_dtype(x.dtype())
}
