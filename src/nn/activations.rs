//! Layers around activations that have something to hold: a learned slope, a probability, a function.

use super::init::constant_parameter;
use super::module::{Forward, Module};
use crate::dispatch::Dispatcher;
use crate::error::Result;
use crate::tensor::Tensor;
use std::sync::Arc;

/// `x` where it is positive, `weight x` elsewhere. The weight has one slope, or one per channel.
#[derive(Clone, Module)]
pub struct PReLU {
    /// The slopes.
    pub weight: Tensor,
}

impl PReLU {
    /// Slopes of 0.25.
    ///
    /// # Errors
    /// If there is not enough memory.
    #[track_caller]
    pub fn new(slopes: usize) -> Result<PReLU> {
        Ok(PReLU { weight: constant_parameter(&[slopes], 0.25)? })
    }
}

impl Forward for PReLU {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.prelu(&self.weight)
    }
}

/// Zeroes elements at random in training, and scales the others up.
#[derive(Debug, Clone, Module)]
pub struct Dropout {
    /// The probability of a zero.
    pub p: f64,
    /// Whether it is in training.
    #[module(training)]
    pub training: bool,
}

impl Dropout {
    /// Dropout of this probability.
    pub fn new(p: f64) -> Dropout {
        Dropout { p, training: true }
    }
}

impl Forward for Dropout {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // Nothing is drawn where nothing is dropped.
        if self.p == 0.0 { Ok(x.clone()) } else { x.dropout(self.p, self.training) }
    }
}

macro_rules! whole_parts {
    ($($(#[$doc:meta])* $name:ident $operator:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Module)]
        pub struct $name {
            /// The probability.
            pub p: f64,
            /// Whether it is in training.
            #[module(training)]
            pub training: bool,
        }

        impl $name {
            /// Dropout of this probability.
            pub fn new(p: f64) -> $name {
                $name { p, training: true }
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                Dispatcher::global().find_schema($operator, "")?.call((x, self.p, self.training))
            }
        }
    )*};
}
whole_parts! {
    /// Zeroes whole channels of `(N, C, …)` at random in training, and scales the others up. PyTorch's `Dropout1d`,
    /// `Dropout2d` and `Dropout3d`.
    ChannelDropout "aten::feature_dropout";
    /// Replaces elements at random in training, so that mean and variance of what [`SELU`](super::SELU) gives are kept.
    AlphaDropout "aten::alpha_dropout";
}

/// The type of the function of a [`Func`].
type Function = Arc<dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync>;

/// A function without tensors as a module.
#[derive(Clone, Module)]
pub struct Func {
    #[module(skip)]
    function: Function,
}

impl Func {
    /// A module that calls this function.
    #[track_caller]
    pub fn new(function: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static) -> Func {
        Func { function: Arc::new(function) }
    }
}

impl Forward for Func {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (self.function)(x)
    }
}
