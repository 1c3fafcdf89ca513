//! Fourier transforms of real tensors and of pairs. Values are compared with the sums that define them, gradients with
//! differences, and bits do not depend on how a call is made.

mod errors;
mod gradients;
mod same_bits;
mod values;

use opfuse::dispatch::{Dispatcher, Stack, Value};
use opfuse::{DType, Error, Result, Tensor};

/// Calls an operator that has one result.
fn call(name: &str, arguments: impl IntoIterator<Item = Value>) -> Result<Tensor> {
    let mut stack: Stack = arguments.into_iter().collect();
    Dispatcher::global().lookup(name)?.call_boxed(&mut stack)?;
    match stack.pop() {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        other => Err(Error::argument("test", format!("{name} has no tensor as result, but {other:?}"))),
    }
}

/// The transform of pairs.
fn fft(x: &Tensor, dim: i64, forward: bool, scale: f64) -> Result<Tensor> {
    let arguments = [Value::Tensor(x.clone()), Value::Int(dim), Value::Bool(forward), Value::Float(scale)];
    call("aten::_fft_pairs", arguments)
}

/// The forward transform of real numbers.
fn rfft(x: &Tensor, dim: i64, onesided: bool, scale: f64) -> Result<Tensor> {
    let arguments = [Value::Tensor(x.clone()), Value::Int(dim), Value::Bool(onesided), Value::Float(scale)];
    call("aten::_rfft_pairs", arguments)
}

/// The backward transform to `n` real numbers.
fn irfft(x: &Tensor, dim: i64, n: i64, scale: f64) -> Result<Tensor> {
    let arguments = [Value::Tensor(x.clone()), Value::Int(dim), Value::Int(n), Value::Float(scale)];
    call("aten::_irfft_pairs", arguments)
}

/// Numbers without a pattern, between -1 and 1.
fn numbers(sizes: &[usize], dtype: DType) -> Result<Tensor> {
    let count: usize = sizes.iter().product();
    let mut state = (count as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let numbers: Vec<f64> = (0..count).map(|_| next()).collect();
    Tensor::from_slice(&numbers, sizes)?.to_dtype(dtype)
}

fn bits(x: &Tensor) -> Result<Vec<u64>> {
    Ok(x.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().map(|x| x.to_bits()).collect())
}
