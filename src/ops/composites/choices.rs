//! The greater and the lesser of two tensors under the names of reductions.

use crate::dispatch::library::Library;
use crate::error::Result;
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("max.other(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| x.maximum(other))?
        .def_kernel("min.other(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| x.minimum(other))?;
    Ok(())
}
