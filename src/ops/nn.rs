//! The optional arguments of layers and losses of neural networks.
//!
//! The methods are in the files of their operators' subjects. Each calls the composite operator of the same name, so
//! modes, autocast and tracing see it. Optional arguments are in structures with defaults: `x.cross_entropy(&target,
//! &CrossEntropy { label_smoothing: 0.1, ..Default::default() })`. Layers that own their parameters are deliberately
//! absent: a layer is a function of tensors.

pub use crate::ops::attention::Attention;
pub use crate::ops::batch_norm::BatchNorm;
pub use crate::ops::convolution::{ConvTranspose, Convolution, Padding};
pub use crate::ops::cross_entropy::CrossEntropy;
pub use crate::ops::einsum::einsum;
pub use crate::ops::grids::{GridBorder, GridFilter, GridSample, Patches};
pub use crate::ops::images::Interpolation;
pub use crate::ops::losses::Reduction;
pub use crate::ops::padding::Border;
pub use crate::ops::pooling::{AvgPool, MaxPool};
