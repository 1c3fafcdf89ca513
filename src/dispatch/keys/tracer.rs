//! The Tracer key: records calls into a graph.
//!
//! While a thread traces, the key is included for all its calls. A call of an op of the table becomes a node; a
//! composite operator is passed through, so that its parts are recorded. Tensors that the function was not given
//! become inputs of the graph (*lifted*). A *real* trace also runs each call below this key and hands its value on; an
//! *abstract* one answers with shapes alone, so nothing runs twice.

use crate::dispatch::Tensor;
use crate::dispatch::key::DispatchKey;
use crate::dispatch::keyset::KeySet;
use crate::dispatch::local::{exclude, include, local_key_sets};
use crate::dispatch::operator::Operator;
use crate::dispatch::register::{op_of, unpack};
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Reason, Result};
use crate::ir::{Attrs, Graph, NodeId, Op, TensorType};
use std::cell::RefCell;
use std::collections::HashMap;

/// Whether traced calls also run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Calls run and have real values.
    Real,
    /// Calls have shapes only.
    Abstract,
}

/// A recording in progress.
struct Recording {
    mode: Mode,
    graph: Graph,
    /// The node of every tensor seen so far, by the tensor's number, which is never given to another.
    nodes: HashMap<u64, NodeId>,
    lifted: Vec<Tensor>,
    broken: Option<Reason>,
}

/// The calls a function made, or why they are not all there. Inputs are those it was given, then those it was not,
/// which are listed.
pub type Captured = Result<(Graph, Vec<Tensor>), Reason>;

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// Whether this thread is tracing.
pub fn is_tracing() -> bool {
    local_key_sets().included.has(DispatchKey::Tracer) && !local_key_sets().excluded.has(DispatchKey::Tracer)
}

/// Ends the recording when it goes out of scope, also by a panic.
struct Session;

impl Drop for Session {
    fn drop(&mut self) {
        RECORDING.set(None);
    }
}

/// Runs `function` on `inputs` and records its calls; `outputs` says which tensors of the result leave the graph.
///
/// # Errors
/// What the function returns as error.
pub fn trace<R>(
    mode: Mode,
    inputs: &[Tensor],
    function: impl FnOnce(&[Tensor]) -> Result<R>,
    outputs: impl FnOnce(&R) -> Vec<Tensor>,
) -> Result<(R, Captured)> {
    let mut recording =
        Recording { mode, graph: Graph::new(), nodes: HashMap::new(), lifted: Vec::new(), broken: None };
    // Fresh handles, so that a tensor given twice is two inputs.
    let handles = inputs.iter().map(|input| match mode {
        Mode::Real => Ok(input.fresh_handle()),
        Mode::Abstract => Tensor::abstracted(&input.ty(), input.device(), input.as_number()),
    });
    let handles = handles.collect::<Result<Vec<Tensor>>>()?;
    for handle in &handles {
        let node = recording.graph.input(handle.ty());
        recording.name(handle, node);
    }
    RECORDING.set(Some(recording));
    let session = Session;
    let result = {
        let _tracing = include(DispatchKey::Tracer);
        function(&handles)?
    };
    let tensors = outputs(&result);
    let graph = finish(&tensors);
    drop(session);
    Ok((result, graph))
}

fn finish(outputs: &[Tensor]) -> Captured {
    RECORDING.with_borrow_mut(|recording| {
        let mut recording =
            recording.take().ok_or_else(|| Reason::NotCaptured("a nested trace ended this one".into()))?;
        if let Some(reason) = recording.broken {
            return Err(reason);
        }
        let outputs = outputs.iter().map(|tensor| recording.node(tensor)).collect();
        recording.graph.set_outputs(outputs);
        Ok((recording.graph, recording.lifted))
    })
}

impl Recording {
    fn name(&mut self, tensor: &Tensor, node: NodeId) {
        self.nodes.insert(tensor.id(), node);
    }

    /// The node of a tensor; one that is not known is lifted, or recorded as the number it stands for.
    fn node(&mut self, tensor: &Tensor) -> NodeId {
        if let Some(&node) = self.nodes.get(&tensor.id()) {
            return node;
        }
        let node = match tensor.as_number() {
            Some(number) => self.graph.number(number),
            None => {
                if !tensor.has_data() {
                    self.broken
                        .get_or_insert(Reason::NotCaptured("a tensor without data from outside the function".into()));
                }
                self.lifted.push(tensor.clone());
                self.graph.input(tensor.ty())
            }
        };
        self.name(tensor, node);
        node
    }

    fn record(&mut self, op: Op, tensors: &[Tensor], attrs: Attrs) -> Result<NodeId> {
        let args: Vec<NodeId> = tensors.iter().map(|tensor| self.node(tensor)).collect();
        self.graph.add(op, &args, attrs)
    }
}

fn with_recording<T>(work: impl FnOnce(&mut Recording) -> T) -> Option<T> {
    RECORDING.with_borrow_mut(|recording| recording.as_mut().map(work))
}

/// The Tracer kernel of every operator.
pub fn fallback(operator: &Operator, keys: KeySet, stack: &mut Stack) -> Result<()> {
    let below = keys - KeySet::of(DispatchKey::Tracer);
    let Some(op) = op_of(operator) else {
        return pass(operator, below, stack);
    };
    let (tensors, attrs) = unpack(op, stack)?;
    let node =
        match with_recording(|recording| Ok::<_, Error>((recording.record(op, &tensors, attrs)?, recording.mode))) {
            Some(recorded) => recorded?,
            None => return operator.redispatch_boxed(below, stack),
        };
    let result = match node {
        (_, Mode::Real) => {
            let _below = exclude(DispatchKey::Tracer);
            operator.redispatch_boxed(below, stack)?;
            stack.first().and_then(|value| value.tensors().next().cloned())
        }
        (node, Mode::Abstract) => {
            let ty = with_recording(|recording| recording.graph[node].ty.clone());
            let device = tensors
                .iter()
                .find(|tensor| tensor.as_number().is_none())
                .map_or(crate::device::Device::CPU, Tensor::device);
            ty.map(|ty: TensorType| Tensor::abstracted(&ty, device, None)).transpose()?
        }
    };
    let result = result.ok_or_else(|| Error::argument(op.name(), "the kernel left no tensor"))?;
    with_recording(|recording| recording.name(&result, node.0));
    stack.clear();
    stack.push(Value::Tensor(result));
    Ok(())
}

/// An operator that is no row: its decomposition is traced; a kernel of its own is not, which breaks the trace.
fn pass(operator: &Operator, below: KeySet, stack: &mut Stack) -> Result<()> {
    let composite = operator.slot(below.highest()).source == crate::dispatch::table::Source::Math;
    if !composite {
        let reason =
            Reason::NotCaptured(format!("{} has no row in the op table and no decomposition", operator.name()));
        let mode = with_recording(|recording| {
            recording.broken.get_or_insert(reason.clone());
            recording.mode
        });
        if mode == Some(Mode::Abstract) {
            return Err(Error::NotImplemented { op: operator.name().to_string(), what: reason.to_string() });
        }
    }
    operator.redispatch_boxed(below, stack)
}

/// Called before a value is read: a trace cannot follow what the function does with it.
///
/// # Errors
/// In an abstract trace, where there is no value.
pub fn on_read(tensor: &Tensor, what: &str) -> Result<()> {
    if is_tracing() {
        with_recording(|recording| recording.broken.get_or_insert(Reason::ReadsValue(what.into())).clone());
    }
    if tensor.has_data() {
        return Ok(());
    }
    Err(Error::Device {
        op: what.into(),
        what: "Cannot copy out of meta tensor; no data!".into(),
        hint: "meta tensors have shapes only; run the op on a cpu tensor".into(),
    })
}
