//! Tensors whose eager calls feel like PyTorch's and whose compiled functions are fused in milliseconds.

pub mod codegen;
pub mod compile;
pub mod debug;
pub mod device;
pub mod dispatch;
pub mod eager;
pub mod error;
pub mod fusion;
pub mod ir;

pub use compile::{CompileOptions, Compiled, Explain, compile, compile_with};
pub use dispatch::{Element, Tensor, cat, embedding, stack};
pub use error::{Error, Reason, Result};
pub use ir::{DType, Scalar};
