//! The promise of the same bits: random graphs, compiled on every tier, against their ops run one by one.
//!
//! The groups of the base partitioner and the kernels of the plan must also be legal, by the rules of `legality`, which
//! does not use the fuser. A failure prints the seed, the shrunk graph as text, its plan, and the first element that
//! differs. `OPFUSE_SEED=n` replays a seed; `tests/common/effort.rs` says how many random graphs run. Some of them run
//! again as on machines with weaker vectors; `OPFUSE_ISA` replays that.

#![allow(clippy::print_stdout, reason = "with --nocapture the number of graphs is printed")]

mod build;
mod check;
#[path = "../common/effort.rs"]
mod effort;
mod generate;
mod gradients;
#[path = "../common/guarded.rs"]
mod guarded;
#[path = "../common/legality.rs"]
mod legality;
mod long_rows;
mod moves;
mod networks;
mod once_wrong;
mod ops;
mod outer_folds;
#[path = "../common/panics.rs"]
mod panics;
mod pieces;
mod random;
mod reference;
mod routines;
mod short_products;
mod short_rows;
mod short_sums;
mod shrink;
mod values;
mod views;
mod windows;
mod workload;

use build::Case;
use check::{Effort, failure};
use opfuse::ir::{Graph, Op};
use random::Random;
use std::collections::BTreeSet;
use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use values::Fill;

/// How many failures are printed; the rest is counted.
const REPORTED: usize = 3;
/// Random graphs in a short run and in a long one.
const GRAPHS: [u64; 2] = [6_000, 24_000];
const WORKLOADS: [u64; 2] = [120, 400];
/// Code without optimization checks one graph in so many.
const SHARE: u64 = if cfg!(debug_assertions) { 20 } else { 1 };

#[test]
fn random_graphs_have_eagers_bits() {
    let [short, long] = GRAPHS;
    let seeds = effort::seeds(short / SHARE, long / SHARE);
    let count = seeds.end - seeds.start;
    let (checked, ops) = all(seeds, generate::small);
    println!("{checked} random graphs: planned legally, and compiled with eager's bits on every tier");
    let least = if effort::is_chosen() { 0 } else { count / 2 };
    assert!(checked >= least, "only {checked} graphs were checked");
    let missing: Vec<&str> = Op::ALL.iter().filter(|op| !ops.contains(op)).map(|op| op.name()).collect();
    assert!(missing.is_empty() || count < 2000, "no graph had {missing:?}");
}

/// The instruction set and the threshold of non-temporal stores are fixed once per process, so other settings run in
/// processes of their own.
#[test]
fn other_instruction_sets_and_stores_have_the_same_bits() {
    let [short, long] = GRAPHS;
    let count = effort::n_cases(short / SHARE, long / SHARE) / 8;
    let program = std::env::current_exe().expect("a test knows its program");
    for (name, value) in [("OPFUSE_ISA", "avx2"), ("OPFUSE_ISA", "baseline"), ("OPFUSE_STREAM_FROM", "0")] {
        let mut command = Command::new(&program);
        command.args(["--exact", "random_graphs_have_eagers_bits", "workloads_have_eagers_bits"]);
        command.env(name, value).env("OPFUSE_FUZZ", count.to_string());
        let output = command.output().expect("a test can be run again");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.contains("2 passed"), "{name}={value}: {out}\n{err}");
    }
}

#[test]
fn workloads_have_eagers_bits() {
    let [short, long] = WORKLOADS;
    let count = if effort::is_long() { long } else { short };
    all(effort::seeds_below(count / SHARE), workload::workload);
}

#[test]
fn networks_have_eagers_bits() {
    let [short, long] = WORKLOADS;
    let count = 4 * if effort::is_long() { long } else { short };
    all(effort::seeds_below(count / SHARE), networks::network);
}

#[test]
fn graphs_that_were_wrong_once_stay_right() {
    for (what, text) in once_wrong::ONCE_WRONG {
        let graph: Graph = text.parse().unwrap_or_else(|error| panic!("{what}: {error}"));
        check_graph(what, &graph);
    }
}

#[test]
fn short_sums_have_eagers_bits() {
    for (what, graph, few) in short_sums::sums() {
        assert!(short_sums::is_unrolled(&graph, few), "{what}\n{graph}");
        check_graph(&what, &graph);
    }
}

#[test]
fn short_rows_have_eagers_bits() {
    for (what, graph) in short_rows::values().into_iter().chain(short_rows::folds()) {
        check_graph(&what, &graph);
    }
}

#[test]
fn narrow_elements_have_eagers_bits() {
    for (what, graph) in short_rows::whole_folds().into_iter().chain(short_rows::columns()) {
        check_graph(&what, &graph);
    }
}

#[test]
fn short_products_have_eagers_bits() {
    for (what, graph, is_unrolled) in short_products::products() {
        assert_eq!(short_products::is_unrolled(&graph), is_unrolled, "{what}\n{graph}");
        check_graph(&what, &graph);
    }
}

#[test]
fn outer_folds_have_eagers_bits() {
    let mut counts = [0, 0];
    for (what, graph) in outer_folds::folds() {
        check_graph(&what, &graph);
        counts.iter_mut().zip(outer_folds::along_rows(&graph)).for_each(|(sum, count)| *sum += count);
    }
    println!("machine code runs {} of {} folds along rows", counts[0], counts[1]);
    let least = if outer_folds::has_vectors() { 20 } else { 0 };
    assert!(counts[0] >= least, "{counts:?}");
}

#[test]
fn long_rows_have_eagers_bits() {
    for (what, graph) in long_rows::folds() {
        check_graph_with(&what, &graph, 0..2, Effort::Tiers);
    }
}

#[test]
fn rows_in_pieces_have_eagers_bits() {
    for (what, graph) in pieces::rows() {
        check_graph(&what, &graph);
    }
}

#[test]
fn piecewise_values_are_one_kernel_with_eagers_bits() {
    for (what, graph, n_steps) in pieces::values() {
        assert_eq!(pieces::steps(&graph), n_steps, "{what}\n{graph}");
        check_graph(what, &graph);
    }
}

/// The graph of a text.
fn parsed(text: &str) -> Graph {
    text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Checks a graph on several inputs.
fn check_graph(what: &str, graph: &Graph) {
    check_graph_with(what, graph, 0..8, Effort::Interpreter);
}

/// Checks a graph on inputs of these seeds.
fn check_graph_with(what: &str, graph: &Graph, seeds: Range<u64>, effort: Effort) {
    for seed in seeds {
        let mut random = Random::new(seed);
        let fill = random.pick(&[Fill::Normal, Fill::Wild]);
        let inputs = graph.inputs().iter().map(|&id| values::array(&mut random, &graph[id].ty, fill)).collect();
        let case = Case { graph: graph.clone(), inputs };
        if let Some(why) = failure(&case, effort) {
            panic!("{what}: seed {seed}: {why}\n{graph}");
        }
    }
}

/// Checks the graphs of these seeds; returns how many were right and which ops they had.
fn all(seeds: Range<u64>, make: fn(u64) -> Case) -> (u64, BTreeSet<Op>) {
    let (next, failed, ops) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
    let checked = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut seen = BTreeSet::new();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let case = make(seed);
                    seen.extend(case.graph.nodes().filter_map(|(_, node)| node.op()));
                    let effort = effort_of(seed, &case);
                    match failure(&case, effort) {
                        None => drop(checked.fetch_add(1, Ordering::Relaxed)),
                        Some(what) => {
                            failed.lock().expect("no thread panics while it holds the list").push((seed, what));
                        }
                    }
                }
                ops.lock().expect("no thread panics while it holds the set").extend(seen);
            });
        }
    });
    let mut failed = failed.into_inner().expect("no thread panicked");
    failed.sort();
    let reports: Vec<String> =
        failed.iter().take(REPORTED).map(|(seed, what)| report(*seed, &make(*seed), what)).collect();
    assert!(
        failed.is_empty(),
        "{} of {} graphs failed\n{}\nseeds: {:?}",
        failed.len(),
        seeds.end - seeds.start,
        reports.join("\n"),
        failed.iter().map(|(seed, _)| seed).take(50).collect::<Vec<_>>()
    );
    (checked.into_inner(), ops.into_inner().expect("no thread panicked"))
}

/// The interpreter is slow, so it runs a fifth of the small graphs, and a few of the large ones.
fn effort_of(seed: u64, case: &Case) -> Effort {
    let large = case.graph.nodes().any(|(_, node)| node.ty.numel() > 3000);
    if seed.is_multiple_of(if large { 20 } else { 5 }) { Effort::Interpreter } else { Effort::Tiers }
}

fn report(seed: u64, case: &Case, what: &str) -> String {
    let effort = effort_of(seed, case);
    let small = shrink::shrink(case, &|case| failure(case, effort).is_some());
    let why = failure(&small, effort).unwrap_or_default();
    format!("seed {seed}: {}\nshrunk:\n{}{why}", what.lines().next().unwrap_or_default(), small.graph)
}
