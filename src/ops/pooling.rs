//! Pooling: the maximum or the mean of each window.
//!
//! Windows are views, and each is reduced in one launch. The gradient of a maximum flows to its index alone. Inputs
//! have channels, and optionally a batch, in front of the pooled dims. Means of 16-bit floats are computed in f32.
//! Adaptive pooling is in `adaptive_pooling.rs`.

use crate::device::Device;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::dispatch::signature::Returns;
use crate::error::{Error, Result};
use crate::ir::attrs::{Convolution, Ints, MaxPoolIndex};
use crate::ir::{Attrs, DType, Op, Scalar};
use crate::ops::arguments::{need_float, widened};
use crate::ops::composite::Composite;
use crate::ops::dims::{Dims, ints};
use crate::ops::factories::{full_on, range_on};
use crate::ops::memory_formats::in_format;
use crate::tensor::handle::Tensor;

macro_rules! max_pool {
    ($n:literal, $suffix:literal, $result:literal) => {
        Composite::new(concat!(
            "max_pool",
            $n,
            "d",
            $suffix,
            "(Tensor self, int[",
            $n,
            "] kernel_size, int[",
            $n,
            "] stride=[], int[",
            $n,
            "] padding=0, int[",
            $n,
            "] dilation=1, bool ceil_mode=False) -> ",
            $result
        ))
    };
}

macro_rules! avg_pool {
    ($n:literal, $divisor:literal) => {
        Composite::new(concat!(
            "avg_pool",
            $n,
            "d(Tensor self, int[",
            $n,
            "] kernel_size, int[",
            $n,
            "] stride=[], int[",
            $n,
            "] padding=0, bool ceil_mode=False, bool count_include_pad=True",
            $divisor,
            ") -> Tensor"
        ))
    };
}

/// Over 1, 2 and 3 dims.
static MAX_POOL: [Composite; 3] = [max_pool!(1, "", "Tensor"), max_pool!(2, "", "Tensor"), max_pool!(3, "", "Tensor")];
/// Over 1, 2 and 3 dims.
static MAX_POOL_WITH_INDICES: [Composite; 3] = [
    max_pool!(1, "_with_indices", "(Tensor, Tensor)"),
    max_pool!(2, "_with_indices", "(Tensor, Tensor)"),
    max_pool!(3, "_with_indices", "(Tensor, Tensor)"),
];
static AVG_POOL1D: Composite = avg_pool!(1, "");
/// Over 2 and 3 dims.
static AVG_POOL: [Composite; 2] =
    [avg_pool!(2, ", int? divisor_override=None"), avg_pool!(3, ", int? divisor_override=None")];

/// The options of [`Tensor::max_pool2d`] and its variants. A list of one number is for all dims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaxPool {
    /// The distance between windows. If empty, it is the size of a window.
    pub stride: Dims,
    /// The padding of the input. A padding element is never the maximum.
    pub padding: Dims,
    /// The distance between elements of a window.
    pub dilation: Dims,
    /// Whether the number of windows is rounded up, so that the last window may reach beyond the padding.
    pub ceil_mode: bool,
}

impl Default for MaxPool {
    fn default() -> Self {
        MaxPool { stride: ().into(), padding: 0.into(), dilation: 1.into(), ceil_mode: false }
    }
}

impl MaxPool {
    #[track_caller]
    fn call<R: Returns>(&self, operator: &'static Composite, x: &Tensor, kernel: Dims) -> Result<R> {
        let MaxPool { stride, padding, dilation, ceil_mode } = self;
        let [kernel, stride, padding, dilation] = [&kernel, stride, padding, dilation].map(Dims::as_slice);
        operator.call((x, kernel, stride, padding, dilation, *ceil_mode))
    }
}

/// The options of [`Tensor::avg_pool2d`] and its variants. A list of one number is for all dims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvgPool {
    /// The distance between windows. If empty, it is the size of a window.
    pub stride: Dims,
    /// The number of zeros at both ends of each dim.
    pub padding: Dims,
    /// Whether the number of windows is rounded up, so that the last window may reach beyond the padding.
    pub ceil_mode: bool,
    /// Whether padding counts in the number of elements.
    pub count_include_pad: bool,
    /// The divisor, instead of the number of elements.
    pub divisor: Option<i64>,
}

impl Default for AvgPool {
    fn default() -> Self {
        AvgPool { stride: ().into(), padding: 0.into(), ceil_mode: false, count_include_pad: true, divisor: None }
    }
}

impl AvgPool {
    /// Calls the operator over two or three dims.
    #[track_caller]
    fn call(&self, operator: &'static Composite, x: &Tensor, kernel: Dims) -> Result<Tensor> {
        let AvgPool { stride, padding, ceil_mode, count_include_pad, divisor } = self;
        let [kernel, stride, padding] = [&kernel, stride, padding].map(Dims::as_slice);
        operator.call((x, kernel, stride, padding, *ceil_mode, *count_include_pad, *divisor))
    }
}

/// Pooling of `(N, C, …)` or `(C, …)`. The dtype is kept.
impl Tensor {
    /// The maximum of each window of the last dim. NaN is the greatest. The input is `(N, C, L)` or `(C, L)`. `L`
    /// becomes `(L + 2 padding - dilation (kernel - 1) - 1) / stride + 1`, rounded down (up in `ceil_mode`). The dtype
    /// is kept.
    ///
    /// # Errors
    /// If the dtype is bool, or if the rank or a number does not fit.
    #[track_caller]
    pub fn max_pool1d(&self, kernel: impl Into<Dims>, options: &MaxPool) -> Result<Tensor> {
        options.call(&MAX_POOL[0], self, kernel.into())
    }

    /// Like [`Tensor::max_pool1d`], and also returns the index (i64) of each maximum in its line. See
    /// [`Tensor::max_pool2d_with_indices`].
    ///
    /// # Errors
    /// If the dtype is bool, or if the rank or a number does not fit.
    #[track_caller]
    pub fn max_pool1d_with_indices(&self, kernel: impl Into<Dims>, options: &MaxPool) -> Result<(Tensor, Tensor)> {
        options.call(&MAX_POOL_WITH_INDICES[0], self, kernel.into())
    }

    /// The maximum of each window of the last two dims. NaN is the greatest. The input is `(N, C, H, W)` or `(C, H,
    /// W)`. `H` and `W` change like `L` in [`Tensor::max_pool1d`]. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is bool, or if the rank or a number does not fit.
    #[track_caller]
    pub fn max_pool2d(&self, kernel: impl Into<Dims>, options: &MaxPool) -> Result<Tensor> {
        options.call(&MAX_POOL[1], self, kernel.into())
    }

    /// Like [`Tensor::max_pool2d`], and also returns the index (i64) of each maximum in its plane, row-major. Among
    /// equal elements it is the first, among NaNs the last.
    ///
    /// # Errors
    /// If the dtype is bool, or if the rank or a number does not fit.
    #[track_caller]
    pub fn max_pool2d_with_indices(&self, kernel: impl Into<Dims>, options: &MaxPool) -> Result<(Tensor, Tensor)> {
        options.call(&MAX_POOL_WITH_INDICES[1], self, kernel.into())
    }

    /// The maximum of each window of the last three dims. NaN is the greatest. The input is `(N, C, D, H, W)` or `(C,
    /// D, H, W)`. `D`, `H` and `W` change like `L` in [`Tensor::max_pool1d`]. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is bool, or if the rank or a number does not fit.
    #[track_caller]
    pub fn max_pool3d(&self, kernel: impl Into<Dims>, options: &MaxPool) -> Result<Tensor> {
        options.call(&MAX_POOL[2], self, kernel.into())
    }

    /// Like [`Tensor::max_pool3d`], and also returns the index (i64) of each maximum in its volume, row-major. Among
    /// equal elements it is the first, among NaNs the last.
    ///
    /// # Errors
    /// If the dtype is bool, or if the rank or a number does not fit.
    #[track_caller]
    pub fn max_pool3d_with_indices(&self, kernel: impl Into<Dims>, options: &MaxPool) -> Result<(Tensor, Tensor)> {
        options.call(&MAX_POOL_WITH_INDICES[2], self, kernel.into())
    }

    /// The mean of each window of the last dim. The input is `(N, C, L)` or `(C, L)`. `L` becomes `(L + 2 padding -
    /// kernel) / stride + 1`, rounded down (up in `ceil_mode`). The dtype is kept. `divisor` is ignored.
    ///
    /// # Errors
    /// If the dtype is neither floating nor i64, or if the rank or a number does not fit.
    #[track_caller]
    pub fn avg_pool1d(&self, kernel: impl Into<Dims>, options: &AvgPool) -> Result<Tensor> {
        let AvgPool { stride, padding, ceil_mode, count_include_pad, .. } = options;
        let kernel = kernel.into();
        let [kernel, stride, padding] = [&kernel, stride, padding].map(Dims::as_slice);
        AVG_POOL1D.call((self, kernel, stride, padding, *ceil_mode, *count_include_pad))
    }

    /// The mean of each window of the last two dims. The input is `(N, C, H, W)` or `(C, H, W)`. `H` and `W` change
    /// like `L` in [`Tensor::avg_pool1d`]. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is neither floating nor i64, if the rank or a number does not fit, or if the divisor is 0.
    #[track_caller]
    pub fn avg_pool2d(&self, kernel: impl Into<Dims>, options: &AvgPool) -> Result<Tensor> {
        options.call(&AVG_POOL[0], self, kernel.into())
    }

    /// The mean of each window of the last three dims. The input is `(N, C, D, H, W)` or `(C, D, H, W)`. `D`, `H` and
    /// `W` change like `L` in [`Tensor::avg_pool1d`]. The dtype is kept.
    ///
    /// # Errors
    /// If the dtype is neither floating nor i64, if the rank or a number does not fit, or if the divisor is 0.
    #[track_caller]
    pub fn avg_pool3d(&self, kernel: impl Into<Dims>, options: &AvgPool) -> Result<Tensor> {
        options.call(&AVG_POOL[1], self, kernel.into())
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    for (n, (max, with_indices)) in (1..).zip(MAX_POOL.iter().zip(&MAX_POOL_WITH_INDICES)) {
        library
            .composite(
                max,
                move |x: &Tensor, kernel: &[i64], stride: &[i64], padding: &[i64], dilation: &[i64], ceil: bool| {
                    let attrs = max_pool(max.name(), n, x, [kernel, stride, padding, dilation], ceil)?;
                    call(Op::MaxPool, &[x], &attrs)
                },
            )?
            .composite(
                with_indices,
                move |x: &Tensor, kernel: &[i64], stride: &[i64], padding: &[i64], dilation: &[i64], ceil: bool| {
                    let attrs = max_pool(with_indices.name(), n, x, [kernel, stride, padding, dilation], ceil)?;
                    Ok((call(Op::MaxPool, &[x], &attrs)?, call(Op::MaxPoolIndex, &[x], &attrs)?))
                },
            )?;
    }
    library.composite(
        &AVG_POOL1D,
        |x: &Tensor, kernel: &[i64], stride: &[i64], padding: &[i64], ceil: bool, with_padding: bool| {
            let divisor = Divisor::new(with_padding, None);
            avg_pool(AVG_POOL1D.name(), 1, x, [kernel, stride, padding], ceil, divisor)
        },
    )?;
    for (n, avg) in (2..).zip(&AVG_POOL) {
        library.composite(
            avg,
            move |x: &Tensor,
                  kernel: &[i64],
                  stride: &[i64],
                  padding: &[i64],
                  ceil: bool,
                  with_padding: bool,
                  divisor: Option<i64>| {
                let divisor = Divisor::new(with_padding, divisor);
                avg_pool(avg.name(), n, x, [kernel, stride, padding], ceil, divisor)
            },
        )?;
    }
    library
        .def_kernel(
            "max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, \
             int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor",
            max_pool_backward::<2>,
        )?
        .def_kernel(
            "max_pool3d_with_indices_backward(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride, \
             int[3] padding, int[3] dilation, bool ceil_mode, Tensor indices) -> Tensor",
            max_pool_backward::<3>,
        )?
        .def_kernel(
            "avg_pool2d_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, \
             bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor",
            avg_pool_backward::<2>,
        )?
        .def_kernel(
            "avg_pool3d_backward(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride, int[3] padding, \
             bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor",
            avg_pool_backward::<3>,
        )?;
    Ok(())
}

/// The windows of one dim. Window `i` starts at `i * stride - padding`.
#[derive(Debug, Clone, Copy)]
struct Pool {
    size: i64,
    kernel: i64,
    stride: i64,
    padding: i64,
    dilation: i64,
    count: i64,
}

/// The windows over the last `n` dims. An empty stride means the size of a window. With `ceil` the last window may
/// reach beyond the padding, but must start before it.
fn pools(op: &str, n: usize, x: &Tensor, lists: [&[i64]; 4], ceil: bool) -> Result<Vec<Pool>> {
    if x.dim() != n + 1 && x.dim() != n + 2 {
        let what = format!("expected {}-dim or {}-dim input, but got {:?}", n + 1, n + 2, x.sizes());
        return Err(Error::shape(op, what, "pass channels and the dims to pool over, with or without a batch"));
    }
    let [kernel, stride, padding, dilation] = lists;
    let number = |name: &str, list: &[i64], d: usize, least: i64| match (list.len(), list.get(d).or(list.first())) {
        (len, Some(&number)) if (len == 1 || len == n) && number >= least => Ok(number),
        _ => {
            let what = format!("{name} is {list:?}; pass {n} numbers of at least {least}, or one for all dims");
            Err(Error::argument(op, what))
        }
    };
    let first = x.dim() - n;
    let pool = |d: usize| {
        let size = x.sizes()[first + d] as i64;
        let kernel = number("kernel_size", kernel, d, 1)?;
        let stride = if stride.is_empty() { kernel } else { number("stride", stride, d, 1)? };
        let (padding, dilation) = (number("padding", padding, d, 0)?, number("dilation", dilation, d, 1)?);
        let reach = (kernel - 1).saturating_mul(dilation).saturating_add(1);
        if padding > reach / 2 {
            let what = format!("pad={padding}, kernel_size={kernel} and dilation={dilation}");
            return Err(Error::argument(
                op,
                format!("pad should be at most half of effective kernel size, but got {what}"),
            ));
        }
        let room = size + 2 * padding - reach + if ceil { stride - 1 } else { 0 };
        let mut count = room.div_euclid(stride) + 1;
        if ceil && (count - 1) * stride >= size + padding {
            count -= 1;
        }
        if count < 1 || size == 0 {
            let what = format!("input shape {:?} and windows of {kernel} give {count} windows at dim {d}", x.sizes());
            return Err(Error::shape(op, what, "the output size is too small; pad more or pass smaller windows"));
        }
        let pool = Pool { size, kernel, stride, padding, dilation, count };
        if (0..count).any(|window| pool.misses(window)) {
            let what = format!("a window of dim {d} lies between the elements of input shape {:?}", x.sizes());
            return Err(Error::shape(op, what, "dilate less, or pass a larger input"));
        }
        Ok(pool)
    };
    (0..n).map(pool).collect()
}

impl Pool {
    /// Whether a window contains no element of the input. A dilated window may step over a small input.
    fn misses(self, window: i64) -> bool {
        let begin = window * self.stride - self.padding;
        let first = if begin < 0 { begin.rem_euclid(self.dilation) } else { begin };
        first >= self.size || first > begin + (self.kernel - 1) * self.dilation
    }
}

fn list_of(pools: &[Pool], number: fn(&Pool) -> i64) -> Ints {
    pools.iter().map(number).collect()
}

/// Joins the last `n` dims of `x`.
fn planes(x: &Tensor, n: usize) -> Result<Tensor> {
    let (outer, plane) = x.sizes().split_at(x.dim() - n);
    x.reshape(&[outer, &[plane.iter().product()]].concat()[..])
}

/// The arguments of [`Op::MaxPool`] and [`Op::MaxPoolIndex`].
fn max_pool(op: &str, n: usize, x: &Tensor, lists: [&[i64]; 4], ceil: bool) -> Result<Attrs> {
    let pools = pools(op, n, x, lists, ceil)?;
    let attrs = MaxPoolIndex {
        kernel_size: list_of(&pools, |pool| pool.kernel),
        stride: list_of(&pools, |pool| pool.stride),
        padding: list_of(&pools, |pool| pool.padding),
        dilation: list_of(&pools, |pool| pool.dilation),
        count: list_of(&pools, |pool| pool.count),
    };
    Ok(Attrs::from(attrs))
}

#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn max_pool_backward<const N: usize>(
    gradient: &Tensor,
    x: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    ceil: bool,
    places: &Tensor,
) -> Result<Tensor> {
    let op = &format!("max_pool{N}d_with_indices_backward");
    need_float(op, &[gradient, x])?;
    let pools = pools(op, N, x, [kernel, stride, padding, dilation], ceil)?;
    let outer = &x.sizes()[..x.dim() - N];
    let counts: Vec<usize> = outer.iter().copied().chain(pools.iter().map(|pool| pool.count as usize)).collect();
    if gradient.sizes() != counts || places.sizes() != counts {
        let what = format!("gradient {:?} and indices {:?} of input {:?}", gradient.sizes(), places.sizes(), x.sizes());
        return Err(Error::shape(op, what, format!("both must have shape {counts:?}")));
    }
    let zeros = full_on(x.device(), planes(x, N)?.sizes(), Scalar::Int(0), Some(widened(gradient)?.dtype()))?;
    let sum = zeros.scatter_add(-1, &planes(places, N)?, &planes(&widened(gradient)?, N)?)?;
    sum.view(x.sizes())?.to_dtype(x.dtype())
}

/// The divisor of the sum of a window.
#[derive(Clone, Copy)]
enum Divisor {
    /// The number of the window's elements inside the padded input.
    WithPadding,
    /// The number of the window's elements inside the input.
    Inside,
    /// A fixed number.
    Given(i64),
}

impl Divisor {
    fn new(with_padding: bool, given: Option<i64>) -> Divisor {
        match (given, with_padding) {
            (Some(given), _) => Divisor::Given(given),
            (None, true) => Divisor::WithPadding,
            (None, false) => Divisor::Inside,
        }
    }

    /// Divides `sum`, whose last dims are those of the windows.
    fn divide(self, op: &str, sum: &Tensor, pools: &[Pool]) -> Result<Tensor> {
        if let Divisor::Given(0) = self {
            return Err(Error::argument(op, "divisor_override must not be zero"));
        }
        let is_whole = |pool: &Pool| {
            let end = (pool.count - 1) * pool.stride + pool.kernel - pool.padding;
            match self {
                Divisor::Given(_) => true,
                Divisor::WithPadding => end <= pool.size + pool.padding,
                Divisor::Inside => pool.padding == 0 && end <= pool.size,
            }
        };
        let divisor = if let Divisor::Given(divisor) = self {
            Tensor::number(divisor)?
        } else if pools.iter().all(is_whole) {
            Tensor::number(pools.iter().map(|pool| pool.kernel).product::<i64>())?
        } else {
            self.counts(sum.device(), pools)?
        };
        if sum.dtype().is_float() {
            return sum.div(divisor);
        }
        // Integers are divided and truncated.
        sum.to_dtype(DType::F64)?.div(divisor)?.trunc()?.to_dtype(sum.dtype())
    }

    /// The number of elements of each window.
    fn counts(self, device: Device, pools: &[Pool]) -> Result<Tensor> {
        let mut all: Option<Tensor> = None;
        for (d, pool) in pools.iter().enumerate() {
            let begin = range_on(device, 0, pool.count, None)?.mul(pool.stride)?.sub(pool.padding)?;
            let end = begin.add(pool.kernel)?.clamp_max(pool.size + pool.padding)?;
            let along = match self {
                Divisor::WithPadding | Divisor::Given(_) => end.sub(begin)?,
                Divisor::Inside => end.clamp_max(pool.size)?.sub(begin.clamp_min(0)?)?,
            };
            let mut sizes = vec![1; pools.len()];
            sizes[d] = pool.count;
            let along = along.view(sizes)?;
            all = Some(all.map_or_else(|| Ok(along.clone()), |all| all.mul(&along))?);
        }
        all.ok_or_else(|| Error::invalid("pooling", "there are no windows"))
    }
}

fn avg_pool(
    op: &str,
    n: usize,
    x: &Tensor,
    [kernel, stride, padding]: [&[i64]; 3],
    ceil: bool,
    divisor: Divisor,
) -> Result<Tensor> {
    if !x.dtype().is_float() && x.dtype() != DType::I64 {
        return Err(Error::dtype(op, x.dtype(), "a floating dtype or i64", "convert first"));
    }
    let pools = pools(op, n, x, [kernel, stride, padding, &[1]], ceil)?;
    let mut padded = widened(x)?;
    let beyond = |pool: &Pool| (pool.count - 1) * pool.stride + pool.kernel - pool.padding - pool.size;
    let pads: Vec<i64> = pools.iter().rev().flat_map(|pool| [pool.padding, beyond(pool).max(0)]).collect();
    if pads.iter().any(|&pad| pad != 0) {
        padded = padded.constant_pad_nd(&pads, 0)?;
    }
    let elements: Vec<i64> = (x.dim() as i64..(x.dim() + n) as i64).collect();
    let sum = in_format(x, &padded, n, |padded, first| {
        let mut windows = padded.clone();
        for (d, pool) in pools.iter().enumerate() {
            windows = windows.unfold((first + d) as i64, pool.kernel as usize, pool.stride as usize)?;
        }
        windows.sum(elements, false)
    })?;
    divisor.divide(op, &sum, &pools)?.to_dtype(x.dtype())
}

/// Each window spreads its gradient evenly: a transposed convolution by ones, cropped to the input.
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn avg_pool_backward<const N: usize>(
    gradient: &Tensor,
    x: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    ceil: bool,
    with_padding: bool,
    divisor: Option<i64>,
) -> Result<Tensor> {
    let op = &format!("avg_pool{N}d_backward");
    need_float(op, &[gradient, x])?;
    let pools = pools(op, N, x, [kernel, stride, padding, &[1]], ceil)?;
    let outer = &x.sizes()[..x.dim() - N];
    let counts: Vec<usize> = outer.iter().copied().chain(pools.iter().map(|pool| pool.count as usize)).collect();
    if gradient.sizes() != counts {
        let what = format!("the gradient has shape {:?} for input {:?}", gradient.sizes(), x.sizes());
        return Err(Error::shape(op, what, format!("it must have shape {counts:?}")));
    }
    let share = Divisor::new(with_padding, divisor).divide(op, &widened(gradient)?, &pools)?;
    let planes = [&[outer.iter().product(), 1], &counts[outer.len()..]].concat();
    let window: Vec<usize> = [1, 1].into_iter().chain(pools.iter().map(|pool| pool.kernel as usize)).collect();
    let ones = full_on(share.device(), &window, Scalar::Int(1), Some(share.dtype()))?;
    let attrs = Convolution {
        bias: false,
        stride: list_of(&pools, |pool| pool.stride),
        padding: ints(0),
        dilation: ints(1),
        transposed: true,
        output_padding: ints(0),
        groups: 1,
    };
    let spread = call(Op::Convolution, &[&share.reshape(&planes[..])?, &ones], &Attrs::from(attrs))?;
    let cut = pools
        .iter()
        .zip(&spread.sizes()[2..])
        .rev()
        .flat_map(|(pool, &size)| [-pool.padding, pool.size + pool.padding - size as i64]);
    spread.constant_pad_nd(cut.collect::<Vec<_>>(), 0)?.view(x.sizes())?.to_dtype(x.dtype())
}
