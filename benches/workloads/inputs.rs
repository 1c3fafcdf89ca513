//! Inputs as tensors, of the elements that `values` gives.

use super::values;
use opfuse::{Result, Tensor};

/// Uniform in `[low, high)`.
pub(crate) fn uniform_in(seed: u64, sizes: &[usize], low: f32, high: f32) -> Result<Tensor> {
    Tensor::from_slice(&values::uniform(seed, sizes.iter().product(), low, high), sizes)
}

/// Uniform in `[-1, 1)`.
pub(crate) fn uniform(seed: u64, sizes: &[usize]) -> Result<Tensor> {
    uniform_in(seed, sizes, -1.0, 1.0)
}

/// Operands of one shape, numbered from 1.
pub(super) fn same_shaped(count: u64, sizes: &[usize]) -> Result<Vec<Tensor>> {
    (1..=count).map(|seed| uniform(seed, sizes)).collect()
}

/// The weight of a layer, `[inputs, outputs]`.
pub(super) fn weight(seed: u64, inputs: usize, outputs: usize) -> Result<Tensor> {
    affine(seed, &[inputs, outputs], values::weight_scale(inputs), 0.0)
}

/// `factor * uniform + shift`.
pub(super) fn affine(seed: u64, sizes: &[usize], factor: f32, shift: f32) -> Result<Tensor> {
    Tensor::from_slice(&values::affine(seed, sizes.iter().product(), factor, shift), sizes)
}

/// 0, and -1e9 above the diagonal.
pub(super) fn causal_mask(size: usize) -> Result<Tensor> {
    Tensor::from_slice(&values::causal_mask(size), &[size, size])
}

/// One-hot targets of ten classes.
pub(super) fn targets(rows: usize) -> Result<Tensor> {
    Tensor::from_slice(&values::targets(rows), &[rows, 10])
}
