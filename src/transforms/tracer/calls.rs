//! Calls of operators from outside that no row and no decomposition describes.
//!
//! A graph cannot see into the kernel of such an operator, but it can call it: what the call reads are values of the
//! graph, and its results are inputs of the graph. The kernel for [`DispatchKey::Meta`] gives their types. An abstract
//! trace records the call if its schema says that it neither writes to an operand nor returns one, and if its operands
//! are on the CPU. In each run of the program the kernel is called with the values of the run.
//!
//! A kernel from outside for another key, such as a derivative, is called while the trace goes on: what it calls is
//! recorded. In segments every such call runs between two of them.

use crate::autograd::record_without_derivative;
use crate::device::{Device, DeviceKind};
use crate::dispatch::key::alias::AUTOGRAD_KEYS;
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::local::{exclude, is_tracing};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::schema::{Parameter, Type};
use crate::dispatch::table::Source;
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, NotCaptured, Result};
use crate::ir::{NodeKind, TensorType};
use crate::profile::{locate, place};
use crate::tensor::handle::Tensor;
use crate::transforms::batched::each;
use crate::transforms::tracer::deferred;
use crate::transforms::tracer::opaque_call::{Callee, OpaqueCall};
use crate::transforms::tracer::recording::{Known, Recording};
use crate::transforms::tracer::session::{Paused, is_deferred, with_recording};
use crate::transforms::tracer::trace::Lifted;
use smallvec::SmallVec;
use std::sync::Arc;

/// The Tracer kernel of an operator that has neither a row nor a decomposition. Returns the reason if the call cannot
/// be recorded. Then it was not made.
///
/// # Errors
/// If a kernel fails.
pub(super) fn call(operator: &Operator, below: KeySet, stack: &mut Stack) -> Result<Option<NotCaptured>> {
    let op = || operator.name().to_string().into();
    let is_recordable = is_recordable(operator, stack);
    if is_deferred() {
        return Ok(Some(match is_recordable {
            true => NotCaptured::OpaqueCall { op: op() },
            false => NotCaptured::NoDecomposition { op: op() },
        }));
    }
    if with_recording(|_| ()).is_none() {
        return operator.redispatch_boxed(below, stack).map(|()| None);
    }
    let key = below.highest();
    let is_autograd = KeySet::of(key).has_any(AUTOGRAD_KEYS);
    let has_kernel = matches!(operator.slot(key).source, Source::Direct | Source::Autograd | Source::DefaultBackend);
    if key != DispatchKey::CPU && has_kernel {
        return operator.redispatch_boxed(below, stack).map(|()| None);
    }
    if (key == DispatchKey::CPU || is_autograd)
        && is_recordable
        && let Some(results) = record(operator, stack)?
    {
        if is_autograd {
            let operands: SmallVec<[Tensor; 4]> = stack.iter().flat_map(Value::tensors).cloned().collect();
            record_without_derivative(operator, &operands, &results)?;
        }
        *stack = results;
        return Ok(None);
    }
    Ok(Some(NotCaptured::NoDecomposition { op: op() }))
}

/// Calls other code than an operator, such as a loop, with operands that are on the CPU and no plain numbers. Where
/// they are mapped, it is called once per slice. An abstract trace records the call, and its results have these types.
/// A deferred recording runs first.
///
/// # Errors
/// If the code fails, or if the call cannot be recorded.
pub(crate) fn call_callee(
    callee: &Arc<dyn Callee>,
    operands: &[Tensor],
    types: Vec<TensorType>,
) -> Result<Vec<Tensor>> {
    let op = || callee.name().into();
    if types.is_empty() {
        return Ok(Vec::new());
    }
    if !operands.iter().all(Tensor::payload_is_none) {
        // The backward pass of a loop, mapped over a basis.
        return each(callee.name(), operands, &|slices| call_callee(callee, slices, types.clone()));
    }
    if !is_tracing() || with_recording(|_| ()).is_none() {
        return callee.call(operands);
    }
    if is_deferred() {
        return deferred::run_callee(callee, operands, NotCaptured::ControlFlow { op: op() });
    }
    let strides = operands.iter().map(|operand| operand.strides().into()).collect();
    let recorded = with_recording(|recording| {
        let _place = locate(None);
        recording.graph.set_place(place());
        let reads = operands.iter().map(|operand| recording.node(operand)).collect::<Result<Vec<_>>>()?;
        recording.note_call(OpaqueCall::of_callee(callee.clone(), (reads, strides), types))
    });
    recorded.unwrap_or_else(|| Err(Error::Internal { message: "a trace ended while it recorded a call".into() }))
}

/// Whether a call of the operator with these arguments may be part of a graph.
fn is_recordable(operator: &Operator, stack: &Stack) -> bool {
    let Some(schema) = operator.schema() else { return false };
    let is_free = |parameter: &Parameter| parameter.alias.is_none();
    let is_tensor = |ty: &Type| match ty {
        Type::Tensor => true,
        Type::List(of, _) => **of == Type::Tensor,
        _ => false,
    };
    let is_plain = |tensor: &Tensor| {
        tensor.as_number().is_some() || (tensor.device().kind == DeviceKind::Cpu && tensor.payload_is_none())
    };
    let has_kernel = |key| matches!(operator.slot(key).source, Source::Direct | Source::DefaultBackend);
    let is_known = |value: &Value| !matches!(value, Value::Object(_)) && value.tensors().all(is_plain);
    schema.arguments.iter().chain(&schema.returns).all(is_free)
        && !schema.returns.is_empty()
        && schema.returns.iter().all(|result| is_tensor(&result.ty))
        && has_kernel(DispatchKey::CPU)
        && has_kernel(DispatchKey::Meta)
        && stack.iter().all(is_known)
        && stack.iter().flat_map(Value::tensors).any(|tensor| tensor.as_number().is_none())
        && with_recording(|recording| {
            // A call is recorded with its numbers, which must be the same in each run.
            stack.iter().flat_map(Value::tensors).all(|tensor| recording.is_fixed(tensor))
                // A backward half calls no operators: what their kernels do to a gradient is not known.
                && !recording.lifted.iter().any(|one| matches!(one, Lifted::Declared))
        }) == Some(true)
}

/// Records a call, and returns its results. `None` if the Meta kernel does not tell their types.
fn record(operator: &Operator, stack: &Stack) -> Result<Option<Stack>> {
    let mut arguments = stack.clone();
    for tensor in arguments.iter_mut().flat_map(Value::tensors_mut) {
        *tensor = match tensor.as_number() {
            Some(number) => Tensor::number(number)?,
            None => Tensor::meta(&tensor.ty())?,
        };
    }
    let mut results = arguments.clone();
    {
        let _quiet = (Paused::new(), exclude(AUTOGRAD_KEYS | KeySet::of(DispatchKey::Tracer)));
        if operator.redispatch_boxed(KeySet::of(DispatchKey::Meta), &mut results).is_err() {
            return Ok(None);
        }
    }
    if !are_new(&arguments, &results) {
        return Ok(None);
    }
    let operands: Vec<&Tensor> =
        stack.iter().flat_map(Value::tensors).filter(|tensor| tensor.as_number().is_none()).collect();
    let strides = operands.iter().map(|operand| operand.strides().into()).collect();
    let reads = with_recording(|recording| {
        recording.graph.set_place(place());
        operands.iter().map(|operand| recording.node(operand)).collect::<Result<Vec<_>>>()
    });
    let Some(reads) = reads.transpose()? else { return Ok(None) };
    let types: Vec<TensorType> = results.iter().flat_map(Value::tensors).map(Tensor::ty).collect();
    let call = OpaqueCall::of_operator(operator.clone(), arguments, (reads, strides), types);
    let made = with_recording(|recording| recording.note_call(call));
    let Some(made) = made.transpose()? else { return Ok(None) };
    results.iter_mut().flat_map(Value::tensors_mut).zip(made).for_each(|(result, made)| *result = made);
    Ok(Some(results))
}

/// Whether results are tensors, at least one, each in memory of its own.
fn are_new(arguments: &Stack, results: &Stack) -> bool {
    let is_list = |value: &Value| matches!(value, Value::Tensor(_) | Value::TensorList(_));
    let all: SmallVec<[&Tensor; 4]> = results.iter().flat_map(Value::tensors).collect();
    let is_own = |(at, result): (usize, &&Tensor)| {
        let mut others = arguments.iter().flat_map(Value::tensors).chain(all[..at].iter().copied());
        result.as_number().is_none() && !others.any(|other| other.has_storage_of(result))
    };
    results.iter().all(is_list) && !all.is_empty() && all.iter().enumerate().all(is_own)
}

impl Recording {
    /// Whether a tensor is no plain number that is an input of the function, or was computed from one.
    fn is_fixed(&self, tensor: &Tensor) -> bool {
        let is_constant =
            |known: &Known| matches!(self.graph[known.node].kind, NodeKind::Number(_) | NodeKind::Extent(_));
        tensor.as_number().is_none() || self.nodes.get(&tensor.id()).is_none_or(is_constant)
    }

    /// Notes a call. Returns handles of its results: values of the function. Hidden handles are inputs of the graph.
    fn note_call(&mut self, mut call: OpaqueCall) -> Result<Vec<Tensor>> {
        let is_backward = self.lifted.iter().any(|one| matches!(one, Lifted::Declared));
        let mut made = Vec::with_capacity(call.types().len());
        for (index, ty) in call.types().to_vec().iter().enumerate() {
            let [hidden, result] =
                [Tensor::abstracted(ty, Device::CPU, None)?, Tensor::abstracted(ty, Device::CPU, None)?];
            self.lifted.push(match is_backward {
                true => Lifted::Declared,
                false => Lifted::Result { call: self.calls.len(), result: index },
            });
            call.results.push(self.inputs.len());
            let node = self.add_input(&hidden);
            self.name(&result, node);
            made.push(result);
        }
        if is_backward { &mut self.backward_calls } else { &mut self.calls }.push(call);
        Ok(made)
    }
}
