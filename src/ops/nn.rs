//! Layers and losses of neural networks: the arguments that their methods are rarely given.
//!
//! The methods stand with their operators, one subject a file. Each is a call of the composite operator of that name,
//! so modes, autocast and tracing see it. Rare arguments lie in a structure with defaults:
//! `x.cross_entropy(&target, &CrossEntropy { label_smoothing: 0.1, ..Default::default() })`. Layers that own their
//! parameters are deliberately absent: a layer is a function of tensors.

pub use crate::ops::attention::Attention;
pub use crate::ops::batch_norm::BatchNorm;
pub use crate::ops::convolution::{ConvTranspose, Convolution, Padding};
pub use crate::ops::cross_entropy::CrossEntropy;
pub use crate::ops::einsum::einsum;
pub use crate::ops::images::Interpolation;
pub use crate::ops::losses::Reduction;
pub use crate::ops::padding::Border;
pub use crate::ops::pooling::{AvgPool, MaxPool};
