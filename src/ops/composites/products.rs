//! Matrix products under their ATen schemas.

use crate::dispatch::library::Library;
use crate::error::Result;
use crate::ops::products;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("matmul(Tensor self, Tensor other) -> Tensor", products::matmul)?
        .def_kernel("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", products::linear)?
        .def_kernel("dot(Tensor self, Tensor tensor) -> Tensor", products::dot)?
        .def_kernel("mv(Tensor self, Tensor vec) -> Tensor", products::mv)?
        .def_kernel(
            "addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            products::addmv,
        )?
        .def_kernel("outer(Tensor self, Tensor vec2) -> Tensor", products::outer)?;
    Ok(())
}
