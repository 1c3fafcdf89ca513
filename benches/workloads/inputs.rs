//! Inputs from a counter: element `i` of the operand with number `seed` depends on the two alone.

use opfuse::{Result, Tensor};

/// Uniform in `[low, high)`.
pub(crate) fn uniform_in(seed: u64, sizes: &[usize], low: f32, high: f32) -> Result<Tensor> {
    Tensor::from_slice(&values(seed, sizes.iter().product(), low, high), sizes)
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
    let scale = (1.0 / (inputs as f64).sqrt()) as f32;
    affine(seed, &[inputs, outputs], scale, 0.0)
}

/// `factor * uniform + shift`.
pub(super) fn affine(seed: u64, sizes: &[usize], factor: f32, shift: f32) -> Result<Tensor> {
    let values = values(seed, sizes.iter().product(), -1.0, 1.0).into_iter().map(|value| value * factor + shift);
    Tensor::from_slice(&values.collect::<Vec<f32>>(), sizes)
}

/// 0, and -1e9 above the diagonal.
pub(super) fn causal_mask(size: usize) -> Result<Tensor> {
    let values = (0..size * size).map(|i| if i % size > i / size { -1e9 } else { 0.0 });
    Tensor::from_slice(&values.collect::<Vec<f32>>(), &[size, size])
}

fn values(seed: u64, count: usize, low: f32, high: f32) -> Vec<f32> {
    let span = high - low;
    let value = |i: u64| {
        let mut z = (seed << 40).wrapping_add(i).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        low + span * ((z >> 40) as f32 * (1.0 / 16_777_216.0))
    };
    (0..count as u64).map(value).collect()
}
