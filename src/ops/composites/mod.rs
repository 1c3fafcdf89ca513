//! Operators that are made of others.
//!
//! They are registered with their ATen schemas and a decomposition (`CompositeImplicitAutograd`), so that boxed
//! callers and out-of-tree code find them by name; every key sees their parts. The methods of [`Tensor`] call the same
//! functions directly. Arguments that say where and how to store a result are taken if they ask for what is done
//! anyway, and refused otherwise.

mod activations;
mod adaptive;
pub(crate) mod arguments;
mod attention;
mod batch_norm;
mod choices;
mod classification;
mod conversions;
mod convolution;
mod einsum;
mod factories;
mod indexing;
mod joins;
mod losses;
mod normalization;
mod norms;
mod numbers;
mod own_shapes;
mod padding;
mod pixels;
mod pointwise;
mod pooling;
mod products;
mod random;
mod reductions;
mod scatters;
mod sorting;
mod upsampling;
mod views;

use crate::dispatch::library::Library;
use crate::error::Result;

/// Registers the operators of one file of this folder.
type Area = fn(&mut Library) -> Result<()>;

/// Every file of this folder that registers operators.
const AREAS: &[Area] = &[
    activations::register,
    adaptive::register,
    attention::register,
    batch_norm::register,
    choices::register,
    classification::register,
    conversions::register,
    convolution::register,
    einsum::register,
    factories::register,
    indexing::register,
    joins::register,
    losses::register,
    normalization::register,
    norms::register,
    numbers::register,
    own_shapes::register,
    pointwise::register,
    padding::register,
    pixels::register,
    pooling::register,
    products::register,
    random::register,
    reductions::register,
    scatters::register,
    sorting::register,
    upsampling::register,
    views::register,
];

/// Registers every composite operator in the registry of this process; dropping the library undoes it.
///
/// # Errors
/// If one is already defined.
pub(crate) fn register(libraries: &mut Vec<Library>) -> Result<()> {
    let mut library = Library::fragment("aten")?;
    for register in AREAS {
        register(&mut library)?;
    }
    libraries.push(library);
    Ok(())
}
