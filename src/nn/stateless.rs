//! Layers without tensors: activations, pools, and layers that rearrange. A row each.

use super::module::{Forward, Module};
use crate::error::Result;
use crate::ops::Dims;
use crate::ops::nn::{AvgPool, Border, Interpolation, MaxPool};
use crate::tensor::Tensor;

/// `Name { options } |x, layer| result;` The struct has the options as public fields.
macro_rules! stateless {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty),* } |$x:ident, $layer:ident| $result:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Module)]
        pub struct $name {
            $($(#[$field_doc])* #[module(skip)] pub $field: $ty,)*
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $layer = self;
                // Rows without options do not read it.
                let _ = $layer;
                $result
            }
        }
    )*};
}

stateless! {
    /// The input.
    Identity {} |x, layer| Ok(x.clone());
    /// `max(x, 0)`.
    ReLU {} |x, layer| x.relu();
    /// `min(max(x, 0), 6)`.
    ReLU6 {} |x, layer| x.relu6();
    /// `x Φ(x)`.
    GELU {} |x, layer| x.gelu();
    /// The approximation of [`GELU`] by a hyperbolic tangent.
    GELUTanh {} |x, layer| x.gelu_tanh();
    /// `x sigmoid(x)`.
    SiLU {} |x, layer| x.silu();
    /// `x tanh(softplus(x))`.
    Mish {} |x, layer| x.mish();
    /// The logistic function.
    Sigmoid {} |x, layer| x.sigmoid();
    /// The hyperbolic tangent.
    Tanh {} |x, layer| x.tanh();
    /// `x clamp(x + 3, 0, 6) / 6`.
    Hardswish {} |x, layer| x.hardswish();
    /// `log(1 + exp(x))`.
    Softplus {} |x, layer| x.softplus(1.0, 20.0);
    /// `x` where it is positive, `slope x` elsewhere. PyTorch's slope is 0.01.
    LeakyReLU {
        /// The slope of negative numbers.
        slope: f64
    } |x, layer| x.leaky_relu(layer.slope);
    /// `x` where it is positive, `alpha (exp(x) - 1)` elsewhere. PyTorch's alpha is 1.
    ELU {
        /// The limit of negative numbers.
        alpha: f64
    } |x, layer| x.elu(layer.alpha);
    /// The scaled exponential linear unit, which keeps mean and variance of normal inputs.
    SELU {} |x, layer| x.selu();
    /// The continuously differentiable exponential linear unit. PyTorch's alpha is 1.
    CELU {
        /// The limit of negative numbers.
        alpha: f64
    } |x, layer| x.celu(layer.alpha);
    /// `clamp(x, min, max)`. PyTorch's bounds are -1 and 1.
    Hardtanh {
        /// The lower bound.
        min: f64,
        /// The upper bound.
        max: f64
    } |x, layer| x.hardtanh(layer.min, layer.max);
    /// `clamp(x + 3, 0, 6) / 6`.
    Hardsigmoid {} |x, layer| x.hardsigmoid();
    /// `log(sigmoid(x))`.
    LogSigmoid {} |x, layer| x.log_sigmoid();
    /// `x / (1 + |x|)`.
    Softsign {} |x, layer| x.div(x.abs()?.add(1.0)?);
    /// `x - tanh(x)`.
    Tanhshrink {} |x, layer| x.sub(x.tanh()?);
    /// `x` moved towards 0 by `lambda`, and 0 where it is as near. PyTorch's lambda is 0.5.
    Softshrink {
        /// How far.
        lambda: f64
    } |x, layer| x.softshrink(layer.lambda);
    /// `x`, and 0 where it is no further from 0 than `lambda`. PyTorch's lambda is 0.5.
    Hardshrink {
        /// How far.
        lambda: f64
    } |x, layer| x.hardshrink(layer.lambda);
    /// `x` where it is above the threshold, another value elsewhere.
    Threshold {
        /// The threshold.
        threshold: f64,
        /// The other value.
        value: f64
    } |x, layer| x.threshold(layer.threshold, layer.value);
    /// Softmax along a dim.
    Softmax {
        /// The dim.
        dim: i64
    } |x, layer| x.softmax(layer.dim);
    /// Logarithm of the softmax along a dim.
    LogSoftmax {
        /// The dim.
        dim: i64
    } |x, layer| x.log_softmax(layer.dim);
    /// Softmax of the negative numbers along a dim.
    Softmin {
        /// The dim.
        dim: i64
    } |x, layer| x.neg()?.softmax(layer.dim);
    /// `a sigmoid(b)` of the halves of a dim.
    GLU {
        /// The dim.
        dim: i64
    } |x, layer| x.glu(layer.dim);
    /// One dim in the place of those from `start` to `end`. PyTorch's are 1 and -1.
    Flatten {
        /// The first of the dims.
        start: i64,
        /// The last of the dims.
        end: i64
    } |x, layer| x.flatten(layer.start, layer.end);
    /// Dims of these sizes in the place of one.
    Unflatten {
        /// The dim.
        dim: i64,
        /// The sizes of the new dims.
        sizes: Dims
    } |x, layer| x.unflatten(layer.dim, layer.sizes.clone());
    /// A border of one number. Pads are pairs (before, after), the last dim first.
    ConstantPad {
        /// The widths.
        pads: Dims,
        /// The number.
        value: f64
    } |x, layer| x.constant_pad_nd(layer.pads.clone(), layer.value);
    /// A border of elements of the input. Pads are pairs (before, after), the last dim first.
    BorderPad {
        /// The widths.
        pads: Dims,
        /// Which elements.
        border: Border
    } |x, layer| x.border_pad(layer.pads.clone(), layer.border);
    /// The maximum of each window of `(N, C, L)`.
    MaxPool1d {
        /// The size of a window.
        kernel: Dims,
        /// Stride, padding, dilation.
        options: MaxPool
    } |x, layer| x.max_pool1d(layer.kernel.clone(), &layer.options);
    /// The maximum of each window of `(N, C, H, W)`.
    MaxPool2d {
        /// The sizes of a window.
        kernel: Dims,
        /// Stride, padding, dilation.
        options: MaxPool
    } |x, layer| x.max_pool2d(layer.kernel.clone(), &layer.options);
    /// The maximum of each window of `(N, C, D, H, W)`.
    MaxPool3d {
        /// The sizes of a window.
        kernel: Dims,
        /// Stride, padding, dilation.
        options: MaxPool
    } |x, layer| x.max_pool3d(layer.kernel.clone(), &layer.options);
    /// The mean of each window of `(N, C, L)`.
    AvgPool1d {
        /// The size of a window.
        kernel: Dims,
        /// Stride, padding, divisor.
        options: AvgPool
    } |x, layer| x.avg_pool1d(layer.kernel.clone(), &layer.options);
    /// The mean of each window of `(N, C, H, W)`.
    AvgPool2d {
        /// The sizes of a window.
        kernel: Dims,
        /// Stride, padding, divisor.
        options: AvgPool
    } |x, layer| x.avg_pool2d(layer.kernel.clone(), &layer.options);
    /// The mean of each window of `(N, C, D, H, W)`.
    AvgPool3d {
        /// The sizes of a window.
        kernel: Dims,
        /// Stride, padding, divisor.
        options: AvgPool
    } |x, layer| x.avg_pool3d(layer.kernel.clone(), &layer.options);
    /// The means of so many windows of equal size of `(N, C, L)`.
    AdaptiveAvgPool1d {
        /// The number of windows.
        size: i64
    } |x, layer| x.adaptive_avg_pool1d(layer.size);
    /// The means of so many windows of equal size of `(N, C, H, W)`.
    AdaptiveAvgPool2d {
        /// The number of windows per dim.
        sizes: [i64; 2]
    } |x, layer| x.adaptive_avg_pool2d(layer.sizes);
    /// The maxima of so many windows of equal size of `(N, C, L)`.
    AdaptiveMaxPool1d {
        /// The number of windows.
        size: i64
    } |x, layer| Ok(x.adaptive_max_pool1d(layer.size)?.0);
    /// The maxima of so many windows of equal size of `(N, C, H, W)`.
    AdaptiveMaxPool2d {
        /// The number of windows per dim.
        sizes: [i64; 2]
    } |x, layer| Ok(x.adaptive_max_pool2d(layer.sizes)?.0);
    /// The means of so many windows of equal size of `(N, C, D, H, W)`.
    AdaptiveAvgPool3d {
        /// The number of windows per dim.
        sizes: [i64; 3]
    } |x, layer| x.adaptive_avg_pool3d(layer.sizes);
    /// The maxima of so many windows of equal size of `(N, C, D, H, W)`.
    AdaptiveMaxPool3d {
        /// The number of windows per dim.
        sizes: [i64; 3]
    } |x, layer| Ok(x.adaptive_max_pool3d(layer.sizes)?.0);
    /// Planes of `(N, C, H, W)`, as many times as large as the factors say.
    Upsample {
        /// The factors of height and width.
        factors: [f64; 2],
        /// How pixels are computed.
        interpolation: Interpolation
    } |x, layer| x.resize2d(scaled(x, layer.factors)?, layer.interpolation);
    /// `(…, C r², H, W)` to `(…, C, H r, W r)`.
    PixelShuffle {
        /// The factor.
        factor: i64
    } |x, layer| x.pixel_shuffle(layer.factor);
    /// `(…, C, H r, W r)` to `(…, C r², H, W)`.
    PixelUnshuffle {
        /// The factor.
        factor: i64
    } |x, layer| x.pixel_unshuffle(layer.factor);
}

macro_rules! pools {
    ($($name:ident $options:ident;)*) => {$(
        impl $name {
            /// Windows side by side.
            pub fn new(kernel: impl Into<Dims>) -> $name {
                $name { kernel: kernel.into(), options: $options::default() }
            }
        }
    )*};
}
pools! {
    MaxPool1d MaxPool;
    MaxPool2d MaxPool;
    MaxPool3d MaxPool;
    AvgPool1d AvgPool;
    AvgPool2d AvgPool;
    AvgPool3d AvgPool;
}

/// Height and width times the factors, rounded down.
fn scaled(x: &Tensor, factors: [f64; 2]) -> Result<[i64; 2]> {
    let &[.., height, width] = x.sizes() else {
        let what = format!("the input has sizes {:?}", x.sizes());
        return Err(crate::error::Error::shape("upsample", what, "the last two are height and width"));
    };
    Ok([(height as f64 * factors[0]) as i64, (width as f64 * factors[1]) as i64])
}
