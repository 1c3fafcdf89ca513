#![allow(unsafe_code, reason = "the other library takes pointers, and calling AVX-512 code needs a promise")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]
//! Matrix products of the workloads, and others: opfuse, the `gemm` crate, and what the machine could do at best.
//!
//! `products [SAMPLES]` prints a table for one and two threads. In each sample three things run in turns, so that all
//! of them see the same clock: a loop of fused multiply-adds in registers, opfuse, and gemm. Figures are medians. *Of
//! peak* and *times* are medians of the ratios of single samples.
//!
//! opfuse's call is the user's, `a.bmm(&b)` with a new result, and gemm writes to memory that is there. So small
//! products come in batches; `cargo bench --bench dispatch` measures the cost of a call. Batches are spread over
//! threads matrix by matrix for both.
//!
//! Without AVX-512 the peak is not measured.

use opfuse::device::{Device, Storage, pool};
use opfuse::{DType, Result, Tensor};
use std::hint::black_box;
use std::time::Instant;

/// A product: name, batch, rows, inner, columns, whether the left and the right operand are transposed.
type Row = (&'static str, usize, usize, usize, usize, bool, bool);

const ROWS: [Row; 28] = [
    ("W12", 1, 512, 1024, 4096, false, false),
    ("W13, first layer", 1, 256, 784, 1024, false, false),
    ("W13, second layer", 1, 256, 1024, 10, false, false),
    ("W15a scores", 1, 256, 512, 256, false, true),
    ("W15a values", 1, 256, 256, 512, false, false),
    ("W15b scores", 32, 256, 64, 256, false, true),
    ("W15b values", 32, 256, 256, 64, false, false),
    ("W16 projection", 1, 1024, 512, 512, false, true),
    ("W16 widening", 1, 1024, 512, 2048, false, true),
    ("W16 narrowing", 1, 1024, 2048, 512, false, true),
    ("W18k", 1, 16384, 64, 256, false, true),
    ("square", 1, 256, 256, 256, false, false),
    ("square", 1, 1024, 1024, 1024, false, false),
    ("square", 1, 2048, 2048, 2048, false, false),
    ("left transposed", 1, 512, 1024, 1024, true, false),
    ("both transposed", 1, 512, 512, 512, true, true),
    ("few columns", 1, 4096, 512, 4, false, false),
    ("few rows", 1, 4, 512, 4096, false, false),
    ("few rows", 1, 4, 512, 4096, false, true),
    ("matrix, vector", 1, 2048, 2048, 1, false, false),
    ("turned matrix, vector", 1, 2048, 2048, 1, true, false),
    ("vector, matrix", 1, 1, 2048, 2048, false, false),
    ("vector, turned matrix", 1, 1, 2048, 2048, false, true),
    ("many vectors", 1000, 64, 64, 1, false, false),
    ("many squares", 1000, 8, 8, 8, false, false),
    ("many squares", 1000, 16, 16, 16, false, false),
    ("many squares", 1000, 32, 32, 32, false, false),
    ("many squares", 100, 64, 64, 64, false, false),
];

/// Multiply-adds of a sample, at least one product.
const WORK: usize = 1 << 26;
/// Rounds and chains of the loop in registers.
const ROUNDS: usize = 40_000;
const CHAINS: usize = 12;

/// An operand of gemm, aligned like a tensor.
struct Operand(Storage);

impl Operand {
    fn of(values: &[f32]) -> Result<Operand> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Ok(Operand(Storage::copy_of(Device::CPU, &bytes)?))
    }

    fn at(&self, element: usize) -> *mut f32 {
        self.0.ptr().cast::<f32>().wrapping_add(element)
    }
}

fn main() -> Result<()> {
    let samples = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(15);
    println!("| product | batch x rows x inner x columns | thr | time | GFLOP/s | of peak | gemm | times |");
    println!("|---|---|---|---|---|---|---|---|");
    for threads in [1, 2] {
        pool::set_num_threads(threads);
        let mut logs = Vec::new();
        for row in ROWS {
            logs.push(measure(row, threads, samples)?.ln());
        }
        let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        println!("| geometric mean | | {threads} | | | | | {mean:.2} |");
    }
    Ok(())
}

/// Prints a row; how many times as fast as gemm opfuse is.
fn measure(row: Row, threads: usize, samples: usize) -> Result<f64> {
    let (name, batch, m, k, n, left, right) = row;
    let values = |seed: usize, length: usize| -> Vec<f32> {
        (0..length).map(|at| ((at * 7919 + seed) % 1024) as f32 / 512.0 - 1.0).collect()
    };
    let (a, b) = (values(1, batch * m * k), values(2, batch * k * n));
    let tensor = |values: &[f32], [rows, columns]: [usize; 2], turned: bool| -> Result<Tensor> {
        let sizes = if turned { [batch, columns, rows] } else { [batch, rows, columns] };
        let tensor = Tensor::from_vec(values.to_vec(), &sizes)?;
        if turned { tensor.transpose(1, 2) } else { Ok(tensor) }
    };
    let (x, y) = (tensor(&a, [m, k], left)?, tensor(&b, [k, n], right)?);
    let (a, b, c) = (Operand::of(&a)?, Operand::of(&b)?, Operand::of(&vec![0.0; batch * m * n])?);
    let strides = |rows: usize, columns: usize, turned: bool| if turned { [1, rows] } else { [columns, 1] };
    let (left, right) = (strides(m, k, left), strides(k, n, right));
    let other = || {
        let one = |index: usize, parallelism: gemm::Parallelism| {
            let (to, from) =
                (c.at(index * m * n), [a.at(index * m * k).cast_const(), b.at(index * k * n).cast_const()]);
            let [[a_row, a_column], [b_row, b_column]] = [left, right].map(|strides| strides.map(|s| s as isize));
            // SAFETY: the operands have so many elements, and each index writes its own part of the result.
            unsafe {
                gemm::gemm(
                    m,
                    n,
                    k,
                    to,
                    1,
                    n as isize,
                    false,
                    from[0],
                    a_column,
                    a_row,
                    from[1],
                    b_column,
                    b_row,
                    0.0,
                    1.0,
                    false,
                    false,
                    false,
                    parallelism,
                );
            }
        };
        if threads == 1 || batch == 1 {
            let parallelism = if threads == 1 { gemm::Parallelism::None } else { gemm::Parallelism::Rayon(threads) };
            (0..batch).for_each(|index| one(index, parallelism));
        } else {
            pool::run(batch, threads, &|index| one(index, gemm::Parallelism::None));
        }
    };
    let work = batch * m * k * n;
    let calls = (WORK / work).clamp(1, 10_000);
    let time = |body: &dyn Fn() -> Result<()>| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..calls {
            body()?;
        }
        Ok(start.elapsed().as_secs_f64() / calls as f64)
    };
    let own = || x.bmm(&y).map(|product| drop(black_box(product)));
    let rival = || {
        other();
        black_box(&c);
        Ok(())
    };
    own()?;
    rival()?;
    agree(&x.bmm(&y)?, &c, batch * m * n, k)?;
    let (mut times, mut peaks, mut fractions, mut ratios, mut others) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..samples {
        let before = peak(threads);
        let ours = time(&own)?;
        let between = peak(threads);
        let theirs = time(&rival)?;
        times.push(ours);
        others.push(2.0 * work as f64 / theirs / 1e9);
        ratios.push(theirs / ours);
        if let (Some(before), Some(between)) = (before, between) {
            peaks.push(before);
            fractions.push(2.0 * work as f64 / ours / ((before + between) / 2.0));
        }
    }
    let (ours, ratio) = (median(&mut times), median(&mut ratios));
    let fraction = if fractions.is_empty() { "".into() } else { format!("{:.2}", median(&mut fractions)) };
    println!(
        "| {name} | {batch} x {m} x {k} x {n} | {threads} | {:.1} us | {:.1} | {fraction} | {:.1} | {ratio:.2} |",
        ours * 1e6,
        2.0 * work as f64 / ours / 1e9,
        median(&mut others)
    );
    Ok(ratio)
}

/// Stops if the two results are not nearly the same.
fn agree(ours: &Tensor, theirs: &Operand, elements: usize, inner: usize) -> Result<()> {
    assert_eq!(ours.dtype(), DType::F32);
    for (at, value) in ours.to_vec::<f32>()?.into_iter().enumerate().take(elements) {
        // SAFETY: the result has so many elements, and nothing writes it now.
        let other = unsafe { *theirs.at(at) };
        let most = 1e-5 * (inner as f32 + value.abs());
        assert!((value - other).abs() <= most, "{value} and {other} at {at}");
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Operations in a second of a loop that needs no memory, on so many threads.
fn peak(threads: usize) -> Option<f64> {
    let amount = (threads * ROUNDS * CHAINS * 16 * 2) as f64;
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        let start = Instant::now();
        // SAFETY: the machine has AVX-512.
        pool::run(threads, threads, &|_| unsafe { multiply_add() });
        return Some(amount / start.elapsed().as_secs_f64());
    }
    None
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn multiply_add() {
    use std::arch::x86_64::*;
    let (factor, shift) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(1e-4)));
    let mut chains = [_mm512_set1_ps(black_box(1e-3)); CHAINS];
    for _ in 0..ROUNDS {
        for chain in &mut chains {
            *chain = _mm512_fmadd_ps(*chain, factor, shift);
        }
    }
    black_box(chains);
}
