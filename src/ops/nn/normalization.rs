//! Normalizations: what is left of a value when its neighbours' mean and spread are taken out.
//!
//! Layer norm is a row of the op table, and its method is among the others.

use crate::dispatch::composite::Composite;
use crate::error::Result;
use crate::ops::dims::Dims;
use crate::tensor::handle::Tensor;

/// The arguments of [`Tensor::batch_norm`] and [`Tensor::instance_norm`].
#[derive(Debug, Clone)]
pub struct BatchNorm<'a> {
    /// A factor for each channel.
    pub weight: Option<&'a Tensor>,
    /// A summand for each channel.
    pub bias: Option<&'a Tensor>,
    /// The running mean and variance of each channel. With `training` they are updated in place, else they are what is
    /// normalized by.
    pub running: Option<(&'a Tensor, &'a Tensor)>,
    /// Whether to normalize by the statistics of the input.
    pub training: bool,
    /// The share that the statistics of the input get in the running ones.
    pub momentum: f64,
    /// What is added to the variance.
    pub eps: f64,
}

impl Default for BatchNorm<'_> {
    fn default() -> Self {
        BatchNorm { weight: None, bias: None, running: None, training: false, momentum: 0.1, eps: 1e-5 }
    }
}

/// Normalized by channel, group or trailing dims. Sizes and dtype are kept; 16-bit floats are computed in f32.
impl Tensor {
    /// `(x - mean) / sqrt(variance + eps) * weight + bias` for each channel (dim 1) over all other dims. Sizes and
    /// dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating, there is no dim 1, a parameter has not one element per channel, or there are no
    /// running statistics and `training` is off.
    pub fn batch_norm(&self, options: &BatchNorm<'_>) -> Result<Tensor> {
        static BATCH_NORM: Composite = Composite::new("aten::batch_norm");
        let BatchNorm { weight, bias, running, training, momentum, eps } = *options;
        let (mean, variance) = running.unzip();
        BATCH_NORM.call((self, weight, bias, mean, variance, training, momentum, eps, true))
    }

    /// [`Tensor::batch_norm`] for each channel of each sample alone: statistics run over all dims but the first two.
    ///
    /// # Errors
    /// As [`Tensor::batch_norm`].
    pub fn instance_norm(&self, options: &BatchNorm<'_>) -> Result<Tensor> {
        static INSTANCE_NORM: Composite = Composite::new("aten::instance_norm");
        let BatchNorm { weight, bias, running, training, momentum, eps } = *options;
        let (mean, variance) = running.unzip();
        INSTANCE_NORM.call((self, weight, bias, mean, variance, training, momentum, eps, true))
    }

    /// `(x - mean) / sqrt(variance + eps) * weight + bias` for each of `groups` groups of neighbouring channels (dim
    /// 1); weight and bias have one element per channel. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating, the channels do not divide into the groups, or a parameter has not one element
    /// per channel.
    pub fn group_norm(&self, groups: i64, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        static GROUP_NORM: Composite = Composite::new("aten::group_norm");
        GROUP_NORM.call((self, groups, weight, bias, eps, true))
    }

    /// `x / sqrt(mean(x²) + eps) * weight` over the trailing dims, whose sizes are `shape`. If `eps` is `None`, it is
    /// the distance from 1 to the next number of the dtype that is computed in. Sizes and dtype are kept.
    ///
    /// # Errors
    /// If the dtype is not floating, `shape` is not the end of the sizes, or the weight has another shape.
    pub fn rms_norm(&self, shape: impl Into<Dims>, weight: Option<&Tensor>, eps: Option<f64>) -> Result<Tensor> {
        static RMS_NORM: Composite = Composite::new("aten::rms_norm");
        RMS_NORM.call((self, shape.into().as_slice(), weight, eps))
    }
}
