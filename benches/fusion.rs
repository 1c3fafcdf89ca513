//! Eager against compiled on every workload: `cargo bench --bench fusion -- [W03 W17 …] [--threads 1] [--quick]`.
//!
//! Both sides are the same function; both drop their results, so both reuse their buffers. Outputs must agree in every
//! bit, and with other libraries in their check value; otherwise the exit code is 1. Bytes are those of the plan, each
//! operand of a kernel once, and the rate of the compiled run by these bytes is set against a triad over as much
//! memory. What else is compared is in `extras`. The table is also written to `target/fusion_bench.md`.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

mod extras;
mod timing;
mod workloads;

use opfuse::codegen::tier::Tier;
use opfuse::device::pool;
use opfuse::{Explain, Result, Tensor, compile};
use std::fmt::Write as _;
use std::process::ExitCode;
use timing::{Effort, Timing, in_turns, time, with_triad};
use workloads::{TOLERANCE, Workload, check, same_bits};

/// What the command line asks for.
pub(crate) struct Request {
    /// Numbers of workloads and names of extras; none stands for all.
    only: Vec<String>,
    pub(crate) threads: Vec<usize>,
    pub(crate) effort: Effort,
    pub(crate) quick: bool,
}

impl Request {
    fn of_arguments() -> Request {
        let mut request = Request { only: Vec::new(), threads: vec![1, 2], effort: Effort::FULL, quick: false };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                // Cargo passes it to every bench.
                "--bench" => {}
                "--quick" => (request.effort, request.quick) = (Effort::QUICK, true),
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
    let mut report = Report { markdown: String::new(), failed: false };
    report.header();
    for workload in workloads::all() {
        if !request.wants(workload.id) {
            continue;
        }
        match rows(&workload, &request) {
            Ok(rows) => rows.iter().for_each(|row| report.row(&workload, row)),
            Err(error) => {
                report.failed = true;
                report.line(&format!("{} failed: {error}", workload.id));
            }
        }
    }
    if request.wants("W14") {
        report.line("W14 (a training step) is skipped: there is no autograd yet.");
    }
    match extras::lines(&request) {
        Ok(lines) => lines.iter().for_each(|line| report.line(line)),
        Err(error) => {
            report.failed = true;
            report.line(&format!("extras failed: {error}"));
        }
    }
    let folder = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".into());
    let path = format!("{folder}/fusion_bench.md");
    if let Err(error) = std::fs::write(&path, report.markdown) {
        println!("{path} could not be written: {error}");
    }
    if report.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// One row per thread count.
fn rows(workload: &Workload, request: &Request) -> Result<Vec<Row>> {
    let inputs = (workload.inputs)()?;
    let function = compile::<Vec<Tensor>, _>(workload.run);
    let expected = (workload.run)(&inputs)?;
    let check = check(&expected)?;
    // The first call runs while it is traced; the second one is the first that runs compiled.
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
            Ok(Row { threads, eager, compiled, explain, triad, check, same_bits })
        })?);
    }
    Ok(rows)
}

struct Report {
    markdown: String,
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
