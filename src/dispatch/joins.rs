//! Functions of several tensors, none of which is the one that is asked.

use super::register::call;
use super::tensor::Tensor;
use crate::error::{Error, Result};
use crate::ir::{Attr, Op};

/// Tensors side by side along `dim`. All other sizes must be equal; dtypes are promoted.
///
/// # Errors
/// If there are no tensors, they are 0-dim, other sizes differ, or the dim is out of range.
pub fn cat(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
    if tensors.is_empty() {
        return Err(Error::argument("cat", "expected a non-empty list of tensors"));
    }
    call(Op::Cat, tensors, &[Attr::int(dim)])
}

/// Tensors of one shape along a new dim in front of `dim`; −1 puts it last. Dtypes are promoted.
///
/// # Errors
/// If there are no tensors, sizes differ, or the dim is out of range.
pub fn stack(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::argument("stack", "expected a non-empty list of tensors"));
    };
    if let Some(other) = tensors.iter().find(|tensor| tensor.sizes() != first.sizes()) {
        let what = format!("shapes {:?} and {:?} differ", first.sizes(), other.sizes());
        return Err(Error::shape("stack", what, "all must have one shape; cat joins along a dim"));
    }
    let lifted = tensors.iter().map(|tensor| tensor.unsqueeze(dim)).collect::<Result<Vec<_>>>()?;
    cat(&lifted.iter().collect::<Vec<_>>(), dim)
}

/// Rows of the 2-dim `weight` named by the integer tensor `ids`: the sizes of `ids`, then that of a row.
///
/// # Errors
/// If the weight is not 2-dim, the ids are not integers, or an id is out of range.
pub fn embedding(weight: &Tensor, ids: &Tensor) -> Result<Tensor> {
    call(Op::Embedding, &[weight, ids], &[Attr::int(-1), Attr::bool(false), Attr::bool(false)])
}
