//! Programs that PyTorch exported: results and gradients against PyTorch's, and compiled bits against eager ones.
//!
//! `scripts/export_models.py` makes the files. Arrays are called `0.in.0`, `0.out.0`, `0.grad.NAME`.

use crate::bits::bits;
use opfuse::autograd::no_grad;
use opfuse::exported::Program;
use opfuse::formats::npz;
use opfuse::{DType, Result, StateDict, Tensor};
use std::path::PathBuf;

/// Every model, and the largest difference from PyTorch relative to the largest element.
const MODELS: [&str; 12] = [
    "perceptron",
    "encoder",
    "bert",
    "distilbert",
    "gpt2",
    "llama",
    "qwen3",
    "vit",
    "resnet",
    "convnext",
    "t5",
    "lstm",
];
const TOLERANCE: f64 = 1e-5;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/formats/exported").join(name)
}

/// The arrays `CALL.KIND.0`, `CALL.KIND.1`, ….
fn arrays(all: &StateDict, call: usize, kind: &str) -> Vec<Tensor> {
    (0..).map_while(|at| all.get(&format!("{call}.{kind}.{at}")).cloned()).collect()
}

fn values(x: &Tensor) -> Result<Vec<f64>> {
    x.to_dtype(DType::F64)?.contiguous()?.to_vec::<f64>()
}

/// The largest magnitude of some tensors.
fn largest<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Result<f64> {
    let mut largest = 1e-30;
    for tensor in tensors {
        largest = values(tensor)?.iter().fold(largest, |largest: f64, x| largest.max(x.abs()));
    }
    Ok(largest)
}

/// The largest difference, relative to `scale`.
fn difference(found: &Tensor, wanted: &Tensor, scale: f64) -> Result<f64> {
    assert_eq!(found.sizes(), wanted.sizes());
    let pairs = values(found)?.into_iter().zip(values(wanted)?);
    Ok(pairs.map(|(a, b)| (a - b).abs() / scale).fold(0.0, f64::max))
}

fn check(name: &str) -> Result<Vec<String>> {
    let arrays_of = npz::load(path(&format!("{name}.npz")))?;
    let load = || Program::load(path(&format!("{name}.pt2")));
    let (eager, compiled) = (load()?, load()?);
    let mut wrong = Vec::new();
    let unrecorded = no_grad();
    for call in 0.. {
        let inputs = arrays(&arrays_of, call, "in");
        let wanted = arrays(&arrays_of, call, "out");
        if wanted.is_empty() {
            break;
        }
        let found = eager.call_eager(&inputs)?;
        assert_eq!(found.len(), wanted.len(), "{name}");
        for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let difference = difference(found, wanted, largest([wanted].into_iter())?)?;
            if difference > TOLERANCE {
                wrong.push(format!("{name}: output {at} of call {call} differs by {difference:e}"));
            }
        }
        let again = compiled.call(&inputs)?;
        if found.iter().map(bits).ne(again.iter().map(bits)) {
            wrong.push(format!("{name}: call {call} has other bits compiled"));
        }
    }
    drop(unrecorded);
    // A gradient that cancels, as before a normalization, has the error of those that do not.
    let scale = largest(arrays_of.iter().filter(|(name, _)| name.starts_with("0.grad")).map(|(_, array)| array))?;
    for run in [Program::call_eager, Program::call] {
        let program = load()?;
        let outputs = run(&program, &arrays(&arrays_of, 0, "in"))?;
        outputs[0].pow(3.0)?.sum_all()?.backward()?;
        for (array, wanted) in &arrays_of {
            let Some(parameter) = array.strip_prefix("0.grad.") else { continue };
            let Some(parameter) = program.state().get(parameter) else {
                // A wrapper's name is in front of the model's own.
                wrong.push(format!("{name}: no parameter is {parameter}"));
                continue;
            };
            let difference = parameter.grad().map(|found| difference(&found, wanted, scale)).transpose()?;
            if difference.is_none_or(|difference| difference > TOLERANCE) {
                wrong.push(format!("{name}: the gradient {array} differs by {difference:?}"));
            }
        }
    }
    Ok(wrong)
}

#[test]
fn models_compute_what_pytorch_does() {
    let wrong: Vec<String> =
        MODELS.iter().flat_map(|name| check(name).unwrap_or_else(|error| vec![format!("{name}: {error}")])).collect();
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}
