//! Random programs over the public interface: a compiled function must do what the function does.
//!
//! A program is data (`program.rs`), made from a seed (`generate.rs`), and interpreted on tensors (`interpret.rs`). It
//! runs eagerly and compiled, four times each, on tensors of its own. After every call everything that can be observed
//! is compared (`compare.rs`). A program that fails is shrunk and printed as Rust (`shrink.rs`, `print.rs`).
//! `OPFUSE_SEED=n` replays a seed; `OPFUSE_FUZZ=n` sets how many seeds there are.

#![allow(clippy::print_stdout, reason = "with --nocapture the number of programs is printed")]

mod calls;
mod compare;
#[path = "../common/effort.rs"]
mod effort;
mod found;
mod generate;
mod given;
mod inputs;
mod interpret;
mod known;
mod methods;
mod operators;
mod print;
mod program;
#[path = "../same_bits/random.rs"]
mod random;
mod shrink;
#[path = "../same_bits/values.rs"]
mod values;

use compare::{Calls, Difference, difference};
use given::make;
use interpret::Frame;
use opfuse::Tensor;
use program::Case;
use std::collections::BTreeMap;

/// Programs in a short run and in a long one.
const PROGRAMS: [u64; 2] = [4_000, 60_000];
/// Code without optimization checks one program in so many.
const SHARE: u64 = if cfg!(debug_assertions) { 20 } else { 1 };

/// The first difference between the twins of a program.
fn failure(case: &Case) -> Option<Difference> {
    let body = |captured: &[Tensor], inputs: &[Tensor]| Frame::new(inputs, captured).block(&case.body);
    difference(&Calls {
        captured: &|| make(&case.captured, &[]),
        inputs: &|call, captured| make(&case.calls[call], captured),
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
    quietly();
    let [short, long] = PROGRAMS;
    let seeds = effort::seeds(short / SHARE, long / SHARE);
    let mut classes: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut open: BTreeMap<&str, u64> = BTreeMap::new();
    let mut checked = 0;
    let mut used = std::collections::BTreeSet::new();
    let says_unused = std::env::var("OPFUSE_UNUSED").is_ok();
    let says = std::env::var("OPFUSE_SAY").is_ok();
    for seed in seeds {
        if says {
            println!("seed {seed}");
        }
        let case = generate::generate(seed);
        if says {
            println!("{}", print::program("printed", &case));
        }
        assert!(shrink::is_valid(&case), "seed {seed} uses what is not there");
        checked += 1;
        shrink::collect(&case.body, &mut used);
        let Some(found) = failure(&case) else { continue };
        let small = shrink::shrink(&case, &found);
        let found = failure(&small).unwrap_or(found);
        if let Some(name) = known::known(&small, &found) {
            *open.entry(name).or_insert(0) += 1;
            continue;
        }
        let class = shrink::class(&small, &found);
        let seen = classes.entry(class.clone()).or_default();
        seen.push(seed);
        if seen.len() <= 2 {
            println!("==== seed {seed}: {class}\n{}\n{found:#?}\n", print::program(&format!("seed_{seed}"), &small));
        }
    }
    println!("{checked} programs; calls, hits, deferred, eager: {:?}", compare::RAN);
    if says_unused {
        let all = operators::operators().iter().map(|operator| operator.name().to_string());
        let unused: Vec<String> = all.filter(|name| !used.contains(name)).collect();
        println!("{} operators were called, and never {unused:?}", used.len());
    }
    for (name, count) in &open {
        println!("{count} of the open class {name}");
    }
    for (class, seeds) in &classes {
        println!("{} of {class}: {:?}", seeds.len(), &seeds[..seeds.len().min(8)]);
    }
    assert!(classes.is_empty(), "{} classes of failures", classes.len());
}
