//! What does an operator do? Every operator by subject, one file each.
//!
//! A subject's file holds the methods, the schemas and decompositions of its composites, and the arguments that are
//! rarely given. The rows of `ir`'s op table hold schema, scalar body and derivative of the operators that are made of
//! nothing else; their regular methods are written by the table (`methods`). Indexing, text and conversions stand here
//! too, because they are made of calls of operators. How gradients flow is told by `autograd` alone.

pub(crate) mod activations;
pub(crate) mod adaptive_pooling;
pub(crate) mod arguments;
pub(crate) mod attention;
pub(crate) mod backend;
pub(crate) mod batch_norm;
pub(crate) mod classification;
pub(crate) mod conversions;
pub(crate) mod convert;
pub(crate) mod convolution;
pub(crate) mod derivative;
pub(crate) mod dims;
pub(crate) mod einsum;
pub(crate) mod element;
pub(crate) mod factories;
pub(crate) mod format;
pub(crate) mod images;
pub(crate) mod in_place;
pub(crate) mod index_operators;
pub(crate) mod indexing;
pub(crate) mod joins;
pub(crate) mod losses;
pub(crate) mod methods;
pub(crate) mod mutation;
#[cfg(feature = "ndarray")]
mod ndarray;
pub mod nn;
pub(crate) mod normalization;
pub(crate) mod norms;
pub(crate) mod operators;
pub(crate) mod own_shapes;
pub(crate) mod padding;
pub(crate) mod pieces;
pub(crate) mod pointwise;
pub(crate) mod pooling;
pub(crate) mod products;
pub(crate) mod random;
pub(crate) mod random_fills;
pub(crate) mod random_operators;
pub(crate) mod reductions;
pub(crate) mod register;
pub(crate) mod reshaping;
pub(crate) mod scatters;
pub(crate) mod sorting;
pub(crate) mod subscript;
pub(crate) mod transfer;
pub(crate) mod views;

pub use dims::Dims;
pub use element::Element;
pub use joins::{cat, embedding, stack};
#[cfg(feature = "ndarray")]
pub use ndarray::NdView;
pub use operators::Operand;
pub(crate) use register::register;
pub use reshaping::{Indexing, broadcast_tensors, meshgrid};
pub use subscript::{Ellipsis, Index, Indices, NewAxis};
