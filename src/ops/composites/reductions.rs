//! Reductions of whole tensors, reductions with several results, and softmax, under their ATen schemas.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::{Attr, DType, Op, Scalar};
use crate::ops::composites::arguments::converted;
use crate::ops::dims::Dims;
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .def_kernel("softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", softmax)?
        .def_kernel("log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", log_softmax)?
        .def_kernel("sum(Tensor self, *, ScalarType? dtype=None) -> Tensor", sum)?
        .def_kernel("mean(Tensor self, *, ScalarType? dtype=None) -> Tensor", mean)?
        .def_kernel("prod(Tensor self, *, ScalarType? dtype=None) -> Tensor", prod)?
        .def_kernel("max(Tensor self) -> Tensor", |x: &Tensor| some("max", x)?.max_all())?
        .def_kernel("min(Tensor self) -> Tensor", |x: &Tensor| some("min", x)?.min_all())?
        .def_kernel("any(Tensor self) -> Tensor", |x: &Tensor| x.any((), false))?
        .def_kernel("all(Tensor self) -> Tensor", |x: &Tensor| x.all((), false))?
        .def_kernel("any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", |x: &Tensor, dim: i64, keepdim| {
            x.any(dim, keepdim)
        })?
        .def_kernel("all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", |x: &Tensor, dim: i64, keepdim| {
            x.all(dim, keepdim)
        })?
        .def_kernel("count_nonzero(Tensor self, int? dim=None) -> Tensor", |x: &Tensor, dim: Option<i64>| {
            count_nonzero(x, dim.as_slice())
        })?
        .def_kernel("count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor", count_nonzero)?
        .def_kernel(
            "nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            nansum,
        )?
        .def_kernel("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)", aminmax)?
        .def_kernel(
            "max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
            Tensor::max_dim,
        )?
        .def_kernel(
            "min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
            Tensor::min_dim,
        )?;
    spreads(library)
}

/// A measure of how far elements lie apart.
type Spread = fn(&Tensor, Dims, Scalar, bool) -> Result<Tensor>;

fn softmax(x: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    converted(x, dtype)?.softmax(dim)
}

fn log_softmax(x: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    converted(x, dtype)?.log_softmax(dim)
}

fn sum(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    summed(&converted(x, dtype)?, &[], false, dtype)
}

fn mean(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    converted(x, dtype)?.mean_all()
}

fn prod(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    let flat = converted(x, dtype)?.reshape([x.numel() as i64])?;
    call(Op::Prod, &[&flat], &[Attr::int(0), Attr::bool(false), dtype.map_or(Attr::None, Attr::DType)])
}

/// Sum over dims of what was converted to `dtype` if there is one: it is added up in it, also where it is a narrow integer.
fn summed(x: &Tensor, dims: &[i64], keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    call(Op::Sum, &[x], &[Attr::ints(dims), Attr::bool(keepdim), dtype.map_or(Attr::None, Attr::DType)])
}

/// `x`, which must have elements.
fn some<'a>(op: &str, x: &'a Tensor) -> Result<&'a Tensor> {
    if x.numel() > 0 {
        return Ok(x);
    }
    let what = format!("a tensor of shape {:?} has no elements to choose from", x.sizes());
    Err(Error::shape(op, what, "specify a dim that has some"))
}

fn count_nonzero(x: &Tensor, dims: &[i64]) -> Result<Tensor> {
    x.ne(0)?.sum(dims, false)
}

/// Sum of the elements that are no NaN.
fn nansum(x: &Tensor, dims: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    let x = converted(x, dtype)?;
    let dims = dims.unwrap_or(&[]);
    let numbers = if x.dtype().is_float() { x.masked_fill(&x.isnan()?, 0)? } else { x };
    summed(&numbers, dims, keepdim, dtype)
}

fn aminmax(x: &Tensor, dim: Option<i64>, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let x = if dim.is_none() { some("aminmax", x)? } else { x };
    let dims = dim.as_slice();
    // A reduction of all dims keeps them only where it is said which.
    let all: Vec<i64> = (0..x.dim() as i64).collect();
    let dims = if dims.is_empty() { &all[..] } else { dims };
    Ok((x.amin(dims, keepdim)?, x.amax(dims, keepdim)?))
}

/// `var` and `std` under their older overloads, which know a sample (one degree of freedom less) and a population, and
/// both with the mean.
fn spreads(library: &mut Library) -> Result<()> {
    for (name, spread) in [("var", Tensor::var as Spread), ("std", Tensor::std as Spread)] {
        let free = |unbiased: bool| Scalar::Int(unbiased.into());
        let with_mean = move |x: &Tensor, dims: &[i64], correction: Scalar, keepdim: bool| {
            Ok((spread(x, dims.into(), correction, keepdim)?, x.mean(dims, keepdim)?))
        };
        library
            .def_kernel(&format!("{name}(Tensor self, bool unbiased=True) -> Tensor"), move |x: &Tensor, unbiased| {
                spread(x, ().into(), free(unbiased), false)
            })?
            .def_kernel(
                &format!("{name}.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor"),
                move |x: &Tensor, dims: Option<&[i64]>, unbiased: bool, keepdim: bool| {
                    spread(x, dims.unwrap_or(&[]).into(), free(unbiased), keepdim)
                },
            )?
            .def_kernel(
                &format!("{name}_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)"),
                move |x: &Tensor, unbiased: bool| with_mean(x, &[], free(unbiased), false),
            )?
            .def_kernel(
                &format!(
                    "{name}_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, \
                     Tensor)"
                ),
                move |x: &Tensor, dims: Option<&[i64]>, unbiased: bool, keepdim: bool| {
                    with_mean(x, dims.unwrap_or(&[]), free(unbiased), keepdim)
                },
            )?
            .def_kernel(
                &format!(
                    "{name}_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool \
                     keepdim=False) -> (Tensor, Tensor)"
                ),
                move |x: &Tensor, dims: Option<&[i64]>, correction: Option<Scalar>, keepdim: bool| {
                    with_mean(x, dims.unwrap_or(&[]), correction.unwrap_or(Scalar::Int(1)), keepdim)
                },
            )?;
    }
    Ok(())
}
