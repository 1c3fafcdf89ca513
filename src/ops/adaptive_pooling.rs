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

static ADAPTIVE_AVG_POOL3D: Composite =
    Composite::new("adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor");

static ADAPTIVE_MAX_POOL1D: Composite =
    Composite::new("adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)");
static ADAPTIVE_MAX_POOL2D: Composite =
    Composite::new("adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)");
static ADAPTIVE_MAX_POOL3D: Composite =
    Composite::new("adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)");

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

    /// Adaptive average pooling: the means of `sizes` windows over the last three dims. The input is `(N, C, D, H, W)`
    /// or `(C, D, H, W)`; `D`, `H` and `W` become `sizes`. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is not floating, or if the rank does not fit.
    #[track_caller]
    pub fn adaptive_avg_pool3d(&self, sizes: [i64; 3]) -> Result<Tensor> {
        ADAPTIVE_AVG_POOL3D.call((self, &sizes[..]))
    }

    /// Adaptive max pooling: the maxima of `size` windows over the last dim, and their indices (i64) in it. NaN is the
    /// greatest. Among equal elements the index is that of the first, among NaNs that of the last. See
    /// [`Tensor::adaptive_avg_pool1d`].
    ///
    /// # Errors
    /// If the dtype is not floating, or if the rank does not fit.
    #[track_caller]
    pub fn adaptive_max_pool1d(&self, size: i64) -> Result<(Tensor, Tensor)> {
        ADAPTIVE_MAX_POOL1D.call((self, &[size][..]))
    }

    /// Adaptive max pooling: the maxima of `sizes` windows over the last two dims, and their indices (i64) in the
    /// flattened plane. See [`Tensor::adaptive_avg_pool2d`] and [`Tensor::adaptive_max_pool1d`].
    ///
    /// # Errors
    /// If the dtype is not floating, or if the rank does not fit.
    #[track_caller]
    pub fn adaptive_max_pool2d(&self, sizes: [i64; 2]) -> Result<(Tensor, Tensor)> {
        ADAPTIVE_MAX_POOL2D.call((self, &sizes[..]))
    }

    /// Adaptive max pooling: the maxima of `sizes` windows over the last three dims, and their indices (i64) in the
    /// flattened volume. See [`Tensor::adaptive_avg_pool3d`] and [`Tensor::adaptive_max_pool1d`].
    ///
    /// # Errors
    /// If the dtype is not floating, or if the rank does not fit.
    #[track_caller]
    pub fn adaptive_max_pool3d(&self, sizes: [i64; 3]) -> Result<(Tensor, Tensor)> {
        ADAPTIVE_MAX_POOL3D.call((self, &sizes[..]))
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&ADAPTIVE_AVG_POOL1D, |x: &Tensor, sizes: &[i64]| adaptive("adaptive_avg_pool1d", 1, x, sizes))?
        .composite(&ADAPTIVE_AVG_POOL2D, |x: &Tensor, sizes: &[i64]| adaptive("adaptive_avg_pool2d", 2, x, sizes))?
        .composite(&ADAPTIVE_AVG_POOL3D, |x: &Tensor, sizes: &[i64]| adaptive("adaptive_avg_pool3d", 3, x, sizes))?
        .composite(&ADAPTIVE_MAX_POOL1D, |x: &Tensor, sizes: &[i64]| adaptive_max("adaptive_max_pool1d", 1, x, sizes))?
        .composite(&ADAPTIVE_MAX_POOL2D, |x: &Tensor, sizes: &[i64]| adaptive_max("adaptive_max_pool2d", 2, x, sizes))?
        .composite(&ADAPTIVE_MAX_POOL3D, |x: &Tensor, sizes: &[i64]| adaptive_max("adaptive_max_pool3d", 3, x, sizes))?
        .def_kernel(
            "_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
            |x: &Tensor, sizes: &[i64]| adaptive("_adaptive_avg_pool2d", 2, x, sizes),
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

/// The maxima of windows over the last `n` dims, and their places in these dims, flattened.
fn adaptive_max(op: &str, n: usize, x: &Tensor, sizes: &[i64]) -> Result<(Tensor, Tensor)> {
    only_floats(op, x)?;
    if sizes.len() != n {
        return Err(Error::argument(op, format!("output_size is {sizes:?}; pass {n} sizes")));
    }
    let fits = (x.dim() == n + 1 || x.dim() == n + 2) && sizes.iter().all(|&size| size >= 0);
    if !fits || x.sizes()[x.dim() - n - 1..].contains(&0) {
        let what = format!("windows {sizes:?} over input of shape {:?}", x.sizes());
        return Err(Error::shape(op, what, "pass channels and the dims to pool over, with or without a batch"));
    }
    let first = x.dim() - n;
    check_windows(op, x, first, sizes)?;
    let shape: Vec<usize> = x.sizes()[..first].iter().copied().chain(sizes.iter().map(|&size| size as usize)).collect();
    if shape.contains(&0) {
        let none = |dtype| full_on(x.device(), &shape, Scalar::Int(0), Some(dtype));
        return Ok((none(x.dtype())?, none(DType::I64)?));
    }
    let mut windows = Windows::new(x.device(), x.sizes()[first], shape[first])?;
    for (&size, &count) in x.sizes()[first..].iter().zip(&shape[first..]).skip(1) {
        windows = windows.times(&Windows::new(x.device(), size, count)?, size)?;
    }
    let (count, longest) = (windows.index.sizes()[0] as i64, windows.longest as i64);
    let index = windows.index.reshape([-1])?;
    let lines = x.flatten(first as i64, -1)?;
    let picked = lines.detach()?.index_select(-1, &index)?;
    let picked = picked.masked_fill(&windows.is_missing.reshape([-1])?, f64::NEG_INFINITY)?;
    let picked = picked.unflatten(-1, [count, longest])?;
    // Of several NaNs PyTorch takes the last.
    let last_nan = picked.isnan()?.where_(range_on(x.device(), 0, longest, None)?, -1)?.amax(-1, false)?;
    let place = last_nan.lt(0)?.where_(&picked.argmax(-1, false)?, &last_nan)?;
    let base = range_on(x.device(), 0, count, None)?.mul(longest)?;
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

/// The windows of one dim, or of several that are flattened.
struct Windows {
    /// The element at each position of each window: `(count, longest)`.
    index: Tensor,
    /// Whether a window has no element at a position.
    is_missing: Tensor,
    /// The number of elements of each window: `(count, 1)`.
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

    /// The windows of these dims and of one more, of this size. Windows and positions are in row-major order.
    fn times(&self, inner: &Windows, size: usize) -> Result<Windows> {
        let count = (self.index.sizes()[0] * inner.index.sizes()[0]) as i64;
        let joined = |outer: &Tensor, inner: &Tensor, join: fn(&Tensor, &Tensor) -> Result<Tensor>| {
            let (outer, inner) = (outer.unsqueeze(1)?.unsqueeze(-1)?, inner.unsqueeze(0)?.unsqueeze(2)?);
            join(&outer, &inner)?.reshape([count, -1])
        };
        Ok(Windows {
            index: joined(&self.index.mul(size as i64)?, &inner.index, |outer, inner| outer.add(inner))?,
            is_missing: joined(&self.is_missing, &inner.is_missing, |outer, inner| outer.logical_or(inner))?,
            lengths: joined(&self.lengths, &inner.lengths, |outer, inner| outer.mul(inner))?,
            longest: self.longest * inner.longest,
        })
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
