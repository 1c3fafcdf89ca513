#![allow(clippy::print_stdout, reason = "a benchmark prints its figure")]
//! The worker of `scripts/linalg.sh`: linear algebra ([`worker`]). `cholesky 500x64` has 500 matrices of order 64.
//!
//! The matrices are `X Xᵀ / n + 1`, of numbers that the other workers have too.

mod worker;

use opfuse::{DType, Error, Result, Tensor};
use worker::Call;

/// Numbers between -1 and 1 from a recurrence that NumPy computes too.
fn numbers(count: usize) -> Vec<f64> {
    let next = |state: &mut u64| {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let mut state = 1;
    (0..count).map(|_| next(&mut state)).collect()
}

fn matrices(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let order = sizes[sizes.len() - 1];
    let x = Tensor::from_slice(&numbers(sizes.iter().product()), sizes)?;
    let a = x.matmul(&x.transpose(-1, -2)?)?.div(order as f64)?.add(&Tensor::eye(order, DType::F64)?)?;
    a.to_dtype(dtype)
}

fn run(name: &str, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match name {
        "cholesky" => a.linalg_cholesky(false),
        "solve" => a.linalg_solve(b),
        "inv" => a.linalg_inv(),
        "det" => a.linalg_det(),
        "svd" => Ok(a.linalg_svd(false)?.1),
        "svdvals" => a.linalg_svdvals(),
        "eigh" => Ok(a.linalg_eigh()?.0),
        "qr" => Ok(a.linalg_qr()?.1),
        other => Err(Error::argument("linalg", format!("no row {other}"))),
    }
}

fn call(name: &str, [count, order]: [usize; 2], dtype: DType) -> Result<Call> {
    let a = matrices(&[count, order, order], dtype)?;
    let b = Tensor::from_slice(&numbers(count * order), &[count, order, 1])?.to_dtype(dtype)?;
    let name = name.to_owned();
    Ok(Box::new(move || run(&name, &a, &b)))
}

fn main() -> Result<()> {
    worker::run("linalg", "PyTorch and NumPy", call)
}
