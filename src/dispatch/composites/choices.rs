//! The greater and the lesser of two tensors under the names of reductions.

use crate::dispatch::library::Library;
use crate::dispatch::tensor::Tensor;
use crate::error::Result;

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("max.other(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| x.maximum(other))?
        .def_kernel("min.other(Tensor self, Tensor other) -> Tensor", |x: &Tensor, other: &Tensor| x.minimum(other))?;
    Ok(())
}
