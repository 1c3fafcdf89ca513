//! Convolutions over 1, 2 and 3 dims, and their gradients.
//!
//! All are calls of [`Op::Convolution`], which needs a batch. An input without a batch gets one of size 1.

use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{self, ConvolutionWeight};
use crate::ir::{Attrs, Op};
use crate::ops::composite::Composite;
use crate::ops::dims::{Dims, ints};
use crate::ops::normalization::nothing;
use crate::tensor::handle::Tensor;

/// The padding of a convolution's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Padding {
    /// This many zeros at both ends of each dim. One number is for all dims.
    Zeros(Dims),
    /// As many zeros as keep the sizes; the stride must be 1. If the number is odd, the end gets one more than the
    /// start.
    Same,
}

impl<T: Into<Dims>> From<T> for Padding {
    fn from(zeros: T) -> Padding {
        Padding::Zeros(zeros.into())
    }
}

/// The options of a convolution. A list of one number is for all dims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Convolution {
    /// The distance between windows.
    pub stride: Dims,
    /// The padding of the input.
    pub padding: Padding,
    /// The distance between elements of a window.
    pub dilation: Dims,
    /// The number of groups of channels. A group's outputs depend only on the inputs of the same group.
    pub groups: i64,
}

impl Default for Convolution {
    fn default() -> Self {
        Convolution { stride: 1.into(), padding: 0.into(), dilation: 1.into(), groups: 1 }
    }
}

/// The options of a transposed convolution. A list of one number is for all dims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvTranspose {
    /// The distance between the windows of neighbouring input elements.
    pub stride: Dims,
    /// The number of elements to remove from both ends of the result.
    pub padding: Dims,
    /// The number of elements to add at the end of the result.
    pub output_padding: Dims,
    /// The distance between elements of a window.
    pub dilation: Dims,
    /// The number of groups of channels. A group's outputs depend only on the inputs of the same group.
    pub groups: i64,
}

impl Default for ConvTranspose {
    fn default() -> Self {
        ConvTranspose { stride: 1.into(), padding: 0.into(), output_padding: 0.into(), dilation: 1.into(), groups: 1 }
    }
}

macro_rules! conv {
    ($n:literal, $overload:literal, $padding:literal) => {
        Composite::new(concat!(
            "conv",
            $n,
            "d",
            $overload,
            "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[",
            $n,
            "] stride=1, ",
            $padding,
            ", SymInt[",
            $n,
            "] dilation=1, SymInt groups=1) -> Tensor"
        ))
    };
}

macro_rules! conv_transpose {
    ($n:literal, $overload:literal) => {
        Composite::new(concat!(
            "conv_transpose",
            $n,
            "d",
            $overload,
            "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[",
            $n,
            "] stride=1, SymInt[",
            $n,
            "] padding=0, SymInt[",
            $n,
            "] output_padding=0, SymInt groups=1, SymInt[",
            $n,
            "] dilation=1) -> Tensor"
        ))
    };
}

/// Over 1, 2 and 3 dims, with padding as numbers.
static CONV: [Composite; 3] =
    [conv!(1, "", "SymInt[1] padding=0"), conv!(2, "", "SymInt[2] padding=0"), conv!(3, "", "SymInt[3] padding=0")];
/// Over 1, 2 and 3 dims, with padding as a word.
static CONV_BY_WORD: [Composite; 3] = [
    conv!(1, ".padding", "str padding=\"valid\""),
    conv!(2, ".padding", "str padding=\"valid\""),
    conv!(3, ".padding", "str padding=\"valid\""),
];
/// Over 1, 2 and 3 dims.
static CONV_TRANSPOSE: [Composite; 3] =
    [conv_transpose!(1, ""), conv_transpose!(2, ".input"), conv_transpose!(3, ".input")];

/// A convolution over the last `n` dims.
#[track_caller]
fn convolve(n: usize, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, options: &Convolution) -> Result<Tensor> {
    let Convolution { stride, padding, dilation, groups } = options;
    let (stride, dilation) = (stride.as_slice(), dilation.as_slice());
    match padding {
        Padding::Zeros(zeros) => CONV[n - 1].call((x, weight, bias, stride, zeros.as_slice(), dilation, *groups)),
        Padding::Same => CONV_BY_WORD[n - 1].call((x, weight, bias, stride, "same", dilation, *groups)),
    }
}

/// A transposed convolution over the last `n` dims.
#[track_caller]
fn spread(n: usize, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, options: &ConvTranspose) -> Result<Tensor> {
    let ConvTranspose { stride, padding, output_padding, dilation, groups } = options;
    let [stride, padding, output_padding, dilation] = [stride, padding, output_padding, dilation].map(Dims::as_slice);
    CONV_TRANSPOSE[n - 1].call((x, weight, bias, stride, padding, output_padding, *groups, dilation))
}

/// Convolutions. All operands have the same dtype, which the result gets. 16-bit floats are summed in f32.
impl Tensor {
    /// Convolution (cross-correlation) over the last dim. The input is `(N, C, L)` or `(C, L)`, the weight `(out, C /
    /// groups, k)`, the bias `(out)`. The result is `(N, out, L')` or `(out, L')`, with `L' = (L + 2 padding - dilation
    /// (k - 1) - 1) / stride + 1` rounded down. All operands have the same dtype, which the result gets.
    ///
    /// # Errors
    /// If shapes, channels or dtypes do not fit, if a number is out of range, or if no window fits the input.
    #[track_caller]
    pub fn conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &Convolution) -> Result<Tensor> {
        convolve(1, self, weight, bias, options)
    }

    /// Convolution (cross-correlation) over the last two dims. The input is `(N, C, H, W)` or `(C, H, W)`, the weight
    /// `(out, C / groups, kh, kw)`, the bias `(out)`. `H` and `W` change like `L` in [`Tensor::conv1d`], and `C`
    /// becomes `out`. All operands have the same dtype, which the result gets.
    ///
    /// # Errors
    /// Same as [`Tensor::conv1d`].
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &Convolution) -> Result<Tensor> {
        convolve(2, self, weight, bias, options)
    }

    /// Convolution over the last three dims. See [`Tensor::conv2d`].
    ///
    /// # Errors
    /// Same as [`Tensor::conv1d`].
    #[track_caller]
    pub fn conv3d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &Convolution) -> Result<Tensor> {
        convolve(3, self, weight, bias, options)
    }

    /// Transposed convolution over the last dim: the gradient of [`Tensor::conv1d`] with respect to its input. The
    /// input is `(N, C, L)` or `(C, L)`, the weight `(C, out / groups, k)`, the bias `(out)`. The result is `(N, out,
    /// L')` or `(out, L')`, with `L' = (L - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1`. All
    /// operands have the same dtype, which the result gets.
    ///
    /// # Errors
    /// Same as [`Tensor::conv1d`]. Also if the output padding is less than neither stride nor dilation.
    #[track_caller]
    pub fn conv_transpose1d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvTranspose) -> Result<Tensor> {
        spread(1, self, weight, bias, options)
    }

    /// Transposed convolution over the last two dims. See [`Tensor::conv_transpose1d`].
    ///
    /// # Errors
    /// Same as [`Tensor::conv_transpose1d`].
    #[track_caller]
    pub fn conv_transpose2d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvTranspose) -> Result<Tensor> {
        spread(2, self, weight, bias, options)
    }

    /// Transposed convolution over the last three dims. See [`Tensor::conv_transpose1d`].
    ///
    /// # Errors
    /// Same as [`Tensor::conv_transpose1d`].
    #[track_caller]
    pub fn conv_transpose3d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvTranspose) -> Result<Tensor> {
        spread(3, self, weight, bias, options)
    }
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    for n in 1..=3 {
        forward(library, n)?;
        transposed(library, n)?;
    }
    library.def_kernel(
        "convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, \
         SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] \
         output_mask) -> (Tensor, Tensor, Tensor)",
        convolution_backward,
    )?;
    Ok(())
}

type Opt<'a> = Option<&'a Tensor>;

/// Convolutions over `n` dims.
fn forward(library: &mut Library, n: usize) -> Result<()> {
    let (by_number, by_word) = (&CONV[n - 1], &CONV_BY_WORD[n - 1]);
    library
        .composite(
            by_number,
            move |x: &Tensor,
                  weight: &Tensor,
                  bias: Opt<'_>,
                  stride: &[i64],
                  padding: &[i64],
                  dilation: &[i64],
                  groups| {
                let arguments = Arguments { stride, padding, dilation, output_padding: None, groups };
                convolution(by_number.name(), n, x, weight, bias, &arguments)
            },
        )?
        .composite(
            by_word,
            move |x: &Tensor,
                  weight: &Tensor,
                  bias: Opt<'_>,
                  stride: &[i64],
                  padding: &str,
                  dilation: &[i64],
                  groups| {
                let arguments = Arguments { stride, padding: &[0], dilation, output_padding: None, groups };
                named(by_word.name(), n, x, weight, bias, padding, &arguments)
            },
        )?;
    Ok(())
}

/// Transposed convolutions over `n` dims.
fn transposed(library: &mut Library, n: usize) -> Result<()> {
    let composite = &CONV_TRANSPOSE[n - 1];
    library.composite(
        composite,
        move |x: &Tensor,
              weight: &Tensor,
              bias: Opt<'_>,
              stride: &[i64],
              padding: &[i64],
              output_padding: &[i64],
              groups: i64,
              dilation: &[i64]| {
            let op = composite.name();
            let arguments = Arguments { stride, padding, dilation, output_padding: Some(output_padding), groups };
            let most = |d: usize| of_dim(stride, d).max(of_dim(dilation, d));
            if let Some(d) = (0..n).find(|&d| of_dim(output_padding, d) >= most(d)) {
                let what =
                    format!("output_padding {output_padding:?} with stride {stride:?} and dilation {dilation:?}");
                return Err(Error::argument(op, format!("{what}: at dim {d} it must be smaller than one of them")));
            }
            convolution(op, n, x, weight, bias, &arguments)
        },
    )?;
    Ok(())
}

/// The number for dim `d`, from a list that may have one number for all dims.
fn of_dim(list: &[i64], d: usize) -> i64 {
    list.get(d).or(list.first()).copied().unwrap_or(0)
}

struct Arguments<'a> {
    stride: &'a [i64],
    padding: &'a [i64],
    dilation: &'a [i64],
    /// Given for transposed convolutions only.
    output_padding: Option<&'a [i64]>,
    groups: i64,
}

fn convolution(
    op: &str,
    n: usize,
    x: &Tensor,
    weight: &Tensor,
    bias: Opt<'_>,
    arguments: &Arguments<'_>,
) -> Result<Tensor> {
    if x.dim() != n + 1 && x.dim() != n + 2 {
        let what =
            format!("expected {}-dim (unbatched) or {}-dim (batched) input, but got {:?}", n + 1, n + 2, x.sizes());
        return Err(Error::shape(op, what, "pass channels and the dims to convolve over, with or without a batch"));
    }
    let has_batch = x.dim() == n + 2;
    let batch = if has_batch { x.clone() } else { x.unsqueeze(0)? };
    let tensors: Vec<&Tensor> = [Some(&batch), Some(weight), bias].into_iter().flatten().collect();
    let &Arguments { stride, padding, dilation, output_padding, groups } = arguments;
    let attrs = attrs::Convolution {
        bias: bias.is_some(),
        stride: ints(stride),
        padding: ints(padding),
        dilation: ints(dilation),
        transposed: output_padding.is_some(),
        output_padding: ints(output_padding.unwrap_or(&[0])),
        groups,
    };
    let y = call(Op::Convolution, &tensors, &Attrs::from(attrs))?;
    if has_batch { Ok(y) } else { y.squeeze(0) }
}

/// A convolution with padding by name: `valid` (none), or `same` (as much as keeps the sizes).
fn named(
    op: &str,
    n: usize,
    x: &Tensor,
    weight: &Tensor,
    bias: Opt<'_>,
    padding: &str,
    arguments: &Arguments<'_>,
) -> Result<Tensor> {
    match padding {
        "valid" => return convolution(op, n, x, weight, bias, arguments),
        "same" => {}
        _ => return Err(Error::argument(op, format!("padding is {padding:?}; use \"valid\", \"same\" or numbers"))),
    }
    if arguments.stride.iter().any(|&stride| stride != 1) {
        let what =
            format!("padding \"same\" is not supported for strided convolutions; stride is {:?}", arguments.stride);
        return Err(Error::argument(op, what));
    }
    if weight.dim() != n + 2 {
        let what = format!("the weight has shape {:?}", weight.sizes());
        return Err(Error::shape(op, what, format!("it must have {} dims", n + 2)));
    }
    let total = |d: usize| (weight.sizes()[2 + d] as i64 - 1) * of_dim(arguments.dilation, d);
    let before: Vec<i64> = (0..n).map(|d| total(d) / 2).collect();
    let odd: Vec<i64> = (0..n).rev().flat_map(|d| [0, total(d) % 2]).collect();
    let x = if odd.iter().any(|&pad| pad != 0) { x.constant_pad_nd(&odd, 0)? } else { x.clone() };
    convolution(op, n, &x, weight, bias, &Arguments { padding: &before, ..*arguments })
}

/// The gradients with respect to input, weight and bias. A gradient that is not wanted is empty.
#[allow(clippy::too_many_arguments, reason = "the arguments are the operator's")]
fn convolution_backward(
    gradient: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    _bias_sizes: Option<&[i64]>,
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    transposed: bool,
    output_padding: &[i64],
    groups: i64,
    mask: &[bool],
) -> Result<(Tensor, Tensor, Tensor)> {
    let op = "convolution_backward";
    let &[by_input, by_weight, by_bias] = mask else {
        return Err(Error::argument(op, format!("output_mask has {} entries, not 3", mask.len())));
    };
    let attrs = |transposed: bool, output_padding: &[i64]| {
        Attrs::from(attrs::Convolution {
            bias: false,
            stride: ints(stride),
            padding: ints(padding),
            dilation: ints(dilation),
            transposed,
            output_padding: ints(output_padding),
            groups,
        })
    };
    let expected = Op::Convolution.infer(&[&x.ty(), &weight.ty()], &attrs(transposed, output_padding))?;
    if gradient.sizes() != &expected.sizes[..] {
        let what = format!("the gradient has shape {:?}, the result {:?}", gradient.sizes(), &expected.sizes[..]);
        return Err(Error::shape(op, what, "they must be the same"));
    }
    let n = x.dim() - 2;
    let nothing = || nothing(x, x.dtype());
    let input = || {
        // The number of elements at the end of `d` that no window reached.
        let missing = |d: usize| {
            let reach = of_dim(dilation, d) * (weight.sizes()[2 + d] as i64 - 1) + 1;
            let natural = (gradient.sizes()[2 + d] as i64 - 1) * of_dim(stride, d) + reach - 2 * of_dim(padding, d);
            if transposed { 0 } else { x.sizes()[2 + d] as i64 - natural }
        };
        let missing: Vec<i64> = (0..n).map(missing).collect();
        let mut y = call(Op::Convolution, &[gradient, weight], &attrs(!transposed, &missing))?;
        for d in 0..n {
            y = y.narrow(2 + d as i64, 0, x.sizes()[2 + d])?;
        }
        y.contiguous()
    };
    let by_windows = || {
        let (large, small) = if transposed { (gradient, x) } else { (x, gradient) };
        let attrs = ConvolutionWeight {
            kernel: attrs::ints(&weight.sizes()[2..]),
            stride: ints(stride),
            padding: ints(padding),
            dilation: ints(dilation),
            groups,
        };
        call(Op::ConvolutionWeight, &[large, small], &Attrs::from(attrs))
    };
    let others: Vec<i64> = (0..gradient.dim() as i64).filter(|&dim| dim != 1).collect();
    Ok((
        if by_input { input()? } else { nothing()? },
        if by_weight { by_windows()? } else { nothing()? },
        if by_bias { gradient.sum(others, false)? } else { nothing()? },
    ))
}
