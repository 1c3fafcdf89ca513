//! Inference: the type of every op's result, from operand types and arguments.
//!
//! Eager calls, meta tensors and traces all use these functions. Every error names the op, what was found, and what to
//! do.

mod factories;
pub mod fourier;
mod indexing;
pub mod matrices;
mod pointwise;
mod products;
mod reductions;
mod routines;
mod views;

pub use factories::{arange, full};
pub use indexing::{embedding, fits, gather, index_select, need_index};
pub use pointwise::{
    clamp, clone, division, fill, gelu, hardtanh, masked_fill, one_dtype, pointwise, polygamma, power_of_number,
    row_major, scaled, second_leads, softshrink, to_copy,
};
pub use products::{addmm, bmm, dot, mm};
pub use reductions::{
    arg_extremum, extremum, layer_norm, logsumexp, mean, reduced_dims, softmax, softmax_data, sum, truth, var,
};
pub use routines::{argsort, cumulative_indices, flat_index, recurrence, scan, scatter, topk_indices};
pub use views::{cat, joins_anything, overlay, part_of, triangle, view, window};
