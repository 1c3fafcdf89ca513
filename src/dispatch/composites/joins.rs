//! Joins of tensors under their ATen schemas.

use crate::dispatch::joins::{cat, stack};
use crate::dispatch::library::Library;
use crate::dispatch::tensor::Tensor;
use crate::error::Result;

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("stack(Tensor[] tensors, int dim=0) -> Tensor", |tensors: &[Tensor], dim: i64| {
            stack(&tensors.iter().collect::<Vec<_>>(), dim)
        })?
        .def_kernel("concatenate(Tensor[] tensors, int dim=0) -> Tensor", |tensors: &[Tensor], dim: i64| {
            cat(&tensors.iter().collect::<Vec<_>>(), dim)
        })?
        .def_kernel("concat(Tensor[] tensors, int dim=0) -> Tensor", |tensors: &[Tensor], dim: i64| {
            cat(&tensors.iter().collect::<Vec<_>>(), dim)
        })?;
    Ok(())
}
