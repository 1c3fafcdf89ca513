//! The golden calls of `tests/golden` on a device, against the same calls on the CPU, by bits: results, writes, classes
//! of errors, and gradients.
//!
//! A short run has one call of every third operator; a long one, or one on a GPU, has one of every operator.
//! `OPFUSE_TEST_LONG=all` has all calls. `OPFUSE_GOLDEN` names another folder of that format, and
//! `OPFUSE_GOLDEN_OPS=add,mul` some of its operators. `tests/conformance` checks the CPU itself.

#[path = "../conformance/golden/call.rs"]
#[allow(dead_code, reason = "the items of lists are for tests/conformance, which shares this file")]
mod call;
#[path = "../conformance/golden/case.rs"]
#[allow(dead_code, reason = "what the reference gave is for tests/conformance, which shares this file")]
mod case;
#[path = "../conformance/golden/folder.rs"]
mod folder;
#[path = "../conformance/golden/tensors.rs"]
#[allow(dead_code, reason = "the bytes are for tests/conformance, which shares this file")]
mod tensors;

use crate::effort::{is_exhaustive, is_long};
use crate::fakes::{self, PARTS, expect_none, in_parts};
use crate::graphs::{GPU, moved};
use crate::matrix::unexpected_fallbacks;
use crate::reference::same;
use call::Outcome;
use case::{Case, Expected, Grads, Output};
use opfuse::autograd::{GradOptions, grad};
use opfuse::device::{Generator, Stream};
use opfuse::dispatch::{Operator, Stack, Value};
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::{Device, Tensor};
use serde_json::Value as Json;
use tensors::{Store, whole_storage};

/// The seed of the generators before each call, so that both draw the same numbers.
const SEED: u64 = 11;

/// The tensor on another device, with its whole storage; numbers stay on the CPU.
fn tensor_on(device: Device, tensor: &Tensor) -> Result<Tensor, String> {
    if tensor.as_number().is_some() {
        return Ok(tensor.clone());
    }
    moved(tensor.array(), device).map(Tensor::from_array)
}

/// The arguments on the device: tensors, generators and the names of devices.
fn stack_on(device: Device, stack: Stack) -> Result<Stack, String> {
    let value = |value: Value| -> Result<Value, String> {
        Ok(match value {
            Value::Tensor(tensor) => Value::Tensor(tensor_on(device, &tensor)?),
            Value::TensorList(list) => {
                Value::TensorList(list.iter().map(|tensor| tensor_on(device, tensor)).collect::<Result<_, String>>()?)
            }
            Value::OptionalTensorList(list) => Value::OptionalTensorList(
                list.iter()
                    .map(|tensor| tensor.as_ref().map(|tensor| tensor_on(device, tensor)).transpose())
                    .collect::<Result<_, String>>()?,
            ),
            Value::Object(object) if object.is::<Generator>() => Value::from(&Generator::new(device)),
            Value::Device(_) => Value::Device(device),
            other => other,
        })
    };
    stack.into_iter().map(value).collect()
}

/// Type and bits agree; where contents are undefined, the type.
fn compared(found: &Tensor, expected: &Tensor, is_defined: bool) -> Result<(), String> {
    if !is_defined {
        let types = [found, expected].map(|tensor| tensor.array().ty());
        return if types[0] == types[1] { Ok(()) } else { Err(format!("type {} instead of {}", types[0], types[1])) };
    }
    same(&moved(found.array(), Device::CPU)?, expected.array())
}

fn is_defined(case: &Case, output: usize) -> bool {
    let Expected::Outputs(outputs, _) = &case.expected else { return true };
    !matches!(outputs.get(output), Some(Output::Tensor(output)) if output.values.is_none())
}

/// The outcome of a call after the device has finished it, because errors are reported asynchronously.
fn settled(outcome: Outcome) -> Outcome {
    match (outcome, Stream::current(GPU).and_then(|stream| stream.synchronize())) {
        (Outcome::Returned(_), Err(error)) => Outcome::Failed(error),
        (outcome, _) => outcome,
    }
}

/// What differs between the call on the CPU and that on the device.
fn differences(case: &Case, operator: &Operator, store: &Store<'_>) -> Result<Vec<String>, String> {
    let here = call::arguments(case, operator, store)?;
    let there = stack_on(GPU, call::arguments(case, operator, store)?)?;
    opfuse::manual_seed(SEED);
    let expected = call::call(operator, here.clone());
    opfuse::manual_seed(SEED);
    let found = settled(call::call(operator, there.clone()));
    let (expected, found) = match (expected, found) {
        (Outcome::Returned(expected), Outcome::Returned(found)) => (expected, found),
        (Outcome::Failed(expected), Outcome::Failed(found)) if call::class(&expected) == call::class(&found) => {
            return Ok(Vec::new());
        }
        (Outcome::Panicked(_), _) => return Ok(Vec::new()),
        (_, Outcome::Panicked(message)) => return Ok(vec![format!("panicked: {message}")]),
        (Outcome::Failed(expected), Outcome::Failed(found)) => {
            return Ok(vec![format!("the error is {found}, on the cpu {expected}")]);
        }
        (Outcome::Returned(_), Outcome::Failed(error)) => return Ok(vec![format!("failed: {error}")]),
        (Outcome::Failed(error), Outcome::Returned(_)) => return Ok(vec![format!("the error is missing: {error}")]),
    };
    let mut lines = Vec::new();
    if expected.len() != found.len() {
        lines.push(format!("{} results instead of {}", found.len(), expected.len()));
    }
    for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let difference = match (expected, found) {
            (Value::Tensor(expected), Value::Tensor(found)) => compared(found, expected, is_defined(case, at)),
            (expected, found) if format!("{expected:?}") == format!("{found:?}") => Ok(()),
            (expected, found) => Err(format!("{found:?} instead of {expected:?}")),
        };
        lines.extend(difference.err().map(|what| format!("output {at}: {what}")));
    }
    let written = call::tensors(&case.args, &here).into_iter().zip(call::tensors(&case.args, &there));
    for ((name, here), (_, there)) in written {
        // The reference may leave an out undefined, as `empty` does.
        let is_defined = (0..expected.len()).all(|output| is_defined(case, output));
        let difference = compared(&whole_storage(there)?, &whole_storage(here)?, is_defined);
        lines.extend(difference.err().map(|what| format!("storage of {name} after the call: {what}")));
    }
    if let Some(grads) = &case.grads {
        lines.extend(gradient_differences(case, grads, operator, store)?);
    }
    Ok(lines)
}

fn gradient_differences(
    case: &Case,
    grads: &Grads,
    operator: &Operator,
    store: &Store<'_>,
) -> Result<Vec<String>, String> {
    let arguments = call::arguments(case, operator, store)?;
    let expected = gradients(case, grads, operator, store, Device::CPU, arguments.clone())?;
    let found = match gradients(case, grads, operator, store, GPU, stack_on(GPU, arguments)?) {
        Ok(found) => found,
        Err(what) => return Ok(vec![format!("gradients: {what}")]),
    };
    let mut lines = Vec::new();
    for ((name, _), (found, expected)) in grads.inputs.iter().zip(found.iter().zip(&expected)) {
        let difference = match (found, expected) {
            (None, None) => Ok(()),
            (Some(found), Some(expected)) => compared(found, expected, true),
            (Some(_), None) => Err("there is one where none flows".into()),
            (None, Some(_)) => Err("there is none".into()),
        };
        lines.extend(difference.err().map(|what| format!("gradient of {name}: {what}")));
    }
    Ok(lines)
}

/// The gradients of the inputs that the case lists.
fn gradients(
    case: &Case,
    grads: &Grads,
    operator: &Operator,
    store: &Store<'_>,
    device: Device,
    arguments: Stack,
) -> Result<Vec<Option<Tensor>>, String> {
    let say = |error: opfuse::Error| error.to_string();
    let tensors = call::tensors(&case.args, &arguments);
    for (_, tensor) in tensors.iter().filter(|(_, tensor)| tensor.dtype().is_float()) {
        tensor.set_requires_grad(true).map_err(say)?;
    }
    let input = |(name, _): &(String, _)| {
        let found = tensors.iter().find(|(argument, _)| argument == name);
        found.map(|(_, tensor)| *tensor).ok_or_else(|| format!("the case has no tensor argument {name}"))
    };
    let inputs = grads.inputs.iter().map(input).collect::<Result<Vec<&Tensor>, String>>()?;
    opfuse::manual_seed(SEED);
    let outputs = match call::call(operator, arguments.clone()) {
        Outcome::Returned(outputs) => outputs,
        Outcome::Failed(error) => return Err(format!("the call failed: {error}")),
        Outcome::Panicked(message) => return Err(format!("the call panicked: {message}")),
    };
    let (mut roots, mut cotangents) = (Vec::new(), Vec::new());
    for (index, key) in &grads.cotangents {
        let Some(Value::Tensor(output)) = outputs.get(*index) else {
            return Err(format!("output {index} is no tensor"));
        };
        roots.push(output);
        cotangents.push(store.get(key)?.to_device(device).map_err(say)?);
    }
    let cotangents: Vec<Option<&Tensor>> = cotangents.iter().map(Some).collect();
    let options = GradOptions { allow_unused: true, ..GradOptions::default() };
    grad(&roots, &inputs, &cotangents, options).map_err(say)
}

/// The cases of an operator that are run.
fn chosen(number: usize, cases: &[Json]) -> Vec<&Json> {
    if is_exhaustive() {
        return cases.iter().collect();
    }
    let is_named = std::env::var_os("OPFUSE_GOLDEN_OPS").is_some();
    let is_short = !is_named && !fakes::on_device() && !is_long();
    if is_short && !(number / PARTS).is_multiple_of(3) {
        return Vec::new();
    }
    // Errors say nothing about kernels.
    let good: Vec<&Json> = cases.iter().filter(|case| case.get("error").is_none()).collect();
    good.get(number * 7 % good.len().max(1)).copied().into_iter().collect()
}

fn part(part: usize) {
    fakes::with(&[], || {
        opfuse::dispatch::load().expect("the operators are there");
        reset_counts();
        let operators = folder::operators().into_iter().filter(|(number, _)| number % PARTS == part);
        let (mut failures, mut n_calls, mut n_ops) = (Vec::new(), 0, 0);
        for (number, name) in operators {
            let (cases, bytes) = folder::cases(&name);
            let store = Store::new(&bytes).expect("the tensors can be read");
            n_ops += 1;
            for case in chosen(number, &cases) {
                let case = Case::parse(case).expect("the case follows the format");
                let Some(operator) = call::operator(&case) else { continue };
                n_calls += 1;
                let lines = differences(&case, &operator, &store).unwrap_or_else(|what| vec![what]);
                if !lines.is_empty() {
                    failures.push(format!("{} {} [{}]: {}", case.id, case.operator, case.tag, lines.join("; ")));
                }
            }
        }
        fakes::report(&format!("compared {n_calls} golden calls of {n_ops} operators: {} launches", counts().launches));
        failures.extend(unexpected_fallbacks());
        expect_none(&failures);
    });
}

in_parts!(part);
