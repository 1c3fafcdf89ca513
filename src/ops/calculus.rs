//! Integrals and derivatives of sampled functions: the trapezoidal rule, and central differences.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::shape::normalize_dim;
use crate::ir::{DType, Scalar};
use crate::ops::joins::cat;
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    for (op, is_running) in [("trapezoid", false), ("trapz", false), ("cumulative_trapezoid", true)] {
        library.def_kernel(
            &format!("{op}.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor"),
            move |y: &Tensor, x: &Tensor, dim: i64| trapezoids(op, y, &Step::Places(x), dim, is_running),
        )?;
    }
    for (op, is_running) in [("trapezoid", false), ("cumulative_trapezoid", true)] {
        library.def_kernel(
            &format!("{op}.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor"),
            move |y: &Tensor, dx: Scalar, dim: i64| trapezoids(op, y, &Step::Number(dx.as_f64()), dim, is_running),
        )?;
    }
    library
        .def_kernel("trapz.dx(Tensor y, *, float dx=1., int dim=-1) -> Tensor", |y: &Tensor, dx: f64, dim: i64| {
            trapezoids("trapz", y, &Step::Number(dx), dim, false)
        })?;
    library
        .def_kernel(
            "gradient.scalarint(Tensor self, *, Scalar? spacing=None, int? dim=None, int edge_order=1) -> Tensor[]",
            |x: &Tensor, spacing: Option<Scalar>, dim: Option<i64>, order: i64| {
                let dims = dim.map_or_else(|| (0..x.dim() as i64).collect(), |dim| vec![dim]);
                gradients(x, &vec![spacing.unwrap_or(Scalar::Int(1)); dims.len()], &dims, order)
            },
        )?
        .def_kernel(
            "gradient.scalararray(Tensor self, *, Scalar spacing, int[] dim, int edge_order=1) -> Tensor[]",
            |x: &Tensor, spacing: Scalar, dims: &[i64], order: i64| {
                gradients(x, &vec![spacing; dims.len()], dims, order)
            },
        )?
        .def_kernel(
            "gradient.array(Tensor self, *, int[] dim, int edge_order=1) -> Tensor[]",
            |x: &Tensor, dims: &[i64], order: i64| gradients(x, &vec![Scalar::Int(1); dims.len()], dims, order),
        )?;
    Ok(())
}

/// What lies between neighbouring samples.
enum Step<'a> {
    Number(f64),
    /// The places of the samples: a line, or one place for each sample.
    Places(&'a Tensor),
}

/// Half the sum of each pair of neighbours, times the step between them; summed, or summed up.
fn trapezoids(op: &str, y: &Tensor, step: &Step<'_>, dim: i64, is_running: bool) -> Result<Tensor> {
    let dim = dim_of(op, y, dim)?;
    if y.dtype() == DType::Bool {
        return Err(Error::unsupported(op, y.dtype(), "numbers", "convert with to_dtype(DType::F32) first"));
    }
    let at = dim as i64;
    let count = y.sizes()[dim].saturating_sub(1);
    let start = i64::from(y.sizes()[dim] > 0);
    let pairs = y.narrow(at, 0, count)?.add(y.narrow(at, start, count)?)?;
    let summed = |x: Tensor| if is_running { x.cumsum(at) } else { x.sum(at, false) };
    match step {
        Step::Number(number) => summed(pairs)?.mul(number / 2.0),
        Step::Places(x) => {
            let is_line = x.dim() == 1 && y.dim() > 1;
            let along = if is_line { 0 } else { at };
            if x.sizes().get(along as usize) != Some(&y.sizes()[dim]) {
                let what = format!("there are {:?} places for samples of shape {:?}", x.sizes(), y.sizes());
                return Err(Error::shape(op, what, "there must be one place for each sample along the dim"));
            }
            let widths = x.narrow(along, start, count)?.sub(x.narrow(along, 0, count)?)?;
            let shape: Vec<i64> = (0..y.dim()).map(|other| if other == dim { -1 } else { 1 }).collect();
            let widths = if is_line { widths.reshape(shape)? } else { widths };
            summed(pairs.mul(widths)?)?.div(2.0)
        }
    }
}

/// The dim of the samples. A number has none.
fn dim_of(op: &str, x: &Tensor, dim: i64) -> Result<usize> {
    match x.dim() {
        0 => Err(Error::shape(op, "the tensor has no dims", "a line of samples is needed")),
        rank => normalize_dim(op, dim, rank),
    }
}

/// One derivative per dim: differences of the neighbours on both sides, and at the ends of the first or second order
/// (Fornberg 1988).
fn gradients(x: &Tensor, spacing: &[Scalar], dims: &[i64], order: i64) -> Result<Vec<Tensor>> {
    dims.iter().zip(spacing).map(|(&dim, step)| gradient(x, step.as_f64(), dim, order)).collect()
}

fn gradient(x: &Tensor, step: f64, dim: i64, order: i64) -> Result<Tensor> {
    let op = "gradient";
    let at = dim_of(op, x, dim)?;
    let (dim, size) = (at as i64, x.sizes()[at]);
    let needed = match order {
        1 => 2,
        2 => 3,
        other => return Err(Error::argument(op, format!("edge_order is {other}; it must be 1 or 2"))),
    };
    if size < needed {
        let what = format!("dim {dim} of shape {:?} has {size} samples, and edge_order {order}", x.sizes());
        return Err(Error::shape(op, what, format!("there must be at least {needed} samples")));
    }
    let part = |start: usize, length: usize| x.narrow(dim, start as i64, length);
    // Differences of neighbours, and of neighbours' neighbours.
    let near = part(1, size - 1)?.sub(part(0, size - 1)?)?;
    let middle = part(2, size - 2)?.sub(part(0, size - 2)?)?.div(2.0)?;
    let edge = |first: i64, second: i64| {
        let first = near.narrow(dim, first, 1)?;
        // The derivative of the parabola through three samples.
        if order == 1 { first.div(1.0) } else { first.mul(1.5)?.sub(near.narrow(dim, second, 1)?.mul(0.5)?) }
    };
    let last = size as i64 - 2;
    cat(&[&edge(0, 1.min(last))?, &middle, &edge(last, (last - 1).max(0))?], dim)?.div(step)
}
