//! What is a tensor?
//!
//! The handle: dtype, layout, storage, device, key set, version, and what autograd and transforms hang on it; and how
//! structures of tensors are split into tensors and put together. No operator is called here.

pub(crate) mod handle;
pub(crate) mod observer;
pub(crate) mod structure;
pub(crate) mod view_chain;

pub use handle::Tensor;
pub use structure::{Flat, Parts, TensorStruct, Tensors, Words};
