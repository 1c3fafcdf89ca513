//! Elements by index tensors and masks, under their ATen schemas.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::Scalar;
use crate::ops::arguments::count;
use crate::ops::factories::full_on;
use crate::ops::indexing::{Form, repeated_places};
use crate::ops::mutation::check_target;
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    by_index(library)?;
    in_place(library)?;
    by_value(library)
}

fn by_index(library: &mut Library) -> Result<()> {
    library
        .def_kernel("index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", Tensor::index)?
        .def_kernel(
            "index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
            Tensor::index_put,
        )?
        .def_kernel("take(Tensor self, Tensor index) -> Tensor", Tensor::take)?
        .def_kernel("put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor", Tensor::put)?
        .def_kernel(
            "take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor",
            |x: &Tensor, indices: &Tensor, dim: Option<i64>| x.take_along_dim(indices, dim),
        )?
        .def_kernel(
            "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
            |x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, alpha: Scalar| {
                x.index_add_scaled(dim, index, source, alpha)
            },
        )?
        .def_kernel("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor", Tensor::index_copy)?
        .def_kernel(
            "index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar| x.index_fill(dim, index, value),
        )?
        .def_kernel(
            "index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor",
            Tensor::index_fill_with,
        )?;
    Ok(())
}

/// The in-place forms whose parts write in place themselves, so that no more is touched than what an index names.
fn in_place(library: &mut Library) -> Result<()> {
    library
        .def_kernel(
            "index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)",
            |x: &Tensor, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool| {
                check_target("aten::index_put", x)?;
                x.index_put_as(Form::InPlace, indices, values, accumulate).map(|_| x.clone())
            },
        )?
        .def_kernel(
            "put_(Tensor(a!) self, Tensor index, Tensor source, bool accumulate=False) -> Tensor(a!)",
            |x: &Tensor, index: &Tensor, source: &Tensor, accumulate: bool| {
                check_target("aten::put", x)?;
                x.put_as(Form::InPlace, index, source, accumulate).map(|_| x.clone())
            },
        )?
        .def_kernel(
            "index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)",
            |x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, alpha: Scalar| {
                check_target("aten::index_add", x)?;
                x.index_add_as(Form::InPlace, dim, index, source, alpha).map(|_| x.clone())
            },
        )?
        .def_kernel(
            "index_copy_(Tensor(a!) self, int dim, Tensor index, Tensor source) -> Tensor(a!)",
            |x: &Tensor, dim: i64, index: &Tensor, source: &Tensor| {
                check_target("aten::index_copy", x)?;
                x.index_copy_as(Form::InPlace, dim, index, source).map(|_| x.clone())
            },
        )?
        .def_kernel(
            "index_fill_.int_Scalar(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)",
            |x: &Tensor, dim: i64, index: &Tensor, value: Scalar| {
                check_target("aten::index_fill", x)?;
                let value = full_on(x.device(), &[], value, Some(x.dtype()))?;
                x.index_fill_as(Form::InPlace, dim, index, &value).map(|_| x.clone())
            },
        )?
        .def_kernel(
            "index_fill_.int_Tensor(Tensor(a!) self, int dim, Tensor index, Tensor value) -> Tensor(a!)",
            |x: &Tensor, dim: i64, index: &Tensor, value: &Tensor| {
                check_target("aten::index_fill", x)?;
                x.index_fill_as(Form::InPlace, dim, index, value).map(|_| x.clone())
            },
        )?;
    Ok(())
}

fn by_value(library: &mut Library) -> Result<()> {
    library
        .def_kernel("nonzero(Tensor self) -> Tensor", Tensor::nonzero)?
        .def_kernel("argwhere(Tensor self) -> Tensor", Tensor::nonzero)?
        .def_kernel("where(Tensor condition) -> Tensor[]", places)?
        .def_kernel("masked_select(Tensor self, Tensor mask) -> Tensor", Tensor::masked_select)?
        .def_kernel("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor", Tensor::masked_scatter)?
        .def_kernel("one_hot(Tensor self, int num_classes=-1) -> Tensor", one_hot)?
        .def_kernel(
            "repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> \
             Tensor",
            |x: &Tensor, repeats: i64, dim: Option<i64>, size: Option<i64>| {
                let repeated = x.repeat_interleave(count("repeat_interleave", repeats)?, dim)?;
                of_size(repeated, dim, size)
            },
        )?
        .def_kernel(
            "repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) \
             -> Tensor",
            |x: &Tensor, repeats: &Tensor, dim: Option<i64>, size: Option<i64>| {
                of_size(x.repeat_interleave_each(repeats, dim)?, dim, size)
            },
        )?
        .def_kernel(
            "repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor",
            |repeats: &Tensor, size: Option<i64>| {
                of_size(repeated_places(repeats)?, None, size)?.to_dtype(repeats.dtype())
            },
        )?;
    Ok(())
}

/// The places where a condition holds: one tensor per dim. A 0-dim condition has one place, if it holds.
fn places(condition: &Tensor) -> Result<Vec<Tensor>> {
    let condition = if condition.dim() == 0 { condition.unsqueeze(0)? } else { condition.clone() };
    condition.nonzero()?.unbind(1)
}

fn one_hot(x: &Tensor, n_classes: i64) -> Result<Tensor> {
    x.one_hot(if n_classes == -1 { None } else { Some(count("one_hot", n_classes)?) })
}

/// The result, if it has the size that was foretold.
fn of_size(x: Tensor, dim: Option<i64>, size: Option<i64>) -> Result<Tensor> {
    let Some(size) = size else { return Ok(x) };
    let dim = dim.unwrap_or(0).rem_euclid(x.dim().max(1) as i64) as usize;
    if x.sizes()[dim] as i64 == size {
        return Ok(x);
    }
    let what = format!("output_size is {size}, but the repeats add up to {}", x.sizes()[dim]);
    Err(Error::argument("repeat_interleave", what))
}
