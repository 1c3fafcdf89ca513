//! Activations that are made of others. Those of one row, and their gradients, are in the op table.
//!
//! Each is computed in f32 or wider from the first part to the last and rounded once.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::{Attr, Op, Scalar};
use crate::ops::composites::arguments::{need_float, widened};
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("celu(Tensor self, Scalar alpha=1.0) -> Tensor", celu)?
        .def_kernel("prelu(Tensor self, Tensor weight) -> Tensor", prelu)?
        .def_kernel("glu(Tensor self, int dim=-1) -> Tensor", glu)?
        .def_kernel("glu_backward(Tensor grad_output, Tensor self, int dim) -> Tensor", glu_backward)?;
    Ok(())
}

fn celu(x: &Tensor, alpha: Scalar) -> Result<Tensor> {
    let alpha = alpha.as_f64();
    if alpha == 0.0 {
        return Err(Error::argument("celu", "ZeroDivisionError: alpha cannot be 0 for celu; use relu"));
    }
    call(Op::Elu, &[x], &[Attr::float(alpha), Attr::float(1.0), Attr::float(1.0 / alpha)])
}

/// One slope, or one per channel, which is the second dim.
fn prelu(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let op = "prelu";
    if x.dtype() != weight.dtype() {
        let what = format!("Type promoting not supported. Got {} and {}", x.dtype(), weight.dtype());
        return Err(Error::argument(op, format!("{what}; convert one side")));
    }
    need_float(op, &[x])?;
    let n_channels = x.sizes().get(1).copied().unwrap_or(1);
    let fits = weight.dim() <= 1 && (weight.numel() == 1 || (x.dim() > 0 && weight.numel() == n_channels));
    if !fits {
        let what = format!("weight has shape {:?} and the input {:?}", weight.sizes(), x.sizes());
        return Err(Error::shape(op, what, "there must be one weight, or one per channel, which is dim 1"));
    }
    let weight = if weight.numel() == 1 || x.dim() < 2 {
        weight.clone()
    } else {
        let mut sizes = vec![1; x.dim()];
        sizes[1] = n_channels;
        weight.reshape(&sizes[..])?
    };
    let weight = if x.dim() == 0 { weight.reshape(())? } else { weight };
    x.gt(0.0)?.where_(x, weight.mul(x)?)
}

/// The two halves of a dim.
fn halves(op: &str, x: &Tensor, dim: i64) -> Result<(Tensor, Tensor)> {
    need_float(op, &[x])?;
    if x.dim() == 0 {
        return Err(Error::shape(op, "the input is 0-dimensional", "it must have a dim to halve"));
    }
    let rank = x.dim() as i64;
    let index = if dim < 0 { dim + rank } else { dim };
    let Some(&size) = usize::try_from(index).ok().and_then(|index| x.sizes().get(index)) else {
        return Err(Error::OutOfRange { op: op.into(), what: "dim".into(), low: -rank, high: rank - 1, got: dim });
    };
    if !size.is_multiple_of(2) {
        let what = format!("Halving dimension must be even, but dimension {index} is size {size}");
        return Err(Error::shape(op, what, "pad it or drop one"));
    }
    let half = size / 2;
    Ok((x.narrow(index, 0, half)?, x.narrow(index, half as i64, half)?))
}

fn glu(x: &Tensor, dim: i64) -> Result<Tensor> {
    let (a, b) = halves("glu", x, dim)?;
    widened(&a)?.mul(widened(&b)?.sigmoid()?)?.to_dtype(x.dtype())
}

fn glu_backward(grad: &Tensor, x: &Tensor, dim: i64) -> Result<Tensor> {
    let (a, b) = halves("glu_backward", x, dim)?;
    let (gate, grad) = (widened(&b)?.sigmoid()?, widened(grad)?);
    let first = gate.mul(&grad)?;
    let second = first.mul(one_minus(&gate)?)?.mul(widened(&a)?)?;
    cat(&[&first, &second], dim)?.to_dtype(x.dtype())
}

fn one_minus(x: &Tensor) -> Result<Tensor> {
    x.neg()?.add(1.0)
}
