//! Types of the results of reductions, and of ops that normalize over dims.

use crate::error::{Error, Result};
use crate::ir::attr::Attr;
use crate::ir::attrs::*;
use crate::ir::dtype::DType;
use crate::ir::row::Call;
use crate::ir::shape::{Sizes, normalize_dim, normalize_dims};
use crate::ir::types::TensorType;

/// The dims of a reduction: those that its arguments name, or all.
pub fn reduced_dims(op: &str, attrs: &[Attr], rank: usize) -> Result<smallvec::SmallVec<[usize; 6]>> {
    normalize_dims(op, &DimList::read(attrs).dim, rank)
}

/// The type of a reduction whose arguments begin with those of [`Fold`].
fn reduced(call: &Call<'_>, dtype: DType) -> Result<TensorType> {
    reduced_keep(call, dtype, Fold::read(call.attrs).keepdim)
}

fn reduced_keep(call: &Call<'_>, dtype: DType, keep: bool) -> Result<TensorType> {
    let input = call.args[0];
    let dims = reduced_dims(call.name(), call.attrs, input.rank())?;
    let mut sizes = Sizes::new();
    for (dim, &size) in input.sizes.iter().enumerate() {
        match (dims.contains(&dim), keep) {
            (true, true) => sizes.push(1),
            (true, false) => {}
            (false, _) => sizes.push(size),
        }
    }
    Ok(TensorType::contiguous(dtype, &sizes))
}

/// The type of sums and products. The default dtype of integers and bools is i64.
pub fn sum(call: &Call<'_>) -> Result<TensorType> {
    let found = call.args[0].dtype;
    let asked = FoldTo::read(call.attrs).dtype;
    let dtype = asked.unwrap_or(if found.is_float() { found } else { DType::I64 });
    reduced(call, dtype)
}

/// The type of means. The dtype of the argument, or else of the operand, must be floating.
pub fn mean(call: &Call<'_>) -> Result<TensorType> {
    let dtype = FoldTo::read(call.attrs).dtype.unwrap_or(call.args[0].dtype);
    if !dtype.is_float() {
        return Err(Error::unsupported("mean", dtype, "a floating dtype", "pass a floating dtype, or convert first"));
    }
    reduced(call, dtype)
}

fn non_empty(call: &Call<'_>) -> Result<()> {
    let input = call.args[0];
    let dims = reduced_dims(call.name(), call.attrs, input.rank())?;
    match dims.iter().find(|&&dim| input.sizes[dim] == 0) {
        Some(dim) => {
            let what = format!("reduced dim {dim} of shape {:?} has no elements", input.sizes.as_slice());
            Err(Error::index(call.name(), what, "the reduction has no identity; reduce dims that have some"))
        }
        None => Ok(()),
    }
}

/// The type of greatest and least elements: the dtype is kept. A reduced dim of size 0 is an error.
pub fn extremum(call: &Call<'_>) -> Result<TensorType> {
    non_empty(call)?;
    reduced(call, call.args[0].dtype)
}

/// The type of the index of an extremum: i64. Bools are an error.
pub fn arg_extremum(call: &Call<'_>) -> Result<TensorType> {
    if call.args[0].dtype == DType::Bool {
        return Err(Error::unsupported(call.name(), DType::Bool, "a number", "convert first"));
    }
    non_empty(call)?;
    reduced(call, DType::I64)
}

/// The type of `any` and `all`: bool, or u8 for u8.
pub fn truth(call: &Call<'_>) -> Result<TensorType> {
    let dtype = if call.args[0].dtype == DType::U8 { DType::U8 } else { DType::Bool };
    reduced(call, dtype)
}

pub(super) fn need_float(op: &str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(Error::unsupported(op, dtype, "a floating dtype", "convert with to_dtype(DType::F32) first"))
}

/// The type of variances and standard deviations. The operand must be floating.
pub fn var(call: &Call<'_>) -> Result<TensorType> {
    need_float(call.name(), call.args[0].dtype)?;
    reduced_keep(call, call.args[0].dtype, Var::read(call.attrs).keepdim)
}

/// The type of log-sum-exp. Integers become the default float.
pub fn logsumexp(call: &Call<'_>) -> Result<TensorType> {
    let found = call.args[0].dtype;
    reduced(call, if found.is_float() { found } else { DType::DEFAULT_FLOAT })
}

/// The type of a softmax along a dim. The operand must be floating; its type is kept.
pub fn softmax(call: &Call<'_>) -> Result<TensorType> {
    let input = call.args[0];
    need_float(call.name(), input.dtype)?;
    normalize_dim(call.name(), Softmax::read(call.attrs).dim, input.rank())?;
    Ok(TensorType::contiguous(input.dtype, &input.sizes))
}

/// The type of the gradient of a softmax along a dim: two operands of one shape, and the dtype of the argument.
pub fn softmax_data(call: &Call<'_>) -> Result<TensorType> {
    let (grad, output) = (call.args[0], call.args[1]);
    need_float(call.name(), grad.dtype)?;
    let attrs = SoftmaxBackwardData::read(call.attrs);
    normalize_dim(call.name(), attrs.dim, grad.rank())?;
    if grad.sizes != output.sizes {
        let what = format!("gradient and output have shapes {:?} and {:?}", &grad.sizes[..], &output.sizes[..]);
        return Err(Error::shape(call.name(), what, "they must be equal"));
    }
    Ok(TensorType::contiguous(attrs.input_dtype.unwrap_or(grad.dtype), &grad.sizes))
}

/// The type of a layer normalization. The normalized shape must be that of the input's trailing dims, and of weight and
/// bias.
pub fn layer_norm(call: &Call<'_>) -> Result<TensorType> {
    let input = call.args[0];
    need_float(call.name(), input.dtype)?;
    let normalized = LayerNorm::read(call.attrs).normalized_shape;
    let shape: Sizes = normalized.iter().map(|&size| size.max(0) as usize).collect();
    if shape.is_empty() || !input.sizes.ends_with(&shape) {
        let what =
            format!("normalized_shape {:?} is not the end of the input shape {:?}", &shape[..], &input.sizes[..]);
        return Err(Error::shape(call.name(), what, "pass the sizes of the trailing dims"));
    }
    for arg in &call.args[1..] {
        if arg.sizes != shape {
            let what =
                format!("weight or bias has shape {:?}, not the normalized shape {:?}", &arg.sizes[..], &shape[..]);
            return Err(Error::shape(call.name(), what, "make them the same shape"));
        }
        if arg.dtype != input.dtype {
            return Err(Error::dtype(
                call.name(),
                arg.dtype,
                input.dtype.name(),
                "convert weight and bias to the input's dtype",
            ));
        }
    }
    Ok(TensorType::contiguous(input.dtype, &input.sizes))
}
