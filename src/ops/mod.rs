//! What does an operator do? Every operator by subject, one file each.
//!
//! A subject's file holds its operators: the methods with their in-place forms, the schemas and decompositions of
//! composites ([`composite`]), and the structures of optional arguments. The op table in `ir` holds schema, scalar body
//! and derivative of all other operators. Methods of rows without arguments come from the table (`methods`). The
//! operators `x_`, `x.out` and `x_copy` follow from `x` (`written_forms`, `view_forms`). Methods of operators without a
//! static find them by name (`named`). `autograd` alone records gradients.
//!
//! Other files hold what calls operators: Rust's `+` and `-` (`rust_operators`), subscripts (`subscript`), text
//! (`format`), and conversions from and to Rust values (`element`, `from_rust`, `memory`).

pub(crate) mod activations;
pub(crate) mod adaptive_pooling;
pub(crate) mod antialiasing;
pub(crate) mod arguments;
pub(crate) mod attention;
pub(crate) mod backend;
pub(crate) mod batch_norm;
pub(crate) mod bessel;
pub(crate) mod calculus;
pub(crate) mod closeness;
pub(crate) mod combinations;
pub(crate) mod complex_numbers;
mod composite;
pub(crate) mod contractions;
pub(crate) mod conversions;
pub(crate) mod convolution;
pub(crate) mod cross_entropy;
pub(crate) mod derivative;
pub(crate) mod diagonals;
pub(crate) mod dims;
pub(crate) mod divisors;
pub(crate) mod draws;
pub(crate) mod dropout;
pub(crate) mod einsum;
pub(crate) mod element;
pub(crate) mod embedding_bag;
pub(crate) mod embedding_bag_backward;
pub(crate) mod factories;
pub(crate) mod float_parts;
pub(crate) mod format;
pub(crate) mod fourier_transforms;
pub(crate) mod frequencies;
pub(crate) mod from_rust;
pub(crate) mod grids;
pub(crate) mod grouped_products;
pub(crate) mod histograms;
pub(crate) mod images;
pub(crate) mod in_place;
pub(crate) mod incomplete_gamma;
pub(crate) mod index_slices;
pub(crate) mod indexing;
pub(crate) mod joins;
pub(crate) mod linear_algebra;
pub(crate) mod losses;
pub(crate) mod margin_losses;
pub(crate) mod masks;
pub(crate) mod matrices;
pub(crate) mod matrix_norms;
pub(crate) mod memory;
pub(crate) mod memory_formats;
pub(crate) mod methods;
pub(crate) mod multinomial;
pub(crate) mod mutation;
mod named;
mod named_elements;
mod named_factories;
mod named_layers;
mod named_matrices;
mod named_parts;
#[cfg(feature = "ndarray")]
mod ndarray;
pub(crate) mod nn;
pub(crate) mod normalization;
pub(crate) mod norms;
pub(crate) mod order_statistics;
pub(crate) mod other_names;
pub(crate) mod padding;
pub(crate) mod part_place;
pub(crate) mod pieces;
pub(crate) mod plain_forms;
pub(crate) mod pointwise;
pub(crate) mod poisson;
pub(crate) mod pooling;
pub(crate) mod products;
pub(crate) mod random;
pub(crate) mod random_fills;
pub(crate) mod random_like;
pub(crate) mod rearranging;
pub(crate) mod recurrent;
pub(crate) mod reductions;
pub(crate) mod register;
pub(crate) mod resampling;
pub(crate) mod reshaping;
pub(crate) mod rust_operators;
pub(crate) mod scatters;
pub(crate) mod searching;
pub(crate) mod sorting;
pub(crate) mod spaces;
pub(crate) mod special;
pub(crate) mod spectrograms;
pub(crate) mod stacks;
pub(crate) mod statistics;
pub(crate) mod subscript;
pub(crate) mod transfer;
pub(crate) mod uniques;
pub(crate) mod view_forms;
pub(crate) mod views;
pub(crate) mod windows;
pub(crate) mod written_forms;

pub use closeness::Closeness;
pub use dims::Dims;
pub use element::Element;
pub use indexing::embedding;
pub use joins::{cat, stack};
pub use multinomial::Replacement;
#[cfg(feature = "ndarray")]
pub use ndarray::NdView;
pub(crate) use register::register;
pub use reshaping::{Indexing, broadcast_tensors, meshgrid};
pub use rust_operators::Operand;
pub use searching::Side;
pub use stacks::{column_stack, dstack, hstack, pad_sequence, vstack};
pub use subscript::{Ellipsis, Index, Indices, NewAxis, trim};
