//! Random programs over the public interface: a compiled function must do what the function does.
//!
//! A program is data (`program.rs`), made from a seed (`generate.rs`), and interpreted on tensors (`interpret.rs`). It
//! runs eagerly and compiled, four times each, on tensors of its own. After every call everything that can be observed
//! is compared (`compare.rs`). A program that fails is shrunk and printed as Rust (`shrink.rs`, `print.rs`).
//! `OPFUSE_SEED=n` replays a seed; `OPFUSE_FUZZ=n` sets how many seeds there are, `OPFUSE_FIRST_SEED=n` the first.

#![allow(clippy::print_stdout, reason = "with --nocapture the number of programs is printed")]

#[path = "../common/bits.rs"]
mod bits;
mod calls;
mod compare;
mod customs;
#[path = "../common/effort.rs"]
mod effort;
mod found;
mod found_complex;
mod found_results;
mod generate;
mod given;
mod inputs;
mod interpret;
mod known;
mod methods;
mod operators;
mod own;
#[path = "../common/panics.rs"]
mod panics;
mod print;
mod program;
#[path = "../same_bits/random.rs"]
mod random;
mod shrink;
#[path = "../common/unplaced.rs"]
mod unplaced;
#[path = "../same_bits/values.rs"]
mod values;

use compare::{Calls, Difference, difference};
use generate::FIRST_COMPLEX;
use given::{Before, Made, make};
use interpret::Frame;
use opfuse::{Result, Tensor};
use program::Case;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The limit of the allocator, in bytes.
const MOST_MEMORY: usize = 1 << 30;
/// How many failures of a class are printed.
const REPORTED: usize = 2;
/// Programs in a short run and in a long one.
const PROGRAMS: [u64; 2] = [16_000, 90_000];
/// The same, of programs on complex numbers.
const COMPLEX_PROGRAMS: [u64; 2] = [2_000, 8_000];
/// Code without optimization checks one program in so many.
const SHARE: u64 = if cfg!(debug_assertions) { 4 } else { 1 };

/// The first difference between the twins of a program.
fn failure(case: &Case) -> Option<Difference> {
    let body = |captured: &[Tensor], inputs: &[Tensor]| Frame::new(inputs, captured).block(&case.body);
    difference(&Calls {
        captured: &|| make(&case.captured, &[], &Before::default()),
        inputs: &|call, captured, before| make(&case.calls[call], captured, before),
        n_calls: case.calls.len(),
        settings: &case.settings,
        body: &body,
    })
}

/// Silences the panics of programs, which are reported as differences.
fn quietly() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.location().is_some_and(|location| location.file().ends_with("programs/main.rs")) {
            before(info);
        }
    }));
}

#[test]
fn compiled_programs_do_what_eager_ones_do() {
    run_programs(0, PROGRAMS);
}

#[test]
fn compiled_programs_on_complex_numbers_do_what_eager_ones_do() {
    run_programs(FIRST_COMPLEX, COMPLEX_PROGRAMS);
}

/// Runs the programs of so many seeds, from the `first` on, or that of the one that the environment names.
fn run_programs(first: u64, [short, long]: [u64; 2]) {
    quietly();
    // A program that wants more gets an error, eagerly and compiled.
    opfuse::device::allocator::set_limit(MOST_MEMORY);
    let seeds = effort::seeds(short / SHARE, long / SHARE);
    let seeds = if effort::is_single() { seeds } else { first + seeds.start..first + seeds.end };
    if (seeds.start >= FIRST_COMPLEX) != (first >= FIRST_COMPLEX) {
        println!("skipped: the seed is one of the other programs");
        return;
    }
    let (next, seen) = (AtomicU64::new(seeds.start), Mutex::new(Seen::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    check(seed, &seen);
                }
            });
        }
    });
    let seen = seen.into_inner().expect("no thread panicked");
    println!("{} programs; calls, hits, deferred, eager: {:?}", seeds.end - seeds.start, compare::RAN);
    println!("{} operators and methods were called", seen.used.len());
    for (name, failures) in &seen.open {
        let seeds: Vec<u64> = failures.keys().copied().take(5).collect();
        println!("{} of the open class {name}: {seeds:?}", failures.len());
        // One seed alone shows what it found.
        failures.values().filter(|_| effort::is_single()).for_each(|report| println!("{report}"));
    }
    let is_many = first == 0 && seeds.end - seeds.start >= 4_000;
    assert!(!is_many || seen.used.len() > 700, "only {} operators and methods were called", seen.used.len());
    let mut text = String::new();
    for (class, failures) in &seen.failed {
        let seeds: Vec<u64> = failures.keys().copied().take(8).collect();
        text += &format!("\n{} of {class}: {seeds:?}\n", failures.len());
        failures.values().take(REPORTED).for_each(|report| text += report);
    }
    assert!(seen.failed.is_empty(), "{} classes of failures\n{text}", seen.failed.len());
}

/// The comparison finds a function that does not do the same in every run.
#[test]
fn functions_that_count_their_runs_are_found() {
    let runs = AtomicU64::new(0);
    type Plant = fn(u64, &Tensor, &Tensor) -> Result<Vec<Tensor>>;
    let plants: [Plant; 5] = [
        |run, _, x| Ok(vec![x.add(run as f64)?]),
        |run, _, x| Ok(vec![if run > 3 { x.clone() } else { x.copy()? }]),
        |run, w, x| {
            w.add_(run as f64)?;
            Ok(vec![x.neg()?])
        },
        |run, _, x| Ok(vec![x.reshape(if run > 3 { [1, 2] } else { [2, 1] })?.exp()?]),
        |run, _, x| if run > 3 { x.reshape(3).map(|x| vec![x]) } else { Ok(vec![x.exp()?]) },
    ];
    for (number, plant) in plants.into_iter().enumerate() {
        runs.store(0, Ordering::Relaxed);
        let body = |w: &[Tensor], x: &[Tensor]| plant(runs.fetch_add(1, Ordering::Relaxed), &w[0], &x[0]);
        let given = || {
            let tensor = Tensor::from_slice(&[1.0f32, 2.0], &[2])?;
            Ok(Made { tensors: vec![tensor], ..Made::default() })
        };
        let (inputs, settings) = (|_, _: &[Tensor], _: &Before| given(), found::PLAIN);
        let calls = Calls { captured: &given, inputs: &inputs, n_calls: 4, settings: &settings, body: &body };
        assert!(difference(&calls).is_some(), "plant {number}");
    }
}

/// What was found.
#[derive(Default)]
struct Seen {
    /// The operators that were called.
    used: BTreeSet<String>,
    /// The reports of failures of open classes.
    open: BTreeMap<&'static str, BTreeMap<u64, String>>,
    /// The reports of other failures, by class and seed.
    failed: BTreeMap<String, BTreeMap<u64, String>>,
}

/// Checks the program of a seed.
fn check(seed: u64, seen: &Mutex<Seen>) {
    let case = generate::generate(seed);
    assert!(shrink::is_valid(&case), "seed {seed} uses what is not there");
    if effort::is_single() {
        // It may end the process.
        println!("{}", print::program(&format!("seed_{seed}"), &case));
    }
    let found = failure(&case);
    let small = found.as_ref().map_or_else(|| case.clone(), |found| shrink::shrink(&case, found));
    let found = found.map(|first| failure(&small).unwrap_or(first));
    let mut seen = seen.lock().expect("no thread panics while it holds this");
    shrink::collect(&case.body, &mut seen.used);
    let Some(found) = found else { return };
    let report = format!("==== seed {seed}\n{}\n{found:#?}\n", print::program(&format!("seed_{seed}"), &small));
    match known::known(&small, &found) {
        Some(name) => seen.open.entry(name).or_default().insert(seed, report),
        None => seen.failed.entry(shrink::class(&small, &found)).or_default().insert(seed, report),
    };
}
