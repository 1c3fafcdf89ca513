//! Concatenation and stacking.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::Along;
use crate::ir::{Attrs, Op};
use crate::ops::arguments::tensor_list;
use crate::ops::composite::Composite;
use crate::tensor::handle::Tensor;

static STACK: Composite = Composite::new("stack(Tensor[] tensors, int dim=0) -> Tensor");

/// Concatenates tensors along `dim`. All other sizes must be equal. Dtypes are promoted. A 1-dim tensor without
/// elements fits any shape.
///
/// # Errors
/// If there are no tensors, if one is 0-dim, if other sizes differ, or if the dim is out of range.
#[track_caller]
pub fn cat(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
    if tensors.is_empty() {
        return Err(Error::argument("cat", "expected a non-empty list of tensors"));
    }
    call(Op::Cat, tensors, &Attrs::from(Along { dim }))
}

/// Stacks tensors of the same shape along a new dim. The new dim has index `dim`; −1 puts it last. Dtypes are promoted.
///
/// # Errors
/// If there are no tensors, if sizes differ, or if the dim is out of range.
#[track_caller]
pub fn stack(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
    STACK.call((&tensor_list(tensors)[..], dim))
}

fn stacked(tensors: &[Tensor], dim: i64) -> Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::argument("stack", "expected a non-empty list of tensors"));
    };
    if let Some(other) = tensors.iter().find(|tensor| tensor.sizes() != first.sizes()) {
        let what = format!(
            "stack expects each tensor to be equal size, but got {:?} beside {:?}",
            first.sizes(),
            other.sizes()
        );
        return Err(Error::shape("stack", what, "all must have one shape; cat joins along a dim"));
    }
    let lifted = tensors.iter().map(|tensor| tensor.unsqueeze(dim)).collect::<Result<Vec<_>>>()?;
    cat(&lifted.iter().collect::<Vec<_>>(), dim)
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&STACK, stacked)?
        .def_kernel("concat(Tensor[] tensors, int dim=0) -> Tensor", joined)?
        .def_kernel("concatenate(Tensor[] tensors, int dim=0) -> Tensor", joined)?;
    Ok(())
}

fn joined(tensors: &[Tensor], dim: i64) -> Result<Tensor> {
    cat(&tensors.iter().collect::<Vec<_>>(), dim)
}
