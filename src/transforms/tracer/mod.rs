//! The Tracer key: records calls into a graph.
//!
//! While a thread traces, the key is included for all its calls. A call of an op of the table becomes a node; a
//! composite operator is passed through, so that its parts are recorded. Tensors that the function was not given
//! become inputs of the graph (*lifted*). In an *abstract* trace values have shapes alone, so nothing runs. In a
//! *deferred* recording they have shapes until one is needed: what was recorded so far runs then.
//!
//! A graph has no writes. `copy_` gives the tensor that was written to a new node (*functionalization*), turned around
//! through the view it was written through; other views of that tensor are recorded anew when they are next used. An
//! input that was written to becomes an output, to be copied back once at the end. So does what is left as gradient of a
//! tensor from outside (`gradients`). What else the function is told of such tensors is noted (`outside`).

use crate::device::{Device, DeviceKind, Generator};
use crate::dispatch::builtins::op_of;
use crate::dispatch::key::dispatch_key::DispatchKey;
pub use crate::dispatch::key::local::is_tracing;
use crate::dispatch::key::local::{exclude, include};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::rows::unpack;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, NotCaptured, Reason, Result};
use crate::ir::{DType, TensorType};
use crate::ops::mutation::copy_operator;
use crate::ops::random::key_of;
use crate::tensor::handle::Tensor;

mod aliases;
mod condition;
mod deferral;
mod deferred;
mod gradients;
mod known_gradients;
mod outside;
mod recording;
mod session;
mod trace;

pub use aliases::{Origin, OutputAlias};
pub(crate) use aliases::{are_aliases, shared_bases};
pub use condition::{Condition, GradientType, Outside, Property, Relation};
pub use deferral::Runner;
pub use deferred::{Apart, First, defer, trace_first};
pub(crate) use gradients::{on_gradient, on_hooks, refuses_hook};
pub use known_gradients::{GradientWatch, GradientsBefore, watch_gradients};
pub(crate) use outside::{has, memory_start, on_history, on_requires_grad, relates};
pub use recording::Reads;
use recording::{Recording, is_window};
pub use session::take_break;
use session::{BREAK, RECORDING, Session, is_deferred, with_recording};
pub use trace::{Captured, GradientChange, Lifted, NewGradient, Owner, Trace};

/// A new input of the trace in progress, on shapes alone: something that is handed in with each call.
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

/// Makes tensors from outside inputs of the trace that the function returns, or leaves as gradients, and did not use.
///
/// # Errors
/// If a view of something that was written to cannot be made anew.
pub(crate) fn lift_results(outputs: &[Tensor]) -> Result<()> {
    let lift = |recording: &mut Recording| {
        let gradients: Vec<Tensor> = recording.gradients.iter().filter_map(|known| known.leaf.gradient()).collect();
        outputs.iter().chain(&gradients).try_for_each(|tensor| recording.node(tensor).map(|_| ()))
    };
    with_recording(lift).unwrap_or(Ok(()))
}

/// The tensors that the trace in progress uses without having been given them, by their place among all that is lifted.
pub(crate) fn lifted_tensors() -> Vec<(usize, Tensor)> {
    let tensors = |recording: &mut Recording| {
        let tensor = |(index, lifted): (usize, &Lifted)| match lifted {
            Lifted::Tensor(tensor) => Some((index, tensor.clone())),
            Lifted::Draw { .. } | Lifted::Gradient(..) | Lifted::Declared => None,
        };
        recording.lifted.iter().enumerate().filter_map(tensor).collect()
    };
    with_recording(tensors).unwrap_or_default()
}

/// Whether values have shapes alone on this thread now.
pub(crate) fn is_abstract() -> bool {
    with_recording(|_| true).unwrap_or(false)
}

/// Runs `function` on the shapes of `inputs` and records its calls; `outputs` says which tensors of the result leave the
/// graph.
///
/// # Errors
/// What the function returns as error.
pub fn trace<R>(
    inputs: &[Tensor],
    function: impl FnOnce(&[Tensor]) -> Result<R>,
    outputs: impl FnOnce(&R) -> Vec<Tensor>,
) -> Result<(R, Captured)> {
    trace_with(Reads::Noted, GradientsBefore::default(), inputs, function, outputs)
}

/// As [`trace()`]; `reads` says what comes of reading a value, `before` what gradients leaves had before the call.
///
/// # Errors
/// As [`trace()`].
pub fn trace_with<R>(
    reads: Reads,
    before: GradientsBefore,
    inputs: &[Tensor],
    function: impl FnOnce(&[Tensor]) -> Result<R>,
    outputs: impl FnOnce(&R) -> Vec<Tensor>,
) -> Result<(R, Captured)> {
    crate::dispatch::load()?;
    let mut recording = Recording::new(reads, None);
    recording.before = before;
    let abstracted = |input: &Tensor| {
        let handle = Tensor::abstracted(&input.ty(), input.device(), input.as_number())?;
        handle.flow_as(input);
        Ok(handle)
    };
    let handles = inputs.iter().map(abstracted).collect::<Result<Vec<Tensor>>>()?;
    for (handle, original) in handles.iter().zip(inputs) {
        recording.give(handle, original);
    }
    BREAK.take();
    RECORDING.set(Some(recording));
    let session = Session;
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

/// Draws from a generator: the key of random ops, an i64 tensor of seed and first counter.
///
/// A trace records that a key is drawn, not which; an abstract one draws nothing.
///
/// # Errors
/// If there is no memory.
pub fn draw(generator: &Generator, n_counters: u64) -> Result<Tensor> {
    let deferred = if is_tracing() { with_recording(|recording| recording.is_deferred()) } else { None };
    let key = match deferred {
        Some(false) => Tensor::abstracted(&TensorType::contiguous(DType::I64, &[2]), Device::CPU, None)?,
        // What is deferred draws at once, in the order of the calls.
        Some(true) | None => key_of(generator.draw(n_counters))?,
    };
    if deferred.is_some() {
        with_recording(|recording| {
            if recording.may_be_trace() {
                recording.lifted.push(Lifted::Draw { generator: generator.clone(), n_counters });
                recording.add_input(&key);
            }
        });
    }
    Ok(key)
}

/// Records that a number is a count that follows from sizes.
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
/// If the call cannot be recorded, and what the call below returns.
pub fn fallback(operator: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
    let below = keys - KeySet::of(DispatchKey::Tracer);
    if copy_operator().is_ok_and(|copy| copy.name() == operator.name()) {
        return write(operator, below, stack);
    }
    let Some(op) = op_of(operator) else {
        return pass(operator, below, stack);
    };
    let (tensors, attrs) = unpack(op, stack)?;
    let name = || operator.name().to_string().into();
    if is_deferred() {
        let is_elsewhere = below.has(DispatchKey::CUDA).then(|| NotCaptured::OtherDevice { op: name() });
        let declined = is_elsewhere.map_or_else(|| deferred::prepare(operator, &tensors, None), |why| Ok(Some(why)))?;
        if let Some(why) = declined {
            return deferred::run_for_real(operator, below, stack, why);
        }
    }
    if is_window(op) && with_recording(|recording| recording.is_written_apart(&tensors[0])) == Some(true) {
        let why = NotCaptured::ShowsGaps { op: name() };
        if is_deferred() {
            return deferred::run_for_real(operator, below, stack, why);
        }
        with_recording(|recording| recording.give_up(why));
    }
    let recorded = with_recording(|recording| recording.record(op, &tensors, attrs));
    let Some(node) = recorded.transpose()? else { return operator.redispatch_boxed(below, stack) };
    let has_shape_alone = if is_deferred() {
        // Its operands may have data, and nothing below but the computation is concerned with it.
        !op.is_view()
    } else {
        // It is made of nothing.
        tensors.iter().all(|tensor| tensor.as_number().is_some())
    };
    let result = if has_shape_alone {
        let ty = with_recording(|recording| recording.graph[node].ty.clone());
        // What is made of nothing is made where the key says.
        let device = match below.has(DispatchKey::CUDA) {
            true => crate::device::current_device(DeviceKind::Cuda)?,
            false => Device::CPU,
        };
        ty.map(|ty: TensorType| Tensor::abstracted(&ty, device, None)).transpose()?
    } else {
        let _below = exclude(DispatchKey::Tracer);
        operator.redispatch_boxed(below, stack)?;
        stack.first().and_then(|value| value.tensors().next().cloned())
    };
    let result = result.ok_or_else(|| Error::argument(op.name(), "the kernel left no tensor"))?;
    with_recording(|recording| recording.name(&result, node));
    stack.clear();
    stack.push(Value::Tensor(result));
    Ok(())
}

/// `copy_`: done below, for real or on shapes, and recorded as new values of what it writes to.
fn write(operator: &Operator, below: KeySet, stack: &mut Stack) -> Result<()> {
    let (Some(Value::Tensor(target)), Some(Value::Tensor(source))) = (stack.first().cloned(), stack.get(1).cloned())
    else {
        return operator.redispatch_boxed(below, stack);
    };
    if is_deferred()
        && let Some(why) = deferred::prepare(operator, &[target.clone(), source.clone()], Some(&target))?
    {
        return deferred::run_for_real(operator, below, stack, why);
    }
    let written = with_recording(|recording| recording.write(&target, &source)).transpose()?;
    {
        let _below = exclude(DispatchKey::Tracer);
        operator.redispatch_boxed(below, stack)?;
    }
    with_recording(|recording| {
        for (tensor, node) in written.into_iter().flatten() {
            recording.name(&tensor, node);
        }
    });
    Ok(())
}

/// Called before a function with a derivative of its own is recorded for gradients. A graph would have the derivative of
/// its parts where the way back is recorded itself.
///
/// # Errors
/// What calls return that were deferred.
pub(crate) fn on_function(name: &str) -> Result<()> {
    if !is_tracing() {
        return Ok(());
    }
    let why = NotCaptured::CustomFunction { function: name.into() };
    if is_deferred() {
        deferred::meets_gradients();
        return deferred::flush(Some(why.into()));
    }
    with_recording(|recording| recording.give_up(why));
    Ok(())
}

/// An operator that is no row: its decomposition is traced; a kernel of its own is not, which breaks the trace.
fn pass(operator: &Operator, below: KeySet, stack: &mut Stack) -> Result<()> {
    let composite = operator.slot(below.highest()).source == crate::dispatch::table::Source::Math;
    let why = || NotCaptured::NoDecomposition { op: operator.name().to_string().into() };
    if !composite && is_deferred() {
        return deferred::run_for_real(operator, below, stack, why());
    }
    if !composite {
        let reason = Reason::from(why());
        if with_recording(|recording| recording.give_up(reason.clone())).is_some() {
            return Err(Error::NotImplemented { op: operator.name().to_string(), what: reason.to_string() });
        }
    }
    operator.redispatch_boxed(below, stack)
}

/// Called before a value is read: a trace cannot follow what the function does with it.
///
/// # Errors
/// If reads are refused, and what calls return that were deferred.
pub(crate) fn on_read(tensor: &Tensor, op: &str) -> Result<()> {
    if !is_tracing() {
        return Ok(());
    }
    let reads = with_recording(|recording| {
        if recording.may_be_trace() || recording.reads == Reads::Refused {
            recording.give_up(Reason::ReadsValue { op: op.into() });
        }
        recording.reads
    });
    if is_deferred() && reads == Some(Reads::Noted) {
        deferred::read(tensor, op)?;
    }
    if reads == Some(Reads::Refused) {
        let refused = "it reads a value while the function is traced, and the break policy is BreakPolicy::Error";
        return Err(Error::argument(op, format!("{refused}; allow breaks, or read it outside the function")));
    }
    Ok(())
}
