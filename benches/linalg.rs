#![allow(clippy::print_stdout, reason = "a benchmark prints its figure")]
//! The worker of `scripts/linalg.sh`: times one row of linear algebra.
//!
//! `linalg ROW DTYPE THREADS SECONDS` prints the microseconds of the fastest call within so many seconds, after two
//! calls that are not counted. The matrices are `X Xᵀ / n + 1`, of numbers that the other workers have too.

use opfuse::device::pool;
use opfuse::{DType, Error, Result, Tensor};
use std::hint::black_box;
use std::time::{Duration, Instant};

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

fn run(row: &str, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match row.split(' ').next().unwrap_or(row) {
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

/// `cholesky 500x64` has 500 matrices of order 64.
fn sizes(row: &str) -> Option<[usize; 3]> {
    let (count, order) = row.split_once(' ')?.1.split_once('x')?;
    let (count, order) = (count.parse().ok()?, order.parse().ok()?);
    Some([count, order, order])
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.is_empty() {
        println!("scripts/linalg.sh compares with PyTorch and NumPy");
        return Ok(());
    }
    let [row, dtype, threads, seconds] = &words[..] else {
        return Err(Error::argument("linalg", "usage: linalg ROW DTYPE THREADS SECONDS"));
    };
    let misread = |_| Error::argument("linalg", "THREADS and SECONDS are whole numbers");
    let (threads, seconds): (usize, u64) = (threads.parse().map_err(misread)?, seconds.parse().map_err(misread)?);
    let sizes = sizes(row).ok_or_else(|| Error::argument("linalg", format!("{row} has no sizes")))?;
    let dtype = if dtype == "f32" { DType::F32 } else { DType::F64 };
    let a = matrices(&sizes, dtype)?;
    let b = Tensor::from_slice(&numbers(sizes[0] * sizes[1]), &[sizes[0], sizes[1], 1])?.to_dtype(dtype)?;
    let best = pool::with_threads(threads, || -> Result<Duration> {
        let (begin, mut best) = (Instant::now(), Duration::MAX);
        for call in 0.. {
            let start = Instant::now();
            black_box(run(row, &a, &b)?);
            if call >= 2 {
                best = best.min(start.elapsed());
                if begin.elapsed() > Duration::from_secs(seconds) {
                    break;
                }
            }
        }
        Ok(best)
    })?;
    println!("{:.2}", best.as_secs_f64() * 1e6);
    Ok(())
}
