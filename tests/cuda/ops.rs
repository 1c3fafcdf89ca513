//! Every op of the table, and random graphs, on a device against the ops run one by one on the CPU, by bits.
//!
//! Most of the time goes to g++, so a default run has one call of each op, whose dtypes and layouts are drawn, and few graphs;
//! `OPFUSE_CUDA_ROUNDS=n` has n of each.

use crate::build::{Builder, Case};
use crate::generate::small;
use crate::reference::{reference, same};
use crate::stand_ins;
use crate::values::Fill;
use opfuse::compile::pipeline;
use opfuse::device::{Device, Shared, Storage};
use opfuse::eager::Array;
use opfuse::eager::cuda::counts;
use opfuse::fusion::Options;
use opfuse::ir::{DType, Numerics, Op};

const GPU: Device = Device::cuda(0);
/// Processes that share the ops.
const PARTS: usize = 4;

fn rounds() -> usize {
    std::env::var("OPFUSE_CUDA_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The same array with its bytes elsewhere.
fn moved(array: &Array, device: Device) -> Result<Array, String> {
    let say = |error: opfuse::Error| error.to_string();
    let mut bytes = vec![0; array.storage().len()];
    array.storage().fetch(0, &mut bytes).map_err(say)?;
    let storage = Storage::copy_of(device, &bytes).map_err(say)?;
    Array::from_storage(Shared::new(storage), array.dtype(), array.layout().clone()).map_err(say)
}

/// What is wrong with a case, if anything is.
fn failure(case: &Case) -> Result<(), String> {
    let expected = reference(&case.graph, &case.inputs)?;
    let built = pipeline::build_on(GPU, Numerics::Strict, case.graph.clone(), &Options::default())
        .map_err(|error| error.to_string())?;
    let inputs = case.inputs.iter().map(|input| moved(input, GPU)).collect::<Result<Vec<Array>, String>>()?;
    let inputs: Vec<&Array> = inputs.iter().collect();
    for run in 0..2 {
        let found = built.executable.run(&inputs).map_err(|error| format!("run {run}: {error}"))?;
        for (found, id) in found.iter().zip(case.graph.outputs()) {
            let found = moved(found, Device::CPU)?;
            same(&found, &expected[id.index()]).map_err(|what| format!("run {run}, {id}: {what}"))?;
        }
    }
    Ok(())
}

fn check(cases: impl Iterator<Item = (String, Case)>) {
    let failed: Vec<String> = cases
        .filter_map(|(name, case)| failure(&case).err().map(|what| format!("{name}: {what}\n{}", case.graph)))
        .collect();
    assert!(failed.is_empty(), "{} failed; the first:\n{}", failed.len(), failed[0]);
    assert!(counts().launches > 0, "nothing ran on the device: {:?}", counts());
}

/// A call of an op on operands that are drawn.
fn call(number: usize, op: Op, round: usize) -> Option<Case> {
    let shapes: [&[usize]; 5] = [&[3, 4], &[2, 3, 5], &[1, 33], &[4, 1, 6], &[130]];
    let at = number + round;
    let shape = shapes[at % shapes.len()];
    let mut builder = Builder::new((number * 1000 + round) as u64);
    builder.shape = shape.to_vec();
    let fill = builder.random.pick(&[Fill::Normal, Fill::Whole, Fill::Positive, Fill::Wild]);
    let dtype = DType::ALL[at % DType::ALL.len()];
    builder.strided_input(dtype, shape, fill);
    let part = builder.part_of_shape();
    builder.strided_input(dtype, &part, Fill::Normal);
    let output = (0..10).find_map(|_| builder.propose(op))?;
    Some(builder.finish(vec![output]))
}

fn ops(part: usize) {
    stand_ins::with(&[], || {
        let ops = Op::ALL.iter().copied().enumerate().filter(|(number, _)| number % PARTS == part);
        check(ops.flat_map(|(number, op)| {
            (0..rounds())
                .filter_map(move |round| Some((format!("{}, round {round}", op.name()), call(number, op, round)?)))
        }));
    });
}

#[test]
fn ops_first_part() {
    ops(0);
}

#[test]
fn ops_second_part() {
    ops(1);
}

#[test]
fn ops_third_part() {
    ops(2);
}

#[test]
fn ops_fourth_part() {
    ops(3);
}

#[test]
fn random_graphs() {
    stand_ins::with(&[], || check((0..16 * rounds() as u64).map(|seed| (format!("seed {seed}"), small(seed)))));
}
