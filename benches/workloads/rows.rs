//! Workloads with reductions: normalizations and sums.

use super::Workload;
use super::inputs::{same_shaped, uniform, uniform_in};
use opfuse::{Result, Tensor};

const SIZES: [usize; 2] = [4096, 1024];
const SQUARE: [usize; 2] = [4096, 4096];
const SHORT: [usize; 2] = [1 << 18, 16];
const CHANNELS: [usize; 2] = [1 << 20, 3];

pub(super) const WORKLOADS: [Workload; 14] = [
    Workload { id: "W04", what: "softmax", inputs: wide, run: softmax, check: 0.000_980_38 },
    Workload { id: "W04s", what: "softmax of 16", inputs: short, run: softmax, check: 0.077_569 },
    Workload { id: "W04p", what: "softmax in parts", inputs: wide, run: softmax_parts, check: 0.000_980_38 },
    Workload { id: "W05", what: "layer norm", inputs: normed, run: layer_norm, check: 1.3198 },
    Workload { id: "W05p", what: "layer norm in parts", inputs: normed, run: layer_norm_parts, check: 1.3198 },
    Workload { id: "W06", what: "rms norm * silu(g)", inputs: gated, run: gated_rms_norm, check: 0.13901 },
    Workload { id: "W06p", what: "rms norm in parts", inputs: gated, run: gated_rms_norm_parts, check: 0.13901 },
    Workload { id: "W07", what: "layer norm of residual", inputs: residual, run: residual_norm, check: 1.2765 },
    Workload { id: "W08a", what: "sum over rows", inputs: || same_shaped(1, &SQUARE), run: sum_rows, check: 1404.4 },
    Workload {
        id: "W08b",
        what: "sum over columns",
        inputs: || same_shaped(1, &SQUARE),
        run: sum_columns,
        check: 1413.0,
    },
    Workload { id: "W08c", what: "sum of all", inputs: || same_shaped(1, &SQUARE), run: sum_all, check: 23_618_000.0 },
    Workload { id: "W08d", what: "sum per channel of 3", inputs: channels, run: sum_rows, check: 369_730.0 },
    Workload {
        id: "W09",
        what: "mean and variance",
        inputs: || same_shaped(1, &SQUARE),
        run: mean_and_variance,
        check: 0.45156,
    },
    Workload { id: "W18k", what: "nearest of 256 centres", inputs: points, run: nearest, check: 21_594.0 },
];

fn wide() -> Result<Vec<Tensor>> {
    Ok(vec![uniform_in(1, &SIZES, -4.0, 4.0)?])
}

fn short() -> Result<Vec<Tensor>> {
    Ok(vec![uniform_in(1, &SHORT, -4.0, 4.0)?])
}

fn channels() -> Result<Vec<Tensor>> {
    Ok(vec![uniform(1, &CHANNELS)?])
}

fn softmax(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![x[0].softmax(-1)?])
}

fn softmax_parts(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let exp = (&x[0] - x[0].amax(-1, true)?)?.exp()?;
    Ok(vec![(&exp / exp.sum(-1, true)?)?])
}

fn normed() -> Result<Vec<Tensor>> {
    Ok(vec![uniform(1, &SIZES)?, uniform(2, &SIZES[1..])?, uniform(3, &SIZES[1..])?])
}

fn layer_norm(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![x[0].layer_norm(&SIZES[1..], Some(&x[1]), Some(&x[2]), 1e-5)?])
}

fn layer_norm_parts(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let centred = (&x[0] - x[0].mean(-1, true)?)?;
    let variance = centred.square()?.mean(-1, true)?;
    let scaled = (&centred * (variance + 1e-5)?.rsqrt()?)?;
    Ok(vec![((scaled * &x[1])? + &x[2])?])
}

fn gated() -> Result<Vec<Tensor>> {
    Ok(vec![uniform(1, &SIZES)?, uniform(2, &SIZES)?, uniform(3, &SIZES[1..])?])
}

fn gated_rms_norm(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![(x[0].rms_norm(&SIZES[1..], Some(&x[2]), Some(1e-6))? * x[1].silu()?)?])
}

fn gated_rms_norm_parts(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let scale = (x[0].square()?.mean(-1, true)? + 1e-6)?.rsqrt()?;
    Ok(vec![(((&x[0] * &scale)? * &x[2])? * x[1].silu()?)?])
}

fn residual() -> Result<Vec<Tensor>> {
    let row = &SIZES[1..];
    Ok(vec![uniform(1, &SIZES)?, uniform(2, row)?, uniform(3, &SIZES)?, uniform(4, row)?, uniform(5, row)?])
}

fn residual_norm(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let [x, bias, residual, weight, shift] = x else { unreachable!("five inputs") };
    let sum = (residual + (x + bias)?)?;
    Ok(vec![sum.layer_norm(&SIZES[1..], Some(weight), Some(shift), 1e-5)?])
}

fn sum_rows(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![x[0].sum(0, false)?])
}

fn sum_columns(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![x[0].sum(1, false)?])
}

fn sum_all(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![x[0].sum_all()?])
}

fn mean_and_variance(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![x[0].mean(1, false)?, x[0].var(1, 0, false)?])
}

fn points() -> Result<Vec<Tensor>> {
    Ok(vec![uniform(1, &[16_384, 64])?, uniform(2, &[256, 64])?])
}

fn nearest(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let [points, centres] = x else { unreachable!("two inputs") };
    let products = (points.matmul(&centres.t()?)? * 2.0)?;
    let distances = ((points.square()?.sum(1, true)? - products)? + centres.square()?.sum(1, false)?)?;
    Ok(vec![distances.argmin(1, false)?])
}
