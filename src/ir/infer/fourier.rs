//! Types of the results of Fourier transforms.
//!
//! Elements are f32 or f64. Complex numbers are pairs in the last dim, which is none that a transform runs along.

use crate::error::{Error, Result};
use crate::ir::attrs::*;
use crate::ir::dtype::DType;
use crate::ir::row::Call;
use crate::ir::shape::{Sizes, checked_numel, normalize_dim};
use crate::ir::types::TensorType;

/// The type of a complex transform. Sizes are kept.
pub fn complex(call: &Call<'_>) -> Result<TensorType> {
    let (sizes, dim) = pairs(call, FftPairs::read(call.attrs).dim)?;
    length(call, sizes[dim])?;
    made(call, sizes)
}

/// The type of a transform of real numbers: the pairs are a new last dim.
pub fn from_real(call: &Call<'_>) -> Result<TensorType> {
    let RfftPairs { dim, onesided, .. } = RfftPairs::read(call.attrs);
    let mut sizes = floats(call)?;
    if sizes.is_empty() {
        return Err(Error::shape(
            call.name(),
            "a tensor without dims has no line to transform",
            "pass at least one dim",
        ));
    }
    let dim = normalize_dim(call.name(), dim, sizes.len())?;
    let length = length(call, sizes[dim])?;
    sizes[dim] = if onesided { length / 2 + 1 } else { length };
    sizes.push(2);
    made(call, sizes)
}

/// The type of a transform to real numbers: the dim has `n` elements, and the pairs are gone.
pub fn to_real(call: &Call<'_>) -> Result<TensorType> {
    let IrfftPairs { dim, n, .. } = IrfftPairs::read(call.attrs);
    let (mut sizes, dim) = pairs(call, dim)?;
    let length = length(call, usize::try_from(n).unwrap_or(0))?;
    if sizes[dim] != length / 2 + 1 {
        let what = format!("{} elements in dim {dim} of shape {:?}", sizes[dim], &sizes[..]);
        let hint = format!("a result of {length} elements is made of {}; pad or cut the dim", length / 2 + 1);
        return Err(Error::shape(call.name(), what, &hint));
    }
    sizes[dim] = length;
    sizes.pop();
    made(call, sizes)
}

fn floats(call: &Call<'_>) -> Result<Sizes> {
    let ty = call.args[0];
    if matches!(ty.dtype, DType::F32 | DType::F64) {
        return Ok(ty.sizes.clone());
    }
    Err(Error::unsupported(call.name(), ty.dtype, "f32 and f64", "convert with to_dtype(DType::F32) first"))
}

/// The sizes of a tensor of pairs, and the dim of its transform.
fn pairs(call: &Call<'_>, along: i64) -> Result<(Sizes, usize)> {
    let sizes = floats(call)?;
    if sizes.len() < 2 || sizes.last() != Some(&2) {
        let what = format!("complex numbers are pairs in a last dim of size 2, but the shape is {:?}", &sizes[..]);
        return Err(Error::shape(call.name(), what, "stack real and imaginary parts in a new last dim"));
    }
    let dim = normalize_dim(call.name(), along, sizes.len())?;
    if dim == sizes.len() - 1 {
        let what = format!("dim {along} of shape {:?} holds the parts of complex numbers", &sizes[..]);
        return Err(Error::shape(call.name(), what, "transform along a dim before it"));
    }
    Ok((sizes, dim))
}

/// The length of a line, if it has a transform.
fn length(call: &Call<'_>, length: usize) -> Result<usize> {
    if length == 0 {
        let what = format!("a transform of {length} elements of {}", call.args[0]);
        return Err(Error::shape(call.name(), what, "transform at least one element"));
    }
    Ok(length)
}

fn made(call: &Call<'_>, sizes: Sizes) -> Result<TensorType> {
    let dtype = call.args[0].dtype;
    checked_numel(call.name(), &sizes, dtype.size())?;
    Ok(TensorType::contiguous(dtype, &sizes))
}
