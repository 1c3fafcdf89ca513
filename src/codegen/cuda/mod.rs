//! CUDA C of a kernel, and how it is launched.
//!
//! [`Source::new`] writes source on top of a prelude of named wrappers, which needs no CUDA header. [`Plan`] chooses
//! the source for a geometry, the grid, and the content of its [`argument`] buffer. Both are pure: kernel and shapes go
//! in, source and plain data come out. So all of it is tested without a GPU.
//!
//! What always holds: the bits are those of [`super::interp`], except for the sums of [`tensor_cores`] and [`wgmma`].
//! Nothing is contracted or approximated. Folds keep their canonical order, whose 32 partial results are the threads of
//! a warp. No two thread blocks of a grid write the same memory, so there are no atomic operations. All threads of a
//! block or warp reach its barriers and shuffles.
//!
//! `cubin` compiles source, once each. Not here: everything that uses a device.

pub mod argument;
mod blocks;
mod cubin;
mod elements;
pub mod epilogue;
mod forms;
mod held;
mod plan;
mod pointwise;
pub mod product;
pub mod product_grid;
pub mod routines;
mod rows;
mod source;
pub mod tensor_cores;
mod tiles;
mod variant;
pub mod wgmma;
mod width;
mod writer;

pub(crate) use cubin::{Origin, cubin};
pub use plan::Plan;
pub use source::{OPTIONS, PRELUDE, Source, Target};
pub use variant::{EntryLaunch, Form, Index, Variant};
