//! Two twins of a function, one eager and one compiled, called side by side.
//!
//! After each call a loss of all results is taken backwards. Then everything observable is compared: of results their
//! bits, strides, flags, versions, identity and aliases; of inputs and captured tensors their bits, versions, flags and
//! gradients.

use super::check::ramp;
use crate::bits::bits;
use crate::unplaced::unplaced;
use opfuse::compile::{CompileOptions, compile_with};
use opfuse::{Compiled, Error, Result, Tensor, manual_seed};
use std::sync::Arc;

/// How many calls each twin makes.
const CALLS: usize = 4;

/// A function of inputs and captured tensors.
pub(super) type Function = fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>>;

/// A function, and what it is called with.
pub(super) struct Twins {
    pub(super) name: &'static str,
    pub(super) function: Function,
    /// Makes the inputs of a call.
    pub(super) inputs: fn(usize) -> Result<Vec<Tensor>>,
    /// Makes the captured tensors.
    pub(super) captured: fn() -> Result<Vec<Tensor>>,
    /// Whether every call but the first must run compiled.
    pub(super) is_compiled: bool,
}

/// Of `[4]` and of `[2, 4]`.
fn two_inputs(call: usize) -> Result<Vec<Tensor>> {
    Ok(vec![ramp(&[4], call * 2)?, ramp(&[2, 4], call * 2 + 1)?])
}

/// The same as leaves that require gradients.
pub(super) fn leaves(call: usize) -> Result<Vec<Tensor>> {
    let inputs = two_inputs(call)?;
    inputs.iter().try_for_each(|input| input.set_requires_grad(true))?;
    Ok(inputs)
}

/// The same in f32 of `[4]`: a leaf that requires gradients, and a buffer.
pub(super) fn leaf_and_buffer() -> Result<Vec<Tensor>> {
    let captured = vec![ramp(&[4], 90)?, ramp(&[4], 91)?];
    captured[0].set_requires_grad(true)?;
    Ok(captured)
}

impl Twins {
    /// A function of plain inputs, which captures a leaf and a buffer.
    pub(super) const fn new(name: &'static str, function: Function) -> Twins {
        Twins { name, function, inputs: two_inputs, captured: leaf_and_buffer, is_compiled: true }
    }

    /// The same function of leaves.
    pub(super) const fn of_leaves(name: &'static str, function: Function) -> Twins {
        Twins { inputs: leaves, ..Twins::new(name, function) }
    }

    pub(super) const fn inputs(mut self, inputs: fn(usize) -> Result<Vec<Tensor>>) -> Twins {
        self.inputs = inputs;
        self
    }

    pub(super) const fn captured(mut self, captured: fn() -> Result<Vec<Tensor>>) -> Twins {
        self.captured = captured;
        self
    }

    /// The function may run eagerly or in segments.
    pub(super) const fn any_way(mut self) -> Twins {
        self.is_compiled = false;
        self
    }
}

fn look(tensor: &Tensor) -> String {
    let (ty, strides, offset) = (tensor.ty(), tensor.strides(), tensor.storage_offset());
    let flags = (tensor.requires_grad(), tensor.is_leaf());
    format!("{ty} strides {strides:?} offset {offset} requires, leaf {flags:?} {:?}", bits(tensor))
}

/// A loss that weighs every element of every result that has a history.
fn loss(outputs: &[Tensor]) -> Result<Option<Tensor>> {
    let mut all: Option<Tensor> = None;
    for (index, output) in outputs.iter().enumerate().filter(|(_, output)| output.requires_grad()) {
        let part = output.mul(&ramp(output.sizes(), index + 40)?)?.sum_all()?;
        all = Some(match all {
            Some(all) => all.add(&part)?,
            None => part,
        });
    }
    Ok(all)
}

/// Everything observable about a call.
fn observe(inputs: &[Tensor], captured: &[Tensor], run: impl FnOnce() -> Result<Vec<Tensor>>) -> Result<Vec<String>> {
    manual_seed(5);
    let outputs = run();
    let mut seen = Vec::new();
    let empty = Vec::new();
    let results = match &outputs {
        Ok(outputs) => outputs,
        Err(error) => {
            seen.push(format!("error {}", unplaced(error)));
            &empty
        }
    };
    let others = || inputs.iter().chain(captured);
    for (index, output) in results.iter().enumerate() {
        let same: Vec<bool> = others().chain(results).map(|other| other.is_same(output)).collect();
        let alias = |other: &Tensor| other.is_alias_of(output) && output.numel() > 0;
        let aliases: Vec<bool> = others().chain(results).map(alias).collect();
        seen.push(format!("result {index}: {} same {same:?} aliases {aliases:?}", look(output)));
    }
    let versions = |seen: &mut Vec<String>, when: &str| {
        for (index, tensor) in others().enumerate() {
            let gradient = tensor.grad().map(|gradient| look(&gradient));
            seen.push(format!("{when} {index}: {} version {} {gradient:?}", look(tensor), tensor.version()));
        }
    };
    versions(&mut seen, "after the call, tensor");
    let backward = match loss(results)? {
        Some(loss) => loss.backward(),
        None => Err(Error::argument("test", "no result has a history")),
    };
    if let Err(error) = backward {
        seen.push(format!("backward: {error}"));
    }
    versions(&mut seen, "after the backward pass, tensor");
    Ok(seen)
}

/// Calls both twins, and compares them. `option` names the options in messages.
fn check(twins: &Twins, options: &CompileOptions) -> Result<Vec<String>> {
    let (eager, other) = (Arc::new((twins.captured)()?), Arc::new((twins.captured)()?));
    let (function, world) = (twins.function, other.clone());
    let compiled: Compiled<_, _> = compile_with(move |inputs: &[Tensor]| function(inputs, &world), options.clone());
    let mut failures = Vec::new();
    for call in 0..CALLS {
        let inputs = (twins.inputs)(call)?;
        let expected = observe(&inputs, &eager, || function(&inputs, &eager))?;
        let inputs = (twins.inputs)(call)?;
        let found = observe(&inputs, &other, || compiled.call(&inputs[..]))?;
        let differs = |(expected, found): (&String, &String)| {
            (expected != found).then(|| format!("eager    {expected}\ncompiled {found}"))
        };
        let differences: Vec<String> = expected.iter().zip(&found).filter_map(differs).collect();
        if !differences.is_empty() || expected.len() != found.len() {
            let differences = differences.join("\n");
            failures.push(format!("{}, call {call}, {:?}:\n{differences}", twins.name, options.stance));
            break;
        }
    }
    let reason = compiled.explain().eager;
    let counts = compiled.counts();
    if twins.is_compiled && options.stance == opfuse::compile::Stance::Default && (reason.is_some() || counts.eager > 0)
    {
        failures.push(format!("{}: it runs eagerly: {reason:?} {counts:?}", twins.name));
    }
    Ok(failures)
}

/// Checks all cases, in whole graphs and in segments.
pub(super) fn check_all(cases: &[Twins]) {
    let mut failures = Vec::new();
    for case in cases {
        for stance in [opfuse::compile::Stance::Default, opfuse::compile::Stance::Deferred] {
            let options = CompileOptions { stance, ..CompileOptions::default() };
            failures.extend(check(case, &options).unwrap_or_else(|error| vec![format!("{}: {error}", case.name)]));
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n\n"));
}
