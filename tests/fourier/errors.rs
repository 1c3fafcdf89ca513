//! Calls that make no sense, and calls for which there is no memory.

use crate::{fft, irfft, numbers, rfft};
use opfuse::device::allocator::Fault;
use opfuse::device::pool;
use opfuse::{DType, Error, Result, Tensor};

fn message(result: Result<Tensor>) -> String {
    result.expect_err("the call makes no sense").to_string()
}

#[test]
fn errors_say_what_to_do() -> Result<()> {
    let x = numbers(&[3, 4, 2], DType::F32)?;
    let no_line = Tensor::zeros(&[3, 0, 2], DType::F32)?;
    let cases = [
        (message(fft(&x, 2, true, 1.0)), "fft_pairs", "dim 2 of shape [3, 4, 2] holds the parts"),
        (message(fft(&x, -1, true, 1.0)), "fft_pairs", "transform along a dim before it"),
        (message(fft(&x, 3, true, 1.0)), "fft_pairs", "out of range"),
        (
            message(fft(&x.narrow(2, 0, 1)?, 0, true, 1.0)),
            "fft_pairs",
            "last dim of size 2, but the shape is [3, 4, 1]",
        ),
        (message(fft(&x.select(0, 0)?.select(0, 0)?, 0, true, 1.0)), "fft_pairs", "stack real and imaginary parts"),
        (message(fft(&no_line, 1, true, 1.0)), "fft_pairs", "transform at least one element"),
        (message(fft(&x.to_dtype(DType::F16)?, 0, true, 1.0)), "fft_pairs", "not implemented for f16"),
        (message(fft(&x.to_dtype(DType::I64)?, 0, true, 1.0)), "fft_pairs", "convert with to_dtype"),
        (message(rfft(&x, 3, true, 1.0)), "rfft_pairs", "out of range"),
        (message(rfft(&no_line, 1, true, 1.0)), "rfft_pairs", "transform at least one element"),
        (message(rfft(&Tensor::full(&[], 1.0, DType::F32)?, 0, true, 1.0)), "rfft_pairs", "without dims"),
        (message(rfft(&x.to_dtype(DType::BF16)?, 0, true, 1.0)), "rfft_pairs", "not implemented for bf16"),
        (message(rfft(&x.to_dtype(DType::Bool)?, 0, true, 1.0)), "rfft_pairs", "not implemented for bool"),
        (message(irfft(&x, 1, 5, 1.0)), "irfft_pairs", "4 elements in dim 1 of shape [3, 4, 2]"),
        (message(irfft(&x, 1, 5, 1.0)), "irfft_pairs", "a result of 5 elements is made of 3; pad or cut the dim"),
        (message(irfft(&x, 1, 0, 1.0)), "irfft_pairs", "transform at least one element"),
        (message(irfft(&x, 1, -7, 1.0)), "irfft_pairs", "transform at least one element"),
        (message(irfft(&x, -1, 2, 1.0)), "irfft_pairs", "dim -1 of shape [3, 4, 2] holds the parts"),
        (message(irfft(&x.to_dtype(DType::I32)?, 1, 7, 1.0)), "irfft_pairs", "not implemented for i32"),
    ];
    for (message, op, within) in cases {
        assert!(message.contains(op) && message.contains(within), "{message}");
    }
    Ok(())
}

#[test]
fn no_memory_is_an_error() -> Result<()> {
    type Function = fn(&Tensor) -> Result<Tensor>;
    let functions: [Function; 3] = [|x| fft(x, 0, true, 1.0), |x| rfft(x, 1, true, 1.0), |x| irfft(x, 0, 199, 1.0)];
    let x = numbers(&[100, 1000, 2], DType::F32)?;
    for function in functions {
        pool::with_threads(1, || -> Result<()> {
            let expected = function(&x)?.to_vec::<f32>()?;
            // The result, and then the memory for copied lines.
            for others in [0, 1] {
                let fault = Fault::after(others);
                let failed = function(&x);
                assert!(fault.has_struck() && matches!(failed, Err(Error::OutOfMemory { .. })), "{others}: {failed:?}");
                drop(fault);
                assert_eq!(function(&x)?.to_vec::<f32>()?, expected);
            }
            Ok(())
        })?;
    }
    Ok(())
}
