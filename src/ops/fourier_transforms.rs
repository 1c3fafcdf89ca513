//! Discrete Fourier transforms of real and complex tensors, with PyTorch's names.
//!
//! A transform along several dims is one along each. The rows of the op table transform pairs of real numbers along one
//! dim ([`crate::ops::complex_numbers`]).

use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{FftPairs, IrfftPairs, RfftPairs};
use crate::ir::shape::normalize_dim;
use crate::ir::{Attrs, DType, Op};
use crate::ops::complex_numbers::{as_pairs, of_pairs};
use crate::ops::composite::Composite;
use crate::ops::dims::Dims;
use crate::tensor::handle::Tensor;

/// The schema of a transform along one dim.
macro_rules! along_one {
    ($name:literal) => {
        concat!($name, "(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor")
    };
}

/// The schema of a transform along two dims.
macro_rules! along_two {
    ($name:literal) => {
        concat!($name, "(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None) -> Tensor")
    };
}

/// The schema of a transform along any dims.
macro_rules! along_all {
    ($name:literal) => {
        concat!($name, "(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor")
    };
}

static FFT: Composite = Composite::new(along_one!("fft_fft"));
static IFFT: Composite = Composite::new(along_one!("fft_ifft"));
static RFFT: Composite = Composite::new(along_one!("fft_rfft"));
static IRFFT: Composite = Composite::new(along_one!("fft_irfft"));
static FFT_N: Composite = Composite::new(along_all!("fft_fftn"));
static IFFT_N: Composite = Composite::new(along_all!("fft_ifftn"));
static RFFT_N: Composite = Composite::new(along_all!("fft_rfftn"));
static IRFFT_N: Composite = Composite::new(along_all!("fft_irfftn"));
static FFT_SHIFT: Composite = Composite::new("fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor");
static IFFT_SHIFT: Composite = Composite::new("fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor");

/// Discrete Fourier transforms. Whole numbers become the default floating dtype. A transform is not scaled, and its
/// inverse is divided by the number of elements along the dims.
impl Tensor {
    /// The transform along `dim`: `sum over j of x[j] e^(-2 pi i j k / n)`. With `n`, the dim is cut or padded with
    /// zeros to that size first. The result is complex and keeps the sizes.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// let x = opfuse::Tensor::try_from([1.0, 2.0, 3.0, 4.0])?;
    /// let pairs = x.fft(None, -1)?.view_as_real()?;
    /// assert_eq!(pairs.to_vec::<f64>()?, [10.0, 0.0, -2.0, 2.0, -2.0, 0.0, -2.0, -2.0]);
    /// assert_eq!(x.fft(None, -1)?.ifft(None, -1)?.real()?.to_vec::<f64>()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the dtype is a 16-bit float, if the dim is out of range, or if its size is 0.
    #[track_caller]
    pub fn fft(&self, n: impl Into<Option<usize>>, dim: i64) -> Result<Tensor> {
        FFT.call((self, n.into().map(|n| n as i64), dim, None::<&str>))
    }

    /// The inverse of [`Tensor::fft`].
    ///
    /// # Errors
    /// Same as [`Tensor::fft`].
    #[track_caller]
    pub fn ifft(&self, n: impl Into<Option<usize>>, dim: i64) -> Result<Tensor> {
        IFFT.call((self, n.into().map(|n| n as i64), dim, None::<&str>))
    }

    /// The first `n / 2 + 1` elements along `dim` of [`Tensor::fft`] of a real tensor. The others are their conjugates.
    ///
    /// # Errors
    /// Same as [`Tensor::fft`]. Also if the dtype is complex.
    #[track_caller]
    pub fn rfft(&self, n: impl Into<Option<usize>>, dim: i64) -> Result<Tensor> {
        RFFT.call((self, n.into().map(|n| n as i64), dim, None::<&str>))
    }

    /// The inverse of [`Tensor::rfft`], a real tensor with `n` elements along `dim`. Without `n` it is even:
    /// `2 (size - 1)`.
    ///
    /// # Errors
    /// Same as [`Tensor::fft`].
    #[track_caller]
    pub fn irfft(&self, n: impl Into<Option<usize>>, dim: i64) -> Result<Tensor> {
        IRFFT.call((self, n.into().map(|n| n as i64), dim, None::<&str>))
    }

    /// [`Tensor::fft`] along several dims. No dims (`()`) means all.
    ///
    /// # Errors
    /// Same as [`Tensor::fft`], or if a dim is named twice.
    #[track_caller]
    pub fn fftn(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        FFT_N.call((self, None::<&[i64]>, some(&dims.into()), None::<&str>))
    }

    /// The inverse of [`Tensor::fftn`].
    ///
    /// # Errors
    /// Same as [`Tensor::fftn`].
    #[track_caller]
    pub fn ifftn(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        IFFT_N.call((self, None::<&[i64]>, some(&dims.into()), None::<&str>))
    }

    /// [`Tensor::fftn`] of a real tensor, of which the last of the dims keeps its first half, as in [`Tensor::rfft`].
    ///
    /// # Errors
    /// Same as [`Tensor::fftn`]. Also if the dtype is complex.
    #[track_caller]
    pub fn rfftn(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        RFFT_N.call((self, None::<&[i64]>, some(&dims.into()), None::<&str>))
    }

    /// The inverse of [`Tensor::rfftn`], with an even size along the last of the dims.
    ///
    /// # Errors
    /// Same as [`Tensor::fftn`].
    #[track_caller]
    pub fn irfftn(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        IRFFT_N.call((self, None::<&[i64]>, some(&dims.into()), None::<&str>))
    }

    /// Moves the frequency zero to the middle of each of the dims. No dims (`()`) means all.
    ///
    /// # Errors
    /// If a dim is out of range.
    #[track_caller]
    pub fn fftshift(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        FFT_SHIFT.call((self, some(&dims.into())))
    }

    /// The inverse of [`Tensor::fftshift`].
    ///
    /// # Errors
    /// If a dim is out of range.
    #[track_caller]
    pub fn ifftshift(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        IFFT_SHIFT.call((self, some(&dims.into())))
    }
}

/// Dims as an optional argument, where none means all.
fn some(dims: &Dims) -> Option<&[i64]> {
    Some(dims.as_slice()).filter(|dims| !dims.is_empty())
}

/// A dim, and the size of the signal along it, if that is given.
type Line = (usize, Option<usize>);

/// A transform along dims.
type Transform = fn(&str, &Tensor, &[Line], Scaled) -> Result<Tensor>;

/// How the result of a transform is scaled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scaled {
    No,
    BySize,
    ByRoot,
}

impl Scaled {
    /// What `norm` says of a transform, or of an inverse one.
    fn of(op: &str, norm: Option<&str>, is_inverse: bool) -> Result<Scaled> {
        Ok(match (norm, is_inverse) {
            (None | Some("backward"), false) | (Some("forward"), true) => Scaled::No,
            (None | Some("backward"), true) | (Some("forward"), false) => Scaled::BySize,
            (Some("ortho"), _) => Scaled::ByRoot,
            (Some(other), _) => {
                let what = format!("norm {other:?} is not known; it is \"backward\", \"ortho\" or \"forward\"");
                return Err(Error::argument(op, what));
            }
        })
    }

    fn factor(self, size: usize) -> f64 {
        match self {
            Scaled::No => 1.0,
            Scaled::BySize => 1.0 / size as f64,
            Scaled::ByRoot => 1.0 / (size as f64).sqrt(),
        }
    }
}

/// The kernels of a transform: along one dim, two, or any.
macro_rules! kernel {
    (one $op:literal $transform:ident $is_inverse:literal) => {
        |x: &Tensor, n: Option<i64>, dim: i64, norm: Option<&str>| {
            let sizes = n.as_ref().map(std::slice::from_ref);
            transformed($op, x, sizes, Some(&[dim]), norm, ($transform, $is_inverse))
        }
    };
    (two $op:literal $transform:ident $is_inverse:literal) => {
        |x: &Tensor, sizes: Option<&[i64]>, dims: &[i64], norm: Option<&str>| {
            transformed($op, x, sizes, Some(dims), norm, ($transform, $is_inverse))
        }
    };
    (all $op:literal $transform:ident $is_inverse:literal) => {
        |x: &Tensor, sizes: Option<&[i64]>, dims: Option<&[i64]>, norm: Option<&str>| {
            transformed($op, x, sizes, dims, norm, ($transform, $is_inverse))
        }
    };
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&FFT, kernel!(one "fft_fft" forward false))?
        .composite(&IFFT, kernel!(one "fft_ifft" inverse true))?
        .composite(&RFFT, kernel!(one "fft_rfft" half false))?
        .composite(&IRFFT, kernel!(one "fft_irfft" of_half true))?
        .def_kernel(along_one!("fft_hfft"), kernel!(one "fft_hfft" hermitian false))?
        .def_kernel(along_one!("fft_ihfft"), kernel!(one "fft_ihfft" of_hermitian true))?
        .composite(&FFT_N, kernel!(all "fft_fftn" forward false))?
        .composite(&IFFT_N, kernel!(all "fft_ifftn" inverse true))?
        .composite(&RFFT_N, kernel!(all "fft_rfftn" half false))?
        .composite(&IRFFT_N, kernel!(all "fft_irfftn" of_half true))?
        .def_kernel(along_two!("fft_fft2"), kernel!(two "fft_fft2" forward false))?
        .def_kernel(along_two!("fft_ifft2"), kernel!(two "fft_ifft2" inverse true))?
        .def_kernel(along_two!("fft_rfft2"), kernel!(two "fft_rfft2" half false))?
        .def_kernel(along_two!("fft_irfft2"), kernel!(two "fft_irfft2" of_half true))?
        .def_kernel("_fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward) -> Tensor", c2c)?
        .def_kernel("_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor", r2c)?
        .def_kernel("_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor", c2r)?
        .composite(&FFT_SHIFT, |x: &Tensor, dims: Option<&[i64]>| shifted("fft_fftshift", x, dims, |size| size / 2))?
        .composite(&IFFT_SHIFT, |x: &Tensor, dims: Option<&[i64]>| {
            shifted("fft_ifftshift", x, dims, |size| size.div_ceil(2))
        })?;
    Ok(())
}

fn transformed(
    op: &str,
    x: &Tensor,
    sizes: Option<&[i64]>,
    dims: Option<&[i64]>,
    norm: Option<&str>,
    (transform, is_inverse): (Transform, bool),
) -> Result<Tensor> {
    let lines = lines(op, x, sizes, dims)?;
    let scaled = Scaled::of(op, norm, is_inverse)?;
    let x = match x.dtype() {
        dtype if dtype.is_complex() => x.clone(),
        DType::F32 | DType::F64 => x.clone(),
        dtype if dtype.is_float() => {
            return Err(Error::unsupported(
                op,
                dtype,
                "f32, f64 and complex",
                "convert with to_dtype(DType::F32) first",
            ));
        }
        _whole => x.to_dtype(default_dtype())?,
    };
    if lines.is_empty() {
        return x.to_dtype(x.dtype().complex());
    }
    transform(op, &x, &lines, scaled)
}

/// The dims of a transform with their sizes.
fn lines(op: &str, x: &Tensor, sizes: Option<&[i64]>, dims: Option<&[i64]>) -> Result<Vec<Line>> {
    let rank = x.dim();
    let dims: Vec<usize> = match (dims, sizes) {
        (Some(dims), _) => dims.iter().map(|&dim| normalize_dim(op, dim, rank)).collect::<Result<_>>()?,
        (None, Some(sizes)) if sizes.len() <= rank => (rank - sizes.len()..rank).collect(),
        (None, None) => (0..rank).collect(),
        (None, Some(sizes)) => {
            let what = format!("{} sizes were given for shape {:?}", sizes.len(), x.sizes());
            return Err(Error::shape(op, what, "give at most one per dim"));
        }
    };
    if let Some(at) = (1..dims.len()).find(|&at| dims[..at].contains(&dims[at])) {
        return Err(Error::argument(op, format!("dim {} is named twice", dims[at])));
    }
    let sizes = sizes.map_or_else(|| vec![-1; dims.len()], <[i64]>::to_vec);
    if sizes.len() != dims.len() {
        return Err(Error::argument(op, format!("{} sizes were given for {} dims", sizes.len(), dims.len())));
    }
    let line = |(dim, size): (usize, i64)| match usize::try_from(size) {
        Ok(size) if size > 0 => Ok((dim, Some(size))),
        Err(_) if size == -1 && (x.sizes().get(dim) != Some(&0)) => Ok((dim, None)),
        Ok(_) | Err(_) => {
            let what = format!("a transform along dim {dim} of shape {:?} would have {size} elements", x.sizes());
            Err(Error::shape(op, what, "at least one is needed; give n"))
        }
    };
    // A number has no dim to transform, but one element.
    dims.into_iter().zip(sizes).filter(|_| rank > 0).map(line).collect()
}

/// The first `n` elements along a dim, followed by zeros if there are fewer.
fn resized(x: &Tensor, dim: usize, n: Option<usize>) -> Result<Tensor> {
    let size = x.sizes()[dim];
    match n {
        Some(n) if n < size => x.narrow(dim as i64, 0, n),
        Some(n) if n > size => {
            let mut pad = vec![0; 2 * (x.dim() - dim)];
            pad[2 * (x.dim() - dim) - 1] = (n - size) as i64;
            x.constant_pad_nd(&pad[..], 0)
        }
        Some(_) | None => Ok(x.clone()),
    }
}

/// All lines resized.
fn signal(x: &Tensor, lines: &[Line]) -> Result<Tensor> {
    lines.iter().try_fold(x.clone(), |x, &(dim, n)| resized(&x, dim, n))
}

/// The transform of pairs along dims, scaled once.
fn along(mut pairs: Tensor, lines: &[Line], forward: bool, mut scale: f64) -> Result<Tensor> {
    for &(dim, _) in lines.iter().rev() {
        let attrs = Attrs::from(FftPairs { dim: dim as i64, forward, scale });
        pairs = call(Op::FftPairs, &[&pairs], &attrs)?;
        scale = 1.0;
    }
    Ok(pairs)
}

/// The number of elements along the lines.
fn count(x: &Tensor, lines: &[Line]) -> usize {
    lines.iter().map(|&(dim, _)| x.sizes()[dim]).product()
}

fn forward(_: &str, x: &Tensor, lines: &[Line], scaled: Scaled) -> Result<Tensor> {
    let x = signal(x, lines)?;
    let scale = scaled.factor(count(&x, lines));
    match lines.split_last() {
        Some((&(dim, _), others)) if !x.is_complex() => {
            let attrs = Attrs::from(RfftPairs { dim: dim as i64, onesided: false, scale });
            of_pairs(&along(call(Op::RfftPairs, &[&x], &attrs)?, others, true, 1.0)?)
        }
        Some(_) | None => of_pairs(&along(as_pairs(&x, x.dtype())?, lines, true, scale)?),
    }
}

fn inverse(_: &str, x: &Tensor, lines: &[Line], scaled: Scaled) -> Result<Tensor> {
    let x = signal(x, lines)?;
    let scale = scaled.factor(count(&x, lines));
    of_pairs(&along(as_pairs(&x, x.dtype())?, lines, false, scale)?)
}

fn half(op: &str, x: &Tensor, lines: &[Line], scaled: Scaled) -> Result<Tensor> {
    if x.is_complex() {
        return Err(Error::dtype(op, x.dtype(), "a real dtype", "use the transform of complex numbers, fft_fft"));
    }
    let x = signal(x, lines)?;
    let scale = scaled.factor(count(&x, lines));
    let Some((&(dim, _), others)) = lines.split_last() else { return x.to_dtype(x.dtype().complex()) };
    let attrs = Attrs::from(RfftPairs { dim: dim as i64, onesided: true, scale });
    of_pairs(&along(call(Op::RfftPairs, &[&x], &attrs)?, others, true, 1.0)?)
}

fn of_half(op: &str, x: &Tensor, lines: &[Line], scaled: Scaled) -> Result<Tensor> {
    let Some((&(dim, n), others)) = lines.split_last() else { return x.real() };
    let n = n.unwrap_or(2 * (x.sizes()[dim] - 1));
    if n == 0 {
        let what = format!("one element along dim {dim} of shape {:?} is the transform of none", x.sizes());
        return Err(Error::shape(op, what, "give the number n of elements of the result"));
    }
    let x = resized(&signal(x, others)?, dim, Some(n / 2 + 1))?;
    let scale = scaled.factor(count(&x, others) * n);
    let pairs = along(as_pairs(&x, x.dtype())?, others, false, 1.0)?;
    call(Op::IrfftPairs, &[&pairs], &Attrs::from(IrfftPairs { dim: dim as i64, n: n as i64, scale }))
}

fn hermitian(op: &str, x: &Tensor, lines: &[Line], scaled: Scaled) -> Result<Tensor> {
    of_half(op, &x.conj()?, lines, scaled)
}

fn of_hermitian(op: &str, x: &Tensor, lines: &[Line], scaled: Scaled) -> Result<Tensor> {
    half(op, x, lines, scaled)?.conj()
}

/// What PyTorch's number says of scaling: none, by the root of the size, or by the size.
fn numbered(op: &str, normalization: i64) -> Result<Scaled> {
    match normalization {
        0 => Ok(Scaled::No),
        1 => Ok(Scaled::ByRoot),
        2 => Ok(Scaled::BySize),
        other => Err(Error::argument(op, format!("normalization is {other}; it must be 0, 1 or 2"))),
    }
}

fn c2c(x: &Tensor, dims: &[i64], normalization: i64, is_forward: bool) -> Result<Tensor> {
    let op = "_fft_c2c";
    let x = x.to_dtype(x.dtype().complex())?;
    let scaled = numbered(op, normalization)?;
    let lines = lines(op, &x, None, Some(dims))?;
    if is_forward { forward(op, &x, &lines, scaled) } else { inverse(op, &x, &lines, scaled) }
}

/// The last of the dims is that of the transform of real numbers.
fn r2c(x: &Tensor, dims: &[i64], normalization: i64, onesided: bool) -> Result<Tensor> {
    let op = "_fft_r2c";
    let scaled = numbered(op, normalization)?;
    let lines = lines(op, x, None, Some(dims))?;
    if onesided { half(op, x, &lines, scaled) } else { forward(op, x, &lines, scaled) }
}

fn c2r(x: &Tensor, dims: &[i64], normalization: i64, last: i64) -> Result<Tensor> {
    let op = "_fft_c2r";
    let scaled = numbered(op, normalization)?;
    let mut sizes = vec![-1; dims.len()];
    if let Some(size) = sizes.last_mut() {
        *size = last;
    }
    of_half(op, x, &lines(op, x, Some(&sizes), Some(dims))?, scaled)
}

/// Rolls each dim by the places that its size gives.
fn shifted(op: &str, x: &Tensor, dims: Option<&[i64]>, places: fn(usize) -> usize) -> Result<Tensor> {
    if x.dim() == 0 {
        return Ok(x.clone());
    }
    let dims = match dims {
        Some(dims) => dims.iter().map(|&dim| normalize_dim(op, dim, x.dim())).collect::<Result<Vec<_>>>()?,
        None => (0..x.dim()).collect(),
    };
    let shifts: Vec<i64> = dims.iter().map(|&dim| places(x.sizes()[dim]) as i64).collect();
    let dims: Vec<i64> = dims.into_iter().map(|dim| dim as i64).collect();
    x.roll(shifts, dims)
}
