//! Gaussian process regression by a Cholesky factorization.
//!
//! `cargo run --release --example gp_regression` fits a process to twelve noisy points. It prints the mean and the
//! variance between them, compares both with NumPy's, and follows the gradient of the likelihood to a length scale.
//! Prediction and likelihood are compiled functions: a factorization is one step of their graphs.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use opfuse::func::grad;
use opfuse::{DType, Error, Result, Tensor, compile};
use std::f64::consts::TAU;

/// The variance of the noise.
const NOISE: f64 = 0.05;

/// What NumPy gives for the same points with a length scale of 1.2: means, variances, the logarithm of the likelihood
/// and its derivative. `np.linalg.cholesky` and `np.linalg.solve`, in f64.
const MEANS: [f64; 5] =
    [0.271850880150864, 0.974233220884551, 0.038890828153956614, -0.7482866969531319, -0.14270232456847062];
const VARIANCES: [f64; 5] =
    [0.023830242555832548, 0.020269519283802273, 0.020203540698797817, 0.02987001760952024, 0.404539857559153];
const LIKELIHOOD: f64 = -4.099070858833986;
const SLOPE: f64 = 3.6674923841660423;

/// The covariance of the process at two lists of points.
fn covariance(a: &Tensor, b: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let distances = a.unsqueeze(1)?.sub(&b.unsqueeze(0)?)?.div(scale)?;
    distances.square()?.mul(-0.5)?.exp()
}

/// The factor of the covariance of the observations.
fn factor(x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let noise = Tensor::eye(x.numel(), DType::F64)?.mul(NOISE)?;
    covariance(x, x, scale)?.add(&noise)?.linalg_cholesky(false)
}

/// Means and variances at `at`, given the values `y` at `x`.
fn predict(x: &Tensor, y: &Tensor, at: &Tensor, scale: &Tensor) -> Result<(Tensor, Tensor)> {
    let factor = factor(x, scale)?;
    let weights = y.unsqueeze(1)?.cholesky_solve(&factor, false)?;
    let across = covariance(x, at, scale)?;
    let means = across.t()?.matmul(&weights)?.squeeze(1)?;
    let explained = factor.linalg_solve_triangular(&across, false)?.square()?.sum(0, false)?;
    Ok((means, explained.neg()?.add(1.0)?))
}

/// The logarithm of the likelihood of `y`.
fn likelihood(x: &Tensor, y: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let factor = factor(x, scale)?;
    let white = factor.linalg_solve_triangular(&y.unsqueeze(1)?, false)?;
    let fit = white.square()?.sum((), false)?.mul(0.5)?;
    let volume = factor.diagonal(0, 0, 1)?.log()?.sum((), false)?;
    fit.add(&volume)?.add(0.5 * x.numel() as f64 * TAU.ln())?.neg()
}

/// Fails if numbers differ from NumPy's by more than rounding.
fn check(what: &str, found: &Tensor, expected: &[f64]) -> Result<()> {
    let expected = Tensor::from_slice(expected, found.sizes())?;
    if found.allclose(&expected, 1e-10, 1e-12)? {
        return Ok(());
    }
    Err(Error::argument("gp_regression", format!("{what} are {found}, but NumPy has {expected}")))
}

fn main() -> Result<()> {
    let x = Tensor::arange(0, 12, 1)?.to_dtype(DType::F64)?.mul(0.5)?;
    let y = x.sin()?.add(&x.mul(7.0)?.cos()?.mul(0.1)?)?;
    let at = Tensor::try_from([0.25f64, 1.75, 3.1, 5.4, 6.5])?;
    let scale = Tensor::try_from(1.2f64)?;

    let predicted = compile(predict);
    let (means, variances) = predicted.call((&x, &y, &at, &scale))?;
    check("means", &means, &MEANS)?;
    check("variances", &variances, &VARIANCES)?;
    println!("at       {at:.2}\nmean     {means:.4}\nvariance {variances:.4}");

    check("the likelihood", &compile(likelihood).call((&x, &y, &scale))?, &[LIKELIHOOD])?;
    let slope =
        compile(|x: &Tensor, y: &Tensor, scale: &Tensor| grad(|scale: &Tensor| likelihood(x, y, scale)).call(scale));
    check("its slope", &slope.call((&x, &y, &scale))?, &[SLOPE])?;

    let mut scale = scale;
    for _ in 0..200 {
        scale = scale.add(&slope.call((&x, &y, &scale))?.mul(0.02)?)?;
    }
    let best = compile(likelihood).call((&x, &y, &scale))?.item::<f64>()?;
    println!("the likelihood is greatest at a length scale of {:.3}: {best:.4}", scale.item::<f64>()?);
    Ok(())
}
