//! The workloads that libraries are compared by.
//!
//! A workload is a function over tensors, its inputs, and what the outputs must add up to: the sum over outputs of
//! `mean(|y| + y²)`. Inputs are counter-based, so every library that runs a workload sees the same bits. Eager and
//! compiled runs call the very same function.

mod elementwise;
pub(crate) mod inputs;
mod models;
mod rows;
mod values;

use opfuse::ir::DType;
use opfuse::{Result, Tensor};

pub(crate) use inputs::uniform;

/// What is run: inputs in the order of their seeds, outputs in the order of the definition.
pub(crate) type Function = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// One workload.
pub(crate) struct Workload {
    /// Its number; a `p` at the end stands for "in parts", where the plain number is one library call.
    pub(crate) id: &'static str,
    /// What it computes.
    pub(crate) what: &'static str,
    pub(crate) inputs: fn() -> Result<Vec<Tensor>>,
    pub(crate) run: Function,
    /// What the outputs add up to, as other libraries found it; they must agree to [`TOLERANCE`].
    pub(crate) check: f64,
}

impl Workload {
    /// What the outputs that are judged add up to: of a training step the loss alone.
    pub(crate) fn check_of(&self, outputs: &[Tensor]) -> Result<f64> {
        check(if self.id == "W14" { &outputs[..1] } else { outputs })
    }
}

/// How far the check value may be off, relatively.
pub(crate) const TOLERANCE: f64 = 2e-3;

/// Every workload, in order of its number.
pub(crate) fn all() -> Vec<Workload> {
    let mut all: Vec<Workload> =
        elementwise::WORKLOADS.into_iter().chain(rows::WORKLOADS).chain(models::WORKLOADS).collect();
    all.sort_by_key(|workload| workload.id);
    all
}

/// The workload of that number.
pub(crate) fn find(id: &str) -> Workload {
    all().into_iter().find(|workload| workload.id == id).expect("numbers in the sources name workloads")
}

/// What the outputs add up to.
fn check(outputs: &[Tensor]) -> Result<f64> {
    let mut total = 0.0;
    for output in outputs {
        let values = output.to_dtype(DType::F32)?.to_vec::<f32>()?;
        let sum: f64 = values.iter().map(|&y| f64::from(y)).map(|y| y.abs() + y * y).sum();
        total += sum / values.len() as f64;
    }
    Ok(total)
}

/// Whether outputs agree in dtype, sizes and every bit.
pub(crate) fn same_bits(left: &[Tensor], right: &[Tensor]) -> Result<bool> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for (left, right) in left.iter().zip(right) {
        let typed = left.dtype() == right.dtype() && left.sizes() == right.sizes();
        if !typed || bytes(left)? != bytes(right)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The elements in logical order.
fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let dense = tensor.contiguous()?;
    let (array, size) = (dense.array(), dense.dtype().size());
    let start = array.layout().offset * size;
    Ok(array.storage().read(|bytes| bytes[start..start + dense.numel() * size].to_vec()))
}
