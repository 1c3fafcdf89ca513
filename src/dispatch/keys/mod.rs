//! The keys with behaviour, one file each.

pub mod cpu;
pub mod meta;
pub mod mode;
pub mod tracer;
