//! Runs for minutes and watches memory: `scripts/soak.sh MINUTES [PART,PART...]`.
//!
//! Three threads make and drop compiled functions, closures, operators, shorter threads and gradients, for shapes that
//! change with every call. The resident memory is printed every few seconds. After the first third of the time it may
//! not grow any more: what is kept for later calls is bounded. The curve is drawn as `target/soak.svg`.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use opfuse::dispatch::{Dispatcher, Library};
use opfuse::{DType, Error, Result, Tensor, autocast, compile, no_autocast, vmap};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Growth that is allowed after the warm-up: noise of allocators and of the system.
const TOLERANCE: f64 = 24.0;
/// Threads that work all the time.
const WORKERS: u64 = 3;

static IS_OVER: AtomicBool = AtomicBool::new(false);
static ROUNDS: AtomicU64 = AtomicU64::new(0);

fn main() -> Result<()> {
    let minutes: f64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0.1);
    let time = Duration::from_secs_f64(minutes * 60.0);
    let workers: Vec<_> = (0..WORKERS).map(|worker| thread::spawn(move || work(worker).inspect_err(stop))).collect();
    let samples = watch(time);
    IS_OVER.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("a worker panics only if the library does")?;
    }
    let what = format!("{} rounds in {minutes} min", ROUNDS.load(Ordering::Relaxed));
    let drawn =
        std::fs::create_dir_all("target").and_then(|()| std::fs::write("target/soak.svg", svg(&samples, &what)));
    println!("{what}; {}", if drawn.is_ok() { "drawn in target/soak.svg" } else { "not drawn" });
    judge(&samples)
}

/// Seconds and MiB of resident memory, until the time is over.
fn watch(time: Duration) -> Vec<(f64, f64)> {
    let start = Instant::now();
    let mut samples = Vec::new();
    while start.elapsed() < time && !IS_OVER.load(Ordering::Relaxed) {
        thread::sleep((time / 200).clamp(Duration::from_millis(100), Duration::from_secs(15)));
        let Some(resident) = resident() else {
            println!("skipped: this system does not tell the resident memory");
            return samples;
        };
        samples.push((start.elapsed().as_secs_f64(), resident));
        if samples.len() % 10 == 0 {
            let blocks = opfuse::device::allocator::stats().live_blocks;
            let rounds = ROUNDS.load(Ordering::Relaxed);
            println!("{:7.0} s {resident:8.1} MiB {rounds:8} rounds {blocks:6} blocks", start.elapsed().as_secs_f64());
        }
    }
    samples
}

/// Compares the most memory of the second third with that of the last third.
fn judge(samples: &[(f64, f64)]) -> Result<()> {
    let most = |part: &[(f64, f64)]| part.iter().map(|(_, resident)| *resident).fold(0.0, f64::max);
    let third = samples.len() / 3;
    let (middle, last) = (most(&samples[third..2 * third]), most(&samples[2 * third..]));
    println!("most in the second third {middle:.1} MiB, in the last third {last:.1} MiB");
    if last > middle + TOLERANCE {
        return Err(Error::argument("soak", format!("memory grows: {middle:.1} MiB, later {last:.1} MiB")));
    }
    Ok(())
}

/// MiB of memory that the process has now.
fn resident() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}

/// Small numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// A matrix of a shape that is seldom the same.
    fn matrix(&mut self) -> Result<Tensor> {
        let sizes = [1 + self.below(40) as usize, 1 + self.below(700) as usize];
        Tensor::rand(&sizes, [DType::F32, DType::F64][self.below(2) as usize])
    }
}

/// Ends the run early.
fn stop(error: &Error) {
    println!("a worker stops: {error}");
    IS_OVER.store(true, Ordering::Relaxed);
}

/// Whether a part of the work is asked for: the second argument lists some, to find what grows. All run without it.
fn runs(part: &str) -> bool {
    std::env::args().nth(2).is_none_or(|parts| parts.split(',').any(|one| one == part))
}

fn work(worker: u64) -> Result<()> {
    let mut numbers = Numbers(worker + 1);
    // One function for the whole run: its cache of programs is full soon, and evicts.
    let kept = compile(|x: &Tensor| x.mul(2.0)?.tanh()?.softmax(-1)?.sum(1, true));
    while !IS_OVER.load(Ordering::Relaxed) {
        for _ in 0..if runs("kept") { 10 } else { 0 } {
            kept.call(&numbers.matrix()?)?;
        }
        let seed = numbers.below(1 << 30);
        if runs("closures") {
            closure(&mut numbers)?;
        }
        if runs("gradients") {
            gradient(&mut numbers)?;
        }
        if runs("operators") {
            operator(worker, &mut numbers)?;
        }
        if runs("scopes") {
            scopes(&mut numbers)?;
        }
        if runs("threads") {
            let short = thread::spawn(move || closure(&mut Numbers(seed)));
            short.join().expect("it panics only if the library does")?;
        }
        ROUNDS.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A compiled closure with a captured tensor, which is dropped after some calls.
fn closure(numbers: &mut Numbers) -> Result<()> {
    let captured = Tensor::rand(&[1], DType::F32)?;
    let which = numbers.below(4);
    let function = compile(move |x: &Tensor| -> Result<Tensor> {
        let y = x.add(&captured)?;
        match which {
            0 => y.exp()?.log1p(),
            1 => y.sigmoid()?.mul(&y),
            2 => y.sum(0, false)?.sqrt(),
            // A value is read, so the function runs in segments.
            _ => {
                if y.sum_all()?.to_dtype(DType::F64)?.item::<f64>()? > 0.0 {
                    y.neg()
                } else {
                    y.abs()
                }
            }
        }
    });
    for _ in 0..3 {
        function.call(&numbers.matrix()?)?;
    }
    Ok(())
}

/// Gradients of an eager and of a compiled function.
fn gradient(numbers: &mut Numbers) -> Result<()> {
    let x = numbers.matrix()?;
    x.set_requires_grad(true)?;
    let loss = |x: &Tensor| x.square()?.sin()?.mean_all();
    loss(&x)?.backward()?;
    compile(loss).call(&x)?.backward()
}

/// An operator that is registered, called and undone.
fn operator(worker: u64, numbers: &mut Numbers) -> Result<()> {
    let namespace = format!("soak{worker}");
    let mut library = Library::def_block(&namespace)?;
    let number = numbers.below(50);
    library.def_kernel(&format!("own{number}(Tensor x) -> Tensor"), |x: &Tensor| x.mul(3.0)?.cos())?;
    let operator = Dispatcher::global().lookup(&format!("{namespace}::own{number}"))?;
    let function = compile(move |x: &Tensor| -> Result<Tensor> { operator.call::<_, Tensor>((x,)) });
    function.call(&numbers.matrix()?)?;
    Ok(())
}

fn scopes(numbers: &mut Numbers) -> Result<()> {
    let x = numbers.matrix()?.to_dtype(DType::F32)?;
    {
        let _lower = autocast(DType::BF16)?;
        x.mm(&x.t()?)?;
        let _off = no_autocast();
        x.mm(&x.t()?)?;
    }
    vmap(|row: &Tensor| row.dot(row)).call(&x)?;
    x.t()?.contiguous()?.add_(1.0)
}

/// The memory over time as a picture.
fn svg(samples: &[(f64, f64)], what: &str) -> String {
    let (width, height) = (900.0, 320.0);
    let end = samples.last().map_or(1.0, |(time, _)| *time);
    let most = samples.iter().map(|(_, resident)| *resident).fold(1.0, f64::max) * 1.1;
    let at = |time: f64, resident: f64| (60.0 + time / end * (width - 80.0), height - 40.0 - resident / most * 240.0);
    let mut points = String::new();
    for &(time, resident) in samples {
        let (x, y) = at(time, resident);
        let _ = write!(points, "{x:.1},{y:.1} ");
    }
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"60\" y=\"24\" font-size=\"15\">Resident memory: {what}</text>\n"
    );
    for step in 0..=4 {
        let (resident, time) = (most * f64::from(step) / 4.0, end * f64::from(step) / 4.0);
        let ((left, y), (x, bottom)) = (at(0.0, resident), at(time, 0.0));
        let _ = writeln!(
            out,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"4\" y=\"{y:.1}\">{resident:.0} MiB</text>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.1} min</text>",
            width - 20.0,
            bottom + 20.0,
            time / 60.0,
        );
    }
    let _ = writeln!(out, "<polyline points=\"{points}\" fill=\"none\" stroke=\"#1a5fb4\" stroke-width=\"1.5\"/>");
    out + "</svg>\n"
}
