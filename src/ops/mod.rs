//! Every operator that is not a row of `ir`'s op table alone: methods, composites, in-place forms, by subject.
//!
//! Indexing, text and conversions stand here too: they are made of calls of operators.

pub(crate) mod backend;
pub(crate) mod composites;
mod convert;
pub(crate) mod dims;
mod element;
pub(crate) mod factories;
mod format;
pub(crate) mod in_place;
pub(crate) mod indexing;
pub(crate) mod joins;
mod methods;
pub(crate) mod mutation;
#[cfg(feature = "ndarray")]
mod ndarray;
pub mod nn;
pub(crate) mod operators;
mod pieces;
pub(crate) mod products;
pub(crate) mod random;
pub(crate) mod random_fills;
mod reductions;
pub(crate) mod reshaping;
pub(crate) mod scatters;
mod sorting;
mod subscript;
pub(crate) mod transfer;
mod views;

pub use dims::Dims;
pub use element::Element;
pub use joins::{cat, embedding, stack};
#[cfg(feature = "ndarray")]
pub use ndarray::NdView;
pub use operators::Operand;
pub use reshaping::{Indexing, broadcast_tensors, meshgrid};
pub use subscript::{Ellipsis, Index, Indices, NewAxis};
