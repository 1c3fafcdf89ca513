//! Tensors whose eager calls feel like PyTorch's, and a [`compile()`] that traces a function, fuses its graph and
//! compiles it in milliseconds, with the same bits as eager and a reason for every decision. Nothing to install.
//!
//! ```
//! use opfuse::{Result, Tensor, compile};
//!
//! # fn main() -> Result<()> {
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, -1.0, 0.0, 1.0], &[2, 3])?;
//! let softmax = |x: &Tensor| {
//!     let e = x.sub(&x.amax([-1], true)?)?.exp()?;
//!     e.div(&e.sum([-1], true)?)
//! };
//! let eager = softmax(&x)?;
//! let fused = compile(softmax);
//! assert_eq!(fused.call(&x)?.to_vec::<f32>()?, eager.to_vec::<f32>()?);
//! assert_eq!(fused.explain().kernels_after, 1);
//! # Ok(())
//! # }
//! ```
//!
//! The floors, from the ground up: [`error`] and [`debug`], [`ir`], [`device`], [`fusion`], [`codegen`], [`runtime`],
//! [`eager`], [`tensor`], [`dispatch`], [`ops`], [`autograd`], [`transforms`], [`compile`](mod@compile). Each imports
//! only from those before it.
//!
//! With the feature `ndarray`, [`Tensor`]s can be looked at as arrays of that crate, and made from them.

pub mod autograd;
pub mod codegen;
pub mod compile;
pub mod debug;
pub mod device;
pub mod dispatch;
pub mod eager;
pub mod error;
pub mod fusion;
pub mod ir;
pub mod ops;
pub mod runtime;
pub mod tensor;
pub mod transforms;

pub use compile::{CompileOptions, Compiled, Explain, compile, compile_with};
pub use device::{Device, Generator, manual_seed};
pub use eager::{NumericsGuard, numerics};
pub use error::{Error, Reason, Result};
pub use ir::{DType, Numerics, Scalar};
pub use opfuse_derive::TensorStruct;
pub use ops::{Element, Ellipsis, Index, NewAxis, cat, embedding, nn, stack};
pub use tensor::{Tensor, TensorStruct};
pub use transforms::vmap::{Randomness, Vmap, vmap};
pub use transforms::{autocast, no_autocast};

/// The examples of the README, so that they are tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the guide to reports.
#[cfg(doctest)]
#[doc = include_str!("../docs/explain.md")]
struct ExplainGuide;
