//! How does one group become running code?
//!
//! [`lower`] makes [`kernel`]s from groups of a graph. A kernel is the loop form that every tier implements, and
//! [`interp`] is its slow, obvious meaning. [`geometry`] says how a kernel runs on one set of shapes. Each code tier
//! has its folder. Nothing here knows about user tensors.

pub mod cache;
pub mod cranelift;
pub mod cuda;
pub mod disk;
pub mod fold;
mod fold_prims;
pub mod geometry;
pub mod interp;
pub mod kernel;
pub mod launch;
mod literal_divisors;
pub mod lower;
pub mod native;
pub mod parallel;
pub mod product;
mod simplify;
pub mod tier;
pub mod tier_up;
mod unroll;
pub mod vm;
pub mod x64;

pub use geometry::{Access, Class, Geometry, Lanes, LoopOrder};
pub use kernel::{FOLD_BLOCK, FOLD_LANES, Kernel};
pub use launch::{Faults, Part, Pointers};
