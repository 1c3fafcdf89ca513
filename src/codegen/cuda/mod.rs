//! CUDA C of a kernel, and how it is launched.
//!
//! [`Source::new`] writes text on a prelude of named wrappers that needs no CUDA header; [`Plan`] says which text serves a
//! geometry, with which grid, and what its only argument holds ([`words`]). Both are pure: a kernel and shapes go in, text
//! and plain data come out, so all of it is tested without a GPU.
//!
//! What always holds: the bits are those of [`super::interp`], but for the sums of [`tensor_cores`] and [`wgmma`]. Nothing is contracted or
//! approximated, folds keep their canonical order, whose 32 partial results are the threads of a warp, and no two blocks of a
//! grid touch the same memory: there is no atomic operation. Barriers and shuffles are met by all threads of a block or a warp.
//!
//! `cubin` has texts compiled, once per text. Not here: what talks to a device.

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
mod text;
mod tiles;
mod variant;
pub mod wgmma;
mod width;
pub mod words;

pub(crate) use cubin::{Origin, cubin};
pub use plan::Plan;
pub use source::{OPTIONS, PRELUDE, Source, Target};
pub use variant::{Form, Index, Step, Variant};
