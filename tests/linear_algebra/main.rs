//! Linear algebra: what defines a factorization holds, gradients are those of differences, and bits do not depend on
//! how a call is made. Recorded results of PyTorch are in `tests/golden_linalg`.

mod complex;
mod errors;
mod gradients;
mod identities;
mod same_bits;

use opfuse::{DType, Result, Tensor};

/// Numbers without a pattern, between -1 and 1.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn matrices(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let count = sizes.iter().product();
    Tensor::from_slice(&numbers(count, count as u64 + 1), sizes)?.to_dtype(dtype)
}

/// Rows and columns swapped.
fn mt(x: &Tensor) -> Result<Tensor> {
    x.transpose(-2, -1)
}

/// Positive definite matrices.
fn positive(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let x = matrices(sizes, dtype)?;
    let order = sizes[sizes.len() - 1];
    x.matmul(&mt(&x)?)?.add(&Tensor::eye(order, dtype)?)
}

/// Matrices that are far from singular.
fn regular(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let order = sizes[sizes.len() - 1];
    matrices(sizes, dtype)?.add(&Tensor::eye(order, dtype)?.mul(2.0)?)
}

/// The same elements in other layouts.
fn layouts(x: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
    let wide = Tensor::zeros(&[x.sizes(), &[2]].concat(), x.dtype())?;
    let sliced = wide.select(-1, 1)?;
    sliced.copy_(x)?;
    Ok(vec![("contiguous", x.clone()), ("transposed", mt(&mt(x)?.contiguous()?)?), ("sliced", sliced)])
}

/// The greatest difference of two tensors of one shape; 0 without elements.
fn distance(a: &Tensor, b: &Tensor) -> Result<f64> {
    assert_eq!(a.sizes(), b.sizes());
    if a.numel() == 0 {
        return Ok(0.0);
    }
    let worst = a.to_dtype(DType::F64)?.sub(&b.to_dtype(DType::F64)?)?.abs()?.amax((), false)?;
    worst.item::<f64>()
}

/// How far results may be from the identities that define them.
fn tolerance(dtype: DType, order: usize) -> f64 {
    let epsilon = if dtype == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    epsilon * 40.0 * (order.max(4) as f64)
}
