//! What is a tensor?
//!
//! The handle, with dtype, layout, storage, device, key set, version, and the state that autograd and transforms add to
//! it. Also structures of tensors, and how they are split into tensors and rebuilt. No operator is called here.

pub(crate) mod complex;
pub(crate) mod handle;
pub(crate) mod ids;
pub(crate) mod names;
pub(crate) mod observer;
pub(crate) mod structure;
pub(crate) mod view_chain;

pub use handle::Tensor;
pub use names::Names;
pub use structure::{Flat, Parts, TensorStruct, Tensors, Words};
