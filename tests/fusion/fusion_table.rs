//! Kernels and memory traffic of graphs, against the best result of other fusers.
//!
//! Each row of the table has the best known result. Traffic is in units of one N x N tensor; vectors vanish in the
//! rounding. Every graph also keeps eager's bits on every tier, and moves exactly the bytes of its report, which are
//! counted while it runs.

#![allow(clippy::print_stdout, reason = "with --nocapture the table is printed")]

use crate::values::{self, bits};
use opfuse::compile::explain::Group;
use opfuse::compile::{CompileOptions, compile_with};
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::runtime::Traffic;
use opfuse::{DType, Result, Tensor, cat};

/// Rows and columns of the tensors.
const N: usize = 512;
/// Sequence length and head size of the attention: scores are 16 times as large as queries.
const SEQUENCE: usize = 512;
const HEAD: usize = 32;

/// A row of the table.
struct Row {
    name: &'static str,
    inputs: fn() -> Result<Vec<Tensor>>,
    function: fn(&[Tensor]) -> Result<Vec<Tensor>>,
    /// Elements of the unit of traffic.
    unit: usize,
    /// The fewest kernels and the least traffic of any fuser.
    best: (usize, f64),
}

fn uniform(seed: u64, sizes: &[usize]) -> Result<Tensor> {
    values::uniform(seed, sizes, DType::F32)
}

fn squares(count: usize) -> Result<Vec<Tensor>> {
    (0..count).map(|seed| uniform(seed as u64 + 1, &[N, N])).collect()
}

fn with_vectors(n_squares: usize, n_vectors: usize) -> Result<Vec<Tensor>> {
    let mut all = squares(n_squares)?;
    for seed in 0..n_vectors {
        all.push(uniform(seed as u64 + 100, &[N])?);
    }
    Ok(all)
}

fn gelu(x: &Tensor) -> Result<Tensor> {
    let cubic = ((x * x)? * x)?;
    let inner = ((x + (cubic * 0.044715)?)? * 0.797_884_560_802_865_4)?;
    (x * 0.5)? * (inner.tanh()? + 1.0)?
}

const TABLE: &[Row] = &[
    Row {
        name: "1 row softmax",
        inputs: || squares(1),
        function: |x| {
            let shifted = (&x[0] - x[0].amax(-1, true)?)?;
            let powers = shifted.exp()?;
            Ok(vec![(&powers / powers.sum(-1, true)?)?])
        },
        unit: N * N,
        best: (1, 2.0),
    },
    Row {
        name: "2 layernorm",
        inputs: || with_vectors(1, 2),
        function: |x| {
            let centred = (&x[0] - x[0].mean(-1, true)?)?;
            let variance = (&centred * &centred)?.mean(-1, true)?;
            let scaled = (centred * (variance + 1e-5)?.rsqrt()?)?;
            Ok(vec![((scaled * &x[1])? + &x[2])?])
        },
        unit: N * N,
        best: (1, 2.0),
    },
    Row {
        name: "3 residual and rms norm, two outputs",
        inputs: || with_vectors(2, 1),
        function: |x| {
            let sum = (&x[0] + &x[1])?;
            let scale = ((&sum * &sum)?.mean(-1, true)? + 1e-6)?.rsqrt()?;
            let normed = ((&sum * scale)? * &x[2])?;
            Ok(vec![sum, normed])
        },
        unit: N * N,
        best: (1, 4.0),
    },
    Row {
        name: "4 matrix product, bias, gelu",
        inputs: || with_vectors(2, 1),
        function: |x| Ok(vec![gelu(&(x[0].matmul(&x[1])? + &x[2])?)?]),
        unit: N * N,
        best: (1, 3.0),
    },
    Row {
        name: "4b bias and gelu",
        inputs: || with_vectors(1, 1),
        function: |x| Ok(vec![gelu(&(&x[0] + &x[1])?)?]),
        unit: N * N,
        best: (1, 2.0),
    },
    Row {
        name: "5 cheap producer, two outputs",
        inputs: || squares(3),
        function: |x| {
            let cheap = (&x[0] * 2.0)?;
            Ok(vec![(&cheap + &x[1])?, (&cheap * &x[2])?])
        },
        unit: N * N,
        best: (1, 5.0),
    },
    Row {
        name: "6 sibling row reductions",
        inputs: || squares(1),
        function: |x| Ok(vec![x[0].sum(-1, false)?, x[0].amax(-1, false)?, (&x[0] * &x[0])?.sum(-1, false)?]),
        unit: N * N,
        best: (1, 1.0),
    },
    Row {
        name: "7 three projections of one input, biases",
        inputs: || with_vectors(4, 3),
        function: |x| (0..3).map(|i| x[0].matmul(&x[1 + i])? + &x[4 + i]).collect(),
        unit: N * N,
        best: (1, 7.0),
    },
    Row {
        name: "8 full mean, subtract, square",
        inputs: || squares(1),
        function: |x| {
            let centred = (&x[0] - x[0].mean_all()?)?;
            Ok(vec![(&centred * &centred)?])
        },
        unit: N * N,
        best: (2, 3.0),
    },
    Row {
        name: "9 elementwise, concat, scale",
        inputs: || Ok(vec![uniform(1, &[N / 2, N])?, uniform(2, &[N / 2, N])?]),
        function: |x| Ok(vec![(cat(&[&x[0].exp()?, &x[1].tanh()?], 0)? * 3.0)?]),
        unit: N * N,
        best: (1, 2.0),
    },
    Row {
        name: "10 slice, exp, pad, add",
        inputs: || squares(2),
        function: |x| {
            let half = x[0].slice(0, None, Some(N as i64 / 2), 1)?.exp()?;
            Ok(vec![(half.constant_pad_nd([0, 0, 0, N as i64 / 2], 0.0)? + &x[1])?])
        },
        unit: N * N,
        best: (1, 2.5),
    },
    Row {
        name: "11 exp, transpose, add",
        inputs: || squares(2),
        function: |x| Ok(vec![(x[0].exp()?.t()? + &x[1])?]),
        unit: N * N,
        best: (1, 3.0),
    },
    Row {
        name: "12 transpose, row sum",
        inputs: || squares(1),
        function: |x| Ok(vec![x[0].t()?.sum(-1, false)?]),
        unit: N * N,
        best: (1, 1.0),
    },
    Row {
        name: "13 attention",
        inputs: || (0..3).map(|seed| uniform(seed + 1, &[2, 2, SEQUENCE, HEAD])).collect(),
        function: |x| {
            let scores = (x[0].matmul(&x[1].transpose(-2, -1)?)? * 0.176_776_7)?;
            let powers = (&scores - scores.amax(-1, true)?)?.exp()?;
            let weights = (&powers / powers.sum(-1, true)?)?;
            Ok(vec![weights.matmul(&x[2])?])
        },
        unit: 4 * SEQUENCE * HEAD,
        best: (1, 4.0),
    },
    Row {
        name: "14 batch norm, inference",
        inputs: || with_vectors(1, 4),
        function: |x| {
            let centred = (&x[0] - &x[1])?;
            let scaled = (centred * (&x[2].abs()? + 1e-5)?.rsqrt()?)?;
            Ok(vec![((scaled * &x[3])? + &x[4])?])
        },
        unit: N * N,
        best: (1, 2.0),
    },
];

/// Kernels and traffic of a row as it is compiled, after its bits were compared with eager's.
fn compiled(row: &Row, tier: Option<Tier>) -> Result<(usize, f64, String)> {
    let inputs = (row.inputs)()?;
    let eager = (row.function)(&inputs)?;
    let (function, n) = (row.function, inputs.len());
    let options = CompileOptions { tier, ..CompileOptions::default() };
    let compiled = compile_with(move |inputs: &[Tensor]| function(&inputs[..n]), options);
    for _ in 0..2 {
        let found: Vec<Tensor> = compiled.call(&inputs[..])?;
        for (eager, found) in eager.iter().zip(&found) {
            assert_eq!(eager.sizes(), found.sizes(), "{}", row.name);
            assert!(bits(eager) == bits(found), "{}: compiled bits differ from eager's", row.name);
        }
    }
    let explain = compiled.explain();
    if tier.is_none() {
        let (found, counted) = compiled.call_counted(&inputs[..])?;
        for (eager, found) in eager.iter().zip(&found) {
            assert!(bits(eager) == bits(found), "{}: the bits of a counted call differ from eager's", row.name);
        }
        let moved =
            |group: &Group| Traffic { kernel: group.index, read: group.bytes_read, written: group.bytes_written };
        let modelled: Vec<Traffic> = explain.groups.iter().map(moved).collect();
        assert_eq!(counted, modelled, "{}: counted, and as modelled\n{explain}", row.name);
        let total: usize = counted.iter().map(|kernel| kernel.read + kernel.written).sum();
        assert_eq!(total, explain.bytes_after, "{}", row.name);
    }
    let traffic = explain.bytes_after as f64 / (row.unit * size_of::<f32>()) as f64;
    Ok((explain.kernels_after, traffic, explain.to_string()))
}

#[test]
fn no_fuser_does_better() -> Result<()> {
    let mut wrong = String::new();
    for row in TABLE {
        let (kernels, traffic, text) = compiled(row, None)?;
        let (best_kernels, best_traffic) = row.best;
        println!("{:<42}{kernels:>3} / {traffic:.1}   best {best_kernels} / {best_traffic:.1}", row.name);
        // A twentieth of the unit is for vectors.
        if kernels > best_kernels || traffic > best_traffic + 0.05 {
            wrong += &format!("{}: {kernels} / {traffic:.2}, not {best_kernels} / {best_traffic}\n{text}\n", row.name);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    Ok(())
}

#[test]
fn every_tier_keeps_the_bits() -> Result<()> {
    for row in TABLE {
        for tier in Tier::ALL {
            compiled(row, Some(tier))?;
        }
    }
    Ok(())
}
