//! Bodies of loops and branches, traced by the types of what they are given, with their gradients where these are
//! wanted.

use crate::autograd::{GradOptions, contributions, detects_anomalies, grad};
use crate::debug;
use crate::device::{Device, DeviceKind};
use crate::dispatch::modes;
use crate::error::{Error, NotCaptured, Reason, Result};
use crate::func::control::carry::dense_type;
use crate::func::control::subprogram::Subprogram;
use crate::ir::{Scalar, TensorType};
use crate::ops::factories::full_on;
use crate::tensor::Tensor;
use crate::transforms::tracer::{Subgraph, lift_results, lifted_tensors, trace_subgraph};
use std::sync::Arc;

/// A function from tensors to tensors.
pub(super) type Function<'a> = &'a dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// A traced function.
pub(super) struct Traced {
    pub(super) subprogram: Arc<Subprogram>,
    /// What it uses without being given it.
    pub(super) captured: Vec<Tensor>,
}

/// Why a function of these tensors runs as it is, and is not traced.
pub(super) fn reason_to_run<'a>(mut tensors: impl Iterator<Item = &'a Tensor>) -> Option<Reason> {
    let is_other = |tensor: &Tensor| tensor.device().kind != DeviceKind::Cpu || !tensor.payload_is_none();
    match () {
        () if debug::forces_eager() => Some(Reason::Disabled),
        () if modes::is_active() => Some(NotCaptured::UserMode.into()),
        () if detects_anomalies() => Some(NotCaptured::DetectsAnomalies.into()),
        () if tensors.any(is_other) => Some(does_more("works on tensors of vmap, or of other devices than the cpu")),
        () => None,
    }
}

fn does_more(what: &str) -> Reason {
    NotCaptured::BodyDoesMore { what: what.into() }.into()
}

/// A tensor of this type without elements.
pub(super) fn example(ty: &TensorType, requires_grad: bool) -> Result<Tensor> {
    let example = Tensor::abstracted(ty, Device::CPU, None)?;
    if requires_grad && ty.dtype.is_float() {
        example.autograd_or_new().set_requires_grad(true);
    }
    Ok(example)
}

/// Compiles a body, if its captured tensors are plain ones on the CPU.
fn compiled(body: Subgraph, n_results: usize) -> Result<Traced, Reason> {
    if let Some(reason) = reason_to_run(body.captured.iter()) {
        return Err(reason);
    }
    let captured = body.captured.clone();
    Ok(Traced { subprogram: Subprogram::of(body, n_results).map_err(Reason::of_error)?, captured })
}

/// Traces a function. The inner error says why it is not traced.
///
/// # Errors
/// If the function fails.
pub(super) fn traced(given: &[Tensor], function: Function<'_>) -> Result<Result<Traced, Reason>> {
    let mut is_mapped = false;
    let body = trace_subgraph(given, |handles| {
        let results = function(handles)?;
        is_mapped = !results.iter().all(Tensor::payload_is_none);
        let n_results = results.len();
        Ok((if is_mapped { Vec::new() } else { dense(&results)? }, n_results))
    })?;
    if is_mapped {
        return Ok(Err(does_more("uses tensors of vmap")));
    }
    Ok(body.and_then(|(body, n_results)| compiled(body, n_results)))
}

/// A function whose gradients are to be traced.
pub(super) struct Gradients<'a> {
    /// What the function is given. Floating tensors among these that require gradients have some.
    pub(super) given: &'a [Tensor],
    pub(super) function: Function<'a>,
    /// The types of its results.
    pub(super) results: &'a [TensorType],
    /// The positions of carried values, both in what is given and among the results.
    pub(super) carried: &'a [usize],
    /// The other results whose gradients arrive.
    pub(super) roots: &'a [usize],
    /// The positions of what is given whose gradients are wanted besides those of carried values.
    pub(super) wanted: &'a [usize],
    /// The captured tensors that gradients flow to.
    pub(super) of: &'a [Tensor],
}

/// Traces the gradients of a function, as a function from
///
/// - the gradients of the carried results,
/// - sums of gradients of captured tensors, which the new ones are added to one by one,
/// - what the function is given,
/// - the gradients of the other results
///
/// to those of what is carried, the sums, and those of what else is given.
///
/// # Errors
/// If the function fails.
pub(super) fn traced_gradients(wanted: &Gradients<'_>) -> Result<Result<Traced, Reason>> {
    let Gradients { given, function, results, carried, roots, wanted, of } = *wanted;
    let of_result = |at: &usize| example(&results[*at], false);
    let sums = of.iter().map(|tensor| example(&dense_type(tensor), false));
    let all = carried.iter().map(of_result).chain(sums).chain(given.iter().cloned().map(Ok));
    let all = all.chain(roots.iter().map(of_result)).collect::<Result<Vec<Tensor>>>()?;
    let mut is_known = true;
    let body = trace_subgraph(&all, |handles| {
        let (late, rest) = handles.split_at(carried.len());
        let (sums, rest) = rest.split_at(of.len());
        let (inputs, early) = rest.split_at(given.len());
        let results = dense(&function(inputs)?)?;
        lift_results(&results)?;
        let is_of = |tensor: &Tensor| of.iter().any(|one| one.is_handle_of(tensor));
        is_known = lifted_tensors().iter().all(|(_, tensor)| !tensor.requires_grad() || is_of(tensor));
        // The gradient of a result arrives before that of the carry, which the next step gives.
        let starts = roots.iter().zip(early).chain(carried.iter().zip(late)).map(|(at, found)| (&results[*at], found));
        let starts: Vec<_> = starts.filter(|(result, _)| result.requires_grad()).collect();
        let (starts, found): (Vec<&Tensor>, Vec<Option<&Tensor>>) =
            starts.into_iter().map(|(result, found)| (result, Some(found))).unzip();
        let ends = carried.iter().map(|&at| &inputs[at]).chain(of).chain(wanted.iter().map(|&at| &inputs[at]));
        let ends: Vec<&Tensor> = ends.collect();
        let parts = match starts.is_empty() {
            true => vec![Vec::new(); ends.len()],
            false => contributions(&starts, &ends, &found)?,
        };
        let mut totals = Vec::with_capacity(ends.len());
        for (at, (end, parts)) in ends.iter().zip(parts).enumerate() {
            let sum = at.checked_sub(carried.len()).and_then(|at| sums.get(at)).cloned();
            let mut parts = parts.into_iter();
            let first = sum.or_else(|| parts.next()).map_or_else(|| zeros(end), Ok)?;
            totals.push(parts.try_fold(first, |sum, part| sum.add(&part))?);
        }
        Ok((dense(&totals)?, totals.len()))
    })?;
    if !is_known {
        return Ok(Err(NotCaptured::ChangesByCall.into()));
    }
    Ok(body.and_then(|(body, n_results)| compiled(body, n_results)))
}

/// The gradients of operands, recorded: `results` computes its results of them with a history. Gradients are those of
/// the results.
///
/// # Errors
/// If a call fails.
pub(super) fn recorded_gradients(
    operands: &[Tensor],
    results: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    gradients: &[Tensor],
) -> Result<Vec<Option<Tensor>>> {
    // What an operand was computed from gets no gradient here.
    let alias = |tensor: &Tensor| if tensor.requires_grad() { tensor.alias() } else { Ok(tensor.clone()) };
    let operands = operands.iter().map(alias).collect::<Result<Vec<_>>>()?;
    let results = results(&operands)?;
    let starts = results.iter().zip(gradients).filter(|(result, _)| result.requires_grad());
    let (starts, found): (Vec<&Tensor>, Vec<Option<&Tensor>>) =
        starts.map(|(result, gradient)| (result, Some(gradient))).unzip();
    let wanted: Vec<&Tensor> = operands.iter().filter(|operand| operand.requires_grad()).collect();
    let options = GradOptions { retain_graph: true, create_graph: true, allow_unused: true };
    let mut slopes = match starts.is_empty() {
        true => Vec::new(),
        false => grad(&starts, &wanted, &found, options)?,
    }
    .into_iter();
    Ok(operands.iter().map(|operand| if operand.requires_grad() { slopes.next().flatten() } else { None }).collect())
}

/// An error for a gradient that is differentiated again where the calls of the function are not known.
pub(super) fn not_again(op: &str) -> Error {
    let what = "its gradient cannot be differentiated again, because the function has a derivative of its own, or a \
                loop or branch in it; write the steps out where that is wanted";
    Error::NotImplemented { op: op.into(), what: what.into() }
}

/// Zeros of the type of a tensor.
///
/// # Errors
/// If there is not enough memory.
pub(super) fn zeros(like: &Tensor) -> Result<Tensor> {
    full_on(Device::CPU, like.sizes(), Scalar::Int(0), Some(like.dtype()))
}

/// Row-major tensors, which are no plain numbers.
fn dense(results: &[Tensor]) -> Result<Vec<Tensor>> {
    let one = |tensor: &Tensor| match tensor.as_number() {
        Some(number) => Tensor::full(&[], number, tensor.dtype()),
        None => tensor.contiguous(),
    };
    results.iter().map(one).collect()
}
