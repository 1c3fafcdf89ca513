//! Layers and losses of neural networks, as methods of tensors.
//!
//! Every method is a call of the composite operator of that name, so modes, autocast and tracing see it; what the
//! operators are made of is in `composites`. Arguments that are rarely given lie in a structure with defaults:
//! `x.cross_entropy(&target, &CrossEntropy { label_smoothing: 0.1, ..Default::default() })`. Layers that own their
//! parameters are deliberately absent: a layer is a function of tensors.

mod activations;
mod convolution;
mod images;
mod losses;
mod normalization;
mod pooling;
mod similarity;

pub use convolution::{ConvTranspose, Convolution, Padding};
pub use images::{Border, Interpolation};
pub use losses::{CrossEntropy, Reduction};
pub use normalization::BatchNorm;
pub use pooling::{AvgPool, MaxPool};
pub use similarity::{Attention, einsum};
