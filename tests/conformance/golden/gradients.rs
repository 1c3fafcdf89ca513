//! Gradients of a call: every floating tensor argument requires them, the outputs get the cotangents of the case.

use super::call::{self, Outcome};
use super::case::{Case, Gradient, Grads};
use super::compare;
use super::tensors::Store;
use opfuse::autograd::{GradOptions, grad};
use opfuse::dispatch::{Operator, Value};
use opfuse::{DType, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the case again with gradients; returns what differs.
pub(crate) fn check(case: &Case, grads: &Grads, operator: &Operator, store: &Store<'_>) -> Vec<String> {
    let differentiated = catch_unwind(AssertUnwindSafe(|| differentiate(case, grads, operator, store)));
    let found = match differentiated {
        Ok(Ok(found)) => found,
        Ok(Err(what)) => return vec![format!("gradients: {what}")],
        Err(panic) => return vec![format!("gradients panicked: {}", crate::panics::message(&*panic))],
    };
    let mut differences = Vec::new();
    for ((name, expected), found) in grads.inputs.iter().zip(found) {
        let difference = match (found, expected) {
            (None, None) => None,
            (Some(_), None) => Some("there is one where none flows".to_string()),
            // A formula that does not read an input says so; the reference fills in zeros.
            (None, Some(expected)) => is_zero(expected, store).err(),
            (Some(found), Some(expected)) => compared(&found, expected, store).err(),
        };
        differences.extend(difference.map(|what| format!("gradient of {name}: {what}")));
    }
    differences
}

/// The gradients of the inputs that the case lists, in that order.
fn differentiate(
    case: &Case,
    grads: &Grads,
    operator: &Operator,
    store: &Store<'_>,
) -> Result<Vec<Option<Tensor>>, String> {
    let arguments = call::arguments(case, operator, store)?;
    let tensors = call::tensors(&case.args, &arguments);
    for (_, tensor) in tensors.iter().filter(|(_, tensor)| tensor.dtype().is_float()) {
        tensor.set_requires_grad(true).map_err(|error| error.to_string())?;
    }
    let input = |(name, _): &(String, _)| {
        let found = tensors.iter().find(|(argument, _)| argument == name);
        found.map(|(_, tensor)| *tensor).ok_or_else(|| format!("the case has no tensor argument {name}"))
    };
    let inputs = grads.inputs.iter().map(input).collect::<Result<Vec<&Tensor>, String>>()?;
    let outputs = match call::call(operator, arguments.clone()) {
        Outcome::Returned(outputs) => outputs,
        Outcome::Failed(error) => return Err(format!("the call failed: {error}")),
        Outcome::Panicked(message) => return Err(format!("the call panicked: {message}")),
    };
    let mut roots = Vec::new();
    let mut cotangents = Vec::new();
    for (index, key) in &grads.cotangents {
        let Some(Value::Tensor(output)) = outputs.get(*index) else {
            return Err(format!("output {index} is no tensor"));
        };
        roots.push(output);
        cotangents.push(store.get(key)?);
    }
    let cotangents: Vec<Option<&Tensor>> = cotangents.iter().map(Some).collect();
    let options = GradOptions { allow_unused: true, ..GradOptions::default() };
    grad(&roots, &inputs, &cotangents, options).map_err(|error| error.to_string())
}

fn is_zero(expected: &Gradient, store: &Store<'_>) -> Result<(), String> {
    let expected = store.get(&expected.key)?.to_dtype(DType::F64).and_then(|expected| expected.to_vec::<f64>());
    match expected.map_err(|error| error.to_string())?.iter().all(|&element| element == 0.0) {
        true => Ok(()),
        false => Err("there is none".into()),
    }
}

fn compared(found: &Tensor, expected: &Gradient, store: &Store<'_>) -> Result<(), String> {
    if found.dtype() != expected.dtype {
        return Err(format!("dtype {} instead of {}", found.dtype(), expected.dtype));
    }
    if found.sizes() != expected.sizes {
        return Err(format!("sizes {:?} instead of {:?}", found.sizes(), expected.sizes));
    }
    compare::values(found, &store.get(&expected.key)?, expected.tolerance)
}
