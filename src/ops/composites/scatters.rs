//! Writes by index that are made of others, under their ATen schemas.

use crate::dispatch::library::Library;
use crate::error::Result;
use crate::ir::Scalar;
use crate::ops::scatters::scatter_reduced;
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            "scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar| x.scatter_value(dim, index, value),
        )?
        .def_kernel(
            "scatter_.value(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)",
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar| {
                x.scatter_(dim, index, &x.repeated(value, index)?).map(|()| x.clone())
            },
        )?
        .def_kernel(
            "scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor",
            scatter_reduced,
        )?
        .def_kernel(
            "scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor",
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar, reduce: &str| {
                scatter_reduced(x, dim, index, &x.repeated(value, index)?, reduce)
            },
        )?;
    Ok(())
}
