//! Eager against compiled on every workload.
//!
//! `cargo bench --bench fusion -- [W03 W17 …] [--threads 1] [--quick] [--check]`
//!
//! Both sides are the same function. Both drop their results, so both reuse their buffers. Outputs must agree in every
//! bit, and with other libraries in their check value; otherwise the exit code is 1. Bytes are those of the plan, with
//! each operand of a kernel counted once. The bandwidth of the compiled run is compared with a triad over as much
//! memory. Other comparisons are in `extras`. The table is also written to `target/fusion_bench.md`, and drawn in
//! `target/fusion.svg`.
//!
//! A row is slower compiled if its best chunk, less the fixed cost of a compiled call, takes longer than eager's median
//! one. Such rows are named at the end. With `--check` they make the exit code 1 as well.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

mod chart;
mod extras;
mod timing;
mod workloads;

use chart::Bar;
use opfuse::device::pool;
use opfuse::internals::codegen::tier::Tier;
use opfuse::{Explain, Result, Tensor, compile};
use std::fmt::Write as _;
use std::process::ExitCode;
use timing::{Effort, Timing, in_turns, time, with_triad};
use workloads::{TOLERANCE, Workload, same_bits};

/// What the command line asks for.
pub(crate) struct Request {
    /// Numbers of workloads and names of extras; none stands for all.
    only: Vec<String>,
    pub(crate) threads: Vec<usize>,
    pub(crate) effort: Effort,
    pub(crate) quick: bool,
    /// Whether a slow row is a failure.
    check: bool,
}

impl Request {
    fn of_arguments() -> Request {
        let (only, threads) = (Vec::new(), vec![1, 2]);
        let mut request = Request { only, threads, effort: Effort::FULL, quick: false, check: false };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                // Cargo passes it to every bench.
                "--bench" => {}
                "--quick" => (request.effort, request.quick) = (Effort::QUICK, true),
                "--check" => request.check = true,
                "--threads" => {
                    let count = arguments.next().and_then(|count| count.parse().ok());
                    request.threads = vec![count.expect("--threads is followed by a number")];
                }
                _ => request.only.push(argument),
            }
        }
        request
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only.eq_ignore_ascii_case(name))
    }
}

/// Below this footprint a triad measures the loop around it.
const SMALLEST_TRIAD: usize = 1 << 14;

struct Row {
    threads: usize,
    is_slower: bool,
    eager: Timing,
    compiled: Timing,
    explain: Explain,
    /// Bytes per second of a triad over as many bytes.
    triad: Option<f64>,
    check: f64,
    same_bits: bool,
}

const COLUMNS: [(&str, usize); 14] = [
    ("id", 5),
    ("workload", 22),
    ("thr", 3),
    ("eager", 10),
    ("compiled", 10),
    ("speed-up", 8),
    ("spread", 9),
    ("kernels", 10),
    ("tier", 12),
    ("MB", 17),
    ("GB/s", 6),
    ("of triad", 8),
    ("check", 12),
    ("bits equal", 10),
];

fn main() -> ExitCode {
    let request = Request::of_arguments();
    let mut report = Report { markdown: String::new(), bars: Vec::new(), slower: Vec::new(), failed: false };
    let call_cost = match extras::call_cost(request.effort) {
        Ok(seconds) => seconds,
        Err(error) => {
            println!("the cost of a call could not be measured: {error}");
            return ExitCode::FAILURE;
        }
    };
    report.header();
    for workload in workloads::all() {
        if !request.wants(workload.id) {
            continue;
        }
        match rows(&workload, &request, call_cost) {
            Ok(rows) => rows.iter().for_each(|row| report.row(&workload, row)),
            Err(error) => {
                report.failed = true;
                report.line(&format!("{} failed: {error}", workload.id));
            }
        }
    }
    match extras::lines(&request) {
        Ok(lines) => lines.iter().for_each(|line| report.line(line)),
        Err(error) => {
            report.failed = true;
            report.line(&format!("extras failed: {error}"));
        }
    }
    report.verdict(call_cost);
    let folder = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
    let files = [("fusion_bench.md", Ok(report.markdown)), ("fusion.svg", chart::svg(&report.bars))];
    for (name, text) in files {
        match text.and_then(|text| Ok(std::fs::write(format!("{folder}/{name}"), text)?)) {
            Ok(()) => println!("written: {folder}/{name}"),
            Err(error) => println!("{folder}/{name} could not be written: {error}"),
        }
    }
    let is_slow = request.check && !report.slower.is_empty();
    if report.failed || is_slow { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// One row per thread count.
fn rows(workload: &Workload, request: &Request, call_cost: f64) -> Result<Vec<Row>> {
    let inputs = (workload.inputs)()?;
    let function = compile::<Vec<Tensor>, _>(workload.run);
    let expected = (workload.run)(&inputs)?;
    let check = workload.check_of(&expected)?;
    // The first call traces and compiles.
    function.call(&inputs[..])?;
    let mut rows = Vec::new();
    for &threads in &request.threads {
        rows.push(pool::with_threads(threads, || -> Result<Row> {
            let same_bits =
                same_bits(&expected, &function.call(&inputs[..])?)? && same_bits(&expected, &(workload.run)(&inputs)?)?;
            let mut eager = || drop((workload.run)(&inputs).expect("it ran before"));
            let mut compiled = || drop(function.call(&inputs[..]).expect("it ran before"));
            let explain = function.explain();
            let footprint = explain.bytes_after;
            let (eager, compiled, triad) = with_triad(footprint, threads, |triad, bytes| {
                let [eager, compiled, triad] = in_turns(request.effort, [&mut eager, &mut compiled, triad]);
                (eager, compiled, bytes / triad.best)
            });
            let triad = (footprint >= SMALLEST_TRIAD).then_some(triad);
            let is_slower = compiled.best - call_cost > eager.median;
            Ok(Row { threads, is_slower, eager, compiled, explain, triad, check, same_bits })
        })?);
    }
    Ok(rows)
}

struct Report {
    markdown: String,
    bars: Vec<Bar>,
    /// What is slower compiled.
    slower: Vec<String>,
    failed: bool,
}

impl Report {
    fn header(&mut self) {
        self.cells(COLUMNS.map(|(name, _)| name.to_owned()));
        let _ = writeln!(self.markdown, "|{}", "---|".repeat(COLUMNS.len()));
    }

    fn row(&mut self, workload: &Workload, row: &Row) {
        let Explain { kernels_before, kernels_after, bytes_before, bytes_after, eager, .. } = &row.explain;
        let right = (row.check - workload.check).abs() <= TOLERANCE * workload.check.abs();
        self.failed |= !right || !row.same_bits;
        let rate = *bytes_after as f64 / row.compiled.best;
        let Row { threads, is_slower, eager: before, compiled: after, .. } = row;
        if *is_slower {
            let times = format!("{} against {}", time(after.best), time(before.best));
            self.slower.push(format!("{} on {threads} thr: {times}", workload.id));
        }
        self.bars.push(Bar {
            id: workload.id,
            what: workload.what,
            threads: *threads,
            speed_up: [before.best / after.best, before.best / after.median, before.median / after.best],
            is_slower: *is_slower,
            bytes: [*bytes_before, *bytes_after],
            rate,
            triad: row.triad,
        });
        let megabytes = |bytes: usize| format!("{:.1}", bytes as f64 / 1e6);
        self.cells([
            workload.id.into(),
            workload.what.into(),
            row.threads.to_string(),
            time(row.eager.best),
            time(row.compiled.best),
            format!("{:.2}", row.eager.best / row.compiled.best),
            format!("{:.2} {:.2}", row.eager.spread(), row.compiled.spread()),
            format!("{kernels_before} -> {kernels_after}"),
            tiers(&row.explain),
            format!("{} -> {}", megabytes(*bytes_before), megabytes(*bytes_after)),
            format!("{:.1}", rate / 1e9),
            row.triad.map_or("-".into(), |triad| format!("{:.0} %", 100.0 * rate / triad)),
            if right { format!("{:.5}", Short(row.check)) } else { format!("WRONG {:.4e}", row.check) },
            if row.same_bits { "yes".into() } else { "NO".into() },
        ]);
        if let Some(reason) = eager {
            self.line(&format!("  {} runs eagerly: {reason}", workload.id));
        }
    }

    /// The rows that are slower compiled, each with its times.
    fn verdict(&mut self, call_cost: f64) {
        let beyond = format!("beyond the {} that a call costs, and its spread", time(call_cost));
        let lines: Vec<String> = self.slower.iter().map(|row| format!("slower compiled: {row}, {beyond}")).collect();
        lines.iter().for_each(|line| self.line(line));
        if lines.is_empty() {
            self.line(&format!("no row is slower compiled than eager {beyond}"));
        }
    }

    fn cells(&mut self, cells: [String; COLUMNS.len()]) {
        let mut line = String::new();
        for (cell, (_, width)) in cells.iter().zip(COLUMNS) {
            let _ = write!(line, "{cell:>width$} ");
        }
        println!("{line}");
        let _ = writeln!(self.markdown, "| {} |", cells.join(" | "));
    }

    fn line(&mut self, line: &str) {
        println!("{line}");
        let _ = writeln!(self.markdown, "\n{line}");
    }
}

/// The tiers that the kernels run on, each once; `lib` for matrix products.
fn tiers(explain: &Explain) -> String {
    let mut names: Vec<&str> = explain.groups.iter().map(|group| group.tier.map_or("lib", Tier::name)).collect();
    names.sort_unstable();
    names.dedup();
    names.join("+")
}

/// A number with as many significant digits as the precision says.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = f.precision().unwrap_or(5) as i32;
        let magnitude = self.0.abs().log10().floor() as i32;
        let decimals = (digits - 1 - magnitude).clamp(0, 12) as usize;
        write!(f, "{:.decimals$}", self.0)
    }
}
