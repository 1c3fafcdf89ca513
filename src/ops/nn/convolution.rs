//! Convolutions: sums over windows, weighted.

use crate::dispatch::composite::Composite;
use crate::error::Result;
use crate::ops::dims::Dims;
use crate::tensor::handle::Tensor;

/// What is put around the input of a convolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Padding {
    /// So many zeros at both ends of each dim; one number holds for all dims.
    Zeros(Dims),
    /// As many zeros as keep the sizes, for a stride of 1; what is odd goes behind.
    Same,
}

impl<T: Into<Dims>> From<T> for Padding {
    fn from(zeros: T) -> Padding {
        Padding::Zeros(zeros.into())
    }
}

/// The numbers of a convolution; a list of one number holds for all dims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Convolution {
    /// From one window to the next.
    pub stride: Dims,
    /// What is put around the input.
    pub padding: Padding,
    /// From one element of a window to the next.
    pub dilation: Dims,
    /// Groups of channels that do not see each other.
    pub groups: i64,
}

impl Default for Convolution {
    fn default() -> Self {
        Convolution { stride: 1.into(), padding: 0.into(), dilation: 1.into(), groups: 1 }
    }
}

/// The numbers of a transposed convolution; a list of one number holds for all dims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvTranspose {
    /// From where one input element is spread to where the next is.
    pub stride: Dims,
    /// What is cut off both ends of the result.
    pub padding: Dims,
    /// What the result is longer by, at the end.
    pub output_padding: Dims,
    /// From one place that an element is spread to to the next.
    pub dilation: Dims,
    /// Groups of channels that do not see each other.
    pub groups: i64,
}

impl Default for ConvTranspose {
    fn default() -> Self {
        ConvTranspose { stride: 1.into(), padding: 0.into(), output_padding: 0.into(), dilation: 1.into(), groups: 1 }
    }
}

fn convolve(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &Convolution,
    by_number: &Composite,
    by_name: &Composite,
) -> Result<Tensor> {
    let Convolution { stride, padding, dilation, groups } = options;
    let (stride, dilation) = (stride.as_slice(), dilation.as_slice());
    match padding {
        Padding::Zeros(zeros) => by_number.call((x, weight, bias, stride, zeros.as_slice(), dilation, *groups)),
        Padding::Same => by_name.call((x, weight, bias, stride, "same", dilation, *groups)),
    }
}

fn spread(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &ConvTranspose,
    operator: &Composite,
) -> Result<Tensor> {
    let ConvTranspose { stride, padding, output_padding, dilation, groups } = options;
    let [stride, padding, output_padding, dilation] = [stride, padding, output_padding, dilation].map(Dims::as_slice);
    operator.call((x, weight, bias, stride, padding, output_padding, *groups, dilation))
}

/// Convolutions. All operands have one dtype, which the result gets; 16-bit floats are added up in f32.
impl Tensor {
    /// Convolution over the last dim: `(N, C, L)` or `(C, L)`, by a weight of `(out, C / groups, k)` and perhaps a bias
    /// of `(out)`. All have one dtype, which the result gets.
    ///
    /// # Errors
    /// If shapes, channels or dtypes do not fit, a number is out of range, or no window fits.
    pub fn conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &Convolution) -> Result<Tensor> {
        static BY_NUMBER: Composite = Composite::new("aten::conv1d");
        static BY_NAME: Composite = Composite::new("aten::conv1d.padding");
        convolve(self, weight, bias, options, &BY_NUMBER, &BY_NAME)
    }

    /// Convolution over the last two dims: `(N, C, H, W)` or `(C, H, W)`, by a weight of `(out, C / groups, kh, kw)`
    /// and perhaps a bias of `(out)`. All have one dtype, which the result gets.
    ///
    /// # Errors
    /// As [`Tensor::conv1d`].
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &Convolution) -> Result<Tensor> {
        static BY_NUMBER: Composite = Composite::new("aten::conv2d");
        static BY_NAME: Composite = Composite::new("aten::conv2d.padding");
        convolve(self, weight, bias, options, &BY_NUMBER, &BY_NAME)
    }

    /// Convolution over the last three dims; see [`Tensor::conv2d`].
    ///
    /// # Errors
    /// As [`Tensor::conv1d`].
    pub fn conv3d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &Convolution) -> Result<Tensor> {
        static BY_NUMBER: Composite = Composite::new("aten::conv3d");
        static BY_NAME: Composite = Composite::new("aten::conv3d.padding");
        convolve(self, weight, bias, options, &BY_NUMBER, &BY_NAME)
    }

    /// Transposed convolution over the last dim: `(N, C, L)` or `(C, L)`, by a weight of `(C, out / groups, k)` and
    /// perhaps a bias of `(out)`. It is the gradient of [`Tensor::conv1d`] by its input. All have one dtype, which the
    /// result gets.
    ///
    /// # Errors
    /// As [`Tensor::conv1d`], and if the output padding is not below stride or dilation.
    pub fn conv_transpose1d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvTranspose) -> Result<Tensor> {
        static OPERATOR: Composite = Composite::new("aten::conv_transpose1d");
        spread(self, weight, bias, options, &OPERATOR)
    }

    /// Transposed convolution over the last two dims; see [`Tensor::conv_transpose1d`].
    ///
    /// # Errors
    /// As [`Tensor::conv_transpose1d`].
    pub fn conv_transpose2d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvTranspose) -> Result<Tensor> {
        static OPERATOR: Composite = Composite::new("aten::conv_transpose2d.input");
        spread(self, weight, bias, options, &OPERATOR)
    }

    /// Transposed convolution over the last three dims; see [`Tensor::conv_transpose1d`].
    ///
    /// # Errors
    /// As [`Tensor::conv_transpose1d`].
    pub fn conv_transpose3d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvTranspose) -> Result<Tensor> {
        static OPERATOR: Composite = Composite::new("aten::conv_transpose3d.input");
        spread(self, weight, bias, options, &OPERATOR)
    }
}
