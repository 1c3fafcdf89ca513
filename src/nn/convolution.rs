//! Convolutions and transposed convolutions.
//!
//! Options are those of the operators. As in PyTorch, parameters start uniform within `1 / sqrt(fan-in)`.

use super::init::{fans, uniform_parameter};
use super::linear::within;
use super::module::{Forward, Module};
use crate::error::{Error, Result};
use crate::ops::Dims;
use crate::ops::nn::{ConvTranspose, Convolution};
use crate::tensor::Tensor;

/// Sizes of a window: one number is for all dims.
fn window(op: &str, kernel: &Dims, n_dims: usize) -> Result<Vec<usize>> {
    let sizes: Option<Vec<usize>> = kernel.as_slice().iter().map(|&size| usize::try_from(size).ok()).collect();
    match sizes.as_deref() {
        Some(&[size]) => Ok(vec![size; n_dims]),
        Some(sizes) if sizes.len() == n_dims => Ok(sizes.to_vec()),
        _ => {
            let what =
                format!("the kernel is {:?}; it needs one size, or {n_dims}, and none negative", kernel.as_slice());
            Err(Error::argument(op, what))
        }
    }
}

/// The number of channels in a group.
fn per_group(op: &str, channels: usize, groups: i64) -> Result<usize> {
    let groups = usize::try_from(groups).ok().filter(|&groups| groups > 0 && channels.is_multiple_of(groups));
    let none = || Error::argument(op, format!("{channels} channels do not form that many groups; both must divide"));
    groups.map(|groups| channels / groups).ok_or_else(none)
}

macro_rules! convolutions {
    ($($(#[$doc:meta])* $name:ident $method:ident $n_dims:literal $options:ident $sizes:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Module)]
        pub struct $name {
            /// The windows' weights.
            pub weight: Tensor,
            /// One number per output channel.
            pub bias: Option<Tensor>,
            /// Stride, padding, dilation and groups.
            pub options: $options,
        }

        impl $name {
            /// A layer with a bias. A kernel of one number is for all dims.
            ///
            /// # Errors
            /// If the kernel has another number of dims.
            #[track_caller]
            pub fn new(inputs: usize, outputs: usize, kernel: impl Into<Dims>) -> Result<$name> {
                $name::with(inputs, outputs, kernel, $options::default())
            }

            /// A layer with a bias and options.
            ///
            /// # Errors
            /// If the kernel has another number of dims, or if the channels are not divisible by the groups.
            #[track_caller]
            pub fn with(
                inputs: usize,
                outputs: usize,
                kernel: impl Into<Dims>,
                options: $options,
            ) -> Result<$name> {
                let window = window(stringify!($name), &kernel.into(), $n_dims)?;
                let of = |channels| per_group(stringify!($name), channels, options.groups);
                let sizes: fn(usize, usize, usize, usize) -> [usize; 2] = $sizes;
                let channels = sizes(inputs, outputs, of(inputs)?, of(outputs)?);
                let sizes = [&channels[..], &window].concat();
                let bound = within(channels[1] * window.iter().product::<usize>());
                let weight = uniform_parameter(&sizes, bound)?;
                debug_assert!(fans(&weight).is_ok_and(|(inputs, _)| within(inputs as usize) == bound));
                Ok($name { weight, bias: Some(uniform_parameter(&[outputs], bound)?), options })
            }

            /// The layer without its bias.
            #[must_use]
            pub fn without_bias(self) -> $name {
                $name { bias: None, ..self }
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$method(&self.weight, self.bias.as_ref(), &self.options)
            }
        }
    )*};
}

convolutions! {
    /// Convolution of `(N, C, L)`. The weight is `(outputs, inputs / groups, L)`.
    Conv1d conv1d 1 Convolution |_, outputs, inputs, _| [outputs, inputs];
    /// Convolution of `(N, C, H, W)`. The weight is `(outputs, inputs / groups, H, W)`.
    Conv2d conv2d 2 Convolution |_, outputs, inputs, _| [outputs, inputs];
    /// Convolution of `(N, C, D, H, W)`. The weight is `(outputs, inputs / groups, D, H, W)`.
    Conv3d conv3d 3 Convolution |_, outputs, inputs, _| [outputs, inputs];
    /// Transposed convolution of `(N, C, L)`. The weight is `(inputs, outputs / groups, L)`.
    ConvTranspose1d conv_transpose1d 1 ConvTranspose |inputs, _, _, outputs| [inputs, outputs];
    /// Transposed convolution of `(N, C, H, W)`. The weight is `(inputs, outputs / groups, H, W)`.
    ConvTranspose2d conv_transpose2d 2 ConvTranspose |inputs, _, _, outputs| [inputs, outputs];
    /// Transposed convolution of `(N, C, D, H, W)`. The weight is `(inputs, outputs / groups, D, H, W)`.
    ConvTranspose3d conv_transpose3d 3 ConvTranspose |inputs, _, _, outputs| [inputs, outputs];
}
