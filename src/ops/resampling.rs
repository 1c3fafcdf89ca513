//! Resizing along one, two or three dims, cubic interpolation, and grids of affine maps.
//!
//! Dims are resized one after the other. Source positions have PyTorch's roundings, as in `images.rs`.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{counts, need_float, widened};
use crate::ops::factories::{full_on, range_on};
use crate::ops::images::{Places, Way};
use crate::ops::joins::stack;
use crate::tensor::handle::Tensor;

/// How an element of a resized dim is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// By one or two elements.
    Near(Way),
    /// By the element whose centre is nearest.
    NearestExact,
    /// By four elements.
    Cubic { has_corners: bool },
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    nearest(library)?;
    linear(library)?;
    library.def_kernel(
        "affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor",
        affine_grid_generator,
    )?;
    Ok(())
}

fn nearest(library: &mut Library) -> Result<()> {
    type Optional<'a, T> = Option<&'a [T]>;
    for (name, rule, dims) in [
        ("upsample_nearest1d", Rule::Near(Way::Nearest), 1),
        ("upsample_nearest3d", Rule::Near(Way::Nearest), 3),
        ("_upsample_nearest_exact1d", Rule::NearestExact, 1),
        ("_upsample_nearest_exact2d", Rule::NearestExact, 2),
        ("_upsample_nearest_exact3d", Rule::NearestExact, 3),
    ] {
        library.def_kernel(
            &format!("{name}.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor"),
            move |x: &Tensor, sizes: Optional<'_, i64>, scales: Optional<'_, f64>| {
                given(name, dims, x, sizes, scales, rule)
            },
        )?;
        match dims {
            1 => library.def_kernel(
                &format!("{name}(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor"),
                move |x: &Tensor, sizes: &[i64], scale: Option<f64>| resized(name, x, sizes, &[scale], rule),
            )?,
            2 => library.def_kernel(
                &format!(
                    "{name}(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor"
                ),
                move |x: &Tensor, sizes: &[i64], height: Option<f64>, width: Option<f64>| {
                    resized(name, x, sizes, &[height, width], rule)
                },
            )?,
            _ => library.def_kernel(
                &format!(
                    "{name}(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? \
                     scales_w=None) -> Tensor"
                ),
                move |x: &Tensor, sizes: &[i64], depth: Option<f64>, height: Option<f64>, width: Option<f64>| {
                    resized(name, x, sizes, &[depth, height, width], rule)
                },
            )?,
        };
    }
    Ok(())
}

fn linear(library: &mut Library) -> Result<()> {
    let linear = |corners: bool| Rule::Near(Way::linear(corners));
    let cubic = |has_corners: bool| Rule::Cubic { has_corners };
    library
        .def_kernel(
            "upsample_linear1d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) \
             -> Tensor",
            move |x: &Tensor, sizes: Option<&[i64]>, corners: bool, scales: Option<&[f64]>| {
                given("upsample_linear1d", 1, x, sizes, scales, linear(corners))
            },
        )?
        .def_kernel(
            "upsample_linear1d(Tensor self, SymInt[1] output_size, bool align_corners, float? scales=None) -> Tensor",
            move |x: &Tensor, sizes: &[i64], corners: bool, scale: Option<f64>| {
                resized("upsample_linear1d", x, sizes, &[scale], linear(corners))
            },
        )?
        .def_kernel(
            "upsample_trilinear3d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? \
             scale_factors) -> Tensor",
            move |x: &Tensor, sizes: Option<&[i64]>, corners: bool, scales: Option<&[f64]>| {
                given("upsample_trilinear3d", 3, x, sizes, scales, linear(corners))
            },
        )?
        .def_kernel(
            "upsample_trilinear3d(Tensor self, SymInt[3] output_size, bool align_corners, float? scales_d=None, \
             float? scales_h=None, float? scales_w=None) -> Tensor",
            move |x: &Tensor, sizes: &[i64], corners: bool, d: Option<f64>, h: Option<f64>, w: Option<f64>| {
                resized("upsample_trilinear3d", x, sizes, &[d, h, w], linear(corners))
            },
        )?
        .def_kernel(
            "upsample_bicubic2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) \
             -> Tensor",
            move |x: &Tensor, sizes: Option<&[i64]>, corners: bool, scales: Option<&[f64]>| {
                given("upsample_bicubic2d", 2, x, sizes, scales, cubic(corners))
            },
        )?
        .def_kernel(
            "upsample_bicubic2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? \
             scales_w=None) -> Tensor",
            move |x: &Tensor, sizes: &[i64], corners: bool, height: Option<f64>, width: Option<f64>| {
                resized("upsample_bicubic2d", x, sizes, &[height, width], cubic(corners))
            },
        )?;
    Ok(())
}

/// Resizes by the one of sizes and factors that is given.
fn given(
    op: &str,
    dims: usize,
    x: &Tensor,
    sizes: Option<&[i64]>,
    scales: Option<&[f64]>,
    rule: Rule,
) -> Result<Tensor> {
    match (sizes, scales) {
        (Some(sizes), None) => resized(op, x, sizes, &vec![None; dims], rule),
        (None, Some(scales)) if scales.len() == dims && x.dim() == dims + 2 => {
            let size = |(&size, &scale): (&usize, &f64)| (size as f64 * scale).floor() as i64;
            let sizes: Vec<i64> = x.sizes()[2..].iter().zip(scales).map(size).collect();
            let scales: Vec<Option<f64>> = scales.iter().copied().map(Some).collect();
            resized(op, x, &sizes, &scales, rule)
        }
        (_, _) => {
            let what = format!("output_size is {sizes:?} and scale_factors {scales:?} for shape {:?}", x.sizes());
            Err(Error::argument(op, format!("{what}; pass {dims} sizes or factors, and an input of {} dims", dims + 2)))
        }
    }
}

fn resized(op: &str, x: &Tensor, sizes: &[i64], scales: &[Option<f64>], rule: Rule) -> Result<Tensor> {
    let all = counts(op, sizes)?;
    let dims = scales.len();
    if all.len() != dims || x.dim() != dims + 2 || all.contains(&0) || x.sizes()[1..].contains(&0) {
        let what = format!("input shape {:?} to {sizes:?}", x.sizes());
        let hint = format!("there must be {} dims, and all sizes but the first must be positive", dims + 2);
        return Err(Error::shape(op, what, hint));
    }
    if matches!(rule, Rule::NearestExact | Rule::Near(Way::Nearest)) {
        let mut y = x.clone();
        for (d, (&count, &scale)) in all.iter().zip(scales).enumerate() {
            let index = nearest_places(x, x.sizes()[d + 2], count, scale, rule)?;
            y = y.index_select(d as i64 + 2, &index)?;
        }
        return Ok(y);
    }
    need_float(op, &[x])?;
    let mut y = widened(x)?;
    for (d, (&count, &scale)) in all.iter().zip(scales).enumerate() {
        let dim = d + 2;
        let taps = match rule {
            Rule::Near(way) => {
                let Places { first, second, share } = Places::new(x, x.sizes()[dim], count, scale, way)?;
                vec![(first, share.neg()?.add(1.0)?), (second, share)]
            }
            Rule::Cubic { has_corners } => cubic_taps(x, x.sizes()[dim], count, scale, has_corners)?,
            Rule::NearestExact => return Err(Error::Internal { message: "nearest elements are picked above".into() }),
        };
        y = mixed(&y, dim, &taps)?;
    }
    y.to_dtype(x.dtype())
}

/// The sum of the elements that each tap picks along a dim, times its weights.
fn mixed(x: &Tensor, dim: usize, taps: &[(Tensor, Tensor)]) -> Result<Tensor> {
    let mut sum: Option<Tensor> = None;
    for (index, weight) in taps {
        let mut sizes = vec![1; x.dim() - dim];
        sizes[0] = weight.numel();
        let part = x.index_select(dim as i64, index)?.mul(&weight.view(&sizes[..])?)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    sum.ok_or_else(|| Error::Internal { message: "there are two or four taps".into() })
}

fn nearest_places(x: &Tensor, size: usize, count: usize, scale: Option<f64>, rule: Rule) -> Result<Tensor> {
    if let Rule::Near(way) = rule {
        return Ok(Places::new(x, size, count, scale, way)?.first);
    }
    let step = step_of(size, count, scale, false);
    let numbers = range_on(x.device(), 0, count as i64, Some(DType::F32))?;
    let last = size as i64 - 1;
    numbers.add(0.5)?.mul(step)?.floor()?.to_dtype(DType::I64)?.clamp(Some(0.into()), Some(last.into()))
}

/// How far apart the sources of neighbours are, in f32.
fn step_of(size: usize, count: usize, scale: Option<f64>, has_corners: bool) -> f64 {
    let quotient = |a: usize, b: usize| f64::from(a as f32 / b as f32);
    match (has_corners, scale) {
        (true, _) if count > 1 => quotient(size - 1, count - 1),
        (true, _) => 0.0,
        (false, Some(scale)) if scale > 0.0 => f64::from((1.0 / scale) as f32),
        (false, _) => quotient(size, count),
    }
}

/// The four elements of cubic convolution (Keys 1981) with `A` = -0.75, and their weights.
fn cubic_taps(
    x: &Tensor,
    size: usize,
    count: usize,
    scale: Option<f64>,
    has_corners: bool,
) -> Result<Vec<(Tensor, Tensor)>> {
    const A: f64 = -0.75;
    let dtype = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let step = step_of(size, count, scale, has_corners);
    let numbers = range_on(x.device(), 0, count as i64, Some(dtype))?;
    let place = if has_corners { numbers.mul(step)? } else { numbers.add(0.5)?.mul(step)?.sub(0.5)? };
    let whole = place.floor()?;
    let share = place.sub(&whole)?;
    let near = |t: &Tensor| t.mul(A + 2.0)?.sub(A + 3.0)?.mul(t)?.mul(t)?.add(1.0);
    let far = |t: &Tensor| t.mul(A)?.sub(5.0 * A)?.mul(t)?.add(8.0 * A)?.mul(t)?.sub(4.0 * A);
    let rest = share.neg()?.add(1.0)?;
    let weights = [far(&share.add(1.0)?)?, near(&share)?, near(&rest)?, far(&rest.add(1.0)?)?];
    let first = whole.to_dtype(DType::I64)?;
    let last = size as i64 - 1;
    let tap = |(at, weight): (usize, Tensor)| {
        Ok((first.add(at as i64 - 1)?.clamp(Some(0.into()), Some(last.into()))?, weight))
    };
    weights.into_iter().enumerate().map(tap).collect()
}

/// The positions, from -1 to 1, that each affine map gives for the elements of an image.
fn affine_grid_generator(theta: &Tensor, size: &[i64], align_corners: bool) -> Result<Tensor> {
    let op = "affine_grid_generator";
    need_float(op, &[theta])?;
    let dims = size.len().wrapping_sub(2);
    let fits = (dims == 2 || dims == 3)
        && matches!(theta.sizes(), [_, rows, columns] if *rows == dims && *columns == dims + 1);
    if !fits || theta.sizes()[0] as i64 != size[0] {
        let what = format!("maps of shape {:?} for an image of {size:?}", theta.sizes());
        return Err(Error::shape(op, what, "maps are (N, 2, 3) for (N, C, H, W), and (N, 3, 4) for (N, C, D, H, W)"));
    }
    let sizes = counts(op, &size[2..])?;
    let mut columns = Vec::new();
    for dim in (0..dims).rev() {
        let count = sizes[dim];
        let numbers = range_on(theta.device(), 0, count as i64, Some(theta.dtype()))?;
        let line = match align_corners {
            true if count > 1 => numbers.mul(2.0 / (count as f64 - 1.0))?.sub(1.0)?,
            true => numbers.mul(0.0)?,
            false => numbers.mul(2.0)?.add(1.0)?.div(count as f64)?.sub(1.0)?,
        };
        let mut shape = vec![1; dims];
        shape[dim] = count;
        columns.push(line.view(&shape[..])?.expand(&sizes[..])?);
    }
    columns.push(full_on(theta.device(), &sizes, Scalar::Int(1), Some(theta.dtype()))?);
    let points = stack(&columns.iter().collect::<Vec<_>>(), -1)?.reshape([1, -1, dims as i64 + 1])?;
    let samples = theta.sizes()[0];
    let moved = points.expand([samples as i64, -1, -1])?.matmul(&theta.transpose(1, 2)?)?;
    moved.view(&[&[samples], &sizes[..], &[dims]].concat()[..])
}
