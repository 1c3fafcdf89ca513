//! The portable JIT tier: kernels as CLIF, 128-bit vectors, compiled by Cranelift.
//!
//! [`flat`] makes one list of prims of a kernel, [`plan`] distributes it over passes, [`function`] and [`body`] write
//! the loops, [`value`], [`prims`], [`elements`] and [`partials`] what is in them. [`compile`] runs Cranelift,
//! [`code`] owns the result, [`launch`] calls it.
//!
//! What always holds: the bits are those of [`super::interp`]; a kernel that cannot be expressed is declined with a
//! reason before anything runs. Vectors run along the inner loop only (`Lanes::Inner`); gathers are declined.

mod body;
mod code;
mod compile;
mod elements;
mod flat;
mod function;
mod host;
mod launch;
mod packed;
mod partials;
mod plan;
mod prims;
mod program;
mod value;

pub use program::Program;
