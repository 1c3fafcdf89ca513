//! Elements of inputs from a counter: element `i` of the operand with number `seed` depends on these two alone.
//!
//! They are plain numbers, so that workers of other libraries see the same bits.

/// Uniform in `[low, high)`.
pub(crate) fn uniform(seed: u64, count: usize, low: f32, high: f32) -> Vec<f32> {
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

/// `factor * uniform[-1, 1) + shift`.
pub(crate) fn affine(seed: u64, count: usize, factor: f32, shift: f32) -> Vec<f32> {
    uniform(seed, count, -1.0, 1.0).into_iter().map(|value| value * factor + shift).collect()
}

/// What the weight of a layer with so many inputs is scaled by.
pub(crate) fn weight_scale(inputs: usize) -> f32 {
    (1.0 / (inputs as f64).sqrt()) as f32
}

/// 0, and -1e9 above the diagonal of a square.
pub(crate) fn causal_mask(size: usize) -> Vec<f32> {
    (0..size * size).map(|i| if i % size > i / size { -1e9 } else { 0.0 }).collect()
}

/// One-hot targets: row `i` has its one in column `7 i mod 10`.
pub(crate) fn targets(rows: usize) -> Vec<f32> {
    (0..rows * 10).map(|at| if 7 * (at / 10) % 10 == at % 10 { 1.0 } else { 0.0 }).collect()
}
