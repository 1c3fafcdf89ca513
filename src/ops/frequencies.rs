//! The frequencies of the elements of a Fourier transform.
//!
//! Numbers are computed in f64 and rounded once. A trace keeps them as a constant.

use crate::device::{Device, roomy};
use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::library::Library;
use crate::dispatch::value::TensorLayout;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::arguments::{check_storage, count};
use crate::tensor::handle::Tensor;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    for (op, is_half) in [("fft_fftfreq", false), ("fft_rfftfreq", true)] {
        library.def_kernel(
            &format!(
                "{op}(int n, float d=1.0, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? \
                 pin_memory=None) -> Tensor"
            ),
            move |n: i64,
                  d: f64,
                  dtype: Option<DType>,
                  layout: Option<TensorLayout>,
                  device: Option<Device>,
                  pin_memory: Option<bool>| {
                check_storage(op, layout, pin_memory)?;
                let numbers = if is_half { half(op, n, d)? } else { whole(op, n, d)? };
                placed(op, &numbers, dtype, device)
            },
        )?;
    }
    Ok(())
}

/// `0, 1, …, -2, -1` over `n d`: those from the middle on are negative.
fn whole(op: &str, n: i64, d: f64) -> Result<Vec<f64>> {
    let mut numbers = roomy(count(op, n)?)?;
    let unit = 1.0 / (n as f64 * d);
    numbers.extend((0..n).map(|k| if k < (n + 1) / 2 { k } else { k - n }).map(|k| k as f64 * unit));
    Ok(numbers)
}

/// `0, 1, …, n / 2` over `n d`.
fn half(op: &str, n: i64, d: f64) -> Result<Vec<f64>> {
    let mut numbers = roomy(count(op, n)? / 2 + 1)?;
    let unit = 1.0 / (n as f64 * d);
    numbers.extend((0..=n / 2).map(|k| k as f64 * unit));
    Ok(numbers)
}

fn placed(op: &str, numbers: &[f64], dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    let dtype = dtype.unwrap_or(default_dtype());
    if !dtype.is_float() {
        return Err(Error::unsupported(op, dtype, "floats", "leave the dtype out, or ask for f32 or f64"));
    }
    // A trace keeps the numbers, and each call of its program returns a tensor of its own.
    let made = Tensor::from_slice(numbers, &[numbers.len()])?.copy()?;
    made.to_dtype(dtype)?.to_device(device.unwrap_or(Device::CPU))
}
