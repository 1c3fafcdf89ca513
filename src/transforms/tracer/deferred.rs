//! Deferred recordings: calls are recorded, and run when a value is needed.
//!
//! A Rust function cannot be suspended. So a function that reads values runs anew at each call, with tensors that have
//! no elements yet. The calls up to a read are a *segment*. A [`Runner`] runs it, and looks up its compiled graph among
//! earlier ones. The live tensors then get their elements, and the function continues. Nothing is assumed from one call
//! to the next: captured state, control flow, numbers and draws are those of the current call.
//!
//! A call that cannot be recorded ends the segment and runs eagerly. It has no row, is recorded for gradients, is on
//! another device, or writes to a tensor with views that were made in inference mode.
//!
//! The first call of a function is recorded in this way too ([`trace_first`]). If nothing was computed when it ends,
//! the recording is a trace. Otherwise the function has run, once and with real values, and the reason for the missing
//! trace is known.

use crate::autograd::Meta;
use crate::device::{DeviceKind, Shared, Storage, WeakShared};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::key::local::{exclude, include};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::operator::Operator;
use crate::dispatch::value::Stack;
use crate::eager::{self, Argument};
use crate::error::{Error, NotCaptured, Reason, Result};
use crate::ir::shape::same_strides;
use crate::ir::{Attr, Attrs, Graph, NodeId, NodeKind, Op, SideTable};
use crate::profile::place;
use crate::runtime::Array;
use crate::tensor::handle::{Tensor, WeakTensor};
use crate::tensor::view_chain;
use crate::transforms::tracer::checks::unused_checks;
use crate::transforms::tracer::deferral::{Deferral, DeferredSegment, Runner, SegmentEnd};
use crate::transforms::tracer::one_for_each;
use crate::transforms::tracer::opaque_call::Callee;
use crate::transforms::tracer::recording::Reads;
use crate::transforms::tracer::recording::{LeafGradient, Named, Recording};
use crate::transforms::tracer::session::{BREAK, Paused, RECORDING, Session, with_recording};
use crate::transforms::tracer::trace::{Lifted, Trace};
use indexmap::IndexMap;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Runs `function` and compiles its calls in segments. Also returns what ended each segment, except the last.
///
/// # Errors
/// An error of the function, or of a deferred call.
pub fn defer<R>(
    runner: Arc<dyn Runner>,
    reads: Reads,
    function: impl FnOnce() -> Result<R>,
) -> (Result<R>, Vec<SegmentEnd>) {
    match crate::dispatch::load() {
        Ok(()) => record(Recording::new(reads, Some(Deferral::new(runner, false))), function),
        Err(error) => (Err(error), Vec::new()),
    }
}

/// The outcome of the first call of a function.
pub enum First<R> {
    /// A trace. Nothing was computed: result tensors that are no inputs have no elements. The keys of random draws
    /// belong to this call.
    Traced(R, Box<Trace>, Vec<Tensor>),
    /// The result. The function ran, because there is no trace. Handles stand for results that are inputs.
    Ran(R, NoTrace, Vec<Tensor>),
}

/// Why the first call of a function gave no trace.
#[derive(Debug)]
pub enum NoTrace {
    /// A call cannot be traced.
    Break(Reason),
    /// The function keeps a tensor that it computed, like a cache. Later calls may do something else.
    Keeps,
    /// Calls are recorded for gradients, or gradients were touched.
    Gradients,
}

/// Calls `function` for the first time, with handles of `inputs`. `outputs` returns the tensors of a result, with the
/// bases of results after them, and the number of results.
///
/// # Errors
/// An error of the function, or of a deferred call.
pub fn trace_first<R>(
    runner: Arc<dyn Runner>,
    reads: Reads,
    inputs: &[Tensor],
    function: impl FnOnce(&[Tensor]) -> Result<R>,
    outputs: impl FnOnce(&R) -> (Vec<Tensor>, usize),
) -> Result<First<R>> {
    crate::dispatch::load()?;
    let mut recording = Recording::new(reads, Some(Deferral::new(runner, true)));
    let handles = one_for_each(inputs, |input| Ok(input.fresh_handle()))?;
    for (handle, original) in handles.iter().zip(inputs) {
        recording.give(handle, original);
    }
    let (traced, _) = record(recording, || {
        let result = function(&handles)?;
        let nested = || Err(NoTrace::Break(NotCaptured::NestedTrace.into()));
        let (outputs, n_results) = outputs(&result);
        let whole = with_recording(|recording| recording.whole(&outputs, n_results)).unwrap_or_else(nested);
        Ok((result, whole))
    });
    // A write may have given an input a history.
    for (handle, original) in handles.iter().zip(inputs) {
        let edge = handle.autograd().filter(|meta| meta.requires_grad()).and_then(Meta::edge);
        if let (Some(edge), false) = (edge, original.requires_grad()) {
            original.set_edge(edge);
        }
    }
    traced.map(|(result, whole)| match whole {
        Ok((trace, keys)) => First::Traced(result, Box::new(trace), keys),
        Err(apart) => First::Ran(result, apart, handles),
    })
}

/// Records `function` and runs its last segment. Also returns what ended each segment, except the last.
fn record<R>(recording: Recording, function: impl FnOnce() -> Result<R>) -> (Result<R>, Vec<SegmentEnd>) {
    BREAK.take();
    RECORDING.set(Some(recording));
    let _session = Session;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _tracing = include(DispatchKey::Tracer);
        function()
    }));
    // The calls before an error or a panic take effect.
    let last = flush(None);
    let recording = RECORDING.take();
    let (mut breaks, mut failed) = (Vec::new(), None);
    if let Some(Recording { deferral: Some(deferral), gradients, .. }) = recording {
        gradients.iter().for_each(LeafGradient::restore_lost);
        (breaks, failed) = (deferral.breaks, deferral.failed);
    }
    let result = result.unwrap_or_else(|panic| resume_unwind(panic));
    (last.and(failed.map_or(Ok(()), Err)).and(result), breaks)
}

/// Ends the segment: runs it, gives live tensors their elements, and writes to the written inputs.
pub(super) fn flush(reason: Option<Reason>) -> Result<()> {
    let mut paused = Paused::new();
    let Some(recording) = &mut paused.0 else { return Ok(()) };
    if let Some(reason) = &reason {
        recording.give_up(reason.clone());
    }
    let writes = recording.writes(&[]);
    recording.forget_lost_views();
    let Some(deferral) = &mut recording.deferral else { return Ok(()) };
    deferral.is_whole = false;
    let graph = std::mem::take(&mut recording.graph);
    let nodes = std::mem::take(&mut recording.nodes);
    let storages = std::mem::take(&mut recording.storages);
    let inputs = std::mem::take(&mut recording.inputs);
    // They keep the bases of live views alive until the segment has run.
    let _views = std::mem::take(&mut recording.views);
    recording.n_writes.clear();
    recording.counted.clear();
    recording.written.clear();
    recording.laid_out.clear();
    recording.lifted.clear();
    recording.made.clear();
    let effects = std::mem::take(&mut recording.effects);
    deferral.filled.retain(|_, (first, _)| !first.is_gone());
    let computes = |(_, node): (NodeId, &crate::ir::Node)| matches!(node.kind, NodeKind::Op(_));
    if !graph.nodes().any(computes) {
        return Ok(());
    }
    let end = reason.map(|reason| SegmentEnd { reason, place: place() });
    let mut segment = Segment { graph, inputs, writes, storages };
    let node_of = |id: u64| nodes.get(&id).map(|known| known.node);
    let done = segment.run(&*deferral.runner, end.as_ref(), node_of, &mut deferral.filled);
    deferral.breaks.extend(end);
    let done = done.map_err(|error| {
        let _below = exclude(DispatchKey::Tracer);
        let keep = |values: &SideTable<NodeId, Tensor>| segment.keep(values, node_of, &mut deferral.filled);
        effects.before(&segment.graph, &segment.inputs, error, keep)
    });
    if let Err(error) = &done {
        deferral.failed.get_or_insert_with(|| error.clone());
    }
    done
}

/// A segment about to run.
struct Segment {
    graph: Graph,
    inputs: Vec<Tensor>,
    writes: Vec<(usize, NodeId)>,
    storages: IndexMap<usize, Named>,
}

/// Storages without elements by their addresses, and those that took their place.
type Filled = HashMap<usize, (WeakShared<Storage>, Shared<Storage>)>;

impl Segment {
    /// The values with live handles that are not inputs, by the addresses of their storages.
    fn wanted(&self, node_of: impl Fn(u64) -> Option<NodeId>) -> Vec<(usize, NodeId)> {
        let lives =
            |named: &Named| named.storage.upgrade().is_some_and(|storage| storage.device().kind == DeviceKind::Meta);
        let live = self.storages.iter().filter(|(_, named)| lives(named));
        live.filter_map(|(at, named)| Some((*at, node_of(named.id)?))).collect()
    }

    /// Gives live tensors their elements, as far as they were computed before a call failed.
    fn keep(
        &self,
        values: &SideTable<NodeId, Tensor>,
        node_of: impl Fn(u64) -> Option<NodeId>,
        filled: &mut Filled,
    ) -> Result<()> {
        let mut computed = self.wanted(node_of).into_iter().filter(|(_, node)| node.index() < values.ids().len());
        computed.try_for_each(|(at, node)| fill(at, &self.storages[&at], values[node].array(), filled))
    }

    fn run(
        &mut self,
        runner: &dyn Runner,
        end: Option<&SegmentEnd>,
        node_of: impl Fn(u64) -> Option<NodeId>,
        filled: &mut Filled,
    ) -> Result<()> {
        let _below = exclude(DispatchKey::Tracer);
        let wanted = self.wanted(node_of);
        let mut outputs: Vec<NodeId> = wanted.iter().map(|(_, node)| *node).collect();
        outputs.extend(self.writes.iter().map(|(_, node)| *node));
        outputs.extend(unused_checks(&self.graph, &outputs, self.graph.len()));
        if outputs.is_empty() {
            return Ok(());
        }
        self.graph.set_outputs(outputs);
        let arrays: Vec<&Array> = self.inputs.iter().map(Tensor::array).collect();
        let written: SmallVec<[usize; 4]> = self.writes.iter().map(|(input, _)| *input).collect();
        let (graph, first_written) = (&self.graph, wanted.len());
        let results = runner.run(DeferredSegment { graph, inputs: &arrays, written: &written, first_written, end })?;
        for ((at, _), result) in wanted.iter().zip(&results) {
            fill(*at, &self.storages[at], result, filled)?;
        }
        for ((input, _), value) in self.writes.iter().zip(&results[wanted.len()..]) {
            let target = self.inputs[*input].array();
            let attrs = Attrs::from_iter([Attr::DType(target.dtype())]);
            eager::run_into(Op::ToCopy, &[Argument { array: value, number: false }], &attrs, target)?;
        }
        Ok(())
    }
}

/// Gives the tensors of the storage that was at this address their elements.
fn fill(at: usize, named: &Named, value: &Array, filled: &mut Filled) -> Result<()> {
    let Some(first) = named.storage.upgrade() else { return Ok(()) };
    let array = laid_out(value, named)?;
    array.storage().version().store(first.version().load(RELAXED), RELAXED);
    for tensor in named.tensors.iter().filter_map(WeakTensor::upgrade) {
        tensor.take_elements(array.storage())?;
    }
    filled.insert(at, (named.storage.clone(), array.storage().clone()));
    Ok(())
}

const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

/// A result with its elements where its handles have them: from offset 0 on, with their strides.
fn laid_out(result: &Array, named: &Named) -> Result<Array> {
    let layout = result.layout();
    if layout.offset == 0 && same_strides(&layout.sizes, &layout.strides, &named.ty.strides) {
        return Ok(result.clone());
    }
    let target = Array::new(result.device(), &named.ty)?;
    let attrs = Attrs::from_iter([Attr::DType(target.dtype())]);
    eager::run_into(Op::ToCopy, &[Argument { array: result, number: false }], &attrs, &target)?;
    Ok(target)
}

impl Recording {
    /// The trace of a function with these results, if nothing was computed and it is valid for other calls. Also the
    /// keys that were drawn.
    fn whole(&mut self, outputs: &[Tensor], n_results: usize) -> Result<(Trace, Vec<Tensor>), NoTrace> {
        let has_gradients = self.deferral.as_ref().is_some_and(|deferral| deferral.has_gradients);
        if has_gradients || !self.gradients.is_empty() {
            return Err(NoTrace::Gradients);
        }
        self.forget_lost_views();
        self.hide_made();
        if self.broken.is_none() && self.is_kept_elsewhere(outputs, n_results) {
            return Err(NoTrace::Keeps);
        }
        let trace = self.finish(outputs).map_err(NoTrace::Break)?;
        let lifted = self.inputs[self.inputs.len() - trace.lifted.len()..].iter().zip(&trace.lifted);
        let drawn = lifted.filter(|(_, from)| matches!(from, Lifted::Draw { .. }));
        let keys = drawn.map(|(key, _)| key.clone()).collect();
        self.uncount_writes();
        Ok((trace, keys))
    }

    /// The node of a tensor that is unknown or was written to: a view of its base, or a new input.
    pub(super) fn deferred_node(&mut self, tensor: &Tensor) -> Result<NodeId> {
        if let Some(view) = self.lineage(tensor) {
            let base = self.node(&view.base)?;
            let node = view_chain::apply(&mut self.graph, &base, &view.chain.steps())?;
            self.name(tensor, node);
            return Ok(node);
        }
        self.materialize(tensor)?;
        if self.may_be_trace() {
            if self.is_input(tensor) {
                self.give_up(NotCaptured::UntracedWrite { tensor: tensor.ty().to_string().into() });
            }
            return Ok(self.lift(tensor));
        }
        Ok(self.add_input(tensor))
    }

    /// Gives a tensor of an earlier segment its elements.
    fn materialize(&self, tensor: &Tensor) -> Result<()> {
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

    /// Whether the tensor waits for a segment that computes its elements or writes to them.
    fn is_pending(&self, tensor: &Tensor) -> bool {
        !tensor.has_data() || self.written.iter().any(|&input| self.inputs[input].shares(tensor))
    }

    /// Whether the segment must run before a call reads this tensor: it shares elements with an input that the segment
    /// writes to, and is unknown to the trace, or shows memory that the value of the input does not have.
    fn must_run_before(&self, tensor: &Tensor) -> bool {
        if !tensor.has_data() || !self.is_pending(tensor) {
            return false;
        }
        let lineage = self.lineage(tensor);
        let root = lineage.as_ref().map_or(tensor, |of| &of.base);
        let shows_memory = || lineage.as_ref().is_some_and(|of| of.chain.has(|step| step.op.is_window()));
        !self.nodes.contains_key(&root.id()) || shows_memory() && self.may_be_part(root)
    }

    /// Why a write to this tensor cannot be recorded, if it cannot: its elements are shared by a tensor that is not
    /// known to be a view, or a view op cannot be inverted.
    fn refuses_write(&self, operator: &Operator, target: &Tensor, operands: &[Tensor]) -> Option<NotCaptured> {
        let op = || operator.name().to_string().into();
        let lineage = self.lineage(target);
        let root = lineage.as_ref().map_or(target, |of| &of.base);
        // An operand that is no input yet becomes one.
        let is_other = |tensor: &Tensor| self.root(tensor).id() != root.id() && tensor.shares(root);
        let is_shared = || self.inputs.iter().chain(operands).any(is_other);
        let invertible = || !lineage.as_ref().is_some_and(|of| of.chain.has(|step| !step.is_invertible()));
        match () {
            () if self.hides_writes(root).is_some() || is_shared() => Some(NotCaptured::WriteToShared { op: op() }),
            () if !invertible() => Some(NotCaptured::WriteThroughView { op: op() }),
            () => None,
        }
    }
}

fn no_data() -> Error {
    Error::Device {
        op: "compile".into(),
        what: "a tensor without data from outside the function".into(),
        hint: "meta tensors have shapes only; give it a cpu tensor".into(),
    }
}

/// Runs a call eagerly, after the current segment.
pub(super) fn run_eagerly(operator: &Operator, below: KeySet, stack: &mut Stack, why: NotCaptured) -> Result<()> {
    flush(Some(why.into()))?;
    let paused = Paused::new();
    if let Some(recording) = &paused.0 {
        stack
            .iter()
            .flat_map(crate::dispatch::value::Value::tensors)
            .try_for_each(|tensor| recording.materialize(tensor))?;
    }
    let _below = exclude(DispatchKey::Tracer);
    operator.redispatch_boxed(below, stack)
}

/// Makes a call of other code than an operator, after the current segment.
pub(super) fn run_callee(callee: &Arc<dyn Callee>, operands: &[Tensor], why: NotCaptured) -> Result<Vec<Tensor>> {
    flush(Some(why.into()))?;
    let paused = Paused::new();
    if let Some(recording) = &paused.0 {
        operands.iter().try_for_each(|tensor| recording.materialize(tensor))?;
    }
    let _below = exclude(DispatchKey::Tracer);
    callee.call(operands)
}

/// Notes that a call was recorded for gradients.
pub(super) fn meets_gradients() {
    with_recording(|recording| {
        recording.deferral.iter_mut().for_each(|deferral| deferral.has_gradients = true);
    });
}

/// Prepares the recording of a call. Returns the reason if it cannot be recorded.
pub(super) fn prepare(operator: &Operator, tensors: &[Tensor], target: Option<&Tensor>) -> Result<Option<NotCaptured>> {
    let op = || operator.name().to_string().into();
    let elsewhere = |tensor: &Tensor| tensor.device().kind != DeviceKind::Cpu && tensor.as_number().is_none();
    if tensors.iter().any(elsewhere) {
        return Ok(Some(NotCaptured::OtherDevice { op: op() }));
    }
    if is_grad_enabled() && tensors.iter().any(Tensor::requires_grad) {
        meets_gradients();
        return Ok(Some(NotCaptured::RecordedForGradients { op: op() }));
    }
    let refused =
        with_recording(|recording| target.and_then(|target| recording.refuses_write(operator, target, tensors)));
    match refused.flatten() {
        Some(why) => Ok(Some(why)),
        None => run_writes_to(tensors).map(|()| None),
    }
}

/// Runs the calls that were recorded so far, if they write to one of these tensors through one that is not known to
/// share its memory.
///
/// # Errors
/// If a call fails.
pub(super) fn run_writes_to(tensors: &[Tensor]) -> Result<()> {
    let must_run = with_recording(|recording| tensors.iter().any(|tensor| recording.must_run_before(tensor)));
    match must_run {
        Some(true) => flush(Some(NotCaptured::WrittenThroughAlias.into())),
        Some(false) | None => Ok(()),
    }
}

/// Makes the elements of a tensor readable.
pub(super) fn read(tensor: &Tensor, what: &str) -> Result<()> {
    if with_recording(|recording| recording.is_pending(tensor)) == Some(true) {
        flush(Some(Reason::ReadsValue { op: what.into() }))?;
    }
    if tensor.device().kind != DeviceKind::Cpu {
        return Ok(());
    }
    let materialized = with_recording(|recording| {
        if let Some(deferral) = &mut recording.deferral {
            (deferral.has_read, deferral.is_whole) = (true, false);
        }
        recording.materialize(tensor)
    });
    materialized.unwrap_or(Ok(()))
}
