//! What else may a call do? One folder or file per key with behaviour of its own: tracing, mapping, autocast.

pub(crate) mod autocast;
pub(crate) mod batched;
pub(crate) mod function;
pub(crate) mod observer;
pub mod tracer;
pub mod vmap;

pub use autocast::{AutocastGuard, AutocastState, autocast, autocast_on, no_autocast, no_autocast_on};
pub use function::{Function, Input, Inputs, TensorRefs};
