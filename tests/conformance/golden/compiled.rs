//! The same call as a compiled function: the same bits as eagerly, on every tier.
//!
//! The tensor arguments are the function's inputs, and everything else is part of it. A compiled function is called
//! twice with fresh arguments, because its first call records. Results and the storage of every argument are compared
//! with those of the eager call. A function that runs eagerly is counted under the reason of its report.

use super::call::{Outcome, as_tensor, class, flattened, tensors, with_tensors};
use super::case::{Case, Expected, Output};
use super::report::Tally;
use super::tensors::{Store, whole_storage};
use crate::bits::bits;
use opfuse::Tensor;
use opfuse::compile::{CompileOptions, Stance, compile_with};
use opfuse::device::Generator;
use opfuse::dispatch::{Operator, Stack, Value};
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::device::generator::DEFAULT_SEED;

/// Runs the case compiled on a tier, in a stance. Returns the differences from the eager call, whose arguments are
/// given as that call left them.
pub(crate) fn check(
    case: &Case,
    operator: &Operator,
    store: &Store<'_>,
    (eager, left): (&Outcome, &Stack),
    (tier, stance): (Tier, Stance),
    tally: &mut Tally,
) -> Vec<String> {
    let checked = differences(case, operator, store, (eager, left), (tier, stance), tally);
    let lines = checked.unwrap_or_else(|what| vec![what]);
    lines.into_iter().map(|line| format!("compiled on {tier}, stance {stance:?}: {line}")).collect()
}

fn differences(
    case: &Case,
    operator: &Operator,
    store: &Store<'_>,
    (eager, left): (&Outcome, &Stack),
    (tier, stance): (Tier, Stance),
    tally: &mut Tally,
) -> Result<Vec<String>, String> {
    let template = super::call::arguments(case, operator, store)?;
    let (operator, names) = (operator.clone(), &case.args);
    let arguments = || -> Result<Vec<Tensor>, String> {
        let fresh = super::call::arguments(case, &operator, store)?;
        Ok(tensors(names, &fresh).into_iter().map(|(_, tensor)| tensor.clone()).collect())
    };
    let function = |inputs: &[Tensor]| -> opfuse::Result<Vec<Tensor>> {
        let mut stack = with_tensors(names, &template, inputs);
        operator.call_boxed(&mut stack)?;
        flattened(stack).iter().filter_map(as_tensor).collect()
    };
    let compiled = compile_with(function, CompileOptions { tier: Some(tier), stance, ..CompileOptions::default() });
    let found = match eager {
        Outcome::Panicked(_) => return Ok(Vec::new()),
        Outcome::Failed(error) => {
            tally.done += 1;
            return Ok(match compiled.call(&arguments()?) {
                Ok(_) => vec![format!("it returned where the eager call failed: {error}")],
                Err(other) if class(&other) == class(error) => Vec::new(),
                Err(other) => vec![format!("the error is {other}, eagerly {error}")],
            });
        }
        Outcome::Returned(found) => found,
    };
    let expected: Vec<Tensor> =
        found.iter().filter_map(as_tensor).collect::<opfuse::Result<_>>().map_err(|error| error.to_string())?;
    if expected.is_empty() {
        tally.not_done("the call returns no tensors");
        return Ok(Vec::new());
    }
    compiled.call(&arguments()?).map_err(|error| format!("the first call failed: {error}"))?;
    let inputs = arguments()?;
    rewind(&template);
    let results = compiled.call(&inputs).map_err(|error| format!("the second call failed: {error}"))?;
    match compiled.explain().eager {
        None => tally.done += 1,
        Some(reason) => tally.not_done(&format!("eager: {reason}")),
    }
    let mut lines = Vec::new();
    if results.len() != expected.len() {
        lines.push(format!("{} results, eagerly {}", results.len(), expected.len()));
    }
    for (i, (result, eager)) in results.iter().zip(&expected).enumerate() {
        let difference = if is_defined(case, i) { same(result, eager) } else { same_type(result, eager) };
        lines.extend(difference.err().map(|what| format!("output {i}: {what}")));
    }
    for ((name, eager), input) in tensors(names, left).into_iter().zip(&inputs) {
        let difference = same(&whole_storage(input)?, &whole_storage(eager)?);
        lines.extend(difference.err().map(|what| format!("storage of {name} after the call: {what}")));
    }
    Ok(lines)
}

/// Resets the generators among the arguments, as before every eager call.
fn rewind(template: &Stack) {
    let generators = template.iter().filter_map(|value| match value {
        Value::Object(object) => object.downcast_ref::<Generator>(),
        _ => None,
    });
    generators.for_each(|generator| generator.manual_seed(DEFAULT_SEED));
}

/// Whether the contents of an output follow from the arguments; otherwise they are random or undefined.
fn is_defined(case: &Case, output: usize) -> bool {
    let Expected::Outputs(outputs, _) = &case.expected else { return true };
    !matches!(outputs.get(output), Some(Output::Tensor(output)) if output.values.is_none())
}

fn same_type(found: &Tensor, eager: &Tensor) -> Result<(), String> {
    if found.dtype() == eager.dtype() && found.sizes() == eager.sizes() {
        return Ok(());
    }
    Err(format!("{} of sizes {:?}, eagerly {} of {:?}", found.dtype(), found.sizes(), eager.dtype(), eager.sizes()))
}

fn same(found: &Tensor, eager: &Tensor) -> Result<(), String> {
    same_type(found, eager)?;
    let read = |tensor: &Tensor| bits(tensor).map_err(|error| error.to_string());
    let (found, expected) = (read(found)?, read(eager)?);
    match found.iter().zip(&expected).position(|(x, y)| x != y) {
        None => Ok(()),
        Some(at) => Err(format!("bits {:x} at element {at}, eagerly {:x}", found[at], expected[at])),
    }
}
