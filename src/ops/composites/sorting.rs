//! Scans and sorts with several results, under their ATen schemas.

use crate::dispatch::library::Library;
use crate::error::Result;
use crate::ops::composites::arguments::count;
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)", Tensor::cummax)?
        .def_kernel("cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)", Tensor::cummin)?
        .def_kernel("argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor", Tensor::argsort)?
        .def_kernel(
            "sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
            Tensor::sort,
        )?
        .def_kernel(
            "sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor \
             indices)",
            |x: &Tensor, _: Option<bool>, dim: i64, descending: bool| x.sort(dim, descending),
        )?
        .def_kernel(
            "topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor \
             indices)",
            |x: &Tensor, k: i64, dim: i64, largest: bool, _: bool| x.topk(count("topk", k)?, dim, largest),
        )?;
    Ok(())
}
