//! The keys with behaviour, one file each.

pub mod autocast;
pub(super) mod autograd;
pub mod batched;
pub mod cpu;
pub(super) mod cuda;
pub(super) mod inplace_or_view;
pub mod meta;
pub mod mode;
pub mod tracer;
