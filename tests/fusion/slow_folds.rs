//! Folds that only the vm runs, with a call for each short run of rows or element at an index: what is folded stays a
//! kernel. Machine code runs long runs of rows, and rows at indices.

use crate::values::uniform;
use opfuse::compile::compile;
use opfuse::compile::explain::Decision;
use opfuse::{DType, Result, Tensor};

type Function = fn(&[Tensor]) -> Result<Tensor>;

/// Functions of some tensors, with the kernels that they become.
const CASES: &[(&str, usize, Function)] = &[
    ("outer products over their batch", 1, |x| x[0].unsqueeze(2)?.mul(&x[1].unsqueeze(1)?)?.sum([0], false)),
    ("outer products of few columns", 2, |x| x[0].unsqueeze(2)?.mul(&x[3].unsqueeze(1)?)?.sum([0], false)),
    ("long runs of rows", 1, |x| x[2].mul(&x[2])?.sum([0], false)),
    ("along the rows", 1, |x| x[0].unsqueeze(2)?.mul(&x[1].unsqueeze(1)?)?.sum([2], false)),
    ("rows at indices", 1, |x| {
        let places = x[0].abs()?.mul(30.0)?.to_dtype(DType::I64)?.reshape([600 * 32])?;
        x[1].index_select(0, &places)?.reshape([600, 32, 64])?.sum([1], false)
    }),
    ("elements at indices", 2, |x| {
        let places = x[0].abs()?.mul(30.0)?.to_dtype(DType::I64)?.reshape([600 * 32])?;
        x[1].reshape([600 * 64])?.index_select(0, &places)?.reshape([600, 32])?.sum([1], false)
    }),
];

#[test]
fn what_such_a_fold_reads_is_not_merged_into_it() -> Result<()> {
    let sizes = [[600, 32], [600, 64], [60, 640], [600, 8]];
    let inputs: Vec<Tensor> =
        sizes.iter().zip(1..).map(|(sizes, seed)| uniform(seed, sizes, DType::F32)).collect::<Result<_>>()?;
    for &(name, n_kernels, function) in CASES {
        let compiled = compile(move |inputs: &[Tensor]| function(inputs));
        let found = compiled.call(&inputs[..])?;
        let explain = compiled.explain();
        let declined = explain
            .edges
            .iter()
            .any(|edge| matches!(&edge.decision, Decision::Kept { reason, .. } if reason.kind() == "modelled_slower"));
        let groups = explain.groups.iter().filter(|group| group.tier.is_some()).count();
        assert_eq!((groups, declined), (n_kernels, n_kernels > 1), "{name}\n{}", explain.plan_text());
        assert!(found.equal(&function(&inputs)?)?, "{name}");
    }
    Ok(())
}
