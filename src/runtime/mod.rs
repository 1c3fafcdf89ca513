//! How does a planned program run?
//!
//! An executable is a plan as a list of steps: kernels, views, matrix products, procedures on whole arrays, and memory that is
//! taken and released between them. It belongs to one set of shapes. The floor knows arrays, but neither graphs that are being
//! recorded nor tensors: what a call means is decided upstairs.

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
