//! The cost model against the clock: kernels of many calls, dtypes and sizes, with modelled and measured times.
//!
//! `cargo bench --bench cost_model -- [NAME …] [--rates] [--quick]`
//!
//! One thread runs each call under the profiler. What it takes to look at the clock is subtracted. The table has one
//! line per call and dtype: measured over modelled time of its kernels, for each shape. Below it stand the median error
//! and the share of kernels that are off by more than three. The error is the larger of both times over the smaller.
//! `--rates` prints the rates that were measured on this machine. The table is also written to `target/cost_model.md`,
//! and drawn in `target/cost_model.svg`. `target/cost_model.csv` has a line for each kernel.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

mod cases;
mod plot;

use cases::{CASES, Case};
use opfuse::compile::Tuning;
use opfuse::device::pool;
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::compile::calibration::{calibrate, text};
use opfuse::internals::fusion::{Options, Rates};
use opfuse::{CompileOptions, DType, Result, Tensor, compile_with, manual_seed, profile};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Rows and columns: small, in each cache and in memory, with short, usual and long rows.
const SHAPES: [[usize; 2]; 8] =
    [[8, 128], [4096, 8], [64, 512], [2048, 32], [65536, 8], [512, 512], [8, 65536], [2048, 2048]];

/// The time between two looks at the clock.
fn clock() -> Duration {
    let between = |_| {
        let start = Instant::now();
        start.elapsed()
    };
    (0..10_000).map(between).min().unwrap_or_default()
}

/// A kernel of a case.
struct Sample {
    /// The call, its dtype, its shape, and what runs the kernel.
    what: String,
    modelled: Duration,
    measured: Duration,
}

impl Sample {
    /// How many times longer it took than modelled.
    fn ratio(&self) -> f64 {
        self.measured.as_secs_f64() / self.modelled.as_secs_f64().max(1e-9)
    }

    /// The larger of both times over the smaller one.
    fn error(&self) -> f64 {
        self.ratio().max(1.0 / self.ratio())
    }
}

fn operand(dtype: DType, sizes: &[usize]) -> Result<Tensor> {
    match dtype {
        dtype if dtype.is_float() => Tensor::rand(sizes, DType::F32)?.add(0.5)?.to_dtype(dtype),
        dtype => Tensor::randint(1, 100, sizes)?.to_dtype(dtype),
    }
}

/// The kernels of a call on one shape.
fn samples(case: &Case, dtype: DType, sizes: &[usize], rates: Rates, budget: Duration) -> Result<Vec<Sample>> {
    manual_seed(0);
    let (x, y) = (operand(dtype, sizes)?, operand(dtype, sizes)?);
    let fusion = Options { rates, ..Options::default() };
    let options = CompileOptions { fusion, tuning: Tuning::Modelled, ..CompileOptions::default() };
    let f = compile_with(case.run, options);
    // Code is replaced by faster code after some calls.
    let warm = Instant::now();
    while warm.elapsed() < budget / 2 {
        f.call((&x, &y))?;
    }
    let (result, _) = profile(|| {
        let start = Instant::now();
        let mut calls = 0;
        while calls < 3 || start.elapsed() < budget {
            f.call((&x, &y))?;
            calls += 1;
        }
        Ok::<_, opfuse::Error>(())
    })?;
    result?;
    let (explain, clock) = (f.explain(), clock());
    let kernels = explain.groups.iter().filter_map(|group| {
        let measured = group.measured?.least.saturating_sub(clock).max(Duration::from_nanos(1));
        let by = group.tier.map_or("routine", Tier::name);
        let what = format!("{},{dtype},{},{},{by}", case.name, sizes[0], sizes[1]);
        Some(Sample { what, modelled: group.modelled_time, measured })
    });
    Ok(kernels.collect())
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

fn table(only: &[String], rates: Rates, budget: Duration) -> Result<(String, Vec<Sample>)> {
    let mut out = String::from("| call | dtype |");
    SHAPES.iter().for_each(|[rows, columns]| _ = write!(out, " {rows} x {columns} |"));
    out += "\n|---|---|";
    SHAPES.iter().for_each(|_| out += "---|");
    out += "\n";
    let mut all = Vec::new();
    for case in CASES.iter().filter(|case| only.is_empty() || only.iter().any(|name| name == case.name)) {
        for &dtype in case.dtypes {
            let mut line = format!("| {} | {dtype} |", case.name);
            for sizes in &SHAPES {
                let kernels = samples(case, dtype, sizes, rates, budget)?;
                let ratios: Vec<String> = kernels.iter().map(|kernel| format!("{:.1}", kernel.ratio())).collect();
                let _ = write!(line, " {} |", ratios.join(", "));
                all.extend(kernels);
            }
            println!("{line}");
            out += &line;
            out += "\n";
        }
    }
    Ok((out, all))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let (flags, only): (Vec<String>, Vec<String>) = arguments.into_iter().partition(|one| one.starts_with("--"));
    let budget = Duration::from_millis(if flags.iter().any(|flag| flag == "--quick") { 4 } else { 40 });
    let rates = calibrate()?;
    if flags.iter().any(|flag| flag == "--rates") {
        println!("{}", text(&rates));
    }
    let (mut out, all) = pool::with_threads(1, || table(&only, rates, budget))?;
    let wrong = all.iter().filter(|sample| sample.error() > 3.0).count();
    let summary = format!(
        "\n{} kernels: median error {:.2}, {wrong} ({:.1} %) off by more than 3.\n",
        all.len(),
        median(all.iter().map(Sample::error).collect()),
        100.0 * wrong as f64 / all.len().max(1) as f64
    );
    println!("{summary}");
    out += &summary;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("cost_model.md"), out)?;
    let mut rows = String::from("call,dtype,rows,columns,by,modelled ns,measured ns\n");
    for Sample { what, modelled, measured } in &all {
        let _ = writeln!(rows, "{what},{},{}", modelled.as_nanos(), measured.as_nanos());
    }
    std::fs::write(folder.join("cost_model.csv"), rows)?;
    plot::draw(&folder.join("cost_model.svg"), &all)?;
    Ok(())
}
