//! How long partitioning takes as graphs grow, per family of graphs.
//!
//! The families are the shapes of real models and the shapes that would make careless dominator climbs or path
//! walks quadratic. Growth is the time of a graph over the time of one a tenth its size: 10 is linear. Whole plans are
//! held to a limit for 100,000 nodes; the benchmark fails above it. `-- plans` measures those alone.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use opfuse::internals::fusion::{Options, Pattern, PatternGraph, Vertex, VertexFacts, partition, plan};
use opfuse::internals::ir::passes::decompose;
use opfuse::ir::{Attr, Attrs, DType, Graph, NodeId, Op, TensorType};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Family = (&'static str, fn(usize) -> PatternGraph);

const FAMILIES: [Family; 15] = [
    ("chain", chain),
    ("chain of anchors", anchors),
    ("residual network", residual),
    ("transformer blocks", transformer),
    ("diamonds", diamonds),
    ("random, near inputs", |n| random(n, 16)),
    ("random, far inputs", |n| random(n, usize::MAX)),
    ("wide fan-out", fan_out),
    ("all skip to the end", skip_to_end),
    ("nested long skips", nested_skips),
    ("many into one chain", |n| into_chain(n, Pattern::Elemwise)),
    ("many past a reduction", |n| into_chain(n, Pattern::Reduce)),
    ("stuck late, 200", |n| stuck_late(n, 200)),
    ("stuck late, half", |n| stuck_late(n, n / 2)),
    ("windows of 8", |n| window(n, 8)),
];

/// The most that planning 100,000 nodes may take.
const LIMIT: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    if !std::env::args().any(|argument| argument == "plans") {
        partitions();
    }
    whole_plans()
}

fn partitions() {
    let unlimited = Options { max_fuse_depth: usize::MAX, ..Options::default() };
    for (title, options) in [("groups of at most 256", Options::default()), ("unlimited groups", unlimited)] {
        println!("{title}");
        println!("{:<24}{:>10}{:>14}{:>12}{:>9}{:>10}", "family", "nodes", "time", "ns/node", "growth", "groups");
        for (name, build) in FAMILIES {
            let mut before = None;
            for n in [1_000, 10_000, 100_000] {
                let graph = build(n);
                let (time, n_groups) = best_of(if n < 100_000 { 20 } else { 3 }, &graph, &options);
                let per_node = time.as_nanos() as f64 / graph.len() as f64;
                let growth = before.replace(time).map_or(f64::NAN, |before| time.as_secs_f64() / before.as_secs_f64());
                println!("{name:<24}{:>10}{time:>14.2?}{per_node:>12.1}{growth:>9.1}{n_groups:>10}", graph.len());
            }
        }
        println!();
    }
}

/// Partitioning, merging and deciding every edge, on graphs of ops; fails if one takes longer than it may.
fn whole_plans() -> ExitCode {
    println!("whole plans of graphs of ops");
    println!("{:<24}{:>10}{:>14}{:>12}{:>9}{:>10}", "family", "nodes", "time", "ns/node", "growth", "kernels");
    type Family = (&'static str, fn(usize) -> Graph);
    let families: [Family; 5] = [
        ("encoder layers", encoder),
        ("element-wise, far inputs", tangle),
        ("one value read by all", |n| read_by_all(n, Op::Exp)),
        ("softmax, skipping back", skips),
        ("products, skipping back", product_skips),
    ];
    let mut slowest = Duration::ZERO;
    for (name, build) in families {
        let mut before = None;
        for n in [1_000, 10_000, 100_000] {
            let graph = build(n);
            let start = Instant::now();
            let plan = black_box(plan(black_box(&graph), &Options::default()));
            let time = start.elapsed();
            let per_node = time.as_nanos() as f64 / graph.len() as f64;
            let growth = before.replace(time).map_or(f64::NAN, |before| time.as_secs_f64() / before.as_secs_f64());
            println!("{name:<24}{:>10}{time:>14.2?}{per_node:>12.1}{growth:>9.1}{:>10}", graph.len(), plan.n_kernels());
            slowest = slowest.max(time);
        }
    }
    let (verdict, code) = match slowest <= LIMIT {
        true => ("holds", ExitCode::SUCCESS),
        false => ("BROKEN", ExitCode::FAILURE),
    };
    println!("at most {LIMIT:?} for 100,000 nodes: {verdict}, the slowest took {slowest:.2?}");
    code
}

/// Matrix product, bias, gelu, residual and layer norm, over and over.
fn encoder(n: usize) -> Graph {
    let mut graph = Graph::new();
    let mut x = graph.input(TensorType::contiguous(DType::F32, &[64, 32]));
    let weight = graph.input(TensorType::contiguous(DType::F32, &[32, 32]));
    let bias = graph.input(TensorType::contiguous(DType::F32, &[32]));
    let one = || Attrs::from_elem(Attr::int(1), 1);
    // A layer norm is decomposed into eleven ops, so a layer has sixteen.
    while graph.len() * 3 < n {
        let mut add = |op: Op, args: &[NodeId], attrs: Attrs| graph.add(op, args, attrs).expect("the shapes fit");
        let product = add(Op::Mm, &[x, weight], Attrs::new());
        let biased = add(Op::Add, &[product, bias], one());
        let gelu = add(Op::Gelu, &[biased], Attrs::from_elem(Attr::Str("tanh".into()), 1));
        let sum = add(Op::Add, &[gelu, x], one());
        let norm = [Attr::ints(&[32]), Attr::bool(true), Attr::bool(true), Attr::float(1e-5), Attr::bool(true)];
        x = add(Op::LayerNorm, &[sum, bias, bias], norm.into_iter().collect());
    }
    graph.set_outputs(vec![x]);
    decompose(&graph).expect("the graph is valid")
}

/// Sums of the last value and any earlier one.
fn tangle(n: usize) -> Graph {
    let mut graph = Graph::new();
    let mut values = vec![graph.input(TensorType::contiguous(DType::F32, &[64]))];
    let mut seed = 1usize;
    while graph.len() < n {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (last, other) = (values[values.len() - 1], values[(seed >> 33) % values.len()]);
        values.push(graph.add(Op::Mul, &[last, other], Attrs::new()).expect("the shapes fit"));
    }
    graph.set_outputs(vec![values[values.len() - 1]]);
    graph
}

/// Rows that are combined with the first value, by a sum over them now and then.
fn read_by_all(n: usize, op: Op) -> Graph {
    let mut graph = Graph::new();
    let input = graph.input(TensorType::contiguous(DType::F32, &[64, 32]));
    let shared = graph.add(op, &[input], Attrs::new()).expect("the shapes fit");
    let mut last = shared;
    while graph.len() < n {
        let sum = [Attr::ints(&[1]), Attr::bool(true), Attr::None].into_iter().collect();
        let total = graph.add(Op::Sum, &[last], sum).expect("the shapes fit");
        last = graph.add(Op::Mul, &[total, shared], Attrs::new()).expect("the shapes fit");
    }
    graph.set_outputs(vec![last]);
    graph
}

/// Half of the graph goes down, the other half reads that backwards, as the decoder of a U-shaped network does.
fn skipping(n: usize, mut down: impl FnMut(&mut Graph, NodeId) -> NodeId) -> Graph {
    let mut graph = Graph::new();
    let mut last = graph.input(TensorType::contiguous(DType::F32, &[64, 32]));
    let mut all = Vec::new();
    while graph.len() < n * 2 / 3 {
        last = down(&mut graph, last);
        all.push(last);
    }
    while let Some(skip) = all.pop() {
        last = graph.add(Op::Mul, &[last, skip], Attrs::new()).expect("the shapes fit");
    }
    graph.set_outputs(vec![last]);
    graph
}

fn skips(n: usize) -> Graph {
    let graph = skipping(n / 4, |graph, last| {
        graph.add(Op::Softmax, &[last], [Attr::int(1), Attr::None].into_iter().collect()).expect("the shapes fit")
    });
    decompose(&graph).expect("the graph is valid")
}

fn product_skips(n: usize) -> Graph {
    let mut weight = None;
    skipping(n, |graph, last| {
        let weight = *weight.get_or_insert_with(|| graph.input(TensorType::contiguous(DType::F32, &[32, 32])));
        let product = graph.add(Op::Mm, &[last, weight], Attrs::new()).expect("the shapes fit");
        graph.add(Op::Tanh, &[product], Attrs::new()).expect("the shapes fit")
    })
}

fn best_of(n_runs: usize, graph: &PatternGraph, options: &Options) -> (Duration, usize) {
    let run = || {
        let start = Instant::now();
        let partition = black_box(partition(black_box(graph), options));
        (start.elapsed(), partition.groups.len())
    };
    (0..n_runs).map(|_| run()).min().expect("there is at least one run")
}

fn start(n: usize) -> (PatternGraph, Vertex) {
    let mut graph = PatternGraph::with_capacity(n + 2);
    let param = graph.add(VertexFacts::param(), &[]);
    (graph, param)
}

fn finish(mut graph: PatternGraph, output: Vertex) -> PatternGraph {
    graph.mark_visible(output);
    graph
}

fn chain(n: usize) -> PatternGraph {
    let (mut graph, mut last) = start(n);
    for _ in 1..n {
        last = graph.add_op(Pattern::Elemwise, &[last]);
    }
    finish(graph, last)
}

fn anchors(n: usize) -> PatternGraph {
    let (mut graph, mut last) = start(n);
    while graph.len() < n {
        for pattern in [Pattern::OutEwise, Pattern::Elemwise, Pattern::Elemwise, Pattern::Injective] {
            last = graph.add_op(pattern, &[last]);
        }
    }
    finish(graph, last)
}

fn residual(n: usize) -> PatternGraph {
    let (mut graph, mut last) = start(n);
    while graph.len() < n {
        let mut branch = last;
        for _ in 0..2 {
            branch = graph.add_op(Pattern::OutEwise, &[branch]);
            branch = graph.add_op(Pattern::Elemwise, &[branch]);
            branch = graph.add_op(Pattern::Elemwise, &[branch]);
        }
        last = graph.add_op(Pattern::Elemwise, &[branch, last]);
        last = graph.add_op(Pattern::Elemwise, &[last]);
    }
    finish(graph, last)
}

fn transformer(n: usize) -> PatternGraph {
    use Pattern::{Elemwise, Injective, OutEwise, Reduce};
    let (mut graph, mut last) = start(n);
    while graph.len() < n {
        let mean = graph.add_op(Reduce, &[last]);
        let centred = graph.add_op(Elemwise, &[last, mean]);
        let square = graph.add_op(Elemwise, &[centred]);
        let variance = graph.add_op(Reduce, &[square]);
        let normal = graph.add_op(Elemwise, &[centred, variance]);
        let heads = [0; 3].map(|_| {
            let product = graph.add_op(OutEwise, &[normal]);
            graph.add_op(Injective, &[product])
        });
        let scores = graph.add_op(OutEwise, &heads[..2]);
        let most = graph.add_op(Reduce, &[scores]);
        let exp = graph.add_op(Elemwise, &[scores, most]);
        let total = graph.add_op(Reduce, &[exp]);
        let weights = graph.add_op(Elemwise, &[exp, total]);
        let mixed = graph.add_op(OutEwise, &[weights, heads[2]]);
        let merged = graph.add_op(Injective, &[mixed]);
        let out = graph.add_op(OutEwise, &[merged]);
        last = graph.add_op(Elemwise, &[out, last]);
    }
    finish(graph, last)
}

fn diamonds(n: usize) -> PatternGraph {
    let (mut graph, mut last) = start(n);
    while graph.len() < n {
        let left = graph.add_op(Pattern::Elemwise, &[last]);
        let right = graph.add_op(Pattern::Injective, &[last]);
        last = graph.add_op(Pattern::Elemwise, &[left, right]);
    }
    finish(graph, last)
}

fn random(n: usize, reach: usize) -> PatternGraph {
    use Pattern::{Broadcast, Elemwise, Injective, OutEwise, Reduce};
    let (mut graph, mut last) = start(n);
    let mut state = 1_u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % n as u64) as usize
    };
    while graph.len() < n {
        let near = reach.min(graph.len());
        let inputs = [Vertex::new(graph.len() - 1 - below(near)), Vertex::new(graph.len() - 1 - below(near))];
        let patterns = [Elemwise, Elemwise, Elemwise, Elemwise, Broadcast, Broadcast, Injective, Reduce, OutEwise];
        last = graph.add_op(patterns[below(patterns.len())], &inputs);
    }
    finish(graph, last)
}

fn fan_out(n: usize) -> PatternGraph {
    let (mut graph, param) = start(n);
    let source = graph.add_op(Pattern::Elemwise, &[param]);
    let users: Vec<_> = (3..n).map(|_| graph.add_op(Pattern::Elemwise, &[source])).collect();
    let sink = graph.add_op(Pattern::Injective, &users);
    finish(graph, sink)
}

/// Every vertex is used by the next one and by the last one.
fn skip_to_end(n: usize) -> PatternGraph {
    let (mut graph, mut last) = start(n);
    let mut all = Vec::with_capacity(n);
    while graph.len() + 1 < n {
        last = graph.add_op(Pattern::Elemwise, &[last]);
        all.push(last);
    }
    let sink = graph.add_op(Pattern::Injective, &all);
    finish(graph, sink)
}

/// The first half is a chain; the second uses it backwards, as the decoder of a U-shaped network does.
fn nested_skips(n: usize) -> PatternGraph {
    let (mut graph, mut last) = start(n);
    let mut down = Vec::with_capacity(n);
    while graph.len() < n / 2 {
        last = graph.add_op(Pattern::Elemwise, &[last]);
        down.push(last);
    }
    while let Some(skip) = down.pop() {
        last = graph.add_op(Pattern::Broadcast, &[last, skip]);
    }
    finish(graph, last)
}

/// Half of the vertices are used by the head of a chain, whose middle has pattern `middle`, and by its end.
fn into_chain(n: usize, middle: Pattern) -> PatternGraph {
    let (mut graph, param) = start(n);
    let mut all: Vec<_> = (0..n / 2).map(|_| graph.add_op(Pattern::Elemwise, &[param])).collect();
    let mut last = graph.add_op(Pattern::Broadcast, &all);
    while graph.len() + 1 < n {
        let pattern = if graph.len() == n * 3 / 4 { middle } else { Pattern::Elemwise };
        last = graph.add_op(pattern, &[last]);
    }
    all.push(last);
    let sink = graph.add_op(Pattern::Broadcast, &all);
    finish(graph, sink)
}

/// Light vertices that feed a chain of `length` and its end, where an anchored sum just before the end is in the way.
fn stuck_late(n: usize, length: usize) -> PatternGraph {
    let (mut graph, param) = start(n);
    let head = graph.add(VertexFacts::param(), &[]);
    let product = graph.add_op(Pattern::OutEwise, &[param, param]);
    let mut all: Vec<_> = (length + 4..n).map(|_| graph.add_op(Pattern::Elemwise, &[head])).collect();
    let mut last = graph.add_op(Pattern::Broadcast, &all);
    for _ in 1..length {
        last = graph.add_op(Pattern::Elemwise, &[last]);
    }
    last = graph.add_op(Pattern::Elemwise, &[last, product]);
    let moved = graph.add_op(Pattern::Injective, &[last]);
    all.push(moved);
    let sink = graph.add_op(Pattern::Elemwise, &all);
    finish(graph, sink)
}

fn window(n: usize, width: usize) -> PatternGraph {
    let (mut graph, mut last) = start(n);
    while graph.len() < n {
        let first = graph.len().saturating_sub(width);
        let inputs: Vec<_> = (first..graph.len()).map(Vertex::new).collect();
        last = graph.add_op(Pattern::Elemwise, &inputs);
    }
    finish(graph, last)
}
