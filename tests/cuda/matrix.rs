//! Every op of the table, with every dtype that it takes and every layout of its operands, against the CPU by bits.
//!
//! Most of the time goes to g++. So in a short run an op has one layout per dtype, and a different one for each dtype.
//! All its calls are one graph, whose kernels are merged, and one call is eager. `OPFUSE_TEST_LONG=1` has two layouts
//! per dtype. `OPFUSE_TEST_LONG=all` has every layout, and each call alone too, compiled and eager.
//!
//! Routines may run on the CPU. Any other fallback is a failure.

use crate::build::{Builder, Case};
use crate::effort::{is_exhaustive, is_long};
use crate::fakes::{self, PARTS, expect_none, in_parts};
use crate::graphs::{GPU, failure, moved};
use crate::reference::{reference, same};
use crate::values::{Fill, array};
use opfuse::Device;
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::ir::{DType, Graph, Meaning, NodeId, NodeKind, Op, TensorType};

/// How many proposals of a call are made before the op counts as not taking the dtype.
const ATTEMPTS: usize = 60;

/// How an operand lies in its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Dense,
    Transposed,
    Stepped,
    Expanded,
    /// Dense from an odd element on, so that no vector load is aligned.
    Misaligned,
    NoDims,
    Empty,
    One,
}

const PLACES: [Place; 8] = [
    Place::Dense,
    Place::Transposed,
    Place::Stepped,
    Place::Expanded,
    Place::Misaligned,
    Place::NoDims,
    Place::Empty,
    Place::One,
];

impl Place {
    /// The type of an operand with so many dims, unless the layout has its own.
    fn ty(self, dtype: DType, rank: usize) -> TensorType {
        let dense = &[2, 3, 4, 35][4 - rank..];
        let mut sizes = match self {
            Place::NoDims => Vec::new(),
            Place::One => vec![1; rank],
            _ => dense.to_vec(),
        };
        if self == Place::Empty {
            sizes[0] = 0;
        }
        let mut strides = opfuse::internals::ir::shape::contiguous_strides(&sizes);
        match self {
            Place::Transposed => {
                let order: Vec<usize> = (0..rank).rev().collect();
                strides = opfuse::internals::ir::shape::strides_in_order(&sizes, &order);
            }
            Place::Stepped => strides.iter_mut().for_each(|stride| *stride *= 2),
            Place::Expanded => strides[0] = 0,
            Place::Dense | Place::Misaligned | Place::NoDims | Place::Empty | Place::One => {}
        }
        TensorType { dtype, sizes: sizes.into(), strides, number: false }
    }
}

/// A call of an op on operands of this dtype and layout; `None` if it takes none.
fn call(op: Op, dtype: DType, place: Place) -> Option<Case> {
    let fills = [Fill::Normal, Fill::Wild, Fill::Positive, Fill::Whole];
    (0..ATTEMPTS).find_map(|attempt| {
        let mut builder =
            Builder::new((op as u64) << 20 | (dtype as u64) << 14 | (place as u64) << 10 | attempt as u64);
        let rank = [2, 3, 4, 1][attempt % 4];
        let ty = place.ty(dtype, rank);
        builder.shape = ty.sizes.to_vec();
        let fill = fills[(dtype as usize + place as usize + attempt / 8) % fills.len()];
        builder.input(ty.clone(), fill);
        builder.input(ty, Fill::Normal);
        let output = builder.propose(op)?;
        // Some proposals make operands of their own. The last attempts accept them.
        let graph = &builder.graph;
        let NodeKind::Op(found) = graph[output].kind else { return None };
        let mut args = graph[output].args.iter();
        let fits = match attempt {
            _ if graph[output].args.is_empty() => graph[output].ty.dtype == dtype,
            0..40 => args.any(|&arg| arg.index() < 2),
            _ => args.any(|&arg| graph[arg].ty.dtype == dtype),
        };
        (fits && found == op).then(|| finish(builder, output, place))
    })
}

/// The case, its first operands from an odd element on or from an even one.
fn finish(mut builder: Builder, output: NodeId, place: Place) -> Case {
    builder.graph.set_outputs(vec![output]);
    let tys: Vec<TensorType> = builder.graph.inputs().iter().map(|&input| builder.graph[input].ty.clone()).collect();
    let inputs = tys.iter().zip(&builder.fills).map(|(ty, &fill)| {
        let is_odd = place == Place::Misaligned;
        let mut made = std::iter::repeat_with(|| array(&mut builder.random, ty, fill));
        made.find(|array| (array.layout().offset % 2 == 1) == is_odd).expect("offsets are drawn until one fits")
    });
    let inputs = inputs.collect();
    Case { graph: builder.graph, inputs }
}

/// Cases as one graph.
fn joined(cases: Vec<Case>) -> Case {
    let (mut graph, mut inputs, mut outputs) = (Graph::new(), Vec::new(), Vec::new());
    for case in cases {
        let mut ids: Vec<NodeId> = Vec::new();
        for (_, node) in case.graph.nodes() {
            let args: Vec<NodeId> = node.args.iter().map(|arg| ids[arg.index()]).collect();
            ids.push(match node.kind {
                NodeKind::Input(_) => graph.input(node.ty.clone()),
                NodeKind::Number(number) => graph.number(number),
                NodeKind::Extent(count) => graph.extent(count as usize),
                NodeKind::Op(op) => graph.add(op, &args, node.attrs.clone()).expect("it was legal before"),
            });
        }
        outputs.extend(case.graph.outputs().iter().map(|id| ids[id.index()]));
        inputs.extend(case.inputs);
    }
    graph.set_outputs(outputs);
    Case { graph, inputs }
}

/// What is wrong with a case whose nodes are called eagerly, if anything is.
fn eager_failure(case: &Case) -> Result<(), String> {
    let expected = reference(&case.graph, &case.inputs)?;
    let inputs = case.inputs.iter().map(|input| moved(input, GPU)).collect::<Result<Vec<_>, String>>()?;
    let found = reference(&case.graph, &inputs)?;
    for ((found, expected), (id, _)) in found.iter().zip(&expected).zip(case.graph.nodes()) {
        same(&moved(found, Device::CPU)?, expected).map_err(|what| format!("eager {id}: {what}"))?;
    }
    Ok(())
}

/// The calls of an op, by dtype and layout. A short run has one layout per dtype; a long one, or one on a GPU, has
/// two. All of them are called if none of these is legal.
fn calls(number: usize, op: Op) -> Vec<(String, Case)> {
    let all = |is_chosen: &dyn Fn(usize, usize) -> bool| {
        let mut calls = Vec::new();
        for (at, &dtype) in DType::ALL.iter().enumerate() {
            for (_, &place) in PLACES.iter().enumerate().filter(|(which, _)| is_chosen(at, *which)) {
                calls.extend(call(op, dtype, place).map(|case| (format!("{} of {dtype}, {place:?}", op.name()), case)));
            }
        }
        calls
    };
    let n_apart = if fakes::on_device() || is_long() { PLACES.len() / 2 } else { PLACES.len() };
    let few = all(&|at, which| is_exhaustive() || (number + at) % n_apart == which % n_apart);
    if few.is_empty() { all(&|_, _| true) } else { few }
}

/// Fallbacks to the CPU, except routines, which need not have a kernel.
pub(crate) fn unexpected_fallbacks() -> Vec<String> {
    let is_routine =
        |name: &str| Op::ALL.iter().any(|op| op.name() == name && matches!(op.row().meaning, Meaning::Routine(_)));
    let fallbacks = counts().fallbacks;
    let all: Vec<String> = fallbacks.iter().map(|it| format!("{} {}", it.times, it.what)).collect();
    fakes::report(&format!("compared, on the cpu: {}", all.join(", ")));
    let unexpected = fallbacks.iter().filter(|it| !is_routine(&it.what));
    unexpected.map(|it| format!("{} runs on the cpu: {}", it.what, it.reason)).collect()
}

fn part(part: usize) {
    fakes::with(&[], || {
        reset_counts();
        let (mut failures, mut n_calls, mut n_ops) = (Vec::new(), 0, 0);
        let mut check =
            |name: &str, found: Result<(), String>| failures.extend(found.err().map(|what| format!("{name}: {what}")));
        for (number, &op) in Op::ALL.iter().enumerate().filter(|(number, _)| number % PARTS == part) {
            let calls = calls(number, op);
            assert!(!calls.is_empty(), "no call of {} is legal", op.name());
            (n_calls, n_ops) = (n_calls + calls.len(), n_ops + 1);
            if is_exhaustive() {
                for (name, case) in &calls {
                    check(name, failure(case));
                    check(name, eager_failure(case));
                }
            } else {
                let (name, case) = &calls[number % calls.len()];
                check(name, eager_failure(case));
            }
            let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
            let names = names.join(", ");
            check(&names, failure(&joined(calls.into_iter().map(|(_, case)| case).collect())));
        }
        let counts = counts();
        fakes::report(&format!(
            "compared {n_calls} calls of {n_ops} ops: {} launches of {} kernels",
            counts.launches, counts.compilations
        ));
        failures.extend(unexpected_fallbacks());
        expect_none(&failures);
    });
}

in_parts!(part);
