//! The Tracer key: records calls into a graph.
//!
//! While a thread traces, the key is included for all its calls. A call of an op of the table becomes a node; a
//! composite operator is passed through, so that its parts are recorded. Tensors that the function was not given
//! become inputs of the graph (*lifted*). A *real* trace also runs each call below this key and hands its value on; in
//! an *abstract* one the values have shapes alone, so nothing runs twice.
//!
//! A graph has no writes. `copy_` gives the tensor that was written to a new node (*functionalization*), turned around
//! through the view it was written through; other views of that tensor are recorded anew when they are next used. An
//! input that was written to becomes an output, to be copied back once at the end.

use crate::device::{Device, Generator, GeneratorState, n_settings};
use crate::dispatch::Tensor;
use crate::dispatch::key::DispatchKey;
use crate::dispatch::keys::batched;
use crate::dispatch::keyset::KeySet;
use crate::dispatch::local::{exclude, include, local_key_sets};
use crate::dispatch::mutation::copy_operator;
use crate::dispatch::operator::Operator;
use crate::dispatch::register::{op_of, unpack};
use crate::dispatch::value::{Stack, Value};
use crate::dispatch::view_chain::{self, ViewStep};
use crate::error::{Error, Reason, Result};
use crate::ir::{Attr, Attrs, DType, Graph, NodeId, Op, Scalar, TensorType};
use smallvec::{SmallVec, smallvec};
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

/// What comes of reading a value while it is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// The trace is not used, and says so.
    Noted,
    /// An error.
    Refused,
}

/// A recording in progress.
struct Recording {
    mode: Mode,
    reads: Reads,
    graph: Graph,
    /// The node of every tensor seen so far, by the tensor's number, which is never given to another.
    nodes: HashMap<u64, Known>,
    /// The tensors behind the inputs of the graph, in order.
    inputs: Vec<Tensor>,
    /// Where the inputs that were not given to the function come from; they are the last.
    lifted: Vec<Lifted>,
    /// How often this thread had set generators when the recording began.
    n_settings: u64,
    /// Inputs that were written to, by position, in the order of their first write.
    written: Vec<usize>,
    /// Leaves whose gradients changed.
    gradients: Vec<LeafGradient>,
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
    /// Something that is handed in with each call, like the gradient of a result; see [`declare_input`].
    Declared,
}

impl Lifted {
    /// The tensor for one call.
    ///
    /// # Errors
    /// If there is no memory for a key, or it is for the caller to hand in.
    pub fn tensor(&self) -> Result<Cow<'_, Tensor>> {
        match self {
            Lifted::Tensor(tensor) => Ok(Cow::Borrowed(tensor)),
            Lifted::Draw { generator, n_counters } => key(generator.draw(*n_counters)).map(Cow::Owned),
            Lifted::Declared => Err(Error::Internal { message: "a declared input was not handed in".into() }),
        }
    }
}

/// What a tensor was when it was last seen.
#[derive(Clone, Copy)]
struct Known {
    node: NodeId,
    version: u64,
}

/// A leaf whose gradient changed while its function was traced. Meanwhile it holds what the function added.
struct LeafGradient {
    leaf: Tensor,
    /// What it held before.
    before: Option<Tensor>,
    /// Whether that was forgotten rather than added to.
    replaced: bool,
}

/// What a function did to the gradient of a leaf among its inputs.
#[derive(Debug, Clone, Copy)]
pub struct GradientChange {
    /// Which input.
    pub input: usize,
    /// Which output of the graph is added; `None` if the gradient was only forgotten.
    pub output: Option<usize>,
    /// Whether the gradient from before was forgotten.
    pub replaced: bool,
}

/// Adds `value`, if there is one, to the gradient of `leaf`, or puts it in its place.
///
/// # Errors
/// If there is no memory.
pub fn change_gradient(leaf: &Tensor, value: Option<&Tensor>, replaced: bool) -> Result<()> {
    let before = leaf.grad().filter(|_| !replaced);
    match (before, value) {
        (Some(before), Some(value)) => leaf.set_grad(Some(&before.add(value)?)),
        (Some(_), None) => Ok(()),
        (None, value) => leaf.set_grad(value),
    }
}

/// A trace: the calls a function made.
pub struct Trace {
    /// The calls. Inputs are those the function was given, then the lifted ones; outputs are the function's, then the
    /// values of inputs that it wrote to, then what it added to gradients.
    pub graph: Graph,
    /// What the function used without being given it.
    pub lifted: Vec<Lifted>,
    /// The inputs to which the outputs behind the function's are to be copied.
    pub written: Vec<usize>,
    /// What the function did to gradients of inputs.
    pub gradients: Vec<GradientChange>,
    /// Outputs of the function that are written inputs, or views of them.
    pub aliases: Vec<OutputAlias>,
}

/// An output that shares its elements with an input that was written to: it is made of the input after the write.
pub struct OutputAlias {
    /// Which output.
    pub output: usize,
    /// Which input.
    pub input: usize,
    chain: SmallVec<[ViewStep; 1]>,
}

impl OutputAlias {
    /// The output, once `input` was written to.
    ///
    /// # Errors
    /// If the input is of another type than the one that was traced.
    pub fn of(&self, input: &Tensor) -> Result<Tensor> {
        view_chain::apply(&mut view_chain::Tensors, input, &self.chain)
    }
}

impl Trace {
    /// Whether it does more than to return values.
    pub fn has_effects(&self) -> bool {
        !self.written.is_empty() || !self.gradients.is_empty()
    }
}

/// The calls a function made, or why they are not all there.
pub type Captured = Result<Trace, Reason>;

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
    /// Why the last recording was broken, if it ended by an error or a panic.
    static BREAK: RefCell<Option<Reason>> = const { RefCell::new(None) };
}

/// Why the last trace of this thread was broken, if it ended by an error or a panic of the function.
pub fn take_break() -> Option<Reason> {
    BREAK.take()
}

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

/// The tensors that the trace in progress uses without having been given them, by their place among all that is lifted.
pub(crate) fn lifted_tensors() -> Vec<(usize, Tensor)> {
    let tensors = |recording: &mut Recording| {
        let tensor = |(index, lifted): (usize, &Lifted)| match lifted {
            Lifted::Tensor(tensor) => Some((index, tensor.clone())),
            Lifted::Draw { .. } | Lifted::Declared => None,
        };
        recording.lifted.iter().enumerate().filter_map(tensor).collect()
    };
    with_recording(tensors).unwrap_or_default()
}

/// Called before the gradient of a leaf is added to, or forgotten: a trace starts from nothing.
pub(in crate::dispatch) fn on_gradient(leaf: &Tensor, replaced: bool) {
    let is_new =
        |recording: &mut Recording| match recording.gradients.iter_mut().find(|change| change.leaf.id() == leaf.id()) {
            Some(change) => {
                change.replaced |= replaced;
                false
            }
            None => {
                recording.gradients.push(LeafGradient { leaf: leaf.clone(), before: leaf.grad(), replaced });
                true
            }
        };
    if is_tracing() && with_recording(is_new) == Some(true) {
        leaf.forget_grad();
    }
}

/// Whether values have shapes alone on this thread now.
pub(in crate::dispatch) fn is_abstract() -> bool {
    with_recording(|recording| recording.mode == Mode::Abstract).unwrap_or(false)
}

/// Whether this thread is tracing.
pub fn is_tracing() -> bool {
    local_key_sets().included.has(DispatchKey::Tracer) && !local_key_sets().excluded.has(DispatchKey::Tracer)
}

/// Ends the recording when it goes out of scope, also by a panic.
struct Session;

impl Drop for Session {
    fn drop(&mut self) {
        let Some(recording) = RECORDING.take() else { return };
        for LeafGradient { leaf, before, .. } in &recording.gradients {
            // The gradient from before fits its leaf.
            let _ = leaf.set_grad(before.as_ref());
        }
        BREAK.set(recording.broken);
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
    trace_with(mode, Reads::Noted, inputs, function, outputs)
}

/// As [`trace`]; `reads` says what comes of reading a value.
///
/// # Errors
/// As [`trace`].
pub fn trace_with<R>(
    mode: Mode,
    reads: Reads,
    inputs: &[Tensor],
    function: impl FnOnce(&[Tensor]) -> Result<R>,
    outputs: impl FnOnce(&R) -> Vec<Tensor>,
) -> Result<(R, Captured)> {
    let mut recording = Recording {
        mode,
        reads,
        graph: Graph::new(),
        nodes: HashMap::new(),
        inputs: Vec::new(),
        lifted: Vec::new(),
        n_settings: n_settings(),
        written: Vec::new(),
        gradients: Vec::new(),
        broken: None,
    };
    // Fresh handles, so that a tensor given twice is two inputs.
    let handles = inputs.iter().map(|input| match mode {
        Mode::Real => Ok(input.fresh_handle()),
        Mode::Abstract => Tensor::abstracted(&input.ty(), input.device(), input.as_number()),
    });
    let handles = handles.collect::<Result<Vec<Tensor>>>()?;
    for handle in &handles {
        recording.add_input(handle);
    }
    BREAK.take();
    RECORDING.set(Some(recording));
    let session = Session;
    let result = {
        let _tracing = include(DispatchKey::Tracer);
        function(&handles)?
    };
    let tensors = outputs(&result);
    let graph = finish(&tensors);
    let changes = with_recording(|recording| std::mem::take(&mut recording.gradients)).unwrap_or_default();
    drop(session);
    for LeafGradient { leaf, before, replaced } in changes {
        let added = leaf.grad();
        leaf.set_grad(before.as_ref())?;
        if mode == Mode::Real {
            change_gradient(&leaf, added.as_ref(), replaced)?;
        }
    }
    Ok((result, graph))
}

fn finish(outputs: &[Tensor]) -> Captured {
    RECORDING.with_borrow_mut(|recording| {
        let recording =
            recording.as_mut().ok_or_else(|| Reason::NotCaptured("a nested trace ended this one".into()))?;
        let nodes = recording.end(outputs);
        if let Some(reason) = recording.broken.take() {
            return Err(reason);
        }
        if recording.n_settings != n_settings() {
            return Err(Reason::NotCaptured("a random generator is seeded in the function".into()));
        }
        let (nodes, gradients) = nodes.map_err(|error| Reason::TraceFailed(error.to_string()))?;
        let aliases = recording.aliases(outputs)?;
        recording.graph.set_outputs(nodes);
        Ok(Trace {
            graph: std::mem::take(&mut recording.graph),
            lifted: std::mem::take(&mut recording.lifted),
            written: std::mem::take(&mut recording.written),
            gradients,
            aliases,
        })
    })
}

impl Recording {
    /// The outputs of the whole trace, and what was done to gradients.
    fn end(&mut self, outputs: &[Tensor]) -> Result<(Vec<NodeId>, Vec<GradientChange>)> {
        let mut nodes = outputs.iter().map(|tensor| self.node(tensor)).collect::<Result<Vec<_>>>()?;
        nodes.extend(self.written.iter().map(|&input| self.nodes[&self.inputs[input].id()].node));
        let mut changes = Vec::new();
        let touched: Vec<(Tensor, bool)> =
            self.gradients.iter().map(|change| (change.leaf.clone(), change.replaced)).collect();
        for (leaf, replaced) in touched {
            let value = leaf.grad().map(|value| self.node(&value)).transpose()?;
            if let Some(input) = self.inputs.iter().position(|input| input.id() == leaf.id()) {
                nodes.extend(value);
                changes.push(GradientChange { input, output: value.map(|_| nodes.len() - 1), replaced });
            }
        }
        Ok((nodes, changes))
    }

    /// The outputs that share their elements with inputs that were written to.
    fn aliases(&self, outputs: &[Tensor]) -> Result<Vec<OutputAlias>, Reason> {
        let mut aliases = Vec::new();
        for (output, tensor) in outputs.iter().enumerate().filter(|(_, tensor)| tensor.numel() > 0) {
            let is_alias = |&&input: &&usize| self.inputs[input].is_alias_of(tensor);
            let Some(&input) = self.written.iter().find(is_alias) else { continue };
            let chain = match tensor.view_of() {
                _ if tensor.id() == self.inputs[input].id() => SmallVec::new(),
                Some(view) if view.base.id() == self.inputs[input].id() => view.chain.clone(),
                Some(_) | None => {
                    let what = "a result shares elements with an input that is written to, in a way that is not known";
                    return Err(Reason::NotCaptured(what.into()));
                }
            };
            aliases.push(OutputAlias { output, input, chain });
        }
        Ok(aliases)
    }

    fn name(&mut self, tensor: &Tensor, node: NodeId) {
        self.nodes.insert(tensor.id(), Known { node, version: tensor.version() });
    }

    fn add_input(&mut self, tensor: &Tensor) -> NodeId {
        let node = self.graph.input(tensor.ty());
        // A write to either would have to be seen by the other, whose node does not know.
        let is_alias = |index: &usize| self.inputs[*index].is_alias_of(tensor) && tensor.numel() > 0;
        if self.written.iter().any(is_alias) {
            self.give_up(Reason::NotCaptured("an input that was written to has another input as alias".into()));
        }
        self.inputs.push(tensor.clone());
        self.name(tensor, node);
        node
    }

    fn give_up(&mut self, reason: Reason) {
        self.broken.get_or_insert(reason);
    }

    /// The node of a tensor; one that is not known is lifted, or recorded as the number it stands for. A view whose base
    /// was written to since is recorded anew.
    fn node(&mut self, tensor: &Tensor) -> Result<NodeId> {
        let known = self.nodes.get(&tensor.id()).copied();
        if let Some(known) = known.filter(|known| known.version == tensor.version()) {
            return Ok(known.node);
        }
        if let Some(number) = tensor.as_number() {
            let node = self.graph.number(number);
            self.name(tensor, node);
            return Ok(node);
        }
        match (tensor.view_of(), known) {
            (Some(view), known) if known.is_some() || self.nodes.contains_key(&view.base.id()) => {
                let base = self.node(&view.base)?;
                let node = view_chain::apply(&mut self.graph, &base, &view.chain)?;
                self.name(tensor, node);
                Ok(node)
            }
            (_, Some(known)) => {
                self.give_up(Reason::NotCaptured("a tensor was written to by something that is not traced".into()));
                Ok(known.node)
            }
            (_, None) => {
                if !tensor.has_data() {
                    self.give_up(Reason::NotCaptured("a tensor without data from outside the function".into()));
                }
                self.lifted.push(Lifted::Tensor(tensor.clone()));
                Ok(self.add_input(tensor))
            }
        }
    }

    fn record(&mut self, op: Op, tensors: &[Tensor], attrs: Attrs) -> Result<NodeId> {
        let args = tensors.iter().map(|tensor| self.node(tensor)).collect::<Result<Vec<_>>>()?;
        self.graph.add(op, &args, attrs)
    }

    /// The value that `target` has after `source` is copied into it, and the base it is a view of with its new value.
    fn write(&mut self, target: &Tensor, source: &Tensor) -> Result<Vec<(Tensor, NodeId)>> {
        let mut value = self.node(source)?;
        self.node(target)?;
        let ty = target.ty();
        if self.graph[value].ty.sizes != ty.sizes {
            let sizes = ty.sizes.iter().map(|&size| size as i64).collect();
            value = self.graph.add(Op::Expand, &[value], smallvec![Attr::Ints(sizes), Attr::bool(false)])?;
        }
        let is_number = self.graph[value].ty.number;
        if self.graph[value].ty.dtype != ty.dtype || is_number {
            value = self.graph.add(Op::ToCopy, &[value], smallvec![Attr::DType(ty.dtype)])?;
        }
        let mut written = vec![(target.clone(), value)];
        let (mut view, mut value) = (target.clone(), value);
        while let Some(of) = view.view_of() {
            if self.is_input(&view) {
                break;
            }
            let base = self.node(&of.base)?;
            value = view_chain::write_back(&mut self.graph, &base, &of.chain, &value)?;
            let base = of.base.clone();
            written.push((base.clone(), value));
            view = base;
        }
        if let Some(position) = self.inputs.iter().position(|input| input.id() == view.id()) {
            let aliased = |(other, input): (usize, &Tensor)| other != position && input.is_alias_of(&view);
            if view.numel() > 0 && self.inputs.iter().enumerate().any(aliased) {
                self.give_up(Reason::NotCaptured("an input that is written to has another input as alias".into()));
            }
            if !self.written.contains(&position) {
                self.written.push(position);
            }
        }
        Ok(written)
    }

    fn is_input(&self, tensor: &Tensor) -> bool {
        self.inputs.iter().any(|input| input.id() == tensor.id())
    }
}

fn with_recording<T>(work: impl FnOnce(&mut Recording) -> T) -> Option<T> {
    RECORDING.with_borrow_mut(|recording| recording.as_mut().map(work))
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
            recording.add_input(&key);
        });
    }
    Ok(key)
}

/// A count that follows from sizes, as a plain number.
///
/// A trace records that it is one, so that kernels take it as an argument and other sizes find the same kernels.
///
/// # Errors
/// If there is no memory.
pub(in crate::dispatch) fn extent(count: usize) -> Result<Tensor> {
    let number = Tensor::number(Scalar::Int(count as i64))?;
    if is_tracing() {
        with_recording(|recording| {
            let node = recording.graph.extent(count);
            recording.name(&number, node);
        });
    }
    Ok(number)
}

fn key(start: GeneratorState) -> Result<Tensor> {
    Tensor::from_slice(&[start.seed as i64, start.counter as i64], &[2])
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
    let recorded = with_recording(|recording| Ok::<_, Error>((recording.record(op, &tensors, attrs)?, recording.mode)));
    let Some((node, mode)) = recorded.transpose()? else { return operator.redispatch_boxed(below, stack) };
    let made_of_nothing = tensors.iter().all(|tensor| tensor.as_number().is_some());
    let result = if mode == Mode::Abstract && made_of_nothing {
        let ty = with_recording(|recording| recording.graph[node].ty.clone());
        ty.map(|ty: TensorType| Tensor::abstracted(&ty, Device::CPU, None)).transpose()?
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

/// Which element of its memory a tensor begins at, for who makes a value of that.
///
/// An input may begin elsewhere in the next call, which no guard sees, so a trace ends where this is asked of one.
pub(in crate::dispatch) fn memory_start(tensor: &Tensor) -> usize {
    if let Some(physical) = batched::physical(tensor) {
        return memory_start(physical);
    }
    if is_tracing() {
        with_recording(|recording| {
            let n_given = recording.inputs.len() - recording.lifted.len();
            if recording.inputs[..n_given].iter().any(|input| input.is_alias_of(tensor)) {
                let what = "the gradient of as_strided depends on where in its memory an input begins";
                recording.give_up(Reason::NotCaptured(what.into()));
            }
        });
    }
    tensor.storage_offset()
}

/// Called before a value is read: a trace cannot follow what the function does with it.
///
/// # Errors
/// For a mapped tensor; in an abstract trace, where there is no value.
pub fn on_read(tensor: &Tensor, what: &str) -> Result<()> {
    batched::on_read(tensor, what)?;
    if is_tracing() {
        let reads = with_recording(|recording| {
            recording.give_up(Reason::ReadsValue(what.into()));
            recording.reads
        });
        if reads == Some(Reads::Refused) {
            let refused = "it reads a value while the function is traced, and the break policy is BreakPolicy::Error";
            return Err(Error::argument(what, format!("{refused}; allow breaks, or read it outside the function")));
        }
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
