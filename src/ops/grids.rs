//! Sampling of images at points, and windows of images as columns.
//!
//! Samples are gathers and weights, so gradients flow to the image and to the points. Columns are views of the padded
//! image, and images of columns are sums by index.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ir::shape::checked_numel;
use crate::ops::arguments::{counts, int, need_float, widened};
use crate::ops::composite::Composite;
use crate::ops::factories::{full_on, range_on};
use crate::tensor::handle::Tensor;

static GRID_SAMPLER: Composite = Composite::new(
    "grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> \
     Tensor",
);
static IM2COL: Composite =
    Composite::new("im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor");
static COL2IM: Composite = Composite::new(
    "col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) \
     -> Tensor",
);

/// How a sample between pixels is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GridFilter {
    /// From the four pixels around it, linearly.
    #[default]
    Bilinear,
    /// The nearest pixel.
    Nearest,
    /// From the sixteen pixels around it, by cubic polynomials.
    Bicubic,
}

/// What is sampled outside of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GridBorder {
    /// Zeros.
    #[default]
    Zeros,
    /// The pixel at the edge.
    Edge,
    /// The image mirrored at its edge.
    Reflection,
}

/// The options of [`Tensor::grid_sample`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct GridSample {
    /// How a sample between pixels is computed.
    pub filter: GridFilter,
    /// What is sampled outside of the image.
    pub border: GridBorder,
    /// Whether −1 and 1 are the centres of the pixels at the edge, and not their outer edges.
    pub align_corners: bool,
}

/// The windows of [`Tensor::im2col`] and [`Tensor::col2im`], as (height, width).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Patches {
    /// The size of a window.
    pub kernel: [i64; 2],
    /// The distance between elements of a window.
    pub dilation: [i64; 2],
    /// The zeros at each end.
    pub padding: [i64; 2],
    /// The distance between windows.
    pub stride: [i64; 2],
}

impl Default for Patches {
    fn default() -> Self {
        Patches { kernel: [1, 1], dilation: [1, 1], padding: [0, 0], stride: [1, 1] }
    }
}

/// Samples and patches.
impl Tensor {
    /// Samples images `(N, C, H, W)` at points `(N, H', W', 2)`, whose last dim is (x, y) between −1 and 1. The result
    /// is `(N, C, H', W')`. The dtype is kept.
    ///
    /// # Errors
    /// If the dtypes are not one floating dtype, or if the shapes do not fit.
    #[track_caller]
    pub fn grid_sample(&self, grid: &Tensor, options: &GridSample) -> Result<Tensor> {
        GRID_SAMPLER.call((self, grid, options.filter as i64, options.border as i64, options.align_corners))
    }

    /// The windows of an image `(N, C, H, W)` or `(C, H, W)` as columns: `(N, C kh kw, L)`. The dtype is kept.
    ///
    /// # Errors
    /// If the rank does not fit, if a number of `patches` is out of range, or if a window does not fit the image.
    #[track_caller]
    pub fn im2col(&self, patches: &Patches) -> Result<Tensor> {
        let Patches { kernel, dilation, padding, stride } = patches;
        IM2COL.call((self, &kernel[..], &dilation[..], &padding[..], &stride[..]))
    }

    /// The image of `size` whose windows are these columns, where those that overlap are added up. It reverses
    /// [`Tensor::im2col`] if none do. The dtype is kept.
    ///
    /// # Errors
    /// If the columns do not fit the windows of such an image.
    #[track_caller]
    pub fn col2im(&self, size: [i64; 2], patches: &Patches) -> Result<Tensor> {
        let Patches { kernel, dilation, padding, stride } = patches;
        COL2IM.call((self, &size[..], &kernel[..], &dilation[..], &padding[..], &stride[..]))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&GRID_SAMPLER, grid_sampler)?
        .def_kernel(
            "grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) \
             -> Tensor",
            grid_sampler,
        )?
        .composite(&IM2COL, im2col)?
        .composite(&COL2IM, col2im)?;
    Ok(())
}

fn grid_sampler(image: &Tensor, grid: &Tensor, filter: i64, border: i64, align_corners: bool) -> Result<Tensor> {
    let op = "grid_sampler_2d";
    need_float(op, &[image, grid])?;
    if image.dtype() != grid.dtype() {
        let hint = "image and points must have one dtype";
        return Err(Error::dtype(op, grid.dtype(), image.dtype().name(), hint));
    }
    let fits = image.dim() == 4 && grid.dim() == 4 && grid.sizes()[3] == 2 && grid.sizes()[0] == image.sizes()[0];
    if !fits || image.sizes()[2..].contains(&0) {
        let what = format!("an image of shape {:?} at points of shape {:?}", image.sizes(), grid.sizes());
        return Err(Error::shape(op, what, "give (N, C, H, W) with pixels, and (N, H', W', 2)"));
    }
    let border = match border {
        0 => GridBorder::Zeros,
        1 => GridBorder::Edge,
        2 => GridBorder::Reflection,
        other => return Err(Error::argument(op, format!("padding_mode is {other}; use 0, 1 or 2"))),
    };
    let (height, width) = (image.sizes()[2], image.sizes()[3]);
    let axis = |at: i64, size: usize| -> Result<Axis> {
        let line = grid.select(3, at)?.reshape([int(grid.sizes()[0]), -1])?;
        let last = size as f64 - 1.0;
        let place = match align_corners {
            true => line.add(1.0)?.mul(last / 2.0)?,
            false => line.add(1.0)?.mul(size as f64)?.sub(1.0)?.div(2.0)?,
        };
        Ok(Axis { place, size, border, align_corners })
    };
    let (x, y) = (axis(0, width)?, axis(1, height)?);
    let pixels = Pixels { lines: image.reshape([int(image.sizes()[0]), int(image.sizes()[1]), -1])?, width };
    let samples = match filter {
        0 => bilinear(&pixels, &x.inside()?, &y.inside()?)?,
        1 => {
            let nearest = |axis: Axis| axis.inside()?.place.round();
            pixels.at(&x.tap(&nearest(x.clone())?)?, &y.tap(&nearest(y.clone())?)?)?
        }
        2 => bicubic(&pixels, &x, &y)?,
        other => return Err(Error::argument(op, format!("interpolation_mode is {other}; use 0, 1 or 2"))),
    };
    samples.reshape([image.sizes()[0], image.sizes()[1], grid.sizes()[1], grid.sizes()[2]].map(int))
}

/// Places along one dim of an image, in pixels: `(N, points)`.
#[derive(Clone)]
struct Axis {
    place: Tensor,
    size: usize,
    border: GridBorder,
    align_corners: bool,
}

/// A line of pixels: the index of each, and whether there is one.
struct Tap {
    index: Tensor,
    exists: Tensor,
}

impl Axis {
    /// The same with places moved into the image, as the border says.
    fn inside(&self) -> Result<Axis> {
        Ok(Axis { place: self.moved(&self.place)?, ..self.clone() })
    }

    fn moved(&self, place: &Tensor) -> Result<Tensor> {
        let clipped = |place: &Tensor| {
            let last = self.size as f64 - 1.0;
            place.masked_fill(&place.isnan()?, 0.0)?.clamp(Some(0.0.into()), Some(last.into()))
        };
        match self.border {
            GridBorder::Zeros => Ok(place.clone()),
            GridBorder::Edge => clipped(place),
            GridBorder::Reflection => clipped(&self.reflected(place)?),
        }
    }

    fn reflected(&self, place: &Tensor) -> Result<Tensor> {
        let size = self.size as f64;
        let (low, span) = if self.align_corners { (0.0, size - 1.0) } else { (-0.5, size) };
        if span == 0.0 {
            return place.mul(0.0);
        }
        let beyond = place.sub(low)?.abs()?;
        let extra = beyond.fmod(span)?;
        let is_even = beyond.div(span)?.floor()?.remainder(2.0)?.eq(0.0)?;
        is_even.where_(&extra.add(low)?, &extra.neg()?.add(span + low)?)
    }

    /// The pixels at whole places.
    fn tap(&self, place: &Tensor) -> Result<Tap> {
        let place = place.detach()?;
        let exists = place.ge(0.0)?.logical_and(&place.le(self.size as f64 - 1.0)?)?;
        let index = exists.where_(&place, 0.0)?.to_dtype(DType::I64)?;
        Ok(Tap { index, exists })
    }
}

/// The pixels of an image in row-major order: `(N, C, H W)`.
struct Pixels {
    lines: Tensor,
    width: usize,
}

impl Pixels {
    /// The pixels at taps of both dims, 0 where there is none: `(N, C, points)`.
    fn at(&self, x: &Tap, y: &Tap) -> Result<Tensor> {
        let index = y.index.mul(int(self.width))?.add(&x.index)?.unsqueeze(1)?;
        let sizes = [self.lines.sizes()[0], self.lines.sizes()[1], index.sizes()[2]];
        let exists = x.exists.logical_and(&y.exists)?.unsqueeze(1)?;
        exists.where_(&self.lines.gather(2, &index.expand(&sizes[..])?)?, 0.0)
    }
}

fn bilinear(pixels: &Pixels, x: &Axis, y: &Axis) -> Result<Tensor> {
    let (left, top) = (x.place.floor()?, y.place.floor()?);
    let (right, bottom) = (left.add(1.0)?, top.add(1.0)?);
    // The weight of a corner is the area of the rectangle to the opposite one.
    let (from_left, from_top) = (x.place.sub(&left)?, y.place.sub(&top)?);
    let (from_right, from_bottom) = (right.sub(&x.place)?, bottom.sub(&y.place)?);
    let corner = |x_at: &Tensor, y_at: &Tensor, wide: &Tensor, high: &Tensor| {
        pixels.at(&x.tap(x_at)?, &y.tap(y_at)?)?.mul(&wide.mul(high)?.unsqueeze(1)?)
    };
    corner(&left, &top, &from_right, &from_bottom)?
        .add(corner(&right, &top, &from_left, &from_bottom)?)?
        .add(corner(&left, &bottom, &from_right, &from_top)?)?
        .add(corner(&right, &bottom, &from_left, &from_top)?)
}

/// The weights of four neighbours at distance `t` from the second (Keys 1981, with `a` = −3/4).
fn cubic_weights(t: &Tensor) -> Result<[Tensor; 4]> {
    const A: f64 = -0.75;
    let near = |x: &Tensor| x.mul(A + 2.0)?.sub(A + 3.0)?.mul(x)?.mul(x)?.add(1.0);
    let far = |x: &Tensor| x.mul(A)?.sub(5.0 * A)?.mul(x)?.add(8.0 * A)?.mul(x)?.sub(4.0 * A);
    let rest = t.neg()?.add(1.0)?;
    Ok([far(&t.add(1.0)?)?, near(t)?, near(&rest)?, far(&rest.add(1.0)?)?])
}

fn bicubic(pixels: &Pixels, x: &Axis, y: &Axis) -> Result<Tensor> {
    let (left, top) = (x.place.floor()?, y.place.floor()?);
    let x_weights = cubic_weights(&x.place.sub(&left)?)?;
    let y_weights = cubic_weights(&y.place.sub(&top)?)?;
    let taps = |axis: &Axis, first: &Tensor| {
        (-1..3).map(|step| axis.tap(&axis.moved(&first.add(step)?)?)).collect::<Result<Vec<Tap>>>()
    };
    let (x_taps, y_taps) = (taps(x, &left)?, taps(y, &top)?);
    let mut sum: Option<Tensor> = None;
    for (y_tap, y_weight) in y_taps.iter().zip(&y_weights) {
        let mut row: Option<Tensor> = None;
        for (x_tap, x_weight) in x_taps.iter().zip(&x_weights) {
            let part = pixels.at(x_tap, y_tap)?.mul(&x_weight.unsqueeze(1)?)?;
            row = Some(row.map_or_else(|| Ok(part.clone()), |row| row.add(&part))?);
        }
        let row = row.expect("there are four taps").mul(&y_weight.unsqueeze(1)?)?;
        sum = Some(sum.map_or_else(|| Ok(row.clone()), |sum| sum.add(&row))?);
    }
    Ok(sum.expect("there are four taps"))
}

/// The windows over one dim.
struct Windows {
    size: usize,
    kernel: usize,
    dilation: usize,
    padding: usize,
    stride: usize,
    count: usize,
}

impl Windows {
    /// How many windows are over one element, at most.
    fn overlap(&self) -> usize {
        self.kernel.div_ceil(self.stride)
    }

    /// Whether they are sums of few shifted lines, none of which is in the padding alone. Windows that are apart would
    /// be padded to the stride, which may be longer than any memory.
    fn are_lines(&self) -> bool {
        let is_close = self.dilation == 1 && self.stride <= self.kernel && self.overlap() <= MOST_OVERLAPPING;
        is_close && self.padding <= (self.count - 1) * self.stride
    }
}

fn windows(op: &str, sizes: &[usize], lists: [&[i64]; 4]) -> Result<[Windows; 2]> {
    let [kernel, dilation, padding, stride] = lists;
    let of = |at: usize| {
        let number = |list: &[i64], name: &str, least: usize| {
            let found = counts(op, list)?;
            let found = if found.len() == 1 { found.first() } else { found.get(at) }.copied();
            found.filter(|&number| number >= least && number <= 1 << 40).ok_or_else(|| {
                Error::argument(op, format!("{name} is {list:?}; give one or two numbers of at least {least}"))
            })
        };
        let (kernel, dilation) = (number(kernel, "kernel_size", 1)?, number(dilation, "dilation", 1)?);
        let (padding, stride) = (number(padding, "padding", 0)?, number(stride, "stride", 1)?);
        let reach = dilation.saturating_mul(kernel - 1).saturating_add(1);
        let padded = sizes[at].saturating_add(2 * padding);
        if reach > padded {
            let what = format!("a window of {reach} elements does not fit {padded} with padding");
            return Err(Error::shape(op, what, "use smaller windows, or pad more"));
        }
        let count = (padded - reach) / stride + 1;
        Ok::<_, Error>(Windows { size: sizes[at], kernel, dilation, padding, stride, count })
    };
    Ok([of(0)?, of(1)?])
}

fn im2col(x: &Tensor, kernel: &[i64], dilation: &[i64], padding: &[i64], stride: &[i64]) -> Result<Tensor> {
    let op = "im2col";
    need_float(op, &[x])?;
    if !matches!(x.dim(), 3 | 4) || x.sizes()[x.dim() - 3..].contains(&0) {
        let what = format!("input of shape {:?}", x.sizes());
        return Err(Error::shape(op, what, "give (N, C, H, W) or (C, H, W) with pixels"));
    }
    let image = if x.dim() == 3 { x.unsqueeze(0)? } else { x.clone() };
    let [rows, columns] = windows(op, &image.sizes()[2..], [kernel, dilation, padding, stride])?;
    let pad = [columns.padding, columns.padding, rows.padding, rows.padding].map(int);
    let mut patches = if pad == [0; 4] { image.clone() } else { image.constant_pad_nd(pad, 0)? };
    for (dim, windows) in [(2, &rows), (3, &columns)] {
        let reach = windows.dilation * (windows.kernel - 1) + 1;
        patches = patches.unfold(dim, reach, windows.stride)?.slice(-1, 0, None, int(windows.dilation))?;
    }
    let sizes = [
        image.sizes()[0],
        image.sizes()[1].saturating_mul(rows.kernel).saturating_mul(columns.kernel),
        rows.count.saturating_mul(columns.count),
    ];
    checked_numel(op, &sizes, x.dtype().size())?;
    let patches = patches.permute([0, 1, 4, 5, 2, 3])?.reshape(&sizes[..])?;
    if x.dim() == 3 { patches.squeeze(0) } else { Ok(patches) }
}

fn col2im(
    x: &Tensor,
    size: &[i64],
    kernel: &[i64],
    dilation: &[i64],
    padding: &[i64],
    stride: &[i64],
) -> Result<Tensor> {
    let op = "col2im";
    need_float(op, &[x])?;
    let size = counts(op, size)?;
    let &[_, _] = &size[..] else {
        return Err(Error::argument(op, format!("output_size is {size:?}; give height and width")));
    };
    let [rows, columns] = windows(op, &size, [kernel, dilation, padding, stride])?;
    let (window, count) = (rows.kernel.saturating_mul(columns.kernel), rows.count.saturating_mul(columns.count));
    let fits =
        matches!(x.dim(), 2 | 3) && x.sizes()[x.dim() - 2].is_multiple_of(window) && x.sizes()[x.dim() - 1] == count;
    if !fits {
        let what = format!("columns of shape {:?} for {count} windows of {window} elements", x.sizes());
        return Err(Error::shape(op, what, "give (N, C kh kw, L) or (C kh kw, L)"));
    }
    let all = if x.dim() == 2 { x.unsqueeze(0)? } else { x.clone() };
    let (n, channels) = (all.sizes()[0], all.sizes()[1] / window);
    let padded = [&rows, &columns].map(|windows| windows.size + 2 * windows.padding);
    checked_numel(op, &[n, channels, padded[0], padded[1]], x.dtype().size())?;
    let image = if rows.are_lines() && columns.are_lines() {
        let sizes = [n, channels, rows.kernel, columns.kernel, rows.count, columns.count].map(int);
        let lines = overlapped(&widened(&all)?.reshape(sizes)?.permute([0, 1, 2, 4, 5, 3])?, 4, &columns)?;
        let image = overlapped(&lines.permute([0, 1, 3, 2, 4])?, 2, &rows)?;
        image.to_dtype(x.dtype())?.contiguous()?
    } else {
        scattered(&all, [n, channels], [&rows, &columns])?
    };
    if x.dim() == 2 { image.squeeze(0) } else { Ok(image) }
}

/// Most windows over one element that are added one after the other.
const MOST_OVERLAPPING: usize = 16;

/// Adds windows over a dim: `(.., count, kernel, ..)` from dim `at` on becomes `(.., size, ..)`. Parts of all windows
/// that are a stride long follow each other, so their sum is one of shifted lines.
fn overlapped(x: &Tensor, at: usize, windows: &Windows) -> Result<Tensor> {
    let &Windows { size, kernel, padding, stride, count, .. } = windows;
    let n_parts = windows.overlap();
    let padded = |x: &Tensor, dim: usize, pads: [i64; 2]| {
        let mut all = vec![0; 2 * (x.dim() - 1 - dim)];
        all.extend(pads);
        if pads == [0, 0] { Ok(x.clone()) } else { x.constant_pad_nd(all, 0) }
    };
    let whole = padded(x, at + 1, [0, int(n_parts * stride - kernel)])?;
    let mut sum: Option<Tensor> = None;
    for part in 0..n_parts {
        let (start, end) = (int(part * stride), int((part + 1) * stride));
        let line = whole.slice(int(at + 1), start, end, 1)?.flatten(int(at), int(at + 1))?;
        let before = start - int(padding);
        let line = padded(&line, at, [before, int(size) - before - int(count * stride)])?;
        sum = Some(match sum {
            None => line,
            Some(sum) => sum.add(&line)?,
        });
    }
    sum.ok_or_else(|| Error::Internal { message: "a window has a part".into() })
}

/// Adds the elements of all windows at their places, one by one.
fn scattered(all: &Tensor, [n, channels]: [usize; 2], [rows, columns]: [&Windows; 2]) -> Result<Tensor> {
    // The padded pixel of each element of each window.
    let line = |windows: &Windows, at: [i64; 4]| {
        let steps = |count: usize, step: usize| range_on(all.device(), 0, int(count), None)?.mul(int(step));
        let inner = steps(windows.kernel, windows.dilation)?.unsqueeze(1)?;
        inner.add(&steps(windows.count, windows.stride)?)?.view(at)
    };
    let padded = [rows, columns].map(|windows| windows.size + 2 * windows.padding);
    let down = line(rows, [int(rows.kernel), 1, int(rows.count), 1])?.mul(int(padded[1]))?;
    let place = down.add(line(columns, [1, int(columns.kernel), 1, int(columns.count)])?)?.reshape([-1])?;
    let zeros = full_on(all.device(), &[n, channels, padded[0] * padded[1]], 0.into(), Some(all.dtype()))?;
    let sums =
        zeros.index_add(2, &place, &all.reshape([n, channels, all.numel() / (n * channels).max(1)].map(int))?)?;
    let image = sums.view([n, channels, padded[0], padded[1]].map(int))?;
    image.narrow(2, int(rows.padding), rows.size)?.narrow(3, int(columns.padding), columns.size)?.contiguous()
}
