//! Normalizations: over trailing dims, groups, batches and instances.
//!
//! As in PyTorch, weights start at 1 and biases at 0.

use super::init::{constant_parameter, parameter};
use super::module::{Forward, Module};
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::Dims;
use crate::ops::nn::BatchNorm;
use crate::tensor::Tensor;

fn sizes_of(shape: &Dims) -> Result<Vec<usize>> {
    let size = |&size: &i64| {
        usize::try_from(size).map_err(|_| Error::argument("normalization", format!("a size is {size}; it is negative")))
    };
    shape.as_slice().iter().map(size).collect()
}

/// Layer normalization over the trailing dims of these sizes.
#[derive(Clone, Module)]
pub struct LayerNorm {
    /// The factors.
    pub weight: Option<Tensor>,
    /// The offsets.
    pub bias: Option<Tensor>,
    /// The sizes of the trailing dims.
    pub shape: Dims,
    /// A small number that is added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// A layer with weight and bias.
    ///
    /// # Errors
    /// If a size is negative.
    #[track_caller]
    pub fn new(shape: impl Into<Dims>) -> Result<LayerNorm> {
        let shape = shape.into();
        let sizes = sizes_of(&shape)?;
        let (weight, bias) = (Some(constant_parameter(&sizes, 1.0)?), Some(parameter(&sizes)?));
        Ok(LayerNorm { weight, bias, shape, eps: 1e-5 })
    }
}

impl Forward for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(self.shape.as_slice(), self.weight.as_ref(), self.bias.as_ref(), self.eps)
    }
}

/// Root mean square normalization over the trailing dims of these sizes.
#[derive(Clone, Module)]
pub struct RmsNorm {
    /// The factors.
    pub weight: Option<Tensor>,
    /// The sizes of the trailing dims.
    pub shape: Dims,
    /// A small number that is added to the mean square. `None` stands for the machine epsilon.
    #[module(skip)]
    pub eps: Option<f64>,
}

impl RmsNorm {
    /// A layer with a weight.
    ///
    /// # Errors
    /// If a size is negative.
    #[track_caller]
    pub fn new(shape: impl Into<Dims>) -> Result<RmsNorm> {
        let shape = shape.into();
        let weight = Some(constant_parameter(&sizes_of(&shape)?, 1.0)?);
        Ok(RmsNorm { weight, shape, eps: None })
    }
}

impl Forward for RmsNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.rms_norm(self.shape.as_slice(), self.weight.as_ref(), self.eps)
    }
}

/// Group normalization of channels (dim 1).
#[derive(Clone, Module)]
pub struct GroupNorm {
    /// The factors.
    pub weight: Option<Tensor>,
    /// The offsets.
    pub bias: Option<Tensor>,
    /// The number of groups.
    pub groups: usize,
    /// A small number that is added to the variance.
    pub eps: f64,
}

impl GroupNorm {
    /// A layer with weight and bias.
    ///
    /// # Errors
    /// If the channels are not divisible by the groups.
    #[track_caller]
    pub fn new(groups: usize, channels: usize) -> Result<GroupNorm> {
        if groups == 0 || !channels.is_multiple_of(groups) {
            let what =
                format!("{channels} channels do not form {groups} groups; the number of groups must divide them");
            return Err(Error::argument("GroupNorm", what));
        }
        let (weight, bias) = (Some(constant_parameter(&[channels], 1.0)?), Some(parameter(&[channels])?));
        Ok(GroupNorm { weight, bias, groups, eps: 1e-5 })
    }
}

impl Forward for GroupNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.group_norm(self.groups as i64, self.weight.as_ref(), self.bias.as_ref(), self.eps)
    }
}

macro_rules! batch_norms {
    ($($(#[$doc:meta])* $name:ident [$($dims:literal)*];)*) => {$(
        $(#[$doc])*
        /// In training the statistics of the batch are used, and added to the running ones; otherwise these are used.
        #[derive(Clone, Module)]
        pub struct $name {
            /// The factors of channels.
            pub weight: Option<Tensor>,
            /// The offsets of channels.
            pub bias: Option<Tensor>,
            /// The running mean.
            #[module(buffer)]
            pub running_mean: Option<Tensor>,
            /// The running variance.
            #[module(buffer)]
            pub running_var: Option<Tensor>,
            /// How many batches were tracked.
            #[module(buffer)]
            pub num_batches_tracked: Option<Tensor>,
            /// The weight of the batch statistics in the running statistics.
            pub momentum: f64,
            /// A small number that is added to the variance.
            pub eps: f64,
            /// Whether it is in training.
            #[module(training)]
            pub training: bool,
        }

        impl $name {
            /// A layer with weight, bias and running statistics.
            ///
            /// # Errors
            /// If there is not enough memory.
            #[track_caller]
            pub fn new(channels: usize) -> Result<$name> {
                let dtype = crate::default_dtype();
                Ok($name {
                    weight: Some(constant_parameter(&[channels], 1.0)?),
                    bias: Some(parameter(&[channels])?),
                    running_mean: Some(Tensor::zeros(&[channels], dtype)?),
                    running_var: Some(Tensor::ones(&[channels], dtype)?),
                    num_batches_tracked: Some(Tensor::zeros(&[], DType::I64)?),
                    momentum: 0.1,
                    eps: 1e-5,
                    training: true,
                })
            }

            /// The layer without weight and bias.
            #[must_use]
            pub fn without_weights(self) -> $name {
                $name { weight: None, bias: None, ..self }
            }

            /// The layer without running statistics: it always uses those of the batch.
            #[must_use]
            pub fn without_statistics(self) -> $name {
                $name { running_mean: None, running_var: None, num_batches_tracked: None, ..self }
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                if ![$($dims),*].contains(&x.dim()) {
                    let what = format!("the input has sizes {:?}", x.sizes());
                    let hint = format!("{} takes inputs of {:?} dims", stringify!($name), [$($dims),*]);
                    return Err(Error::shape("batch_norm", what, hint));
                }
                let running = self.running_mean.as_ref().zip(self.running_var.as_ref());
                if let Some(count) = self.num_batches_tracked.as_ref().filter(|_| self.training) {
                    count.add_(1)?;
                }
                x.batch_norm(&BatchNorm {
                    weight: self.weight.as_ref(),
                    bias: self.bias.as_ref(),
                    running,
                    training: self.training || running.is_none(),
                    momentum: self.momentum,
                    eps: self.eps,
                })
            }
        }
    )*};
}
batch_norms! {
    /// Batch normalization of `(N, C)` or `(N, C, L)`.
    BatchNorm1d [2 3];
    /// Batch normalization of `(N, C, H, W)`.
    BatchNorm2d [4];
    /// Batch normalization of `(N, C, D, H, W)`.
    BatchNorm3d [5];
}

/// Instance normalization: of each channel of each sample. It starts without weights, as in PyTorch.
#[derive(Clone, Module)]
pub struct InstanceNorm {
    /// The factors of channels.
    pub weight: Option<Tensor>,
    /// The offsets of channels.
    pub bias: Option<Tensor>,
    /// The number of channels.
    pub channels: usize,
    /// A small number that is added to the variance.
    pub eps: f64,
}

impl InstanceNorm {
    /// A layer without weights.
    pub fn new(channels: usize) -> InstanceNorm {
        InstanceNorm { weight: None, bias: None, channels, eps: 1e-5 }
    }

    /// The layer with new weight and bias.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn with_weights(self) -> Result<InstanceNorm> {
        let sizes = [self.channels];
        Ok(InstanceNorm { weight: Some(constant_parameter(&sizes, 1.0)?), bias: Some(parameter(&sizes)?), ..self })
    }
}

impl Forward for InstanceNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if x.sizes().get(1) != Some(&self.channels) {
            let what = format!("the input has sizes {:?}", x.sizes());
            return Err(Error::shape("instance_norm", what, format!("dim 1 must have {} channels", self.channels)));
        }
        x.instance_norm(&BatchNorm {
            weight: self.weight.as_ref(),
            bias: self.bias.as_ref(),
            training: true,
            eps: self.eps,
            ..BatchNorm::default()
        })
    }
}
