//! The Tracer key: records calls into a graph.
//!
//! While a thread traces, the key is included for all its calls. A call of an op of the table becomes a node; a
//! composite operator is passed through, so that its parts are recorded. Tensors that the function was not given
//! become inputs of the graph (*lifted*). A *real* trace also runs each call below this key and hands its value on; an
//! *abstract* one answers with shapes alone, so nothing runs twice.

use crate::device::{Device, Generator, GeneratorState, n_settings};
use crate::dispatch::Tensor;
use crate::dispatch::key::DispatchKey;
use crate::dispatch::keys::batched;
use crate::dispatch::keyset::KeySet;
use crate::dispatch::local::{exclude, include, local_key_sets};
use crate::dispatch::operator::Operator;
use crate::dispatch::register::{op_of, unpack};
use crate::dispatch::value::{Stack, Value};
use crate::error::{Error, Reason, Result};
use crate::ir::{Attrs, DType, Graph, NodeId, Op, TensorType};
use std::borrow::Cow;
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
    lifted: Vec<Lifted>,
    /// How often this thread had set generators when the recording began.
    n_settings: u64,
    broken: Option<Reason>,
}

/// An input of a graph that the function was not given.
pub enum Lifted {
    /// A tensor that the function touched.
    Tensor(Tensor),
    /// The key of a random draw. Every call takes a new one, in the order in which the function drew.
    Draw {
        /// Whose counters are drawn.
        generator: Generator,
        /// How many of them.
        n_counters: u64,
    },
}

impl Lifted {
    /// The tensor for one call.
    ///
    /// # Errors
    /// If there is no memory for a key.
    pub fn tensor(&self) -> Result<Cow<'_, Tensor>> {
        match self {
            Lifted::Tensor(tensor) => Ok(Cow::Borrowed(tensor)),
            Lifted::Draw { generator, n_counters } => key(generator.draw(*n_counters)).map(Cow::Owned),
        }
    }
}

/// The calls a function made, or why they are not all there. Inputs are those it was given, then those it was not,
/// which are listed.
pub type Captured = Result<(Graph, Vec<Lifted>), Reason>;

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
    let mut recording = Recording {
        mode,
        graph: Graph::new(),
        nodes: HashMap::new(),
        lifted: Vec::new(),
        n_settings: n_settings(),
        broken: None,
    };
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
        if recording.n_settings != n_settings() {
            return Err(Reason::NotCaptured("a random generator is seeded in the function".into()));
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
                self.lifted.push(Lifted::Tensor(tensor.clone()));
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

/// Draws from a generator: the key of random ops, an i64 tensor of seed and first counter.
///
/// A trace records that a key is drawn, not which; an abstract one draws nothing.
///
/// # Errors
/// If there is no memory.
pub fn draw(generator: &Generator, n_counters: u64) -> Result<Tensor> {
    let mode = if is_tracing() { with_recording(|recording| recording.mode) } else { None };
    let key = match mode {
        Some(Mode::Abstract) => Tensor::abstracted(&TensorType::contiguous(DType::I64, &[2]), Device::CPU, None)?,
        Some(Mode::Real) | None => key(generator.draw(n_counters))?,
    };
    if mode.is_some() {
        with_recording(|recording| {
            recording.lifted.push(Lifted::Draw { generator: generator.clone(), n_counters });
            let node = recording.graph.input(key.ty());
            recording.name(&key, node);
        });
    }
    Ok(key)
}

fn key(start: GeneratorState) -> Result<Tensor> {
    Tensor::from_slice(&[start.seed as i64, start.counter as i64], &[2])
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
/// For a mapped tensor; in an abstract trace, where there is no value.
pub fn on_read(tensor: &Tensor, what: &str) -> Result<()> {
    batched::on_read(tensor, what)?;
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
