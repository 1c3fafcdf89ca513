//! Joins of tensors, and tensors rearranged by copying, under their ATen schemas.

use crate::dispatch::library::Library;
use crate::error::Result;
use crate::ops::joins::{cat, stack};
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("stack(Tensor[] tensors, int dim=0) -> Tensor", |tensors: &[Tensor], dim: i64| {
            stack(&tensors.iter().collect::<Vec<_>>(), dim)
        })?
        .def_kernel("concat(Tensor[] tensors, int dim=0) -> Tensor", joined)?
        .def_kernel("concatenate(Tensor[] tensors, int dim=0) -> Tensor", joined)?
        .def_kernel("tile(Tensor self, SymInt[] dims) -> Tensor", |x: &Tensor, counts: &[i64]| x.tile(counts))?
        .def_kernel(
            "roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor",
            |x: &Tensor, shifts: &[i64], dims: &[i64]| x.roll(shifts, dims),
        )?
        .def_kernel("rot90(Tensor self, int k=1, int[] dims=[0,1]) -> Tensor", |x: &Tensor, n: i64, dims: &[i64]| {
            x.rot90(n, dims)
        })?
        .def_kernel("diag(Tensor self, int diagonal=0) -> Tensor", Tensor::diag)?
        .def_kernel("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor", Tensor::diag_embed)?;
    Ok(())
}

fn joined(tensors: &[Tensor], dim: i64) -> Result<Tensor> {
    cat(&tensors.iter().collect::<Vec<_>>(), dim)
}
