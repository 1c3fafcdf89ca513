//! What does a user train? Modules that own their parameters, their states, initializers, and further losses; and the
//! optional arguments of layers and losses that are methods of [`Tensor`](crate::Tensor).
//!
//! Names of modules, defaults, initializers and keys of state dicts are PyTorch's, so its files of weights load
//! unchanged. A module is a struct with public fields: there is no registry, and nothing is looked up by name.
//!
//! | file | subject |
//! |---|---|
//! | `module` | the traits, names and roles of tensors, conversions and copies |
//! | `state` | loading by name, and [`Checkpoint`] |
//! | `init` | initializers |
//! | `stateless` | layers without tensors, a row each |
//! | all others | layers by subject |

mod activations;
mod attention;
mod containers;
mod convolution;
mod embedding;
pub mod init;
mod kv_cache;
mod linear;
pub mod losses;
mod module;
mod normalization;
mod positions;
mod recompute;
mod recurrent;
pub(crate) mod state;
mod stateless;
mod transformer;
mod windows;

pub use crate::ops::nn::{
    Attention, AvgPool, BatchNorm, Border, ConvTranspose, Convolution, CrossEntropy, GridBorder, GridFilter,
    GridSample, Interpolation, MaxPool, Padding, Patches, Reduction, einsum,
};
pub use activations::{AlphaDropout, ChannelDropout, Dropout, Func, PReLU};
pub use attention::{AttentionMask, MultiheadAttention};
pub use containers::Sequential;
pub use convolution::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d};
pub use embedding::{BagMode, Embedding, EmbeddingBag};
pub use kv_cache::KvCache;
pub use linear::{Bilinear, Linear};
pub use module::{CloneForward, Forward, Module, PartMut, Role, Visitor, VisitorMut};
pub use normalization::{BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm, LayerNorm, RmsNorm};
pub use positions::{RotaryEmbedding, SinusoidalPositions};
pub use recompute::checkpoint;
pub use recurrent::{GRU, GRUCell, LSTM, LSTMCell, RNN, RNNCell, RecurrentOptions};
pub use state::{Checkpoint, State};
pub use stateless::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d,
    AvgPool1d, AvgPool2d, AvgPool3d, BorderPad, CELU, ConstantPad, ELU, Flatten, GELU, GELUTanh, GLU, Hardshrink,
    Hardsigmoid, Hardswish, Hardtanh, Identity, LeakyReLU, LogSigmoid, LogSoftmax, MaxPool1d, MaxPool2d, MaxPool3d,
    Mish, PixelShuffle, PixelUnshuffle, ReLU, ReLU6, SELU, SiLU, Sigmoid, Softmax, Softmin, Softplus, Softshrink,
    Softsign, Tanh, Tanhshrink, Threshold, Unflatten, Upsample,
};
pub use transformer::{
    TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer, TransformerOptions,
};
pub use windows::{Fold, Unfold, Windows};
