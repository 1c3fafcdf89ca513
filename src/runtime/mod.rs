//! How does a planned program run?
//!
//! An executable is a plan as a list of actions: kernels, views, matrix products, routines, and the memory that is
//! allocated and released between them. It belongs to one set of shapes. This floor knows arrays, but no tensors and no
//! graphs that are still recorded. The floors above decide what a call means.

mod action;
mod array;
mod blocks;
mod builder;
mod counted;
pub mod cuda;
mod executable;
mod footprint;
mod launch;
mod product;
mod routine;
mod schedule;
mod shared_layout;
mod single;
mod timed;
mod traffic;
mod view;

pub use array::Array;
pub use builder::{Accepts, Failure};
pub use executable::Executable;
pub use launch::{BoxedResult, Launch};
pub use routine::write_by_index;
pub use shared_layout::SharedLayout;
pub use single::Single;
pub use traffic::Traffic;
pub use view::view;
