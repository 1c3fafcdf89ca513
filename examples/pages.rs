//! Writes every kind of page of this crate to a folder: `cargo run --release --example pages FOLDER`.
//!
//! The browser tests look at them (`scripts/page.sh`). Pages that are compared with checked-in pictures have made-up
//! times, so that they are the same in every run. The others have those of this run.

#![allow(clippy::print_stdout, reason = "an example prints")]

use opfuse::compile::explain::Measured;
use opfuse::profile::{Event, EventKind, Kind, Memory, Moment, Profile, Row, TimedSpan};
use opfuse::{DType, Error, Explain, Reason, Result, Tensor, compile, manual_seed, profile, scope};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Ops of the large page.
const LARGE: usize = 2000;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        // The page of passes is asked for by the environment, and is that of a whole process.
        [word] if word == "--passes" => encoder_report().map(|_| ExitCode::SUCCESS),
        [folder] => write_all(Path::new(folder)).map(|()| ExitCode::SUCCESS),
        _ => {
            println!("usage: pages FOLDER");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn write_all(folder: &Path) -> Result<()> {
    manual_seed(1);
    write(folder, "explain", &fixed(encoder_report()?).to_html());
    write(folder, "large", &large_report()?.to_html());
    write(folder, "segments", &segments_report()?.to_html());
    write(folder, "eager", &Explain::eager(Reason::Panicked { message: "a < b".into() }).to_html());
    write(folder, "profile", &training_profile()?.to_html());
    write(folder, "profile_fixed", &fixed_profile().to_html());
    let path = folder.join("passes.html");
    let program = std::env::current_exe().expect("a program has a path");
    let page = format!("passes:html={}", path.display());
    let status = Command::new(program).arg("--passes").env("OPFUSE_DUMP", page).status();
    assert!(status.expect("a program can be started again").success() && path.exists(), "there are no passes");
    Ok(())
}

fn write(folder: &Path, name: &str, page: &str) {
    std::fs::write(folder.join(format!("{name}.html")), page).expect("the folder can be written to");
}

/// Attention with one head.
fn attention(x: &Tensor, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
    let (q, k, v) = (x.mm(query)?, x.mm(key)?, x.mm(value)?);
    let scores = q.mm(&k.transpose(0, 1)?)?.mul(0.125)?;
    scores.softmax(-1)?.mm(&v)
}

/// A layer of an encoder.
fn encoder(x: &Tensor, weights: &[Tensor; 7]) -> Result<Tensor> {
    let [query, key, value, up, down, scale, shift] = weights;
    let width = x.sizes()[1] as i64;
    let mixed = scope("attention", || attention(x, query, key, value))?;
    let x = x.add(&mixed)?.layer_norm(width, Some(scale), Some(shift), 1e-5)?;
    let fed = scope("feedforward", || x.mm(up)?.gelu_tanh()?.mm(down))?;
    x.add(&fed)?.layer_norm(width, Some(scale), Some(shift), 1e-5)
}

fn weights() -> Result<[Tensor; 7]> {
    let matrix = |rows, columns| Tensor::randn(&[rows, columns], DType::F32);
    let (scale, shift) = (Tensor::rand(&[64], DType::F32)?, Tensor::rand(&[64], DType::F32)?);
    let all = [matrix(64, 64)?, matrix(64, 64)?, matrix(64, 64)?, matrix(64, 256)?, matrix(256, 64)?, scale, shift];
    for weight in &all {
        weight.set_requires_grad(true)?;
    }
    Ok(all)
}

/// The report of the layer and of its backward pass, after calls that were profiled.
fn encoder_report() -> Result<Explain> {
    let (x, weights) = (Tensor::randn(&[128, 64], DType::F32)?, weights()?);
    let f = compile(|x: &Tensor| encoder(x, &weights)?.square()?.mean_all());
    for _ in 0..3 {
        let (loss, _) = f.profile(&x)?;
        loss.backward()?;
    }
    Ok(f.explain())
}

/// The same report with made-up times.
fn fixed(mut report: Explain) -> Explain {
    let time = |at: usize| Duration::from_nanos(2000 + (at as u64 * 7919) % 5 * 3700);
    report.groups.iter_mut().enumerate().for_each(|(at, group)| {
        let least = group.modelled_time.mul_f64(0.6 + (at * 3 % 5) as f64 * 0.35);
        group.measured = Some(Measured { calls: 10, least, total: least * 12 });
        group.compile_time = time(at) * 40;
        group.tier_up = None;
    });
    report.passes.iter_mut().chain(&mut report.merges).enumerate().for_each(|(at, phase)| phase.time = time(at));
    (report.plan_time, report.compile_time) = (time(1) * 30, time(2) * 50);
    report.backward = report.backward.map(|backward| Box::new(fixed(*backward)));
    report
}

/// Products keep kernels apart, so the page has many of them.
fn large_report() -> Result<Explain> {
    let f = compile(|x: &Tensor| (0..LARGE / 4).try_fold(x.clone(), |x, _| x.mm(&x)?.mul(0.01)?.tanh()?.add(0.5)));
    let x = Tensor::rand(&[8, 8], DType::F32)?;
    f.call(&x)?;
    drop(f.profile(&x)?);
    let report = f.explain();
    assert!(report.kernels_before >= LARGE, "{} ops", report.kernels_before);
    Ok(report)
}

/// A function that reads a value, and goes on by it.
fn segments_report() -> Result<Explain> {
    let f = compile(|x: &Tensor| {
        let y = x.mul(2.0)?.tanh()?;
        let greatest = y.amax((), false)?.item::<f32>()?;
        y.div(f64::from(greatest))?.exp()
    });
    f.call(&Tensor::rand(&[16, 16], DType::F32)?)?;
    Ok(f.explain())
}

fn training_profile() -> Result<Profile> {
    let (x, weights) = (Tensor::randn(&[128, 64], DType::F32)?, weights()?);
    let compiled = compile(|x: &Tensor| encoder(x, &weights)?.square()?.mean_all());
    let step = || {
        scope("eager", || encoder(&x, &weights)?.square()?.mean_all()?.backward())?;
        scope("compiled", || compiled.call(&x)?.backward())?;
        Ok::<_, Error>(())
    };
    let (result, profile) = profile(|| (0..5).try_for_each(|_| step()))?;
    result.map(|()| profile)
}

/// A profile of three steps, all of whose numbers are made up.
fn fixed_profile() -> Profile {
    let micros = Duration::from_micros;
    let row = |kind, name: &str, detail: &str, micros_each: u64, kilobytes: u64, operations: f64| {
        let each = micros(micros_each);
        let has_roof = operations > 0.0;
        Row {
            kind,
            name: name.into(),
            detail: detail.into(),
            place: None,
            tier: has_roof.then_some("x64"),
            threads: has_roof.then_some(2),
            calls: 3,
            total: each * 3,
            own: each * 3,
            least: each,
            median: each,
            bytes: kilobytes * 3000,
            operations: operations * 3.0,
            roof: has_roof.then(|| 0.2 + (micros_each % 7) as f64 / 10.0),
            fresh_allocations: 0,
        }
    };
    let rows = vec![
        row(Kind::Kernel, "blocks 0 of layer", "mm, gelu, mm", 400, 900, 3.2e7),
        row(Kind::Operator, "aten::softmax", "", 220, 512, 4e6),
        row(Kind::Kernel, "kernel 1 of layer", "mean, sub, square, mean, rsqrt, mul", 90, 300, 9e5),
        row(Kind::Node, "MmBackward", "", 80, 0, 0.0),
        row(Kind::Scope, "step", "", 60, 0, 0.0),
        row(Kind::Backward, "backward", "", 30, 0, 0.0),
        row(Kind::Call, "layer", "", 20, 0, 0.0),
    ];
    let mut spans = Vec::new();
    for step in 0..3 {
        let begin = 1000 * step + 20;
        let span = |row: usize, start: u64, time: u64, depth: usize| TimedSpan {
            row,
            start: micros(begin + start),
            time: micros(time),
            depth,
        };
        spans.extend([span(1, 20, 220, 1), span(0, 260, 400, 2), span(2, 665, 90, 2), span(6, 250, 510, 1)]);
        spans.extend([span(3, 790, 80, 2), span(5, 780, 110, 1), span(4, 0, 900, 0)]);
    }
    let mut timeline = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        timeline.push(Moment { at: span.start + span.time, live: 300_000 + at * 37 % 11 * 90_000, row: span.row });
    }
    timeline.sort_by_key(|moment| moment.at);
    let peak = timeline.iter().copied().max_by_key(|moment| moment.live);
    Profile {
        wall: micros(3000),
        covered: micros(2700),
        rows,
        spans,
        dropped_spans: 0,
        events: vec![Event { at: micros(5), kind: EventKind::GraphBreak, what: "item reads a value".into() }],
        dropped_events: 0,
        memory: Memory { start: 300_000, fresh_allocations: 4, peak, timeline },
        rates: "built in".into(),
        threads: 2,
    }
}
