//! Reductions that treat the parts together.

use crate::dispatch::library::Library;
use crate::error::Result;
use crate::ir::shape::normalize_dim;
use crate::ir::{DType, Scalar};
use crate::ops::factories::full_on;
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;
use crate::transforms::complex::operands::parts;

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .impl_("prod.dim_int", product)?
        .impl_("var.correction", variance)?
        .impl_("std.correction", |x: &Tensor, dims: Option<&[i64]>, correction: Option<Scalar>, keepdim: bool| {
            variance(x, dims, correction, keepdim)?.sqrt()
        })?
        .impl_("any.dims", |x: &Tensor, dims: Option<&[i64]>, keepdim: bool| {
            x.ne(0)?.any(dims.unwrap_or_default(), keepdim)
        })?
        .impl_("all.dims", |x: &Tensor, dims: Option<&[i64]>, keepdim: bool| {
            x.ne(0)?.all(dims.unwrap_or_default(), keepdim)
        })?;
    Ok(())
}

/// The product along a dim: of its halves, and so on.
fn product(x: &Tensor, dim: i64, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    let mut x = dtype.map_or_else(|| Ok(x.clone()), |dtype| x.to_dtype(dtype))?;
    let at = normalize_dim("prod", dim, x.dim())?;
    if x.dim() == 0 {
        return Ok(x);
    }
    let along = at as i64;
    while x.sizes()[at] > 1 {
        let (whole, half) = (x.sizes()[at], x.sizes()[at] / 2);
        let halves = x.narrow(along, 0, half)?.mul(&x.narrow(along, half as i64, half)?)?;
        let is_even = whole == 2 * half;
        x = if is_even { halves } else { cat(&[&halves, &x.narrow(along, whole as i64 - 1, 1)?], along)? };
    }
    if x.sizes()[at] == 0 {
        let mut sizes = x.sizes().to_vec();
        sizes[at] = 1;
        x = full_on(x.device(), &sizes, Scalar::Int(1), Some(x.dtype()))?;
    }
    if keepdim { Ok(x) } else { x.squeeze(along) }
}

/// The variance of the real parts plus that of the imaginary parts, which is a real number.
fn variance(x: &Tensor, dims: Option<&[i64]>, correction: Option<Scalar>, keepdim: bool) -> Result<Tensor> {
    let (re, im) = parts(x)?;
    let (dims, correction) = (dims.unwrap_or_default(), correction.unwrap_or(Scalar::Int(1)));
    re.var(dims, correction, keepdim)?.add(&im.var(dims, correction, keepdim)?)
}
