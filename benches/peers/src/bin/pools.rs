#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]
//! What it costs to share a loop between two threads: opfuse's pool beside rayon, chili and paralight.
//!
//! `pools [SAMPLES]` prints a table. A *fork* runs two tasks on two threads and waits for both, as a kernel that is cut
//! in two does. Pools take turns, and figures are medians.
//!
//! - *Empty* tasks show what a fork costs at least.
//! - Tasks that take 5 µs each show what a fork costs if both threads work: the time beyond 5 µs.
//! - *After idle*, each fork follows 2 ms of sleep. Its tasks take 50 µs. A pool whose second thread comes too late
//!   needs 100.
//! - *Nested* is a fork of empty tasks inside a task.
//!
//! All pools are called from a thread that is not theirs, as opfuse's is. chili runs both tasks on the calling thread
//! until a heartbeat has passed.

use opfuse::device::pool;
use paralight::prelude::*;
use std::hint::black_box;
use std::num::NonZero;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Forks of a sample.
const FORKS: u32 = 500;
/// Forks after idle.
const WAKES: usize = 60;
const SHORT: Duration = Duration::from_micros(5);
const LONG: Duration = Duration::from_micros(50);
const IDLE: Duration = Duration::from_millis(2);

/// A task; it is run on both threads.
type Task<'a> = &'a (dyn Fn() + Sync);

/// A way to run a task twice at the same time.
struct Pool<'a> {
    name: &'static str,
    fork: Box<dyn FnMut(Task<'_>) + 'a>,
    /// Nanoseconds of a fork of empty tasks inside a task; `None` if it cannot be.
    nested: Option<f64>,
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn nothing() {
    black_box(());
}

/// What two tasks return.
fn discard(_: ((), ())) {}

/// Nanoseconds of one of many calls.
fn per_call(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..FORKS).for_each(|_| call());
    start.elapsed().as_nanos() as f64 / f64::from(FORKS)
}

/// Samples of what is inside a task.
fn collect(mut sample: impl FnMut() -> f64) -> Vec<f64> {
    (0..20).map(|_| sample()).collect()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    let samples = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200);
    pool::set_num_threads(2);
    let threads = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("two threads can be had");
    let config = chili::Config { thread_count: NonZero::new(2), ..chili::Config::default() };
    let chili = chili::ThreadPool::with_config(config);
    let mut scope = chili.scope();
    let two = ThreadCount::try_from(2).expect("two is a number of threads");
    let builder =
        ThreadPoolBuilder { num_threads: two, range_strategy: RangeStrategy::Fixed, cpu_pinning: CpuPinningPolicy::No };
    let mut paralight = builder.build();

    let own_nested = median(collect(|| {
        let nanos = Mutex::new(0.0);
        pool::run(2, 2, &|_| *nanos.lock().expect("nothing panics") = per_call(|| pool::run(2, 2, &|_| nothing())));
        nanos.into_inner().expect("nothing panics")
    }));
    let rayon_nested = threads.install(|| median(collect(|| per_call(|| discard(rayon::join(nothing, nothing))))));
    let chili_nested = median(collect(|| {
        let inner = |scope: &mut chili::Scope<'_>| per_call(|| discard(scope.join(|_| nothing(), |_| nothing())));
        scope.join(inner, |_| nothing()).0
    }));

    let mut pools = [
        Pool { name: "opfuse", fork: Box::new(|task| pool::run(2, 2, &|_| task())), nested: Some(own_nested) },
        Pool {
            name: "rayon, from outside",
            fork: Box::new(|task| discard(threads.install(|| rayon::join(task, task)))),
            nested: Some(rayon_nested),
        },
        Pool {
            name: "chili",
            fork: Box::new(|task| discard(scope.join(|_| task(), |_| task()))),
            nested: Some(chili_nested),
        },
        Pool {
            name: "paralight",
            fork: Box::new(|task| (0..2_usize).into_par_iter().with_thread_pool(&mut paralight).for_each(|_| task())),
            nested: None,
        },
    ];
    let short = || spin(SHORT);
    let long = || spin(LONG);
    let mut times: Vec<[Vec<f64>; 3]> = pools.iter().map(|_| [const { Vec::new() }; 3]).collect();
    for _ in 0..samples {
        for (pool, [empty, busy, _]) in pools.iter_mut().zip(&mut times) {
            empty.push(per_call(|| (pool.fork)(&nothing)));
            busy.push(per_call(|| (pool.fork)(&short)) - SHORT.as_nanos() as f64);
        }
    }
    for _ in 0..WAKES {
        for (pool, [_, _, woken]) in pools.iter_mut().zip(&mut times) {
            std::thread::sleep(IDLE);
            let start = Instant::now();
            (pool.fork)(&long);
            woken.push(start.elapsed().as_nanos() as f64);
        }
    }
    println!("| pool | empty tasks | beyond tasks of 5 us | tasks of 50 us after idle | nested |");
    println!("|---|---|---|---|---|");
    for (pool, [empty, busy, woken]) in pools.iter().zip(times) {
        let nested = pool.nested.map_or_else(|| "cannot be".to_string(), |nanos| format!("{nanos:.0} ns"));
        println!(
            "| {} | {:.0} ns | {:.0} ns | {:.1} us | {nested} |",
            pool.name,
            median(empty),
            median(busy),
            median(woken) / 1000.0
        );
    }
}
