//! Matrix products under their ATen schemas.

use crate::dispatch::library::Library;
use crate::dispatch::tensor::Tensor;
use crate::error::Result;

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("matmul(Tensor self, Tensor other) -> Tensor", Tensor::matmul)?
        .def_kernel("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", Tensor::linear)?
        .def_kernel("dot(Tensor self, Tensor tensor) -> Tensor", Tensor::dot)?
        .def_kernel("mv(Tensor self, Tensor vec) -> Tensor", Tensor::mv)?
        .def_kernel("outer(Tensor self, Tensor vec2) -> Tensor", Tensor::outer)?;
    Ok(())
}
