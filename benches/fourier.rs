#![allow(clippy::print_stdout, reason = "a benchmark prints its figure")]
//! The worker of `scripts/fourier.sh`: times one row of Fourier transforms.
//!
//! `fourier ROW DTYPE THREADS SECONDS` prints the microseconds of the fastest call within so many seconds, after two
//! calls that are not counted. A row is a transform and sizes. `fft 1000x1024` transforms 1000 lines, `fft-0` goes
//! along the first dim, and `fft2` along both.

use opfuse::device::pool;
use opfuse::dispatch::{Dispatcher, Stack, Value};
use opfuse::{DType, Error, Result, Tensor};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Calls a row of the op table whose arguments are a tensor, a dim, `middle` and a scale.
fn call(name: &str, x: &Tensor, dim: i64, middle: Value, scale: f64) -> Result<Tensor> {
    let mut stack: Stack =
        [Value::Tensor(x.clone()), Value::Int(dim), middle, Value::Float(scale)].into_iter().collect();
    Dispatcher::global().lookup(name)?.call_boxed(&mut stack)?;
    match stack.pop() {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        _ => Err(Error::argument("fourier", format!("{name} gave no tensor"))),
    }
}

fn fft(x: &Tensor, dim: i64) -> Result<Tensor> {
    call("aten::_fft_pairs", x, dim, Value::Bool(true), 1.0)
}

fn rfft(x: &Tensor, dim: i64) -> Result<Tensor> {
    call("aten::_rfft_pairs", x, dim, Value::Bool(true), 1.0)
}

fn irfft(x: &Tensor, dim: i64, n: usize) -> Result<Tensor> {
    call("aten::_irfft_pairs", x, dim, Value::Int(n as i64), 1.0 / n as f64)
}

/// The operand of a row: real numbers, pairs of them, or the pairs that belong to real numbers.
fn operand(name: &str, [rows, columns]: [usize; 2], dtype: DType) -> Result<Tensor> {
    let sizes = match name {
        "rfft" | "rfft-0" | "rfft2" => vec![rows, columns],
        "irfft" => vec![rows, columns / 2 + 1, 2],
        "irfft-0" => vec![rows / 2 + 1, columns, 2],
        _pairs => vec![rows, columns, 2],
    };
    let count: usize = sizes.iter().product();
    let numbers: Vec<f64> = (0..count).map(|at| (at as f64 * 0.7).sin()).collect();
    Tensor::from_slice(&numbers, &sizes)?.to_dtype(dtype)
}

fn run(name: &str, x: &Tensor, [rows, columns]: [usize; 2]) -> Result<Tensor> {
    match name {
        "fft" => fft(x, 1),
        "fft-0" => fft(x, 0),
        "fft2" => fft(&fft(x, 1)?, 0),
        "rfft" => rfft(x, 1),
        "rfft-0" => rfft(x, 0),
        "rfft2" => fft(&rfft(x, 1)?, 0),
        "irfft" => irfft(x, 1, columns),
        "irfft-0" => irfft(x, 0, rows),
        other => Err(Error::argument("fourier", format!("no row {other}"))),
    }
}

fn sizes(row: &str) -> Option<(&str, [usize; 2])> {
    let (name, sizes) = row.split_once(' ')?;
    let (rows, columns) = sizes.split_once('x')?;
    Some((name, [rows.parse().ok()?, columns.parse().ok()?]))
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.is_empty() {
        println!("scripts/fourier.sh compares with PyTorch and SciPy");
        return Ok(());
    }
    let [row, dtype, threads, seconds] = &words[..] else {
        return Err(Error::argument("fourier", "usage: fourier ROW DTYPE THREADS SECONDS"));
    };
    let misread = |_| Error::argument("fourier", "THREADS and SECONDS are whole numbers");
    let threads: usize = threads.parse().map_err(misread)?;
    let seconds: u64 = seconds.parse().map_err(misread)?;
    let (name, sizes) = sizes(row).ok_or_else(|| Error::argument("fourier", format!("{row} has no sizes")))?;
    let x = operand(name, sizes, if dtype == "f32" { DType::F32 } else { DType::F64 })?;
    let best = pool::with_threads(threads, || -> Result<Duration> {
        let (begin, mut best) = (Instant::now(), Duration::MAX);
        for call in 0.. {
            let start = Instant::now();
            black_box(run(name, &x, sizes)?);
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
