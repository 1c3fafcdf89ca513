//! Reductions of whole tensors, reductions with several results, and softmax, under their ATen schemas.

use super::converted;
use crate::dispatch::library::Library;
use crate::dispatch::tensor::Tensor;
use crate::error::Result;
use crate::ir::DType;

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", softmax)?
        .def_kernel("log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", log_softmax)?
        .def_kernel("sum(Tensor self, *, ScalarType? dtype=None) -> Tensor", sum)?
        .def_kernel("mean(Tensor self, *, ScalarType? dtype=None) -> Tensor", mean)?
        .def_kernel("max(Tensor self) -> Tensor", Tensor::max_all)?
        .def_kernel("min(Tensor self) -> Tensor", Tensor::min_all)?
        .def_kernel("any(Tensor self) -> Tensor", |x: &Tensor| x.any((), false))?
        .def_kernel("all(Tensor self) -> Tensor", |x: &Tensor| x.all((), false))?
        .def_kernel(
            "max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
            Tensor::max_dim,
        )?
        .def_kernel(
            "min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
            Tensor::min_dim,
        )?;
    Ok(())
}

fn softmax(x: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    converted(x, dtype)?.softmax(dim)
}

fn log_softmax(x: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    converted(x, dtype)?.log_softmax(dim)
}

fn sum(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    converted(x, dtype)?.sum_all()
}

fn mean(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    converted(x, dtype)?.mean_all()
}
