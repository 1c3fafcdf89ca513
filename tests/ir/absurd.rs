//! Absurd calls: any number of operands of any type, attributes of any kind. Inference refuses them with an error or
//! gives a type. What it accepts is decomposed, goes through the passes, and is planned. Nothing panics.

use crate::effort::n_cases;
use crate::panics::message;
use crate::values::Numbers;
use opfuse::internals::fusion::{Options, plan};
use opfuse::internals::ir::passes::{PASSES, decompose};
use opfuse::ir::{Attr, Attrs, DType, Graph, MemoryFormat, Op, Scalar, TensorType};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SIZES: &[usize] = &[0, 1, 1, 2, 3, 4, 5, 8, 1 << 40];
const INTS: &[i64] = &[0, 1, -1, 2, 3, -3, 5, 64, i64::MAX, i64::MIN, 1 << 40];
const FLOATS: &[f64] = &[0.0, -0.0, 0.5, 1.0, -1.0, 2.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
const WORDS: &[&str] = &["", "floor", "trunc", "none", "tanh", "constant", "reflect", "mean", "no such word"];
const FORMATS: &[MemoryFormat] =
    &[MemoryFormat::Preserve, MemoryFormat::Contiguous, MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d];

/// How many calls each op gets.
fn n_calls() -> u64 {
    n_cases(150, 1500)
}

fn operand(numbers: &mut Numbers) -> TensorType {
    let rank = numbers.pick(&[0usize, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6]);
    let mut sizes: Vec<usize> = (0..rank).map(|_| numbers.pick(SIZES)).collect();
    if sizes.iter().filter(|&&size| size > 100).count() > 1 {
        sizes.iter_mut().for_each(|size| *size = (*size).min(4));
    }
    let dtype = numbers.pick(&DType::ALL);
    let number = rank == 0 && numbers.next().is_multiple_of(4);
    TensorType { number, ..TensorType::contiguous(dtype, &sizes) }
}

fn attribute(numbers: &mut Numbers) -> Attr {
    match numbers.next() % 9 {
        0 => Attr::None,
        1 | 2 => Attr::Scalar(Scalar::Int(numbers.pick(INTS))),
        3 => Attr::Scalar(Scalar::Float(numbers.pick(FLOATS))),
        4 => Attr::Scalar(Scalar::Bool(numbers.next().is_multiple_of(2))),
        5 | 6 => {
            let n = numbers.next() % 5;
            Attr::Ints((0..n).map(|_| numbers.pick(INTS)).collect())
        }
        7 => Attr::DType(numbers.pick(&DType::ALL)),
        _ if numbers.next().is_multiple_of(2) => Attr::MemoryFormat(numbers.pick(FORMATS)),
        _ => Attr::Str(numbers.pick(WORDS).into()),
    }
}

/// A call of `op`: its graph, unless it is refused.
fn call(op: Op, seed: u64) -> Option<Graph> {
    let mut numbers = Numbers::new(seed);
    let arity = op.arity();
    let fits = !numbers.next().is_multiple_of(8);
    let n = if fits { (*arity.start()..=(*arity.end()).min(4)).count() as u64 } else { 6 };
    let first = if fits { *arity.start() as u64 } else { 0 };
    let n_operands = first + numbers.next() % n.max(1);
    let mut graph = Graph::new();
    let like = operand(&mut numbers);
    let alike = numbers.next().is_multiple_of(2);
    let args: Vec<_> =
        (0..n_operands).map(|_| graph.input(if alike { like.clone() } else { operand(&mut numbers) })).collect();
    let attrs: Attrs = (0..numbers.next() % 10).map(|_| attribute(&mut numbers)).collect();
    let result = graph.add(op, &args, attrs).ok()?;
    graph.set_outputs(vec![result]);
    Some(graph)
}

/// The message of the panic of `work`, if it panics.
fn panic_of(work: impl FnOnce()) -> Option<String> {
    catch_unwind(AssertUnwindSafe(work)).err().map(|panic| message(&*panic))
}

/// Whether a graph is small enough to be planned for real.
fn is_small(graph: &Graph) -> bool {
    graph.nodes().all(|(_, node)| node.ty.numel() < 1 << 20)
}

/// Sends a call through text, decomposition, passes and planning.
fn check(op: Op, seed: u64) {
    let Some(graph) = call(op, seed) else { return };
    let text = graph.to_string();
    let again: Graph = text.parse().unwrap_or_else(|error| panic!("its text does not parse: {error}"));
    assert_eq!(again.to_string(), text, "its text parses to another graph");
    let Ok(mut graph) = decompose(&graph) else { return };
    if !is_small(&graph) {
        return;
    }
    for pass in &PASSES[1..] {
        match (pass.run)(&graph) {
            Ok(next) => graph = next,
            Err(_) => return,
        }
    }
    plan(&graph, &Options::default());
}

#[test]
fn absurd_calls_are_refused_or_planned_and_never_panic() {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for &op in Op::ALL {
        for seed in 0..n_calls() {
            if let Some(message) = panic_of(|| check(op, seed ^ (op as u64) << 32)) {
                found.entry(format!("{op:?}: {message}")).or_insert(seed);
            }
        }
    }
    assert!(found.is_empty(), "{} panics:\n{found:#?}", found.len());
}

#[test]
fn absurd_texts_of_graphs_are_errors_and_never_panic() {
    let texts: Vec<String> = Op::ALL
        .iter()
        .flat_map(|&op| (0..4).filter_map(move |seed| call(op, seed)))
        .map(|graph| graph.to_string())
        .collect();
    let mut numbers = Numbers::new(7);
    let mut found = BTreeMap::new();
    for round in 0..n_calls() * 100 {
        let mut text: Vec<u8> = texts[(numbers.next() % texts.len() as u64) as usize].bytes().collect();
        for _ in 0..1 + numbers.next() % 3 {
            let at = (numbers.next() % text.len().max(1) as u64) as usize;
            match numbers.next() % 4 {
                0 if text.len() > 1 => drop(text.remove(at)),
                0 => {}
                1 => text.insert(at, numbers.pick(b"n0123456789[](),=:-#x \n")),
                2 => text[at] = numbers.pick(b"n0123456789[](),=:-#x \n"),
                _ => text.truncate(at.max(1)),
            }
        }
        let Ok(text) = String::from_utf8(text) else { continue };
        let parse = || drop(text.parse::<Graph>());
        if let Some(message) = panic_of(parse) {
            found.entry(message).or_insert((round, text));
        }
    }
    assert!(found.is_empty(), "{} panics:\n{found:#?}", found.len());
}
