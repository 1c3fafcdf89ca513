//! Initializers: they write to a tensor in place, and do not record gradients.
//!
//! Fans are those of PyTorch: of a weight of sizes `(out, in, …)` the fan-in is `in` times the elements of a window.

use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::ir::{DType, Scalar};
use crate::profile::stands_for;
use crate::tensor::Tensor;

/// Which fan a variance is scaled by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fan {
    /// The number of inputs of an output.
    #[default]
    In,
    /// The number of outputs that an input goes to.
    Out,
}

/// Fan-in and fan-out of a weight.
pub(crate) fn fans(weight: &Tensor) -> Result<(f64, f64)> {
    let &[outputs, inputs, ref window @ ..] = weight.sizes() else {
        let what = format!("the tensor has sizes {:?}", weight.sizes());
        return Err(Error::shape("init", what, "fans need at least two dims: outputs and inputs"));
    };
    let window: usize = window.iter().product();
    Ok(((inputs * window) as f64, (outputs * window) as f64))
}

/// Fills a tensor with a number.
///
/// # Errors
/// If the tensor cannot be written to.
#[track_caller]
pub fn constant(tensor: &Tensor, value: impl Into<Scalar>) -> Result<()> {
    let _unrecorded = no_grad();
    tensor.fill_(value)
}

/// Fills a tensor with uniform numbers from `low` to `high`.
///
/// # Errors
/// If the dtype is not floating.
#[track_caller]
pub fn uniform(tensor: &Tensor, low: f64, high: f64) -> Result<()> {
    let _unrecorded = no_grad();
    tensor.uniform_(low, high)
}

/// Fills a tensor with normal numbers.
///
/// # Errors
/// If the dtype is not floating.
#[track_caller]
pub fn normal(tensor: &Tensor, mean: f64, std: f64) -> Result<()> {
    let _unrecorded = no_grad();
    tensor.normal_(mean, std)
}

/// Fills a tensor with normal numbers between `low` and `high`: the quantiles of uniform numbers.
///
/// # Errors
/// If the dtype is not floating, or if `low` is not below `high`.
#[track_caller]
pub fn truncated_normal(tensor: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    if low >= high {
        return Err(Error::argument("truncated_normal", format!("low is {low}, and high {high}; low must be lower")));
    }
    let _place = stands_for();
    let _unrecorded = no_grad();
    // In f64, twice the probability below a bound, less 1.
    let below = |bound: f64| -> Result<f64> {
        Tensor::scalar((bound - mean) / (std * std::f64::consts::SQRT_2))?.erf()?.item::<f64>()
    };
    tensor.uniform_(below(low)?, below(high)?)?;
    let wide = tensor.to_dtype(DType::F64)?.erfinv()?;
    let scaled = wide.mul(std * std::f64::consts::SQRT_2)?.add(mean)?;
    tensor.copy_(&scaled.clamp(Some(low.into()), Some(high.into()))?)
}

/// Kaiming's uniform initialization (He et al. 2015) for a leaky ReLU of slope `a`: `a = 0` for ReLU.
///
/// # Errors
/// If there are fewer than two dims, or if the dtype is not floating.
#[track_caller]
pub fn kaiming_uniform(tensor: &Tensor, a: f64, fan: Fan) -> Result<()> {
    let bound = 3f64.sqrt() * kaiming_std(tensor, a, fan)?;
    uniform(tensor, -bound, bound)
}

/// Kaiming's normal initialization (He et al. 2015) for a leaky ReLU of slope `a`: `a = 0` for ReLU.
///
/// # Errors
/// As for [`kaiming_uniform`].
#[track_caller]
pub fn kaiming_normal(tensor: &Tensor, a: f64, fan: Fan) -> Result<()> {
    normal(tensor, 0.0, kaiming_std(tensor, a, fan)?)
}

fn kaiming_std(tensor: &Tensor, a: f64, fan: Fan) -> Result<f64> {
    let (inputs, outputs) = fans(tensor)?;
    let fan = match fan {
        Fan::In => inputs,
        Fan::Out => outputs,
    };
    // An empty weight has nothing to scale.
    Ok((2.0 / (1.0 + a * a)).sqrt() / fan.max(1.0).sqrt())
}

/// Xavier's uniform initialization (Glorot, Bengio 2010).
///
/// # Errors
/// If there are fewer than two dims, or if the dtype is not floating.
#[track_caller]
pub fn xavier_uniform(tensor: &Tensor, gain: f64) -> Result<()> {
    let (inputs, outputs) = fans(tensor)?;
    let bound = gain * (6.0 / (inputs + outputs).max(1.0)).sqrt();
    uniform(tensor, -bound, bound)
}

/// Xavier's normal initialization (Glorot, Bengio 2010).
///
/// # Errors
/// As for [`xavier_uniform`].
#[track_caller]
pub fn xavier_normal(tensor: &Tensor, gain: f64) -> Result<()> {
    let (inputs, outputs) = fans(tensor)?;
    normal(tensor, 0.0, gain * (2.0 / (inputs + outputs).max(1.0)).sqrt())
}

/// Orthogonal initialization (Saxe et al. 2013): rows, or columns if there are fewer, are orthogonal, of length `gain`.
/// All dims but the first count as one.
///
/// # Errors
/// If there are fewer than two dims, or if the dtype is not floating.
#[track_caller]
pub fn orthogonal(tensor: &Tensor, gain: f64) -> Result<()> {
    let _unrecorded = no_grad();
    let rows = *tensor.sizes().first().unwrap_or(&0);
    fans(tensor)?;
    let columns = tensor.numel().checked_div(rows).unwrap_or(0);
    let (n, length) = (rows.min(columns), rows.max(columns));
    let random = Tensor::randn(&[n, length], DType::F64)?.to_vec::<f64>()?;
    let mut vectors: Vec<Vec<f64>> = random.chunks(length.max(1)).map(<[f64]>::to_vec).collect();
    for at in 0..vectors.len() {
        let (before, rest) = vectors.split_at_mut(at);
        let own = &mut rest[0];
        // Twice is enough (Kahan): once leaves a part along the others where vectors are nearly parallel.
        for other in before.iter().chain(before.iter()) {
            let along: f64 = own.iter().zip(other).map(|(a, b)| a * b).sum();
            own.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
        }
        let norm = own.iter().map(|a| a * a).sum::<f64>().sqrt();
        own.iter_mut().for_each(|a| *a /= norm);
    }
    let matrix = Tensor::from_slice(&vectors.concat(), &[n, length])?.mul(gain)?;
    let matrix = if rows > columns { matrix.t()? } else { matrix };
    tensor.copy_(&matrix.reshape_as(tensor)?)
}

/// A new parameter of zeros, of the default dtype.
#[track_caller]
pub(crate) fn parameter(sizes: &[usize]) -> Result<Tensor> {
    let tensor = Tensor::zeros(sizes, crate::default_dtype())?;
    tensor.set_requires_grad(true)?;
    Ok(tensor)
}

/// A new parameter of uniform numbers between `-bound` and `bound`.
#[track_caller]
pub(crate) fn uniform_parameter(sizes: &[usize], bound: f64) -> Result<Tensor> {
    let tensor = parameter(sizes)?;
    uniform(&tensor, -bound, bound)?;
    Ok(tensor)
}

/// A new parameter that is this number everywhere.
#[track_caller]
pub(crate) fn constant_parameter(sizes: &[usize], value: f64) -> Result<Tensor> {
    let tensor = parameter(sizes)?;
    constant(&tensor, value)?;
    Ok(tensor)
}
