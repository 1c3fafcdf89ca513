//! Rows for GPUs: memory's speed, long rows, 16-bit floats, large products, and what a launch costs.
//!
//! They are defined small, and the driver scales them. What they add up to is compared between libraries.

use crate::workloads::{Workload, uniform};
use opfuse::ir::DType;
use opfuse::{Result, Tensor};

/// What outputs add up to depends on the scale.
const UNKNOWN: f64 = f64::NAN;

const WIDE: [usize; 2] = [4096, 1024];
const LONG: [usize; 2] = [64, 16_384];

/// Every row; `b` at the end stands for bf16.
pub(crate) const WORKLOADS: [Workload; 13] = [
    row("G01", "copy", || wide(1), copy),
    row("G02", "a + b", || wide(2), sum),
    row("G02b", "a + b in bf16", || narrow(wide(2)), sum),
    row("G03b", "softmax in bf16", || narrow(wide(1)), softmax),
    row("G03l", "softmax of long rows", || Ok(vec![uniform(1, &LONG)?]), softmax),
    row("G04b", "layer norm in bf16", || narrow(normed(WIDE)), layer_norm),
    row("G04l", "layer norm of long rows", || normed(LONG), layer_norm),
    row("G05b", "gelu(x + bias) in bf16", || narrow(biased()), bias_gelu),
    row("G10", "gelu(x w + b), 4096", || layer(4096), linear_gelu),
    row("G10b", "gelu(x w + b), 4096, bf16", || narrow(layer(4096)), linear_gelu),
    row("G11", "gelu(x w + b), 8192", || layer(8192), linear_gelu),
    row("G11b", "gelu(x w + b), 8192, bf16", || narrow(layer(8192)), linear_gelu),
    row("G20", "100 products of 16 x 16", chained, products),
];

const fn row(
    id: &'static str,
    what: &'static str,
    inputs: fn() -> Result<Vec<Tensor>>,
    run: crate::workloads::Function,
) -> Workload {
    Workload { id, what, inputs, run, check: UNKNOWN }
}

fn narrow(tensors: Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
    tensors?.iter().map(|tensor| tensor.to_dtype(DType::BF16)).collect()
}

fn wide(count: u64) -> Result<Vec<Tensor>> {
    (1..=count).map(|seed| uniform(seed, &WIDE)).collect()
}

fn copy(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![x[0].copy()?])
}

fn sum(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![(&x[0] + &x[1])?])
}

fn softmax(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![x[0].softmax(-1)?])
}

fn normed(sizes: [usize; 2]) -> Result<Vec<Tensor>> {
    Ok(vec![uniform(1, &sizes)?, uniform(2, &sizes[1..])?, uniform(3, &sizes[1..])?])
}

fn layer_norm(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let width = x[1].numel() as i64;
    Ok(vec![x[0].layer_norm(width, Some(&x[1]), Some(&x[2]), 1e-5)?])
}

fn biased() -> Result<Vec<Tensor>> {
    Ok(vec![uniform(1, &WIDE)?, uniform(2, &WIDE[1..])?])
}

fn bias_gelu(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![(&x[0] + &x[1])?.gelu_tanh()?])
}

/// A part of a layer that repeats make square: `[1024, size]`, `[size, 1024]`, `[1024]`.
fn layer(size: usize) -> Result<Vec<Tensor>> {
    let scale = 1.0 / (size as f64).sqrt();
    Ok(vec![uniform(1, &[1024, size])?, (uniform(2, &[size, 1024])? * scale)?, uniform(3, &[1024])?])
}

fn linear_gelu(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![(x[0].matmul(&x[1])? + &x[2])?.gelu_tanh()?])
}

fn chained() -> Result<Vec<Tensor>> {
    Ok(vec![uniform(1, &[16, 16])?, (uniform(2, &[16, 16])? * 0.433)?])
}

/// Nothing can be fused: each product waits for the one before it.
fn products(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut y = x[0].clone();
    for _ in 0..100 {
        y = y.matmul(&x[1])?;
    }
    Ok(vec![y])
}
