//! Muon (Jordan et al. 2024): the momentum of a matrix, made nearly orthogonal by a few products.
//!
//! Products are computed in the dtype of the parameter, at least f32. PyTorch computes them in bf16, so its
//! trajectories differ in the third digit.

use super::optimizer::{Rule, StepTensors, in_range, moved, shrunk};
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::tensor::Tensor;

/// Muon, for matrices: give embeddings, biases and the last layer to a group of [`AdamW`](super::AdamW). Defaults are
/// PyTorch's.
#[derive(Debug, Clone, PartialEq)]
pub struct Muon {
    /// The learning rate, for square matrices. Taller ones get more: times the root of rows by columns.
    pub lr: f64,
    /// How much a parameter shrinks, times the learning rate.
    pub weight_decay: f64,
    /// How much of the momentum is kept.
    pub momentum: f64,
    /// Whether the momentum looks ahead.
    pub nesterov: bool,
    /// The number of iterations.
    pub iterations: usize,
}

impl Default for Muon {
    fn default() -> Self {
        Muon { lr: 1e-3, weight_decay: 0.1, momentum: 0.95, nesterov: true, iterations: 5 }
    }
}

/// The coefficients of an iteration: `a x + b (x x') x + c (x x')² x`.
const QUINTIC: (f64, f64, f64) = (3.4445, -4.775, 2.0315);

/// A nearly orthogonal matrix with the singular vectors of `x`, by Newton-Schulz iterations.
fn orthogonalized(x: &Tensor, iterations: usize) -> Result<Tensor> {
    let wide = if x.dtype() == DType::F64 { x.clone() } else { x.to_dtype(DType::F32)? };
    let is_tall = x.sizes()[0] > x.sizes()[1];
    let mut x = if is_tall { wide.t()? } else { wide };
    x = x.div(x.norm(2.0, (), false)?.clamp_min(1e-7)?)?;
    let (a, b, c) = QUINTIC;
    for _ in 0..iterations {
        let gram = x.mm(&x.t()?)?;
        let mixed = gram.mul(b)?.add(gram.mm(&gram)?.mul(c)?)?;
        x = x.mul(a)?.add(mixed.mm(&x)?)?;
    }
    if is_tall { x.t() } else { Ok(x) }
}

impl Rule for Muon {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        vec![("momentum_buffer", 0.0)]
    }

    fn update(&self, x: &Tensor, gradient: &Tensor, state: &[Tensor], step: &StepTensors) -> Result<()> {
        let momentum = moved(&state[0], gradient, 1.0 - self.momentum)?;
        state[0].copy_(&momentum)?;
        let along = if self.nesterov { moved(gradient, &momentum, self.momentum)? } else { momentum };
        let ratio = x.sizes()[0] as f64 / x.sizes()[1].max(1) as f64;
        let lr = step.lr.mul(ratio.max(1.0).sqrt())?;
        let change = orthogonalized(&along, self.iterations)?.mul(&lr)?;
        x.copy_(&shrunk(x, &step.lr, self.weight_decay)?.sub(&change)?)
    }

    fn check(&self, parameter: &Tensor) -> Result<()> {
        in_range("Muon", "lr", self.lr, f64::INFINITY)?;
        in_range("Muon", "momentum", self.momentum, 1.0)?;
        if parameter.dim() != 2 {
            let what = format!("a parameter has sizes {:?}", parameter.sizes());
            return Err(Error::shape("Muon", what, "it is for matrices; give others to a group of AdamW"));
        }
        Ok(())
    }
}
