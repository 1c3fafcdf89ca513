//! Resizing of images where each pixel is a weighted mean of all source pixels below it, so that fine patterns do not
//! alias when an image shrinks.
//!
//! The weights of a dim are a matrix, which is computed in f64 on the host and rounded once. Rows and columns are
//! multiplied by theirs. The filters are those of Pillow and PyTorch: a triangle, and the cubic of Keys (1981) with
//! `a = -0.5`, as wide as the step between pixels.

use crate::device::roomy;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::shape::checked_numel;
use crate::ops::arguments::{need_float, widened};
use crate::ops::images::sizes_of;
use crate::tensor::handle::Tensor;

#[derive(Debug, Clone, Copy)]
enum Filter {
    Triangle,
    Cubic,
}

impl Filter {
    /// How far from its centre it is not 0.
    fn radius(self) -> f64 {
        match self {
            Filter::Triangle => 1.0,
            Filter::Cubic => 2.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let x = x.abs();
        match self {
            Filter::Triangle => (1.0 - x).max(0.0),
            Filter::Cubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Filter::Cubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            Filter::Cubic => 0.0,
        }
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    for (op, filter) in [("_upsample_bilinear2d_aa", Filter::Triangle), ("_upsample_bicubic2d_aa", Filter::Cubic)] {
        library
            .def_kernel(
                &format!(
                    "{op}(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? \
                     scales_w=None) -> Tensor"
                ),
                move |x: &Tensor, sizes: &[i64], corners: bool, height: Option<f64>, width: Option<f64>| {
                    resized(op, x, sizes, corners, [height, width], filter)
                },
            )?
            .def_kernel(
                &format!(
                    "{op}.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> \
                     Tensor"
                ),
                move |x: &Tensor, sizes: Option<&[i64]>, corners: bool, scales: Option<&[f64]>| {
                    let (sizes, scales) = sizes_of(op, x, sizes, scales)?;
                    resized(op, x, &sizes, corners, scales, filter)
                },
            )?;
    }
    Ok(())
}

fn resized(
    op: &str,
    x: &Tensor,
    sizes: &[i64],
    corners: bool,
    scales: [Option<f64>; 2],
    filter: Filter,
) -> Result<Tensor> {
    need_float(op, &[x])?;
    let &[_, _, height, width] = x.sizes() else {
        return Err(Error::shape(op, format!("shape {:?}", x.sizes()), "4 dims are needed: (N, C, H, W)"));
    };
    let counts: Vec<usize> = sizes.iter().filter_map(|&size| usize::try_from(size).ok()).collect();
    let &[out_height, out_width] = &counts[..] else {
        return Err(Error::shape(op, format!("output_size {sizes:?}"), "two sizes are needed, and none is negative"));
    };
    if [height, width, out_height, out_width].contains(&0) {
        let what = format!("shape {:?} to {counts:?}", x.sizes());
        return Err(Error::shape(op, what, "an image and its result have at least one pixel"));
    }
    let wide = widened(x)?;
    let matrix = |size: usize, count: usize, scale: Option<f64>| {
        weights(op, size, count, corners, scale, filter)?.to_dtype(wide.dtype())?.to_device(x.device())
    };
    let rows = wide.matmul(&matrix(width, out_width, scales[1])?.t()?)?;
    matrix(height, out_height, scales[0])?.matmul(&rows)?.to_dtype(x.dtype())
}

/// A row per pixel of the result, with the weights of the source pixels. They sum to 1.
fn weights(op: &str, size: usize, count: usize, corners: bool, scale: Option<f64>, filter: Filter) -> Result<Tensor> {
    let step = match scale {
        _ if corners && count > 1 => (size - 1) as f64 / (count - 1) as f64,
        _ if corners => 0.0,
        Some(scale) if scale > 0.0 => 1.0 / scale,
        _ => size as f64 / count as f64,
    };
    // A filter is never narrower than a source pixel.
    let stretch = step.max(1.0);
    let support = filter.radius() * stretch;
    checked_numel(op, &[size, count], size_of::<f64>())?;
    let mut all: Vec<f64> = roomy(size * count)?;
    for pixel in 0..count {
        let centre = step * (pixel as f64 + 0.5);
        let first = ((centre - support + 0.5) as i64).max(0) as usize;
        let end = ((centre + support + 0.5) as usize).min(size);
        let row = all.len();
        all.extend((0..size).map(|source| match first <= source && source < end {
            true => filter.at((source as f64 - centre + 0.5) / stretch),
            false => 0.0,
        }));
        let sum: f64 = all[row..].iter().sum();
        if sum != 0.0 {
            all[row..].iter_mut().for_each(|weight| *weight /= sum);
        }
    }
    // A trace keeps the numbers, and each call of its program has a tensor of its own.
    Tensor::from_slice(&all, &[count, size])?.copy()
}
