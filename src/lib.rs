//! Tensors with eager calls like PyTorch's, and a JIT compiler that fuses them.
//!
//! [`compile()`] traces a function, fuses its graph, and compiles it in milliseconds. Compiled calls return the same
//! bits as eager ones, and reports give a reason for every decision. The crate needs no other software.
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
//! Most programs need the crate's root alone. Beside it:
//!
//! - [`nn`]: modules that own their parameters; the arguments of layers and losses that are methods of [`Tensor`].
//! - [`optim`]: optimizers, schedules of learning rates, clipping, averages.
//! - [`data`]: data sets, loaders of batches, metrics.
//! - [`autograd`]: gradients, hooks, functions with derivatives of their own.
//! - [`func`]: gradients, Jacobians and Hessians as functions of functions.
//! - [`compile`](mod@compile): options, policies, and reports of compiled functions.
//! - [`device`]: devices, streams, allocators, threads.
//! - [`dispatch`]: operators, kernels and backends from outside this crate; modes that see every call.
//! - [`formats`]: files of tensors, loaded without a copy and saved as a whole.
//! - [`ir`]: graphs, ops and dtypes, which reports and registered kernels use.
//! - [`error`](mod@error): what can go wrong, and why something was not fused, compiled or captured.
//!
//! With the feature `ndarray`, a [`Tensor`] can be viewed as an array of that crate, or made from one.

// Derive macros name the crate by its path.
extern crate self as opfuse;

pub mod autograd;
mod codegen;
pub mod compile;
pub mod data;
mod debug;
pub mod device;
pub mod dispatch;
mod eager;
pub mod error;
mod escaped;
pub mod exported;
pub mod formats;
pub mod func;
mod fusion;
#[doc(hidden)]
pub mod internals;
pub mod ir;
mod json;
mod lru;
pub mod nn;
mod ops;
pub mod optim;
pub mod profile;
mod runtime;
mod scope;
mod tensor;
mod transforms;

pub use compile::{CompileOptions, Compiled, Explain, compile, compile_with, profile};
pub use device::{Device, Generator, manual_seed};
pub use dispatch::key::default_dtype::{DefaultDTypeGuard, default_dtype, set_default_dtype};
pub use eager::{NumericsGuard, numerics};
pub use error::{Error, Reason, Result};
pub use formats::{Named, StateDict, load};
pub use half::{bf16, f16};
pub use ir::{DType, MemoryFormat, Numerics, Scalar};
pub use opfuse_derive::TensorStruct;
#[cfg(feature = "ndarray")]
pub use ops::NdView;
pub use ops::{
    Closeness, Dims, Element, Ellipsis, Index, Indexing, Indices, NewAxis, Operand, Replacement, Side,
    broadcast_tensors, cat, column_stack, dstack, embedding, hstack, meshgrid, pad_sequence, stack, trim, vstack,
};
pub use profile::scope;
pub use tensor::{Tensor, TensorStruct};
pub use transforms::vmap::{MapDims, Randomness, Vmap, vmap};
pub use transforms::{AutocastGuard, AutocastState, autocast, autocast_on, no_autocast, no_autocast_on};

/// The examples of the README, so that they are tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the guide to reports.
#[cfg(doctest)]
#[doc = include_str!("../docs/explain.md")]
struct ExplainGuide;

/// The examples of the guide to profiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/profiling.md")]
struct ProfilingGuide;

/// The examples of the page about memory and files.
#[cfg(doctest)]
#[doc = include_str!("../docs/formats.md")]
struct FormatsPage;

/// The examples of the page for users of NumPy.
#[cfg(doctest)]
#[doc = include_str!("../docs/numpy.md")]
struct NumpyPage;

/// The examples of the guide to training.
#[cfg(doctest)]
#[doc = include_str!("../docs/training.md")]
struct TrainingGuide;

/// The chapters of the book, whose programs are tested.
#[cfg(doctest)]
macro_rules! chapters {
    ($($name:ident $file:literal;)*) => {$(
        #[doc = include_str!(concat!("../docs/book/src/", $file))]
        struct $name;
    )*};
}

#[cfg(doctest)]
chapters! {
    FirstSteps "first_steps.md";
    Compile "compile.md";
    Training "training.md";
    Serving "serving.md";
    Reports "reports.md";
    Determinism "determinism.md";
    OwnOperators "own_operators.md";
    OwnDevices "own_devices.md";
    FromPyTorch "from_pytorch.md";
    FromNumPy "from_numpy.md";
    FromCandle "from_candle.md";
    FromJax "from_jax.md";
}
