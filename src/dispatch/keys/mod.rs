//! The keys with behaviour, one file each.

pub mod autocast;
pub mod batched;
pub mod cpu;
pub mod meta;
pub mod mode;
pub mod tracer;
