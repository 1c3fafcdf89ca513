//! Views of tensors under their ATen schemas.

use super::count;
use crate::dispatch::library::Library;
use crate::dispatch::tensor::Tensor;
use crate::error::Result;

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", reshape)?
        .def_kernel(
            "flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)",
            Tensor::flatten,
        )?
        .def_kernel("unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)", unflatten)?
        .def_kernel("split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]", split)?
        .def_kernel("chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]", chunk)?
        .def_kernel("unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]", Tensor::unbind)?
        .def_kernel("narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", narrow)?
        .def_kernel("squeeze(Tensor(a) self) -> Tensor(a)", |x: &Tensor| x.squeeze(()))?
        .def_kernel("squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)", squeeze)?;
    Ok(())
}

// The functions below take their arguments as the boxed caller has them: counts are signed, options are there.

fn reshape(x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    x.reshape(sizes)
}

fn unflatten(x: &Tensor, dim: i64, sizes: &[i64]) -> Result<Tensor> {
    x.unflatten(dim, sizes)
}

fn split(x: &Tensor, size: i64, dim: i64) -> Result<Vec<Tensor>> {
    x.split(count("split", size)?, dim)
}

fn chunk(x: &Tensor, n: i64, dim: i64) -> Result<Vec<Tensor>> {
    x.chunk(count("chunk", n)?, dim)
}

fn narrow(x: &Tensor, dim: i64, start: i64, length: i64) -> Result<Tensor> {
    x.narrow(dim, start, count("narrow", length)?)
}

fn squeeze(x: &Tensor, dim: i64) -> Result<Tensor> {
    x.squeeze(dim)
}
