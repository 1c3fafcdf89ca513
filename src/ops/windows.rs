//! Windows of signal processing: weights of a line of samples that fall towards its ends (Harris 1978).
//!
//! A periodic window is a symmetric one of one sample more without its last sample. The weights are computed in f64 and
//! rounded once.

use crate::device::{Device, roomy};
use crate::dispatch::key::default_dtype::default_dtype;
use crate::dispatch::library::Library;
use crate::dispatch::value::TensorLayout;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::arguments::check_storage;
use crate::tensor::handle::Tensor;
use std::f64::consts::TAU;

/// The weight at a place from 0 (the first sample) to 1 (the last one).
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// `first - second * cos(2 pi t)`.
    Cosine {
        first: f64,
        second: f64,
    },
    Blackman,
    /// A triangle.
    Bartlett,
    /// `I0(beta * sqrt(1 - (2 t - 1)^2)) / I0(beta)` (Kaiser 1974).
    Kaiser {
        beta: f64,
    },
}

impl Shape {
    const HANN: Shape = Shape::Cosine { first: 0.5, second: 0.5 };
    const HAMMING: Shape = Shape::Cosine { first: 0.54, second: 0.46 };
    const KAISER: Shape = Shape::Kaiser { beta: 12.0 };

    fn weight(self, t: f64) -> f64 {
        match self {
            Shape::Cosine { first, second } => first - second * (TAU * t).cos(),
            Shape::Blackman => 0.42 - 0.5 * (TAU * t).cos() + 0.08 * (2.0 * TAU * t).cos(),
            Shape::Bartlett => 1.0 - (2.0 * t - 1.0).abs(),
            Shape::Kaiser { beta } => {
                let place = 2.0 * t - 1.0;
                bessel_i0(beta * (1.0 - place * place).max(0.0).sqrt()) / bessel_i0(beta)
            }
        }
    }
}

/// The modified Bessel function of the first kind and order 0, by its power series. All terms are positive, so none
/// cancels.
fn bessel_i0(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut term, mut sum, mut k) = (1.0, 1.0, 1.0);
    while term > sum * f64::EPSILON / 4.0 {
        term *= quarter / (k * k);
        sum += term;
        k += 1.0;
    }
    sum
}

/// Where a factory puts its result: dtype, layout, device and whether memory is pinned.
type Place = (Option<DType>, Option<TensorLayout>, Option<Device>, Option<bool>);

pub(crate) fn register(library: &mut Library) -> Result<()> {
    for (op, shape) in [
        ("hann_window", Shape::HANN),
        ("hamming_window", Shape::HAMMING),
        ("blackman_window", Shape::Blackman),
        ("bartlett_window", Shape::Bartlett),
        ("kaiser_window", Shape::KAISER),
    ] {
        library
            .def_kernel(
                &schema(op, "(int window_length"),
                move |length: i64,
                      dtype: Option<DType>,
                      layout: Option<TensorLayout>,
                      device: Option<Device>,
                      pin_memory: Option<bool>| {
                    window(op, shape, length, true, (dtype, layout, device, pin_memory))
                },
            )?
            .def_kernel(
                &schema(op, ".periodic(int window_length, bool periodic"),
                move |length: i64,
                      is_periodic: bool,
                      dtype: Option<DType>,
                      layout: Option<TensorLayout>,
                      device: Option<Device>,
                      pin_memory: Option<bool>| {
                    window(op, shape, length, is_periodic, (dtype, layout, device, pin_memory))
                },
            )?;
    }
    with_numbers(library)
}

/// The forms that take numbers of the shape.
fn with_numbers(library: &mut Library) -> Result<()> {
    for (op, overload) in [("hamming_window", "periodic_alpha"), ("kaiser_window", "beta")] {
        let number = if op == "kaiser_window" { "beta" } else { "alpha" };
        library.def_kernel(
            &schema(op, &format!(".{overload}(int window_length, bool periodic, float {number}")),
            move |length: i64,
                  is_periodic: bool,
                  number: f64,
                  dtype: Option<DType>,
                  layout: Option<TensorLayout>,
                  device: Option<Device>,
                  pin_memory: Option<bool>| {
                let shape = match op {
                    "kaiser_window" => Shape::Kaiser { beta: number },
                    _hamming => Shape::Cosine { first: number, second: 0.46 },
                };
                window(op, shape, length, is_periodic, (dtype, layout, device, pin_memory))
            },
        )?;
    }
    library.def_kernel(
        &schema("hamming_window", ".periodic_alpha_beta(int window_length, bool periodic, float alpha, float beta"),
        |length: i64,
         is_periodic: bool,
         first: f64,
         second: f64,
         dtype: Option<DType>,
         layout: Option<TensorLayout>,
         device: Option<Device>,
         pin_memory: Option<bool>| {
            let shape = Shape::Cosine { first, second };
            window("hamming_window", shape, length, is_periodic, (dtype, layout, device, pin_memory))
        },
    )?;
    Ok(())
}

fn schema(op: &str, arguments: &str) -> String {
    format!(
        "{op}{arguments}, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? \
         pin_memory=None) -> Tensor"
    )
}

fn window(op: &str, shape: Shape, length: i64, is_periodic: bool, place: Place) -> Result<Tensor> {
    let (dtype, layout, device, pin_memory) = place;
    check_storage(op, layout, pin_memory)?;
    let dtype = dtype.unwrap_or(default_dtype());
    if !dtype.is_float() {
        return Err(Error::unsupported(op, dtype, "floats", "leave the dtype out, or ask for f32 or f64"));
    }
    if let Shape::Kaiser { beta } = shape
        && (beta.is_nan() || beta.abs() > 700.0)
    {
        return Err(Error::argument(op, format!("beta is {beta}; between -700 and 700 the weights are finite")));
    }
    let length = usize::try_from(length)
        .map_err(|_| Error::argument(op, format!("window_length is {length}, but must be non-negative")))?;
    let steps = if is_periodic { length } else { length.saturating_sub(1) };
    let mut weights: Vec<f64> = roomy(length)?;
    match length {
        1 => weights.push(1.0),
        _more => weights.extend((0..length).map(|at| shape.weight(at as f64 / steps as f64))),
    }
    // A trace keeps the numbers, and each call of its program returns a tensor of its own.
    Tensor::from_slice(&weights, &[length])?.copy()?.to_dtype(dtype)?.to_device(device.unwrap_or(Device::CPU))
}
