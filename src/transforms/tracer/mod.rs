//! The Tracer key: records calls into a graph.
//!
//! While a thread traces, the key is included for all its calls. A call of a row of the op table becomes a node. A
//! composite operator is passed on, so that its parts are recorded. Tensors that the function was not given become
//! inputs of the graph (*lifted*). In an *abstract* trace tensors have no values, and nothing runs. In a *deferred*
//! recording they have none until one is needed: then the calls recorded so far run.
//!
//! A graph has no writes. `copy_` assigns the written tensor a new node (*functionalization*). A write through a view
//! is inverted to a new value of its base, and other views of the base are recomputed at their next use. A written
//! input becomes an output, which is copied back once at the end. So does a gradient that the function leaves on a
//! tensor from outside (`gradients`). Answers about such tensors become guards (`outside`).

use crate::device::{Device, DeviceKind, Generator};
use crate::dispatch::builtins::copy_operator;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode::{inference_mode, is_inference_mode};
pub use crate::dispatch::key::local::is_tracing;
use crate::dispatch::key::local::{exclude, include};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::rows::unpack;
use crate::dispatch::table::Source;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, NotCaptured, Reason, Result};
use crate::ir::{DType, NodeId, TensorType};
use crate::ops::draws;
use crate::ops::element::number_of;
use crate::ops::mutation::check_target;
use crate::ops::random::key_of;
use crate::profile::locate;
use crate::tensor::handle::Tensor;
use crate::transforms::function::TensorRefs;
use smallvec::SmallVec;

mod aliases;

mod calls;
mod checks;
mod condition;
mod deferral;
mod deferred;
mod effects;
mod gradients;
mod known_gradients;
mod layouts;
mod made;
mod opaque_call;
mod outside;
mod recording;
mod recovery;
mod repeats;
mod session;
mod subgraph;
mod trace;
mod views;

pub(crate) use aliases::shared_bases;
pub use aliases::{Origin, OutputAlias, OutputKind};
pub(crate) use calls::call_callee;
pub(crate) use checks::checks_come_before;
pub use condition::{Condition, GradientType, Outside, Property, Relation};
pub use deferral::{DeferredSegment, Runner, SegmentEnd};
pub use deferred::{First, NoTrace, defer, trace_first};
pub(crate) use gradients::{on_gradient, on_hooks, on_older_call, refuses_hook};
pub use known_gradients::{GradientWatch, GradientsBefore, watch_gradients};
pub(crate) use made::is_alone;
pub(crate) use opaque_call::Callee;
pub use opaque_call::{BodySize, OpaqueCall};
pub(crate) use outside::{has, memory_start, on_history, on_reached, on_requires_grad, on_wanted, relates};
pub use recording::Reads;
use recording::Recording;
pub(crate) use repeats::{Repeats, repeats};
pub use session::take_break;
use session::{BREAK, RECORDING, Session, is_deferred, with_recording};
pub(crate) use subgraph::{Subgraph, SubgraphInput, trace_subgraph};
pub use trace::{Captured, Draws, GradientChange, Lifted, NewGradient, Owner, Trace};

/// Adds an input to the current trace that the function was not given. The caller passes its value with each call.
///
/// # Errors
/// If no trace is in progress.
pub(crate) fn declare_input(ty: &TensorType, device: Device) -> Result<Tensor> {
    let input = Tensor::abstracted(ty, device, None)?;
    let declared = with_recording(|recording| {
        recording.lifted.push(Lifted::Declared);
        recording.add_input(&input);
    });
    declared.map(|()| input).ok_or_else(|| Error::Internal { message: "an input was declared outside a trace".into() })
}

/// Lifts tensors from outside that the function returns or leaves as gradients, but did not use.
///
/// # Errors
/// If a view of a written tensor cannot be recomputed.
pub(crate) fn lift_results(outputs: &[Tensor]) -> Result<()> {
    let lift = |recording: &mut Recording| {
        let gradients: Vec<Tensor> = recording.gradients.iter().filter_map(|known| known.leaf.gradient()).collect();
        let lifted = outputs.iter().chain(&gradients).try_for_each(|tensor| recording.result(tensor).map(|_| ()));
        recording.hide_made();
        lifted
    };
    with_recording(lift).unwrap_or(Ok(()))
}

/// The node of a value that the tape of the current trace saved. A tensor that no call has used is lifted.
///
/// # Errors
/// If it is a view that cannot be recomputed.
pub(crate) fn saved_node(saved: &Tensor) -> Result<Option<NodeId>> {
    let node = |recording: &mut Recording| match recording.nodes.get(&saved.id()) {
        Some(known) => Ok(Some(known.node)),
        None if saved.as_number().is_some() => Ok(None),
        None => recording.node(saved).map(Some),
    };
    with_recording(node).unwrap_or(Ok(None))
}

/// How often the current trace has changed what is outside: elements, gradients, generators.
pub(crate) fn n_effects() -> u64 {
    with_recording(|recording| recording.n_effects).unwrap_or(0)
}

/// Gives the current trace up, because a derivative or a hook of a user does more than compute.
pub(crate) fn refuse_backward_effects() {
    with_recording(|recording| recording.give_up(NotCaptured::BackwardEffects));
}

/// Whether the current trace did not compute the tensor.
pub(crate) fn is_outside(tensor: &Tensor) -> bool {
    with_recording(|recording| recording.outside(tensor).is_some()).unwrap_or(true)
}

/// The tensors that the current trace has lifted, with their positions among all lifted inputs.
pub(crate) fn lifted_tensors() -> Vec<(usize, Tensor)> {
    let tensors = |recording: &mut Recording| {
        let n_given = recording.inputs.len() - recording.lifted.len();
        let tensor = |(index, lifted): (usize, &Lifted)| match lifted {
            Lifted::Tensor(tensor) => Some((index, recording.shown(n_given + index, tensor))),
            Lifted::Number(_)
            | Lifted::Draw { .. }
            | Lifted::Gradient(..)
            | Lifted::Declared
            | Lifted::Result { .. } => None,
        };
        recording.lifted.iter().enumerate().filter_map(tensor).collect()
    };
    with_recording(tensors).unwrap_or_default()
}

/// Whether a trace is in progress on this thread, so that tensors have no values.
pub(crate) fn is_abstract() -> bool {
    with_recording(|_| true).unwrap_or(false)
}

/// Whether an abstract trace is in progress on this thread that began after the recorded call of this number.
pub(crate) fn is_abstract_since(call: u64) -> bool {
    with_recording(|recording| !recording.is_deferred() && call < recording.first_call).unwrap_or(false)
}

/// Records the calls of `function` on inputs of these types, without running them. `outputs` returns the tensors of a
/// result, which become outputs of the graph.
///
/// # Errors
/// If the function fails.
pub fn trace<R>(
    inputs: &[Tensor],
    function: impl FnOnce(&[Tensor]) -> Result<R>,
    outputs: impl FnOnce(&R) -> Vec<Tensor>,
) -> Result<(R, Captured)> {
    trace_with(Reads::GraphBreak, GradientsBefore::default(), &[], inputs, function, outputs)
}

/// Like [`trace()`]. `reads` is the reaction to a read of a value. `before` holds the gradients that leaves had before
/// the call. The plain numbers at the positions `changing`, in the order of their use, become inputs.
///
/// # Errors
/// Same as [`trace()`].
pub fn trace_with<R>(
    reads: Reads,
    before: GradientsBefore,
    changing: &[usize],
    inputs: &[Tensor],
    function: impl FnOnce(&[Tensor]) -> Result<R>,
    outputs: impl FnOnce(&R) -> Vec<Tensor>,
) -> Result<(R, Captured)> {
    let mut recording = Recording::new(reads, None);
    recording.before = before;
    recording.changing = changing.to_vec();
    trace_by(recording, inputs, function, outputs)
}

/// Like [`trace()`], by an abstract recording that was just made.
fn trace_by<R>(
    mut recording: Recording,
    inputs: &[Tensor],
    function: impl FnOnce(&[Tensor]) -> Result<R>,
    outputs: impl FnOnce(&R) -> Vec<Tensor>,
) -> Result<(R, Captured)> {
    crate::dispatch::load()?;
    let abstracted = |input: &Tensor| {
        let _as_given = input.is_inference().then(inference_mode);
        let handle = Tensor::abstracted(&input.ty(), input.device(), input.as_number())?;
        handle.require_grad_like(input);
        Ok(handle)
    };
    let handles = one_for_each(inputs, abstracted)?;
    for (handle, original) in handles.iter().zip(inputs) {
        recording.give(handle, original);
    }
    BREAK.take();
    RECORDING.set(Some(recording));
    let session = Session;
    let _own_draws = draws::apart();
    let result = {
        let _tracing = include(DispatchKey::Tracer);
        function(&handles)?
    };
    let tensors = outputs(&result);
    let nested = || Err(NotCaptured::NestedTrace.into());
    let captured = with_recording(|recording| recording.finish(&tensors)).unwrap_or_else(nested);
    drop(session);
    Ok((result, captured))
}

/// A handle for each input, made by `make`. A tensor that is given twice has one.
fn one_for_each(inputs: &[Tensor], make: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let mut handles: Vec<Tensor> = Vec::with_capacity(inputs.len());
    let repeats = repeats(&inputs.iter().collect::<TensorRefs<'_>>());
    for (index, input) in inputs.iter().enumerate() {
        let first = repeats.iter().find(|(_, again)| *again == index);
        handles.push(match first {
            Some((first, _)) => handles[*first].clone(),
            None => make(input)?,
        });
    }
    Ok(handles)
}

/// Draws the key of a random op from a generator: an i64 tensor of seed and first counter.
///
/// A trace records that a key is drawn, and not its value. An abstract trace draws nothing.
///
/// # Errors
/// If there is not enough memory.
pub fn draw(generator: &Generator, n_counters: u64) -> Result<Tensor> {
    let deferred = if is_tracing() { with_recording(|recording| recording.is_deferred()) } else { None };
    let key = match deferred {
        Some(false) => Tensor::abstracted(&TensorType::contiguous(DType::I64, &[2]), Device::CPU, None)?,
        // A deferred recording draws at once, in the order of the calls.
        Some(true) | None => {
            let start = generator.draw(n_counters);
            if deferred.is_some() {
                with_recording(|recording| recording.note_draw(generator, start, n_counters));
            }
            key_of(start)?
        }
    };
    if deferred.is_some() {
        with_recording(|recording| {
            recording.n_effects += 1;
            if recording.may_be_trace() {
                recording.lifted.push(Lifted::Draw { generator: generator.clone(), n_counters });
                recording.add_input(&key);
            }
        });
    }
    Ok(key)
}

/// Records an alias without history that has its own version. What cannot be recorded breaks the trace.
pub(crate) fn on_data(tensor: &Tensor, data: &Tensor) {
    if !is_tracing() {
        return;
    }
    // An error is that of the function, too, in the end.
    let has_run = if is_deferred() { deferred::run_writes_to(std::slice::from_ref(tensor)) } else { Ok(()) };
    with_recording(|recording| match has_run {
        Ok(()) => {
            recording.note_alias(tensor, data);
            recording.note_own_version(data);
        }
        Err(error) => recording.give_up(Reason::of_error(error)),
    });
}

/// Records a new handle of a tensor. A deferred recording has run by then.
pub(crate) fn on_handle(tensor: &Tensor, handle: &Tensor) {
    if is_tracing() && tensor.as_number().is_none() {
        with_recording(|recording| {
            if !recording.is_deferred() {
                recording.note_alias(tensor, handle);
            }
        });
    }
}

/// Records that a number was computed from sizes.
pub(crate) fn on_extent(number: &Tensor, count: usize) {
    if is_tracing() {
        with_recording(|recording| {
            let node = recording.graph.extent(count);
            recording.name(number, node);
        });
    }
}

/// The Tracer kernel of every operator.
///
/// # Errors
/// If the call cannot be recorded, or if the kernel below fails.
pub fn fallback(operator: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
    let below = keys - KeySet::of(DispatchKey::Tracer);
    let name = || operator.name().to_string().into();
    let is_copy = copy_operator().is_ok_and(|copy| copy == operator);
    let op = operator.row();
    if op.is_none() && !is_copy {
        return match operator.slot(below.highest()).source {
            // A composite: its parts are recorded.
            Source::Math => operator.redispatch_boxed(below, stack),
            _ => match calls::call(operator, below, stack)? {
                Some(why) => opaque(operator, below, stack, why),
                None => Ok(()),
            },
        };
    }
    if Dispatcher::global().is_overridden(operator, below) {
        return opaque(operator, below, stack, NotCaptured::OverriddenKernel { op: name() });
    }
    let Some(op) = op else { return write(operator, below, stack) };
    let (tensors, attrs) = unpack(op, stack)?;
    if is_deferred() {
        let is_elsewhere = below.has(DispatchKey::CUDA).then(|| NotCaptured::OtherDevice { op: name() });
        let declined = is_elsewhere.map_or_else(|| deferred::prepare(operator, &tensors, None), |why| Ok(Some(why)))?;
        if let Some(why) = declined {
            return deferred::run_eagerly(operator, below, stack, why);
        }
    }
    if op.is_window() && with_recording(|recording| recording.hides_memory(&tensors[0])) == Some(true) {
        let why = NotCaptured::ShowsGaps { op: name() };
        if is_deferred() {
            return deferred::run_eagerly(operator, below, stack, why);
        }
        with_recording(|recording| recording.give_up(why));
    }
    let is_view = op.is_view() && tensors[0].as_number().is_none();
    let made = is_view.then(|| attrs.clone());
    let number = number_of(op, &tensors.iter().collect::<SmallVec<[&Tensor; 4]>>(), &attrs)?;
    let recorded = with_recording(|recording| recording.record(op, &tensors, attrs));
    let Some(mut node) = recorded.transpose()? else { return operator.redispatch_boxed(below, stack) };
    let has_shape_alone = if is_deferred() {
        // Operands may have data. The keys below have nothing to do except to compute the result.
        !is_view
    } else {
        // A call without tensor operands.
        tensors.iter().all(|tensor| tensor.as_number().is_some())
    };
    let result = if let (true, Some(number)) = (is_deferred(), number) {
        Some(Tensor::number(number)?)
    } else if has_shape_alone {
        let laid_out = with_recording(|recording| recording.result_of(node, &tensors)).transpose()?;
        let ty = laid_out.map(|(laid_out, ty)| {
            node = laid_out;
            ty
        });
        // Such a result is on the device that the keys give.
        let device = match below.has(DispatchKey::CUDA) {
            true => crate::device::current_device(DeviceKind::Cuda)?,
            false => Device::CPU,
        };
        let made = ty.map(|ty: TensorType| Tensor::abstracted(&ty, device, number)).transpose()?;
        // A view of a number is an inference tensor if the number is, or in inference mode.
        match op.is_view() && number.is_none() && !is_inference_mode() {
            true => made.map(|made| made.with_inference_of(&tensors[0])),
            false => made,
        }
    } else {
        let _below = exclude(DispatchKey::Tracer);
        operator.redispatch_boxed(below, stack)?;
        stack.first().and_then(|value| value.tensors().next().cloned())
    };
    let result = result.ok_or_else(|| Error::argument(op.name(), "the kernel returned no tensor"))?;
    with_recording(|recording| {
        if let Some(attrs) = &made {
            recording.note_view(op, &tensors[0], attrs, &result);
        }
        recording.name(&result, node);
    });
    stack.clear();
    stack.push(Value::Tensor(result));
    Ok(())
}

/// The Tracer kernel of `copy_`: passes the write on, and records the new values of the tensors that it changes.
fn write(operator: &Operator, below: KeySet, stack: &mut Stack) -> Result<()> {
    let (Some(Value::Tensor(target)), Some(Value::Tensor(source))) = (stack.first().cloned(), stack.get(1).cloned())
    else {
        return operator.redispatch_boxed(below, stack);
    };
    // A copy into itself does nothing, even where no other would be allowed. The handle of an input stands for the
    // caller's tensor.
    let is_refused = target.array().layout().is_expanded() || target.is_inference();
    let is_itself = is_refused && target.is_same(&source);
    let source = if is_itself { target.clone() } else { source };
    if is_itself {
        stack[1] = Value::Tensor(target.clone());
    }
    if target.is_inference() && !target.is_handle_of(&source) {
        // An eager call looks at this before it looks at sizes.
        check_target("copy_", &target)?;
    }
    if is_deferred()
        && let Some(why) = deferred::prepare(operator, &[target.clone(), source.clone()], Some(&target))?
    {
        return deferred::run_eagerly(operator, below, stack, why);
    }
    if let Some(why) = with_recording(|recording| recording.refuses_history(&target, &source)).flatten() {
        with_recording(|recording| recording.give_up(why.clone()));
        return Err(Error::NotImplemented { op: operator.name().to_string(), what: why.to_string() });
    }
    let written = with_recording(|recording| recording.write(&target, &source)).transpose()?;
    let before = target.version();
    {
        let _below = exclude(DispatchKey::Tracer);
        operator.redispatch_boxed(below, stack)?;
    }
    with_recording(|recording| {
        recording.count_write(&target, before);
        for (tensor, node) in written.into_iter().flatten() {
            recording.name(&tensor, node);
        }
        recording.note_effect(&target, before);
    });
    Ok(())
}

/// Called before a function with a derivative of its own is recorded on the tape. A trace contains the calls of both
/// its passes.
///
/// # Errors
/// An error of a deferred call.
pub(crate) fn on_function(name: &str) -> Result<()> {
    if is_tracing() && is_deferred() {
        deferred::meets_gradients();
        return deferred::flush(Some(NotCaptured::RecordedForGradients { op: name.into() }.into()));
    }
    Ok(())
}

/// A call of a kernel that no graph holds: it breaks the trace, or runs between two segments.
fn opaque(operator: &Operator, below: KeySet, stack: &mut Stack, why: NotCaptured) -> Result<()> {
    if is_deferred() {
        return deferred::run_eagerly(operator, below, stack, why);
    }
    let reason = Reason::from(why);
    if with_recording(|recording| recording.give_up(reason.clone())).is_some() {
        return Err(Error::NotImplemented { op: operator.name().to_string(), what: reason.to_string() });
    }
    operator.redispatch_boxed(below, stack)
}

/// Called before a function does what breaks a trace, for a reason that says more than what it does.
///
/// # Errors
/// If breaks are errors, or if a deferred call fails.
pub(crate) fn on_break(op: &str, reason: &Reason) -> Result<()> {
    if !is_tracing() {
        return Ok(());
    }
    let reads = with_recording(|recording| {
        if recording.may_be_trace() || recording.reads == Reads::Error {
            recording.give_up(reason.clone());
        }
        recording.reads
    });
    match reads {
        Some(Reads::GraphBreak) if is_deferred() => {
            let _place = locate(None);
            deferred::flush(Some(reason.clone()))
        }
        Some(Reads::Error) => {
            let refused = "the break policy is BreakPolicy::Error";
            Err(Error::argument(op, format!("{reason}, and {refused}; {}", reason.hint())))
        }
        Some(Reads::GraphBreak) | None => Ok(()),
    }
}

/// Called before the value of a tensor is read. A trace ends here, because it cannot follow the value.
///
/// # Errors
/// If reads are errors, or if a deferred call fails.
pub(crate) fn on_read(tensor: &Tensor, op: &str) -> Result<()> {
    if !is_tracing() {
        return Ok(());
    }
    let reads = with_recording(|recording| {
        if recording.may_be_trace() || recording.reads == Reads::Error {
            recording.give_up(Reason::ReadsValue { op: op.into() });
        }
        recording.reads
    });
    if is_deferred() && reads == Some(Reads::GraphBreak) {
        deferred::read(tensor, op)?;
    }
    if reads == Some(Reads::Error) {
        let refused = "it reads a value while the function is traced, and the break policy is BreakPolicy::Error";
        return Err(Error::argument(op, format!("{refused}; allow graph breaks, or read it outside the function")));
    }
    Ok(())
}
