//! Graphs on a device against their ops run one by one on the CPU, by bits.
//!
//! Most of the time goes to g++, so a short run has few graphs.

use crate::build::Case;
use crate::effort::{is_exhaustive, seeds};
use crate::fakes;
use crate::generate::small;
use crate::reference::{reference, same};
use opfuse::device::{Device, Shared, Storage};
use opfuse::dispatch::Array;
use opfuse::internals::compile::passes_page::Subject;
use opfuse::internals::compile::pipeline;
use opfuse::internals::fusion::Options;
use opfuse::internals::runtime::cuda::counts;
use opfuse::ir::Numerics;

pub(crate) const GPU: Device = Device::cuda(0);

/// The same array with its bytes elsewhere.
pub(crate) fn moved(array: &Array, device: Device) -> Result<Array, String> {
    let say = |error: opfuse::Error| error.to_string();
    let mut bytes = vec![0; array.storage().len()];
    array.storage().fetch(0, &mut bytes).map_err(say)?;
    let storage = Storage::copy_of(device, &bytes).map_err(say)?;
    Array::from_storage(Shared::new(storage), array.dtype(), array.layout().clone()).map_err(say)
}

/// What is wrong with a case, if anything is.
pub(crate) fn failure(case: &Case) -> Result<(), String> {
    let expected = reference(&case.graph, &case.inputs)?;
    let built = pipeline::build_on(GPU, Numerics::Strict, case.graph.clone(), Subject::Graph, &Options::default())
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

#[test]
fn random_graphs() {
    let short = if fakes::on_device() { 16 } else { 8 };
    let long = if is_exhaustive() { 64 } else { 16 };
    fakes::with(&[], || check(seeds(short, long).map(|seed| (format!("seed {seed}"), small(seed)))));
}
