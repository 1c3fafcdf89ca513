//! Images: resizing, and moving pixels between channels and planes.
//!
//! Height and width are resized one after the other, by the nearest pixel or by linear interpolation. Source positions
//! are computed in f32 (f64 for f64 images), with PyTorch's roundings, because a rounding can change which pixel is
//! nearest. Padding is in `padding.rs`.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::{DType, MemoryFormat, Op, Scalar};
use crate::ops::arguments::ordered;
use crate::ops::arguments::{count, need_float, widened};
use crate::ops::composite::Composite;
use crate::ops::factories::{full_on, range_on};
use crate::ops::memory_formats::in_format;
use crate::tensor::handle::Tensor;

static NEAREST: Composite = Composite::new(
    "upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor",
);
static BILINEAR: Composite = Composite::new(
    "upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? \
     scales_w=None) -> Tensor",
);
static PIXEL_SHUFFLE: Composite = Composite::new("pixel_shuffle(Tensor self, int upscale_factor) -> Tensor");
static PIXEL_UNSHUFFLE: Composite = Composite::new("pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor");

/// How a pixel of a resized image is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpolation {
    /// The source pixel at the same relative position, rounded down.
    Nearest,
    /// Bilinear interpolation that aligns the centres of pixels.
    Bilinear,
    /// Bilinear interpolation that aligns the corner pixels.
    BilinearCorners,
}

/// Images.
impl Tensor {
    /// Resizes the planes of `(N, C, H, W)` to `sizes`. The dtype is kept.
    ///
    /// # Errors
    /// If there are not 4 dims, if a size is 0, or if the interpolation is bilinear and the dtype not floating.
    #[track_caller]
    pub fn resize2d(&self, sizes: [i64; 2], interpolation: Interpolation) -> Result<Tensor> {
        let (sizes, none) = (&sizes[..], None::<f64>);
        match interpolation {
            Interpolation::Nearest => NEAREST.call((self, sizes, none, none)),
            Interpolation::Bilinear => BILINEAR.call((self, sizes, false, none, none)),
            Interpolation::BilinearCorners => BILINEAR.call((self, sizes, true, none, none)),
        }
    }

    /// Rearranges `(…, C r², H, W)` to `(…, C, H r, W r)`, where `r` is the factor (Shi et al. 2016). The dtype is
    /// kept.
    ///
    /// # Errors
    /// If there are fewer than 3 dims, or if the channels are not divisible by `factor²`.
    #[track_caller]
    pub fn pixel_shuffle(&self, factor: i64) -> Result<Tensor> {
        PIXEL_SHUFFLE.call((self, factor))
    }

    /// Rearranges `(…, C, H r, W r)` to `(…, C r², H, W)`, where `r` is the factor: the inverse of
    /// [`Tensor::pixel_shuffle`]. The dtype is kept.
    ///
    /// # Errors
    /// If there are fewer than 3 dims, or if height or width is not divisible by `factor`.
    #[track_caller]
    pub fn pixel_unshuffle(&self, factor: i64) -> Result<Tensor> {
        PIXEL_UNSHUFFLE.call((self, factor))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&PIXEL_SHUFFLE, pixel_shuffle)?
        .composite(&PIXEL_UNSHUFFLE, pixel_unshuffle)?
        .def_kernel("channel_shuffle(Tensor self, SymInt groups) -> Tensor", channel_shuffle)?;
    upsampling(library)
}

/// Rearranges `(…, C r², H, W)` to `(…, C, H r, W r)`.
fn pixel_shuffle(x: &Tensor, factor: i64) -> Result<Tensor> {
    let op = "pixel_shuffle";
    let (r, outer, [channels, height, width]) = planes(op, x, factor)?;
    let area = r
        .checked_mul(r)
        .ok_or_else(|| Error::shape(op, format!("the factor {factor} is too large"), "take a smaller one"))?;
    if channels % area != 0 {
        let what = format!("input shape {:?} has {channels} channels", x.sizes());
        return Err(Error::shape(op, what, format!("they must be divisible by {factor} * {factor}")));
    }
    let channels = channels / area;
    let split = [outer, &[channels, r, r, height, width]].concat();
    let order = [0, 3, 1, 4, 2];
    let sizes = [outer, &[channels, height.saturating_mul(r), width.saturating_mul(r)]].concat();
    rearranged(x, &split, outer.len(), &order, &sizes)
}

/// Rearranges `(…, C, H r, W r)` to `(…, C r², H, W)`.
fn pixel_unshuffle(x: &Tensor, factor: i64) -> Result<Tensor> {
    let op = "pixel_unshuffle";
    let (r, outer, [channels, height, width]) = planes(op, x, factor)?;
    if height % r != 0 || width % r != 0 {
        let what = format!("input shape {:?} has planes of {height} by {width}", x.sizes());
        return Err(Error::shape(op, what, format!("both must be divisible by {factor}")));
    }
    let (height, width) = (height / r, width / r);
    let split = [outer, &[channels, height, r, width, r]].concat();
    let order = [0, 2, 4, 1, 3];
    rearranged(x, &split, outer.len(), &order, &[outer, &[channels * r * r, height, width]].concat())
}

/// Interleaves groups of channels: the first channel of every group, then the second of every group, ….
fn channel_shuffle(x: &Tensor, groups: i64) -> Result<Tensor> {
    let op = "channel_shuffle";
    let groups = count(op, groups)?;
    match x.sizes() {
        &[samples, channels, ref rest @ ..] if groups > 0 && !rest.is_empty() && channels % groups == 0 => {
            let split = [&[samples, groups, channels / groups, rest.iter().product()][..]].concat();
            rearranged(x, &split, 1, &[1, 0, 2], x.sizes())
        }
        sizes => {
            let what = format!("input shape {sizes:?} for {groups} groups");
            Err(Error::shape(op, what, "there must be at least 3 dims, and dim 1 must divide evenly into the groups"))
        }
    }
}

/// The factor, the leading sizes, and channels, height and width.
fn planes<'a>(op: &str, x: &'a Tensor, factor: i64) -> Result<(usize, &'a [usize], [usize; 3])> {
    let r = count(op, factor)?;
    match x.sizes() {
        [outer @ .., channels, height, width] if r > 0 => Ok((r, outer, [*channels, *height, *width])),
        sizes => {
            let what = format!("input shape {sizes:?} and factor {factor}");
            Err(Error::shape(op, what, "there must be at least 3 dims, and the factor must be positive"))
        }
    }
}

/// A row-major copy: splits the dims to `split`, permutes those after the first `n_outer` to `order`, and joins them to
/// `sizes`.
fn rearranged(x: &Tensor, split: &[usize], n_outer: usize, order: &[usize], sizes: &[usize]) -> Result<Tensor> {
    let dims: Vec<i64> = (0..n_outer).chain(order.iter().map(|dim| dim + n_outer)).map(|dim| dim as i64).collect();
    let moved = x.reshape(split)?.permute(dims)?;
    call(Op::Clone, &[&moved], &ordered(MemoryFormat::Contiguous))?.view(sizes)
}

fn upsampling(library: &mut Library) -> Result<()> {
    library
        .composite(&NEAREST, |x: &Tensor, sizes: &[i64], height: Option<f64>, width: Option<f64>| {
            resized("upsample_nearest2d", x, sizes, [height, width], Way::Nearest)
        })?
        .def_kernel(
            "upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
            |x: &Tensor, sizes: Option<&[i64]>, scales: Option<&[f64]>| {
                let (sizes, scales) = sizes_of("upsample_nearest2d", x, sizes, scales)?;
                resized("upsample_nearest2d", x, &sizes, scales, Way::Nearest)
            },
        )?
        .composite(&BILINEAR, |x: &Tensor, sizes: &[i64], corners: bool, height: Option<f64>, width: Option<f64>| {
            resized("upsample_bilinear2d", x, sizes, [height, width], Way::linear(corners))
        })?
        .def_kernel(
            "upsample_bilinear2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) \
             -> Tensor",
            |x: &Tensor, sizes: Option<&[i64]>, corners: bool, scales: Option<&[f64]>| {
                let (sizes, scales) = sizes_of("upsample_bilinear2d", x, sizes, scales)?;
                resized("upsample_bilinear2d", x, &sizes, scales, Way::linear(corners))
            },
        )?
        .def_kernel(
            "upsample_nearest2d_backward(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, float? \
             scales_h=None, float? scales_w=None) -> Tensor",
            |g: &Tensor, sizes: &[i64], input: &[i64], height: Option<f64>, width: Option<f64>| {
                backward("upsample_nearest2d_backward", g, sizes, input, [height, width], Way::Nearest)
            },
        )?
        .def_kernel(
            "upsample_bilinear2d_backward(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, bool \
             align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
            |g: &Tensor, sizes: &[i64], input: &[i64], corners: bool, height: Option<f64>, width: Option<f64>| {
                backward("upsample_bilinear2d_backward", g, sizes, input, [height, width], Way::linear(corners))
            },
        )?;
    Ok(())
}

/// How a pixel is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The source pixel at the same relative position, rounded down.
    Nearest,
    /// Linear interpolation that aligns the centres of pixels.
    BetweenCentres,
    /// Linear interpolation that aligns the first and last pixels.
    BetweenCorners,
}

impl Way {
    pub(super) fn linear(corners: bool) -> Way {
        if corners { Way::BetweenCorners } else { Way::BetweenCentres }
    }
}

/// The sizes and factors of a call that gives one of the two.
pub(super) fn sizes_of(
    op: &str,
    x: &Tensor,
    sizes: Option<&[i64]>,
    scales: Option<&[f64]>,
) -> Result<([i64; 2], [Option<f64>; 2])> {
    match (sizes, scales) {
        (Some(&[height, width]), None) => Ok(([height, width], [None, None])),
        (None, Some(&[height, width])) if x.dim() == 4 => {
            let size = |dim: usize, scale: f64| (x.sizes()[dim] as f64 * scale).floor() as i64;
            Ok(([size(2, height), size(3, width)], [Some(height), Some(width)]))
        }
        (_, _) => {
            let what = format!("output_size is {sizes:?} and scale_factors {scales:?} for shape {:?}", x.sizes());
            Err(Error::argument(op, what + "; pass two sizes or two factors, and a 4-dim input"))
        }
    }
}

fn check(op: &str, input: &[usize], sizes: &[i64]) -> Result<[usize; 2]> {
    match (input, sizes) {
        (&[_, channels, height, width], &[to_height, to_width])
            if channels * height * width > 0 && to_height > 0 && to_width > 0 =>
        {
            Ok([to_height as usize, to_width as usize])
        }
        (_, _) => {
            let what = format!("input shape {input:?} to planes of {sizes:?}");
            Err(Error::shape(op, what, "there must be 4 dims, and all sizes but the first must be positive"))
        }
    }
}

fn resized(op: &str, x: &Tensor, sizes: &[i64], scales: [Option<f64>; 2], way: Way) -> Result<Tensor> {
    let counts = check(op, x.sizes(), sizes)?;
    if way == Way::Nearest {
        return in_format(x, x, 2, |x, first| {
            let mut y = x.clone();
            for (d, dim) in [first, first + 1].into_iter().enumerate() {
                let index = Places::new(x, x.sizes()[dim], counts[d], scales[d], way)?.first;
                y = y.index_select(dim as i64, &index)?;
            }
            Ok(y)
        });
    }
    need_float(op, &[x])?;
    let y = in_format(x, &widened(x)?, 2, |x, first| {
        let mut y = x.clone();
        for (d, dim) in [first, first + 1].into_iter().enumerate() {
            let places = Places::new(x, x.sizes()[dim], counts[d], scales[d], way)?;
            let [near, far] = [&places.first, &places.second].map(|index| y.index_select(dim as i64, index));
            let share = shaped(&places.share, x.dim() - 1 - dim)?;
            y = near?.mul(share.neg()?.add(1.0)?)?.add(far?.mul(share)?)?;
        }
        Ok(y)
    })?;
    y.to_dtype(x.dtype())
}

/// Every pixel adds its gradient to the pixels that it was computed from.
fn backward(
    op: &str,
    gradient: &Tensor,
    sizes: &[i64],
    input: &[i64],
    scales: [Option<f64>; 2],
    way: Way,
) -> Result<Tensor> {
    need_float(op, &[gradient])?;
    let input: Vec<usize> = input.iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
    let counts = check(op, &input, sizes)?;
    if gradient.sizes() != [&input[..2], &counts].concat() {
        let what = format!("the gradient has shape {:?} for input {input:?}", gradient.sizes());
        return Err(Error::shape(op, what, format!("its planes must be {counts:?}")));
    }
    let mut g = widened(gradient)?;
    if way == Way::Nearest && (0..2).all(|d| is_doubled(input[2 + d], counts[d], scales[d])) {
        for (dim, size) in [(2, input[2]), (4, input[3])] {
            g = g.unflatten(dim, [size as i64, -1])?;
        }
        return g.sum([3, 5], false)?.to_dtype(gradient.dtype());
    }
    for (d, dim) in [(1, 3), (0, 2)] {
        let places = Places::new(gradient, input[dim], counts[d], scales[d], way)?;
        let mut sizes = g.sizes().to_vec();
        sizes[dim] = input[dim];
        let zeros = full_on(g.device(), &sizes, Scalar::Int(0), Some(g.dtype()))?;
        g = if way == Way::Nearest {
            zeros.index_add(dim as i64, &places.first, &g)?
        } else {
            let share = shaped(&places.share, 3 - dim)?;
            let near = zeros.index_add(dim as i64, &places.first, &g.mul(share.neg()?.add(1.0)?)?)?;
            near.index_add(dim as i64, &places.second, &g.mul(share)?)?
        };
    }
    g.to_dtype(gradient.dtype())
}

/// Whether each pixel is copied to equally many neighbours along a dim. The factor is a power of two, so places are
/// exact.
fn is_doubled(size: usize, count: usize, scale: Option<f64>) -> bool {
    let factor = count / size;
    count == factor * size && factor.is_power_of_two() && scale.is_none_or(|scale| scale == factor as f64)
}

/// Reshapes one number per element of a dim so that it broadcasts over the `after` dims after it.
fn shaped(value: &Tensor, after: usize) -> Result<Tensor> {
    let mut value = value.clone();
    for _ in 0..after {
        value = value.unsqueeze(-1)?;
    }
    Ok(value)
}

/// The two source pixels of each pixel, and the weight of the second.
pub(super) struct Places {
    pub(super) first: Tensor,
    pub(super) second: Tensor,
    pub(super) share: Tensor,
}

impl Places {
    pub(super) fn new(like: &Tensor, size: usize, count: usize, scale: Option<f64>, way: Way) -> Result<Places> {
        let dtype = if like.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        // A quotient of f32 differs from a rounded quotient of f64.
        let quotient = |a: usize, b: usize| {
            if dtype == DType::F64 { a as f64 / b as f64 } else { f64::from(a as f32 / b as f32) }
        };
        let step = match (way, scale) {
            (Way::BetweenCorners, _) if count > 1 => quotient(size - 1, count - 1),
            (Way::BetweenCorners, _) => 0.0,
            (Way::Nearest | Way::BetweenCentres, Some(scale)) if scale > 0.0 => 1.0 / scale,
            (Way::Nearest | Way::BetweenCentres, _) => quotient(size, count),
        };
        let numbers = range_on(like.device(), 0, count as i64, Some(dtype))?;
        let place = match way {
            Way::Nearest | Way::BetweenCorners => numbers.mul(step)?,
            Way::BetweenCentres => numbers.add(0.5)?.mul(step)?.sub(0.5)?.clamp_min(0.0)?,
        };
        let whole = place.floor()?.clamp_max((size - 1) as f64)?;
        let first = whole.to_dtype(DType::I64)?;
        let second = first.add(1)?.clamp_max(size as i64 - 1)?;
        let share = place.sub(&whole)?.clamp(Some(0.0.into()), Some(1.0.into()))?;
        Ok(Places { first, second, share })
    }
}
