//! Workloads that compute element by element, views included.

use super::Workload;
use super::inputs::{same_shaped, uniform, uniform_in};
use opfuse::ir::DType;
use opfuse::{Result, Tensor};

const LARGE: usize = 10_000_000;

pub(super) const WORKLOADS: [Workload; 18] = [
    Workload { id: "W01s", what: "ten ops, 1e3", inputs: || same_shaped(4, &[1_000]), run: ten_ops, check: 0.31302 },
    Workload { id: "W01m", what: "ten ops, 1e5", inputs: || same_shaped(4, &[100_000]), run: ten_ops, check: 0.321 },
    Workload { id: "W01l", what: "ten ops, 1e7", inputs: || same_shaped(4, &[LARGE]), run: ten_ops, check: 0.32132 },
    Workload {
        id: "W02",
        what: "relu(a*b+c), 1e7",
        inputs: || same_shaped(3, &[LARGE]),
        run: relu_of_fma,
        check: 0.50029,
    },
    Workload { id: "W03", what: "gelu(x + bias)", inputs: biased, run: bias_gelu, check: 3.8246 },
    Workload { id: "W03p", what: "gelu in parts", inputs: biased, run: bias_gelu_parts, check: 3.8246 },
    Workload { id: "W10", what: "relu((a + b)') stored", inputs: outer, run: transposed_sum, check: 0.67364 },
    Workload { id: "W11t", what: "x' * 2 + z", inputs: transposed, run: transposed_fma, check: 2.75 },
    Workload { id: "W11s", what: "x[:, ::2] * 2 + z", inputs: strided, run: strided_fma, check: 2.749 },
    Workload {
        id: "W11c",
        what: "five-point mean",
        inputs: || same_shaped(1, &[2048, 2048]),
        run: five_points,
        check: 0.27515,
    },
    Workload { id: "W17", what: "Black-Scholes, 1e7", inputs: options, run: black_scholes, check: 1597.5 },
    Workload {
        id: "W18n",
        what: "sum of 1/distance",
        inputs: || same_shaped(1, &[2048, 3]),
        run: inverse_distances,
        check: 3_867_500.0,
    },
    Workload { id: "W19h", what: "W02 in f16", inputs: || narrow(DType::F16), run: relu_of_fma, check: 0.50029 },
    Workload { id: "W19b", what: "W02 in bf16", inputs: || narrow(DType::BF16), run: relu_of_fma, check: 0.50029 },
    Workload { id: "W20a", what: "a + b, 1", inputs: || same_shaped(2, &[1]), run: sum, check: 3.596 },
    Workload { id: "W20b", what: "a + b, 64", inputs: || same_shaped(2, &[64]), run: sum, check: 1.3659 },
    Workload {
        id: "W20c",
        what: "relu(a*b+c), 64",
        inputs: || same_shaped(3, &[64]),
        run: relu_of_fma,
        check: 0.55951,
    },
    Workload { id: "W22", what: "200 ops, 65536", inputs: || same_shaped(2, &[65_536]), run: many_ops, check: 2.4117 },
];

fn ten_ops(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let [a, b, c, d] = x else { unreachable!("four inputs") };
    let t = (a * b)?;
    let t = (t + c)?;
    let t = (t - d)?;
    let t = (t * 0.5)?.relu()?.sigmoid()?;
    let t = (t * a)?;
    let t = (t + b)?.tanh()?;
    Ok(vec![(t * c)?])
}

fn relu_of_fma(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![((&x[0] * &x[1])? + &x[2])?.relu()?])
}

fn biased() -> Result<Vec<Tensor>> {
    Ok(vec![uniform_in(1, &[4096, 1024], -4.0, 4.0)?, uniform(2, &[1024])?])
}

fn bias_gelu(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![(&x[0] + &x[1])?.gelu_tanh()?])
}

/// The formula op by op: 0.5 z (1 + tanh(0.7978845608 (z + 0.044715 z³))).
fn bias_gelu_parts(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let z = (&x[0] + &x[1])?;
    let cube = ((&z * &z)? * &z)?;
    let inner = ((cube * 0.044715)? + &z)?;
    let tanh = (inner * 0.797_884_560_8)?.tanh()?;
    Ok(vec![((&z * 0.5)? * (tanh + 1.0)?)?])
}

fn outer() -> Result<Vec<Tensor>> {
    Ok(vec![uniform(1, &[2048, 1])?, uniform(2, &[1, 2048])?])
}

fn transposed_sum(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![(&x[0] + &x[1])?.transpose(0, 1)?.relu()?.contiguous()?])
}

fn transposed() -> Result<Vec<Tensor>> {
    Ok(vec![uniform(1, &[4096, 2048])?, uniform(2, &[2048, 4096])?])
}

fn transposed_fma(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![((x[0].transpose(0, 1)? * 2.0)? + &x[1])?.contiguous()?])
}

fn strided() -> Result<Vec<Tensor>> {
    Ok(vec![uniform(1, &[4096, 4096])?, uniform(2, &[4096, 2048])?])
}

fn strided_fma(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![((x[0].slice(1, None, None, 2)? * 2.0)? + &x[1])?])
}

fn five_points(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let [rows, columns] = [0, 1].map(|axis| x[0].sizes()[axis] as i64 - 2);
    let moved = |row: i64, column: i64| x[0].slice(0, row, row + rows, 1)?.slice(1, column, column + columns, 1);
    let t = (moved(1, 1)? + &moved(0, 1)?)?;
    let t = (t + &moved(2, 1)?)?;
    let t = (t + &moved(1, 0)?)?;
    let t = (t + &moved(1, 2)?)?;
    Ok(vec![(t * 0.2)?])
}

fn options() -> Result<Vec<Tensor>> {
    let range = |seed, low, high| uniform_in(seed, &[LARGE], low, high);
    Ok(vec![range(1, 5.0, 30.0)?, range(2, 1.0, 100.0)?, range(3, 0.25, 10.0)?])
}

fn black_scholes(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let [spot, strike, time] = x else { unreachable!("three inputs") };
    let (rate, sigma) = (0.02, 0.3);
    let normal = |d: &Tensor| ((d * std::f64::consts::FRAC_1_SQRT_2)?.erf()? * 0.5)? + 0.5;
    let spread = (time.sqrt()? * sigma)?;
    let drift = (time * (rate + 0.5 * sigma * sigma))?;
    let d1 = (((spot / strike)?.log()? + &drift)? / &spread)?;
    let d2 = (&d1 - &spread)?;
    let discounted = (strike * (time * -rate)?.exp()?)?;
    let call = ((spot * normal(&d1)?)? - (&discounted * normal(&d2)?)?)?;
    let put = ((&call - spot)? + &discounted)?;
    Ok(vec![call, put])
}

fn inverse_distances(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let offsets = (x[0].unsqueeze(1)? - x[0].unsqueeze(0)?)?;
    let squares = offsets.square()?.sum(2, false)?;
    Ok(vec![(squares + 1e-3)?.sqrt()?.reciprocal()?.sum(1, false)?])
}

fn narrow(dtype: DType) -> Result<Vec<Tensor>> {
    same_shaped(3, &[LARGE])?.iter().map(|tensor| tensor.to_dtype(dtype)).collect()
}

fn sum(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![(&x[0] + &x[1])?])
}

fn many_ops(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut t = x[0].clone();
    for k in 0..200 {
        t = match k % 5 {
            0 => (t * (0.9 + 0.001 * f64::from(k)))?,
            1 => (t + &x[1])?,
            2 => t.minimum(0.95)?,
            3 => (t - &x[0])?,
            _ => t.maximum(-0.9)?,
        };
    }
    Ok(vec![t])
}
