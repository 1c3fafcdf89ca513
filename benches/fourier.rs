#![allow(clippy::print_stdout, reason = "a benchmark prints its figure")]
//! The worker of `scripts/fourier.sh`: Fourier transforms ([`worker`]). `fft 1000x1024` transforms 1000 lines, `fft-0`
//! goes along the first dim, and `fft2` along both.

mod worker;

use opfuse::dispatch::{Dispatcher, Stack, Value};
use opfuse::{DType, Error, Result, Tensor};
use worker::Call;

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

fn row(name: &str, sizes: [usize; 2], dtype: DType) -> Result<Call> {
    let x = operand(name, sizes, dtype)?;
    let name = name.to_owned();
    Ok(Box::new(move || run(&name, &x, sizes)))
}

fn main() -> Result<()> {
    worker::run("fourier", "PyTorch and SciPy", row)
}
