//! Adaptive pooling: the number of windows is given, and their sizes follow from it.
//!
//! Window `i` of `n` over `size` elements starts at `floor(i * size / n)` and ends before `ceil((i + 1) * size / n)`.
//! If `n` divides `size`, the windows are a view. Otherwise each dim is gathered, and the elements that a shorter
//! window lacks are masked.

use crate::device::Device;
use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::shape::checked_numel;
use crate::ir::{DType, Scalar};
use crate::ops::arguments::{need_float, only_floats, widened};
use crate::ops::composite::Composite;
use crate::ops::factories::{full_on, range_on};
use crate::ops::memory_formats::in_format;
use crate::tensor::handle::Tensor;

static ADAPTIVE_AVG_POOL1D: Composite =
    Composite::new("adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor");
static ADAPTIVE_AVG_POOL2D: Composite =
    Composite::new("adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor");

static ADAPTIVE_MAX_POOL1D: Composite =
    Composite::new("adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)");
static ADAPTIVE_MAX_POOL2D: Composite =
    Composite::new("adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)");

/// Adaptive pooling of `(N, C, …)` or `(C, …)`. The dtype is kept.
impl Tensor {
    /// Adaptive average pooling: the means of `size` windows over the last dim. The input is `(N, C, L)` or `(C, L)`;
    /// `L` becomes `size`. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or if the rank does not fit.
    #[track_caller]
    pub fn adaptive_avg_pool1d(&self, size: i64) -> Result<Tensor> {
        ADAPTIVE_AVG_POOL1D.call((self, &[size][..]))
    }

    /// Adaptive average pooling: the means of `sizes` windows over the last two dims. The input is `(N, C, H, W)` or
    /// `(C, H, W)`; `H` and `W` become `sizes`. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or if the rank does not fit.
    #[track_caller]
    pub fn adaptive_avg_pool2d(&self, sizes: [i64; 2]) -> Result<Tensor> {
        ADAPTIVE_AVG_POOL2D.call((self, &sizes[..]))
    }

    /// Adaptive max pooling: the maxima of `size` windows over the last dim, and their indices (i64) in it. See
    /// [`Tensor::adaptive_avg_pool1d`].
    ///
    /// # Errors
    /// If the dtype is not floating, or if the rank does not fit.
    #[track_caller]
    pub fn adaptive_max_pool1d(&self, size: i64) -> Result<(Tensor, Tensor)> {
        ADAPTIVE_MAX_POOL1D.call((self, &[size][..]))
    }

    /// Adaptive max pooling: the maxima of `sizes` windows over the last two dims, and their indices (i64) in the
    /// flattened plane. See [`Tensor::adaptive_avg_pool2d`].
    ///
    /// # Errors
    /// If the dtype is not floating, or if the rank does not fit.
    #[track_caller]
    pub fn adaptive_max_pool2d(&self, sizes: [i64; 2]) -> Result<(Tensor, Tensor)> {
        ADAPTIVE_MAX_POOL2D.call((self, &sizes[..]))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&ADAPTIVE_AVG_POOL1D, |x: &Tensor, sizes: &[i64]| adaptive("adaptive_avg_pool1d", 1, x, sizes))?
        .composite(&ADAPTIVE_AVG_POOL2D, |x: &Tensor, sizes: &[i64]| adaptive("adaptive_avg_pool2d", 2, x, sizes))?
        .composite(&ADAPTIVE_MAX_POOL1D, |x: &Tensor, sizes: &[i64]| {
            let &[size] = sizes else {
                return Err(Error::argument("adaptive_max_pool1d", format!("output_size is {sizes:?}; pass 1 size")));
            };
            let plane = x.unsqueeze(-2)?;
            let (values, places) = adaptive_max("adaptive_max_pool1d", x, &plane, &[1, size])?;
            Ok((values.squeeze(-2)?, places.squeeze(-2)?))
        })?
        .composite(&ADAPTIVE_MAX_POOL2D, |x: &Tensor, sizes: &[i64]| adaptive_max("adaptive_max_pool2d", x, x, sizes))?
        .def_kernel(
            "_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
            |x: &Tensor, sizes: &[i64]| adaptive("_adaptive_avg_pool2d", 2, x, sizes),
        )?
        .def_kernel(
            "adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor",
            |x: &Tensor, sizes: &[i64]| adaptive("adaptive_avg_pool3d", 3, x, sizes),
        )?
        .def_kernel(
            "_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor",
            |x: &Tensor, sizes: &[i64]| adaptive("_adaptive_avg_pool3d", 3, x, sizes),
        )?
        .def_kernel("_adaptive_avg_pool2d_backward(Tensor grad_output, Tensor self) -> Tensor", backward)?;
    Ok(())
}

fn adaptive(op: &str, n: usize, x: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    need_float(op, &[x])?;
    if sizes.len() != n || sizes.iter().any(|&size| size < 0) {
        return Err(Error::argument(op, format!("output_size is {sizes:?}; pass {n} sizes")));
    }
    let first = x.dim().wrapping_sub(n);
    if (x.dim() != n + 1 && x.dim() != n + 2) || x.sizes()[first..].contains(&0) {
        let what =
            format!("expected {}-dim or {}-dim input without empty planes, but got {:?}", n + 1, n + 2, x.sizes());
        return Err(Error::shape(op, what, "pass channels and the dims to pool over, with or without a batch"));
    }
    check_windows(op, x, first, sizes)?;
    let is_even = |(d, &count): (usize, &i64)| count > 0 && x.sizes()[first + d].is_multiple_of(count as usize);
    let is_even = sizes.iter().enumerate().all(is_even);
    let y = in_format(x, &widened(x)?, n, |x, first| {
        if is_even {
            return even(x, first, sizes);
        }
        let mut y = x.clone();
        for (d, &count) in sizes.iter().enumerate() {
            y = along(&y, first + d, count as usize)?;
        }
        Ok(y)
    })?;
    let y = y.to_dtype(x.dtype())?;
    if y.has_storage_of(x) { x.copy() } else { Ok(y) }
}

/// The maxima of windows over the last two dims of `plane`, which is the input, perhaps with a dim more.
fn adaptive_max(op: &str, input: &Tensor, plane: &Tensor, sizes: &[i64]) -> Result<(Tensor, Tensor)> {
    only_floats(op, plane)?;
    let &[height, width] = sizes else {
        return Err(Error::argument(op, format!("output_size is {sizes:?}; pass 2 sizes")));
    };
    if height < 0 || width < 0 || !matches!(plane.dim(), 3 | 4) || plane.sizes()[plane.dim() - 3..].contains(&0) {
        let what = format!("windows {sizes:?} over input of shape {:?}", input.sizes());
        return Err(Error::shape(op, what, "pass channels and the dims to pool over, with or without a batch"));
    }
    let first = plane.dim() - 2;
    check_windows(op, plane, first, sizes)?;
    let shape = [&plane.sizes()[..first], &[height as usize, width as usize]].concat();
    if shape.contains(&0) {
        let none = |dtype| full_on(plane.device(), &shape, Scalar::Int(0), Some(dtype));
        return Ok((none(plane.dtype())?, none(DType::I64)?));
    }
    let rows = Windows::new(plane.device(), plane.sizes()[first], height as usize)?;
    let columns = Windows::new(plane.device(), plane.sizes()[first + 1], width as usize)?;
    let (down, across) = (rows.longest as i64, columns.longest as i64);
    // Windows by rows and columns: (height, width, down, across).
    let joined = |one: &Tensor, other: &Tensor, join: fn(&Tensor, &Tensor) -> Result<Tensor>| {
        join(&one.view([height, 1, down, 1])?, &other.view([1, width, 1, across])?)?.reshape([-1])
    };
    let start_of_row = rows.index.mul(plane.sizes()[first + 1] as i64)?;
    let index = joined(&start_of_row, &columns.index, |one, other| one.add(other))?;
    let is_missing = joined(&rows.is_missing, &columns.is_missing, |one, other| one.logical_or(other))?;
    let lines = plane.flatten(-2, -1)?;
    let window = [height * width, down * across];
    let picked = lines.detach()?.index_select(-1, &index)?.masked_fill(&is_missing, f64::NEG_INFINITY)?;
    let place = picked.unflatten(-1, window)?.argmax(-1, false)?;
    let base = range_on(plane.device(), 0, height * width, None)?.mul(down * across)?;
    let places = index.take(&place.add(&base)?)?;
    Ok((lines.gather(-1, &places)?.reshape(&shape[..])?, places.reshape(&shape[..])?))
}

/// Checks the window counts before anything is computed, so that the error names the op.
fn check_windows(op: &str, x: &Tensor, first: usize, counts: &[i64]) -> Result<()> {
    /// Windows are computed in f64, where integers are exact up to here.
    const EXACT: u128 = 1 << 53;
    let mut sizes = x.sizes().to_vec();
    for (d, &count) in counts.iter().enumerate() {
        let size = sizes[first + d];
        if (count as u128 + 1) * size as u128 > EXACT {
            let what = format!("{count} windows over {size} elements are more than can be counted");
            return Err(Error::shape(op, what, "ask for fewer; their product is at most 2^53"));
        }
        sizes[first + d] = count as usize;
    }
    checked_numel(op, &sizes, x.dtype().size()).map(|_| ())
}

/// The windows of one dim.
struct Windows {
    /// The element of the dim at each position of each window: `(count, longest)`.
    index: Tensor,
    /// Whether a window has no element at a position.
    is_missing: Tensor,
    /// The length of each window: `(count, 1)`.
    lengths: Tensor,
    longest: usize,
}

impl Windows {
    fn new(device: Device, size: usize, count: usize) -> Result<Windows> {
        // A window starts less than one element before a fractional position. That fraction is a multiple of `divisor /
        // count`. The longest window starts farthest before its position.
        let divisor = greatest_common_divisor(size, count);
        let longest = (size + count - divisor).div_ceil(count);
        // In f64, quotients of integers are rounded down and up exactly.
        let numbers = range_on(device, 0, count as i64 + 1, Some(DType::F64))?.mul(size as f64)?.div(count as f64)?;
        let whole = |x: Result<Tensor>| x?.to_dtype(DType::I64)?.unsqueeze(1);
        let begins = whole(numbers.narrow(0, 0, count)?.floor())?;
        let ends = whole(numbers.narrow(0, 1, count)?.ceil())?;
        let places = begins.add(range_on(device, 0, longest as i64, None)?)?;
        let is_missing = places.ge(&ends)?;
        Ok(Windows { index: places.clamp_max(size as i64 - 1)?, is_missing, lengths: ends.sub(begins)?, longest })
    }

    /// Reshapes a tensor of windows so that it broadcasts along `dim` and the next dim.
    fn at(value: &Tensor, dim: usize, rank: usize) -> Result<Tensor> {
        value.view(&[value.sizes(), &vec![1; rank - dim - 2][..]].concat()[..])
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The means of windows that tile the dims from `first` on. Sums go dim by dim, so all but the last run along lines.
/// Single windows are one reduction.
fn even(x: &Tensor, first: usize, counts: &[i64]) -> Result<Tensor> {
    if counts.iter().all(|&count| count == 1) {
        let dims: Vec<i64> = (first..first + counts.len()).map(|dim| dim as i64).collect();
        return x.mean(dims, true);
    }
    let (mut y, mut elements) = (x.clone(), 1);
    for (d, &count) in counts.iter().enumerate() {
        let (dim, window) = ((first + d) as i64, x.sizes()[first + d] as i64 / count);
        if window > 1 {
            y = y.unflatten(dim, [count, window])?.sum([dim + 1], false)?;
            elements *= window;
        }
    }
    if elements == 1 { Ok(y) } else { y.div(elements as f64) }
}

/// The means of the windows over one dim.
fn along(x: &Tensor, dim: usize, count: usize) -> Result<Tensor> {
    let size = x.sizes()[dim];
    if count == size {
        return Ok(x.clone());
    }
    if count > 0 && size.is_multiple_of(count) {
        return x.unflatten(dim as i64, [count as i64, (size / count) as i64])?.mean(dim as i64 + 1, false);
    }
    if count == 0 {
        return x.narrow(dim as i64, 0, 0);
    }
    let windows = Windows::new(x.device(), size, count)?;
    let picked = x.index_select(dim as i64, &windows.index.view(-1)?)?;
    let picked = picked.unflatten(dim as i64, [count as i64, windows.longest as i64])?;
    let picked = picked.masked_fill(&Windows::at(&windows.is_missing, dim, picked.dim())?, 0.0)?;
    let lengths = Windows::at(&windows.lengths, dim, picked.dim())?;
    picked.sum(dim as i64 + 1, true)?.div(lengths)?.squeeze(dim as i64 + 1)
}

/// Each window spreads its gradient evenly over its elements.
fn backward(gradient: &Tensor, x: &Tensor) -> Result<Tensor> {
    let op = "_adaptive_avg_pool2d_backward";
    need_float(op, &[gradient, x])?;
    let fits = matches!(x.dim(), 3 | 4) && gradient.dim() == x.dim();
    if !fits || gradient.sizes()[..x.dim() - 2] != x.sizes()[..x.dim() - 2] {
        let what = format!("the gradient has shape {:?} for input {:?}", gradient.sizes(), x.sizes());
        return Err(Error::shape(op, what, "all but the last two sizes must be equal"));
    }
    if gradient.sizes()[1..].contains(&0) || x.sizes()[x.dim() - 2..].contains(&0) {
        let what = format!("a gradient of shape {:?} for an input of shape {:?} is empty", gradient.sizes(), x.sizes());
        return Err(Error::shape(op, what, "pool and differentiate at least one element"));
    }
    let mut g = widened(gradient)?;
    for dim in x.dim() - 2..x.dim() {
        g = spread(&g, dim, x.sizes()[dim])?;
    }
    g.to_dtype(x.dtype())
}

fn spread(g: &Tensor, dim: usize, size: usize) -> Result<Tensor> {
    let count = g.sizes()[dim];
    if size.is_multiple_of(count) {
        let (mut spread, mut joined) = (g.sizes().to_vec(), g.sizes().to_vec());
        spread.insert(dim + 1, size / count);
        joined[dim] = size;
        let share = g.div((size / count) as f64)?.unsqueeze(dim as i64 + 1)?;
        return share.expand(&spread[..])?.reshape(&joined[..]);
    }
    let windows = Windows::new(g.device(), size, count)?;
    let share = g.unsqueeze(dim as i64 + 1)?;
    let share = share.div(Windows::at(&windows.lengths, dim, share.dim())?)?;
    let mut sizes = share.sizes().to_vec();
    sizes[dim + 1] = windows.longest;
    let share = share.expand(&sizes[..])?;
    let share = share.masked_fill(&Windows::at(&windows.is_missing, dim, share.dim())?, 0.0)?;
    let mut joined = g.sizes().to_vec();
    joined[dim] = count * windows.longest;
    let mut sizes = g.sizes().to_vec();
    sizes[dim] = size;
    let zeros = full_on(g.device(), &sizes, Scalar::Int(0), Some(g.dtype()))?;
    zeros.index_add(dim as i64, &windows.index.view(-1)?, &share.reshape(&joined[..])?)
}
