//! Capture: from a call of a function to its trace.
//!
//! Where gradients are recorded, the backward pass is traced together with the function. The trace contains the
//! gradients of the outputs with respect to every input that requires them, from cotangents that are declared as
//! inputs.

use super::gradients::Gradient;
use super::panics::applied;
use super::profiled;
use super::program::Joint;
use super::spans;
use crate::autograd::kept_values::keep_values;
use crate::autograd::{Tape, contributions, reached};
use crate::device::Device;
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::error::{Error, NotCaptured, Reason, Result};
use crate::ir::TensorType;
use crate::runtime::cuda;
use crate::tensor::handle::Tensor;
use crate::tensor::structure::Flat;
use crate::transforms::function::Function;
use crate::transforms::tracer;
use crate::transforms::tracer::Captured;
use crate::transforms::tracer::GradientsBefore;
use crate::transforms::tracer::Reads;
use crate::transforms::tracer::{First, Runner};
use std::sync::Arc;

/// A trace, and the positions of its gradients.
pub(super) type Capture = Result<(tracer::Trace, Joint), Reason>;

/// Whether gradients are recorded, and one of these tensors requires them.
pub(super) fn wants_gradients<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> bool {
    is_grad_enabled() && tensors.into_iter().any(Tensor::requires_grad)
}

/// The GPU of these tensors, if one of them is on a GPU.
pub(super) fn gpu_of<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Option<Device> {
    cuda::device_of(tensors.into_iter().map(Tensor::device))
}

/// Why tensors on several devices cannot share one executable. Plain numbers have no fixed device.
fn mixed_devices(inputs: &[Tensor], others: impl IntoIterator<Item = Device>) -> Option<Reason> {
    let gpu = gpu_of(inputs).unwrap_or(Device::CPU);
    let stray = inputs.iter().filter_map(device).chain(others).find(|other| *other != gpu)?;
    Some(NotCaptured::TwoDevices { device: gpu.to_string().into(), other: stray.to_string().into() }.into())
}

fn device(tensor: &Tensor) -> Option<Device> {
    Some(tensor.device()).filter(|_| tensor.as_number().is_none())
}

/// The first call of a function without gradients. Either the function is traced and not run, or it has run in
/// segments.
///
/// # Errors
/// If the function fails.
pub(super) fn first<A, F: Function<A>>(
    function: &F,
    inputs: &Flat,
    runner: Arc<dyn Runner>,
    reads: Reads,
) -> Result<First<F::Output>> {
    let _spans = (profiled::captures(function.name()), spans::capture(function.name()));
    let apply = |handles: &[Tensor]| applied(function, &inputs.with_tensors(handles));
    let tensors = |output: &F::Output| {
        let mut tensors = Flat::of(output).tensors.into_vec();
        let n_results = tensors.len();
        tensors.extend(tracer::shared_bases(&tensors));
        (tensors, n_results)
    };
    tracer::trace_first(runner, reads, &inputs.tensors, apply, tensors)
}

/// Records the function, and its gradients if they are wanted, in an abstract trace. `before` holds the gradients that
/// leaves had before a call that has changed them. The plain numbers at the positions `changing` become inputs.
pub(super) fn on_shapes<A, F: Function<A>>(
    function: &F,
    inputs: &Flat,
    reads: Reads,
    before: GradientsBefore,
    changing: &[usize],
) -> Result<Capture> {
    let captured = on_shapes_once(function, inputs, reads, before.clone(), changing)?;
    if !matches!(captured, Err(Reason::NotCaptured(NotCaptured::BackwardEffects))) {
        return Ok(captured);
    }
    // A checkpoint adds to gradients of parameters when it computes again. With all values kept there is none.
    let _kept = keep_values();
    on_shapes_once(function, inputs, reads, before, changing)
}

fn on_shapes_once<A, F: Function<A>>(
    function: &F,
    inputs: &Flat,
    reads: Reads,
    before: GradientsBefore,
    changing: &[usize],
) -> Result<Capture> {
    let _spans = (profiled::captures(function.name()), spans::capture(function.name()));
    let traced = |handles: &[Tensor]| {
        let mut outputs = Flat::of(&applied(function, &inputs.with_tensors(handles))?);
        let n_results = outputs.tensors.len();
        outputs.tensors.extend(tracer::shared_bases(&outputs.tensors));
        let (gradients, joint) = gradients(handles, &outputs)?;
        let joint = Joint { n_results, ..joint };
        Ok((outputs.tensors.into_vec(), gradients, joint))
    };
    let all = |traced: &(Vec<Tensor>, Vec<Tensor>, Joint)| traced.0.iter().chain(&traced.1).cloned().collect();
    let ((outputs, gradients, joint), captured): (_, Captured) =
        tracer::trace_with(reads, before, changing, &inputs.tensors, traced, all)?;
    if let (Ok(trace), true) = (&captured, gpu_of(inputs.tensors.iter().chain(&outputs)).is_some()) {
        let lifted = trace.lifted.iter().filter_map(tracer::Lifted::device);
        if let Some(reason) = mixed_devices(&inputs.tensors, outputs.iter().filter_map(device).chain(lifted)) {
            return Ok(Err(reason));
        }
    }
    drop((outputs, gradients));
    if captured.as_ref().is_ok_and(tracer::Trace::keeps_values) {
        return Ok(Err(NotCaptured::KeepsTensors.into()));
    }
    Ok(captured.map(|trace| (trace, joint)))
}

/// The gradients of `outputs` with respect to all inputs that require them.
fn gradients(handles: &[Tensor], flat: &Flat) -> Result<(Vec<Tensor>, Joint)> {
    let outputs = &flat.tensors;
    if handles.iter().any(|handle| !handle.is_tape_leaf()) {
        return Err(Error::argument("compile", "an input is written to while gradients are recorded"));
    }
    // A tensor from outside that is returned as it is has its history already. A view that each call rebuilds gets its
    // history from the program, too, so that gradients are added in the order of the function.
    let is_again = |index: usize| outputs[..index].iter().any(|other| other.id() == outputs[index].id());
    let wants =
        |&index: &usize| outputs[index].requires_grad() && !tracer::is_outside(&outputs[index]) && !is_again(index);
    let differentiable: Vec<usize> = (0..outputs.len()).filter(wants).collect();
    if differentiable.is_empty() {
        return Ok((Vec::new(), Joint::without_gradients(flat)));
    }
    // Cotangents come after all tensors from outside.
    tracer::lift_results(outputs)?;
    let lifted = tracer::lifted_tensors();
    let operands: Vec<(usize, &Tensor)> = handles
        .iter()
        .enumerate()
        .chain(lifted.iter().map(|(index, tensor)| (handles.len() + *index, tensor)))
        .filter(|(_, tensor)| tensor.requires_grad())
        .collect();
    let roots: Vec<&Tensor> = differentiable.iter().map(|&index| &outputs[index]).collect();
    let declare =
        |root: &&Tensor| tracer::declare_input(&TensorType::contiguous(root.dtype(), root.sizes()), root.device());
    let cotangents = roots.iter().map(declare).collect::<Result<Vec<_>>>()?;
    let cotangents: Vec<Option<&Tensor>> = cotangents.iter().map(Some).collect();
    let wanted: Vec<&Tensor> = operands.iter().map(|(_, tensor)| *tensor).collect();
    let n_effects = tracer::n_effects();
    let found = contributions(&roots, &wanted, &cotangents)?;
    if tracer::n_effects() != n_effects {
        tracer::refuse_backward_effects();
    }
    let reached = reached(&wanted, &roots)?;
    let mut gradients = Vec::new();
    let mut by_operand = Vec::new();
    for (at, ((position, operand), parts)) in operands.iter().zip(found).enumerate() {
        let Some((first, rest)) = parts.split_first() else { continue };
        let sum = gradients.len();
        gradients.push(rest.iter().try_fold(first.clone(), |sum, part| sum.add(part))?);
        if !rest.is_empty() {
            gradients.extend(parts);
        }
        let flows_from = reached.iter().map(|reached| reached[at]).collect();
        let ty = TensorType::contiguous(operand.dtype(), operand.sizes());
        by_operand.push((*position, Gradient { sum, parts: sum + 1..gradients.len(), flows_from, ty }));
    }
    let tape = Tape::between(&operands, &roots)?;
    let with_nodes = |tape: Tape| {
        // A number without a node is none of the call.
        let saved = tape.saved().iter().map(|saved| Ok(tracer::saved_node(saved)?.map(|node| (saved.id(), node))));
        let nodes = saved.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
        Ok((tape, nodes))
    };
    let tape = tape.map(with_nodes).transpose()?;
    let n_gradients = gradients.len();
    let joint = Joint { differentiable, operands: by_operand, n_gradients, tape, ..Joint::without_gradients(flat) };
    Ok((gradients, joint))
}

impl Joint {
    /// A trace with these outputs and no gradients.
    pub(super) fn without_gradients(outputs: &Flat) -> Joint {
        let (n_outputs, words) = (outputs.tensors.len(), outputs.words.clone());
        let (differentiable, operands) = (Vec::new(), Vec::new());
        Joint { differentiable, n_outputs, n_results: n_outputs, words, operands, n_gradients: 0, tape: None }
    }
}
