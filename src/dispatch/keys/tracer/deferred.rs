//! Deferred recordings: calls are recorded and nothing is computed until a value is needed.
//!
//! A function cannot be stopped in the middle and gone on with later. So one that reads values is run anew at each call,
//! with tensors that have no elements yet. What was recorded up to a read is a *segment*: it is handed to a [`Runner`],
//! which finds it among those it has seen, the tensors that are still there get their elements, and the function goes
//! on. Nothing is assumed between calls, so nothing goes stale: captured state, control flow, numbers and draws are those
//! of the call.
//!
//! A call that is not recorded (it has no row, gradients are recorded, other devices take part, writes that views in
//! inference mode would have to see) ends the segment and runs for real.

use super::recording::{LeafGradient, Named, Recording};
use super::{BREAK, Mode, RECORDING, Reads, Session};
use crate::device::{DeviceKind, Shared, Storage, WeakShared};
use crate::dispatch::autograd::is_grad_enabled;
use crate::dispatch::key::DispatchKey;
use crate::dispatch::keyset::KeySet;
use crate::dispatch::local::{exclude, include};
use crate::dispatch::operator::Operator;
use crate::dispatch::tensor::{Tensor, WeakTensor};
use crate::dispatch::value::Stack;
use crate::dispatch::view_chain;
use crate::eager::{self, Argument, Array};
use crate::error::{Error, Reason, Result};
use crate::ir::{Attr, Attrs, Graph, NodeId, NodeKind, Op};
use indexmap::IndexMap;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Runs segments.
pub trait Runner: Send + Sync {
    /// The outputs of a graph. They lie in memory of their own: none shares any with another one or with an input.
    ///
    /// # Errors
    /// What the calls in it would have returned.
    fn run(&self, segment: Graph, inputs: &[&Array]) -> Result<Vec<Array>>;
}

/// What a deferred recording has besides its graph.
pub(super) struct Deferral {
    runner: Arc<dyn Runner>,
    /// Why segments ended, but for the last.
    breaks: Vec<Reason>,
    /// Whether a value was read.
    has_read: bool,
    /// Elements of segments that were run, by the address of the storage that stood for theirs.
    filled: HashMap<usize, (WeakShared<Storage>, Shared<Storage>)>,
    /// What a segment failed with; its values are lost.
    failed: Option<Error>,
}

impl Deferral {
    /// Whether plain numbers are inputs: behind a read they may depend on what was read.
    pub(super) fn lifts_numbers(&self) -> bool {
        self.has_read
    }
}

/// Runs `function`, and what it calls in segments; also why they ended, but for the last.
///
/// # Errors
/// What the function returns, and what calls return that it deferred.
pub fn defer<R>(
    runner: Arc<dyn Runner>,
    reads: Reads,
    function: impl FnOnce() -> Result<R>,
) -> (Result<R>, Vec<Reason>) {
    let mut recording = Recording::new(Mode::Deferred, reads);
    recording.deferral =
        Some(Deferral { runner, breaks: Vec::new(), has_read: false, filled: HashMap::new(), failed: None });
    BREAK.take();
    RECORDING.set(Some(recording));
    let _session = Session;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _tracing = include(DispatchKey::Tracer);
        function()
    }));
    // What came before an error or a panic has happened.
    let last = flush(None);
    let recording = RECORDING.take();
    let (mut breaks, mut failed) = (Vec::new(), None);
    if let Some(Recording { deferral: Some(deferral), gradients, .. }) = recording {
        gradients.iter().for_each(put_back_lost);
        (breaks, failed) = (deferral.breaks, deferral.failed);
    }
    let result = result.unwrap_or_else(|panic| resume_unwind(panic));
    (last.and(failed.map_or(Ok(()), Err)).and(result), breaks)
}

/// A gradient whose value was lost becomes what it was before.
pub(super) fn put_back_lost(LeafGradient { leaf, before, .. }: &LeafGradient) {
    if leaf.grad().is_some_and(|gradient| !gradient.has_data()) {
        // The gradient from before fits its leaf.
        let _ = leaf.set_grad(before.as_ref());
    }
}

/// Takes the recording away while something runs for real.
struct Paused(Option<Recording>);

impl Paused {
    fn new() -> Paused {
        Paused(RECORDING.take())
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        RECORDING.set(self.0.take());
    }
}

/// Ends the segment: runs it, gives the tensors that are still there their elements, and writes what was written.
pub(super) fn flush(reason: Option<Reason>) -> Result<()> {
    let mut paused = Paused::new();
    let Some(recording) = &mut paused.0 else { return Ok(()) };
    let Some(deferral) = &mut recording.deferral else { return Ok(()) };
    let graph = std::mem::take(&mut recording.graph);
    let nodes = std::mem::take(&mut recording.nodes);
    let storages = std::mem::take(&mut recording.storages);
    let inputs = std::mem::take(&mut recording.inputs);
    let written = std::mem::take(&mut recording.written);
    recording.lifted.clear();
    deferral.filled.retain(|_, (first, _)| !first.is_gone());
    let computes = |(_, node): (NodeId, &crate::ir::Node)| matches!(node.kind, NodeKind::Op(_));
    if !graph.nodes().any(computes) {
        return Ok(());
    }
    deferral.breaks.extend(reason);
    let segment = Segment { graph, inputs, written, storages };
    let done = segment.run(&*deferral.runner, |id| nodes.get(&id).map(|known| known.node), &mut deferral.filled);
    if let Err(error) = &done {
        deferral.failed.get_or_insert_with(|| error.clone());
    }
    done
}

/// A segment that is to be run.
struct Segment {
    graph: Graph,
    inputs: Vec<Tensor>,
    written: Vec<usize>,
    storages: IndexMap<usize, Named>,
}

impl Segment {
    fn run(
        mut self,
        runner: &dyn Runner,
        node_of: impl Fn(u64) -> Option<NodeId>,
        filled: &mut HashMap<usize, (WeakShared<Storage>, Shared<Storage>)>,
    ) -> Result<()> {
        let _below = exclude(DispatchKey::Tracer);
        // Values that somebody still has a handle of, and that are not inputs.
        let is_wanted = |named: &Named| {
            let lives = named.storage.upgrade().is_some_and(|storage| storage.device().kind == DeviceKind::Meta);
            if lives { node_of(named.id) } else { None }
        };
        let wanted: Vec<(&usize, &Named, NodeId)> =
            self.storages.iter().filter_map(|(at, named)| Some((at, named, is_wanted(named)?))).collect();
        let mut outputs: Vec<NodeId> = wanted.iter().map(|(_, _, node)| *node).collect();
        outputs.extend(self.written.iter().filter_map(|&input| node_of(self.inputs[input].id())));
        if outputs.is_empty() {
            return Ok(());
        }
        self.graph.set_outputs(outputs);
        let arrays: Vec<&Array> = self.inputs.iter().map(Tensor::array).collect();
        let results = runner.run(self.graph, &arrays)?;
        for ((at, named, _), result) in wanted.iter().zip(&results) {
            let array = laid_out(result, named)?;
            let Some(first) = named.storage.upgrade() else { continue };
            array.storage().version().store(first.version().load(RELAXED), RELAXED);
            for tensor in named.tensors.iter().filter_map(WeakTensor::upgrade) {
                tensor.take_elements(array.storage())?;
            }
            filled.insert(**at, (named.storage.clone(), array.storage().clone()));
        }
        for (&input, value) in self.written.iter().zip(&results[wanted.len()..]) {
            let target = self.inputs[input].array();
            let attrs = Attrs::from_iter([Attr::DType(target.dtype())]);
            eager::run_into(Op::ToCopy, &[Argument { array: value, number: false }], &attrs, target)?;
        }
        Ok(())
    }
}

const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// A result as the handles expect it to lie: from the beginning of its memory, with the strides they were made with.
fn laid_out(result: &Array, named: &Named) -> Result<Array> {
    if result.layout().offset == 0 && result.layout().strides == named.ty.strides {
        return Ok(result.clone());
    }
    let target = Array::new(result.device(), &named.ty)?;
    let attrs = Attrs::from_iter([Attr::DType(target.dtype())]);
    eager::run_into(Op::ToCopy, &[Argument { array: result, number: false }], &attrs, &target)?;
    Ok(target)
}

impl Recording {
    /// The node of a tensor that is not known, or was written to since: a view of its base, else an input.
    pub(super) fn deferred_node(&mut self, tensor: &Tensor) -> Result<NodeId> {
        if let Some(view) = tensor.view_of() {
            let base = self.node(&view.base)?;
            let node = view_chain::apply(&mut self.graph, &base, &view.chain)?;
            self.name(tensor, node);
            return Ok(node);
        }
        self.settle(tensor)?;
        Ok(self.add_input(tensor))
    }

    /// Sees to it that a tensor which is not of this segment has its elements.
    fn settle(&self, tensor: &Tensor) -> Result<()> {
        if tensor.has_data() {
            return Ok(());
        }
        let deferral = self.deferral.as_ref();
        let at = tensor.array().storage().as_ptr().addr();
        match deferral.and_then(|deferral| deferral.filled.get(&at)) {
            Some((_, storage)) => tensor.take_elements(storage),
            None => Err(deferral.and_then(|deferral| deferral.failed.clone()).unwrap_or_else(no_data)),
        }
    }

    /// Whether the elements of a tensor are still to be computed, or to be written.
    fn is_pending(&self, tensor: &Tensor) -> bool {
        !tensor.has_data() || self.written.iter().any(|&input| self.inputs[input].shares(tensor))
    }

    /// Whether what is recorded must be done before a call reads this tensor: it is a stranger to the trace and lies
    /// where something is to be written.
    fn is_in_the_way(&self, tensor: &Tensor) -> bool {
        let root = tensor.view_of().map_or(tensor, |view| &view.base);
        !self.nodes.contains_key(&root.id()) && tensor.has_data() && self.is_pending(tensor)
    }

    /// Whether a write to this tensor can be recorded: nothing else has its elements but what is known to be a view.
    fn may_write(&self, target: &Tensor) -> bool {
        let root = target.view_of().map_or(target, |view| &view.base);
        self.knows_views_of(root) && !self.inputs.iter().any(|input| input.id() != root.id() && input.shares(root))
    }
}

fn no_data() -> Error {
    Error::Device {
        op: "compile".into(),
        what: "a tensor without data from outside the function".into(),
        hint: "meta tensors have shapes only; give it a cpu tensor".into(),
    }
}

/// Runs a call for real, after all that came before.
pub(super) fn run_for_real(operator: &Operator, below: KeySet, stack: &mut Stack, why: &str) -> Result<()> {
    flush(Some(Reason::NotCaptured(format!("{} {why}", operator.name()))))?;
    let paused = Paused::new();
    if let Some(recording) = &paused.0 {
        stack.iter().flat_map(crate::dispatch::Value::tensors).try_for_each(|tensor| recording.settle(tensor))?;
    }
    let _below = exclude(DispatchKey::Tracer);
    operator.redispatch_boxed(below, stack)
}

/// Why a call cannot be recorded, if that is so. What must be done before it is.
pub(super) fn prepare(tensors: &[Tensor], target: Option<&Tensor>) -> Result<Option<&'static str>> {
    let elsewhere = |tensor: &Tensor| tensor.device().kind != DeviceKind::Cpu && tensor.as_number().is_none();
    if tensors.iter().any(elsewhere) {
        return Ok(Some("is called with a tensor that is not on the cpu"));
    }
    if is_grad_enabled() && tensors.iter().any(Tensor::requires_grad) {
        return Ok(Some("is recorded for gradients"));
    }
    let asked = super::with_recording(|recording| {
        let late = target.is_some_and(|target| !recording.may_write(target));
        (late, tensors.iter().any(|tensor| recording.is_in_the_way(tensor)))
    });
    match asked {
        Some((true, _)) => Ok(Some("writes to a tensor that shares elements with another one")),
        Some((false, true)) => {
            flush(Some(Reason::NotCaptured("a tensor was written to through another one".into())))?;
            Ok(None)
        }
        Some((false, false)) | None => Ok(None),
    }
}

/// Sees to it that a tensor can be read.
pub(super) fn read(tensor: &Tensor, what: &str) -> Result<()> {
    if super::with_recording(|recording| recording.is_pending(tensor)) == Some(true) {
        flush(Some(Reason::ReadsValue(what.into())))?;
    }
    if tensor.device().kind != DeviceKind::Cpu {
        return Ok(());
    }
    let settled = super::with_recording(|recording| {
        recording.deferral.iter_mut().for_each(|deferral| deferral.has_read = true);
        recording.settle(tensor)
    });
    settled.unwrap_or(Ok(()))
}
