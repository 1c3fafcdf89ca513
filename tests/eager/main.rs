//! What eager calls do: methods and operators of tensors, layers, random numbers, sorts, products, gradients, text.

mod added_windows;
mod api;
mod autograd;
mod batch_rows;
mod complex_numbers;
mod complex_windows;
mod crosswise;
#[path = "../common/effort.rs"]
mod effort;
#[cfg(feature = "fourier")]
mod fourier_transforms;
mod gathered_rows;
mod incomplete_gamma;
mod long_lines;
mod narrow_matrices;
mod nn;
mod product_rows;
mod random;
mod routines;
mod scattered_lines;
mod short_columns;
mod special_functions;
mod text;
#[cfg(feature = "tracing")]
mod tracing_spans;
#[path = "../common/values.rs"]
mod values;
mod whole;
