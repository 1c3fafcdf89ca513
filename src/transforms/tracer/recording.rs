//! The state of a recording: the node of every tensor, lifted tensors, and written tensors.

use crate::autograd::{Edge, Meta, leads_to, reserve_calls};
use crate::device::{DeviceKind, Storage, WeakShared, n_settings};
use crate::dispatch::key::grad_mode::is_inference_mode;
use crate::error::{NotCaptured, Reason, Result};
use crate::ir::{Attr, Attrs, Graph, MemoryFormat, NodeId, Op, Scalar, TensorType};
use crate::profile::place;
use crate::runtime;
use crate::tensor::handle::{Tensor, WeakTensor};
use crate::tensor::ids::Mark;
use crate::tensor::view_chain;
use crate::transforms::tracer::aliases::OutputAlias;
use crate::transforms::tracer::checks::unused_checks;
use crate::transforms::tracer::condition::{Condition, Given, Outside, Property};
use crate::transforms::tracer::deferral::Deferral;
use crate::transforms::tracer::effects::Effects;
use crate::transforms::tracer::known_gradients::GradientsBefore;
use crate::transforms::tracer::opaque_call::OpaqueCall;
use crate::transforms::tracer::repeats::repeats;
use crate::transforms::tracer::trace::{Captured, GradientChange, Lifted, NewGradient, Trace};
use crate::transforms::tracer::views::{Lineage, TracedView};
use indexmap::IndexMap;
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;

/// The reaction to a read of a value while tracing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// A graph break: the trace is not used.
    GraphBreak,
    /// An error.
    Error,
}

/// A recording in progress.
pub(super) struct Recording {
    pub(super) reads: Reads,
    /// Whether it is that of a body, for which the values of an outer recording are tensors from outside.
    pub(super) is_subgraph: bool,
    pub(super) graph: Graph,
    /// The node of every tensor seen so far, by tensor id. Ids are never reused.
    pub(super) nodes: HashMap<u64, Known>,
    /// The tensors of the graph's inputs, in order.
    pub(super) inputs: Vec<Tensor>,
    /// The origins of the lifted inputs, which come last.
    pub(super) lifted: Vec<Lifted>,
    /// The lifted inputs that stand for tensors that the function has made.
    pub(super) made: Vec<Made>,
    /// How often this thread had set generators when the recording started.
    pub(super) n_settings: u64,
    /// Inputs that were written to, by position, in the order of their first write.
    pub(super) written: Vec<usize>,
    /// Calls that the graph does not contain.
    pub(super) calls: Vec<OpaqueCall>,
    /// Those of the gradients, whose results are declared inputs.
    pub(super) backward_calls: Vec<OpaqueCall>,
    /// The inputs that the function was given. They come first.
    pub(super) given: Vec<Given>,
    /// Tells the tensors that were made since the recording started.
    pub(super) start: Mark,
    /// Calls that are recorded on the tape from now on have larger numbers.
    pub(super) first_call: u64,
    /// Guards on tensors from outside.
    pub(super) conditions: Vec<Condition>,
    /// The gradients that leaves had before a call that has changed them.
    pub(super) before: GradientsBefore,
    /// Leaves whose gradients were accessed.
    pub(super) gradients: Vec<LeafGradient>,
    /// Leaves that the function made and gave a gradient.
    pub(super) made_leaves: Vec<WeakTensor>,
    /// Captured tensors whose `requires_grad` the function has set, with what it was. A trace sets none.
    pub(super) requirements: Vec<(Tensor, bool)>,
    /// Captured tensors whose gradients the function asked for.
    pub(super) wanted: Vec<Tensor>,
    pub(super) broken: Option<Reason>,
    /// The plain numbers of the function, in the order in which calls used them.
    pub(super) numbers: Vec<Scalar>,
    /// Which of them become inputs.
    pub(super) changing: Vec<usize>,
    /// The storages of all named tensors, by address. An entry keeps its address from being reused.
    pub(super) storages: IndexMap<usize, Named>,
    /// The views that the function made, by tensor id.
    pub(super) views: HashMap<u64, TracedView>,
    /// How often the elements in a storage were written to, by its address.
    pub(super) n_writes: HashMap<usize, u64>,
    /// How often something outside was changed.
    pub(super) n_effects: u64,
    /// The same without writes that the versions of other aliases do not count.
    pub(super) n_versions: HashMap<usize, u64>,
    /// How often a write of the trace was counted in a tensor from outside, whose elements did not change.
    pub(super) counted: Vec<(Tensor, u64)>,
    /// Copies of written values in the layout of their targets, with the values.
    pub(super) laid_out: HashMap<NodeId, NodeId>,
    /// What a deferred recording has done besides computing values.
    pub(super) effects: Effects,
    /// The state of a deferred recording. `None` in an abstract trace.
    pub(super) deferral: Option<Deferral>,
}

/// An input whose place a hidden handle has taken: a tensor that the function has made.
pub(super) struct Made {
    /// Its position.
    pub(super) input: usize,
    /// The id of the tensor.
    pub(super) id: u64,
    /// The tensor, if it is a leaf that gradients flow to.
    pub(super) leaf: Option<Tensor>,
}

/// The named tensors of one storage.
pub(super) struct Named {
    pub(super) storage: WeakShared<Storage>,
    /// The first tensor owns the storage. The others are views.
    pub(super) tensors: SmallVec<[WeakTensor; 1]>,
    /// The id and type of the first tensor.
    pub(super) id: u64,
    pub(super) ty: TensorType,
}

/// The node of a tensor, and its stamp when it was last named.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) node: NodeId,
    pub(super) stamp: u64,
}

/// A leaf whose gradient was accessed while tracing. Until the end of the trace it holds the traced gradient.
pub(super) struct LeafGradient {
    pub(super) leaf: Tensor,
    /// The leaf as a tensor from outside. `None` in a deferred recording.
    pub(super) of: Option<Outside>,
    /// The gradient before the trace, which is restored.
    pub(super) kept: Option<Tensor>,
    /// The id of the placeholder of the gradient before the call.
    pub(super) placeholder: Option<u64>,
    /// Whether the gradient was replaced or cleared.
    pub(super) is_replaced: bool,
}

impl LeafGradient {
    /// Restores the old gradient if the value of the new one was lost.
    pub(super) fn restore_lost(&self) {
        if self.leaf.gradient().is_some_and(|gradient| !gradient.has_data()) {
            self.leaf.put_gradient(self.kept.as_ref());
        }
    }
}

impl Recording {
    pub(super) fn new(reads: Reads, deferral: Option<Deferral>) -> Recording {
        Recording {
            reads,
            is_subgraph: false,
            graph: Graph::new(),
            nodes: HashMap::new(),
            inputs: Vec::new(),
            lifted: Vec::new(),
            made: Vec::new(),
            n_settings: n_settings(),
            written: Vec::new(),
            calls: Vec::new(),
            backward_calls: Vec::new(),
            given: Vec::new(),
            start: Mark::now(),
            first_call: reserve_calls(1),
            conditions: Vec::new(),
            before: GradientsBefore::default(),
            gradients: Vec::new(),
            made_leaves: Vec::new(),
            requirements: Vec::new(),
            wanted: Vec::new(),
            broken: None,
            numbers: Vec::new(),
            changing: Vec::new(),
            storages: IndexMap::new(),
            views: HashMap::new(),
            n_writes: HashMap::new(),
            n_versions: HashMap::new(),
            n_effects: 0,
            counted: Vec::new(),
            laid_out: HashMap::new(),
            effects: Effects::default(),
            deferral,
        }
    }

    /// Whether this is a deferred recording.
    pub(super) fn is_deferred(&self) -> bool {
        self.deferral.is_some()
    }

    /// Whether the recording can still become a trace, because nothing was computed.
    pub(super) fn may_be_trace(&self) -> bool {
        self.deferral.as_ref().is_none_or(Deferral::is_whole)
    }

    /// Ends the recording. Returns the trace, whose graph has these outputs of the function.
    pub(super) fn finish(&mut self, outputs: &[Tensor]) -> Captured {
        let nodes = outputs.iter().map(|tensor| self.result(tensor)).collect::<Result<Vec<_>>>();
        self.hide_made();
        // A write to what the function made is none to an input. If there is no trace, the segment makes it.
        let written = self.written.clone();
        self.written.retain(|&input| !self.made.iter().any(|made| made.input == input));
        let finished = self.finish_from(outputs, nodes);
        if finished.is_err() {
            self.written = written;
        }
        finished
    }

    /// Ends the recording, whose outputs have these nodes.
    fn finish_from(&mut self, outputs: &[Tensor], nodes: Result<Vec<NodeId>>) -> Captured {
        let nodes = nodes.and_then(|nodes| self.end(outputs, nodes));
        if let Some(reason) = self.broken.take() {
            return Err(reason);
        }
        if self.n_settings != n_settings() {
            return Err(NotCaptured::GeneratorSet.into());
        }
        let (nodes, gradients) = nodes.map_err(Reason::of_error)?;
        let aliases = self.aliases(outputs)?;
        let is_leaf = |meta: &Meta| meta.requires_grad() && meta.edge().is_none();
        let is_new_leaf = |output: &Tensor| output.autograd().is_some_and(is_leaf) && self.outside(output).is_none();
        if let Some(result) = outputs.iter().position(is_new_leaf) {
            return Err(NotCaptured::LeafMade { result }.into());
        }
        // A backward pass through a result would add to another result.
        let made: Vec<Tensor> = self.made_leaves.iter().filter_map(WeakTensor::upgrade).collect();
        let edges: Vec<Edge> = outputs.iter().filter_map(|output| output.autograd().and_then(Meta::edge)).collect();
        let is_kept = |leaf: &&Tensor| edges.iter().any(|edge| leads_to(edge, leaf));
        let left: Vec<Tensor> = made.iter().filter(is_kept).filter_map(Tensor::gradient).collect();
        let is_gradient = |output: &Tensor| left.iter().any(|gradient| gradient.has_storage_of(output));
        if let Some(result) = outputs.iter().position(is_gradient) {
            return Err(NotCaptured::LeafKept { result }.into());
        }
        let originals: Vec<&Tensor> = self.given.iter().map(|given| &given.original).collect();
        let has_repeats = !repeats(&originals).is_empty();
        let has_changed = |condition: &&Condition| !condition.holds(&originals);
        let changed = self.conditions.iter().filter(has_changed).find_map(|condition| match condition {
            Condition::Is(Property::RequiresGrad, of, _) => Some(of.to_string().into()),
            _ => None,
        });
        if let Some(tensor) = changed {
            return Err(NotCaptured::RequiresGradChanged { tensor }.into());
        }
        self.compare_captured(outputs)?;
        self.check_written_views(outputs)?;
        self.graph.set_outputs(nodes);
        let n_writes = self.written.iter().map(|&input| self.n_versions_of(&self.inputs[input])).collect();
        let inference = inference_outputs(outputs, &aliases, &gradients);
        Ok(Trace {
            inference,
            graph: std::mem::take(&mut self.graph),
            lifted: std::mem::take(&mut self.lifted),
            calls: std::mem::take(&mut self.calls),
            backward_calls: std::mem::take(&mut self.backward_calls),
            written: std::mem::take(&mut self.written),
            n_writes,
            gradients,
            conditions: std::mem::take(&mut self.conditions),
            aliases,
            owners: self.owners(outputs),
            kept: self.handles_to_drop(),
            has_repeats,
            numbers: std::mem::take(&mut self.numbers),
            strides: outputs.iter().map(|output| output.array().layout().strides.clone()).collect(),
        })
    }

    /// All outputs of the trace, and the changes of gradients.
    fn end(&mut self, outputs: &[Tensor], mut nodes: Vec<NodeId>) -> Result<(Vec<NodeId>, Vec<GradientChange>)> {
        let writes = self.writes(&nodes);
        nodes.extend(writes.into_iter().map(|(_, node)| node));
        let changes = self.gradient_changes(outputs, &mut nodes)?;
        nodes.extend(unused_checks(&self.graph, &nodes, self.n_nodes_of_function()));
        Ok((nodes, changes))
    }

    /// The number of nodes before those of gradients, which follow the first cotangent.
    fn n_nodes_of_function(&self) -> usize {
        let first = self.lifted.iter().position(|lifted| matches!(lifted, Lifted::Declared));
        let input = first.map(|first| self.graph.inputs()[self.graph.inputs().len() - self.lifted.len() + first]);
        input.map_or(self.graph.len(), NodeId::index)
    }

    pub(super) fn name(&mut self, tensor: &Tensor, node: NodeId) {
        let before = self.nodes.insert(tensor.id(), Known { node, stamp: self.stamp(tensor) });
        if before.is_some() || tensor.as_number().is_some() {
            return;
        }
        let storage = tensor.array().storage();
        let named = self.storages.entry(storage.as_ptr().addr()).or_insert_with(|| Named {
            storage: storage.downgrade(),
            tensors: SmallVec::new(),
            id: tensor.id(),
            ty: tensor.ty(),
        });
        named.tensors.push(tensor.downgrade());
    }

    /// Whether all live tensors in the storage of `root` are known to be views of it, so that they see a write to it.
    /// Views of inference tensors that were made before the recording do not know their base.
    pub(super) fn knows_views_of(&self, root: &Tensor) -> bool {
        let is_view = |of: Lineage| of.base.id() == root.id();
        // A tensor without elements sees no writes.
        self.views_of(root).all(|tensor| !tensor.shares(root) || self.lineage(&tensor).is_some_and(is_view))
    }

    /// The other live tensors in the storage of `root`.
    fn views_of(&self, root: &Tensor) -> impl Iterator<Item = Tensor> {
        let named = self.storages.get(&root.array().storage().as_ptr().addr());
        let tensors = named.into_iter().flat_map(|named| named.tensors.iter().filter_map(WeakTensor::upgrade));
        tensors.filter(|tensor| tensor.id() != root.id())
    }

    /// Adds an input that the function gets as `handle`. A tensor that it is given twice is the first of these inputs.
    pub(super) fn give(&mut self, handle: &Tensor, original: &Tensor) {
        if self.is_input(handle) {
            self.graph.input(handle.ty());
            self.inputs.push(handle.clone());
        } else {
            self.add_input(handle);
        }
        self.given.push(Given { handle: handle.clone(), original: original.clone() });
    }

    pub(super) fn add_input(&mut self, tensor: &Tensor) -> NodeId {
        let node = self.graph.input(tensor.ty());
        // A write to one of the two changes the other, but not its node.
        let is_alias = |index: &usize| self.inputs[*index].shares(tensor);
        if self.written.iter().any(is_alias) {
            self.give_up(NotCaptured::WrittenInputShared);
        }
        self.inputs.push(tensor.clone());
        self.name(tensor, node);
        node
    }

    pub(super) fn give_up(&mut self, reason: impl Into<Reason>) {
        self.broken.get_or_insert(reason.into());
    }

    /// The node of a tensor. An unknown tensor is lifted, or recorded as the number it stands for. A view is recomputed
    /// if its base was written to.
    pub(super) fn node(&mut self, tensor: &Tensor) -> Result<NodeId> {
        let known = self.nodes.get(&tensor.id()).copied();
        // A tensor without elements cannot be written to.
        if let Some(known) = known.filter(|known| tensor.numel() == 0 || known.stamp == self.stamp(tensor)) {
            return Ok(known.node);
        }
        if let Some(number) = tensor.as_number() {
            if self.deferral.as_ref().is_some_and(Deferral::lifts_numbers) {
                return Ok(self.add_input(tensor));
            }
            self.numbers.push(number);
            if self.changing.contains(&(self.numbers.len() - 1)) {
                self.lifted.push(Lifted::Number(Tensor::number(number)?));
                return Ok(self.add_input(tensor));
            }
            let node = self.graph.number(number);
            self.name(tensor, node);
            return Ok(node);
        }
        if self.is_deferred() {
            return self.deferred_node(tensor);
        }
        match (self.lineage(tensor), known) {
            (Some(view), known) if known.is_some() || self.nodes.contains_key(&view.base.id()) => {
                if view.chain.has(|step| step.op.is_window()) && self.hides_memory(&view.base) {
                    self.give_up(NotCaptured::GapsShown);
                }
                let base = self.node(&view.base)?;
                let node = view_chain::apply(&mut self.graph, &base, &view.chain.steps())?;
                self.name(tensor, node);
                Ok(node)
            }
            (_, Some(known)) => {
                self.give_up(NotCaptured::UntracedWrite { tensor: tensor.ty().to_string().into() });
                Ok(known.node)
            }
            (_, None) => {
                let is_of_outer = self.is_subgraph && tensor.device().kind != DeviceKind::Meta;
                if !tensor.has_data() && !is_of_outer {
                    self.give_up(NotCaptured::TensorWithoutData { tensor: tensor.ty().to_string().into() });
                }
                Ok(self.lift(tensor))
            }
        }
    }

    /// The node of a result. A tensor from outside is an input, even if it is a view of one, because each call returns
    /// this very tensor.
    pub(super) fn result(&mut self, tensor: &Tensor) -> Result<NodeId> {
        let is_written = |recording: &Recording| {
            let root = recording.root(tensor);
            recording.written.iter().any(|&input| recording.inputs[input].shares(&root))
        };
        let is_number = tensor.as_number().is_some() && tensor.has_data() && !self.start.is_before(tensor.id());
        let is_captured = is_number || matches!(self.outside(tensor), Some(Outside::Captured(_)));
        if is_captured && !self.is_input(tensor) && !is_written(self) {
            return Ok(self.lift(tensor));
        }
        self.node(tensor)
    }

    /// Makes a tensor from outside an input of the graph.
    pub(super) fn lift(&mut self, tensor: &Tensor) -> NodeId {
        if let (true, Some(of)) = (tensor.dtype().is_float(), self.outside(tensor)) {
            self.add_condition(Condition::Is(Property::RequiresGrad, of, tensor.may_require_grad()));
        }
        self.lifted.push(Lifted::Tensor(tensor.clone()));
        self.add_input(tensor)
    }

    pub(super) fn record(&mut self, op: Op, tensors: &[Tensor], attrs: Attrs) -> Result<NodeId> {
        self.graph.set_place(place());
        let node = |tensor: &Tensor| if op.is_window() { self.memory_node(tensor) } else { self.node(tensor) };
        let mut args = tensors.iter().map(node).collect::<Result<Vec<_>>>()?;
        if let (true, Some(number)) = (op.is_view(), tensors.first().and_then(Tensor::as_number)) {
            // A number has no memory to share: its view is a value of its own. But no view exceeds its memory.
            runtime::view(op, &attrs, Tensor::number(number)?.array())?;
            args[0] = self.graph.add(Op::Clone, &args[..1], smallvec![MemoryFormat::Preserve.into()])?;
        }
        if op.is_window() {
            args[0] = view_chain::with_own_strides(&mut self.graph, args[0])?;
        }
        self.graph.add(op, &args, attrs)
    }

    /// A node with the memory layout of the tensor: a value that was written through a view is part of its base.
    fn memory_node(&mut self, tensor: &Tensor) -> Result<NodeId> {
        match self.lineage(tensor).filter(|view| self.nodes.contains_key(&view.base.id())) {
            Some(view) => {
                let base = self.node(&view.base)?;
                view_chain::apply(&mut self.graph, &base, &view.chain.steps())
            }
            None => self.node(tensor),
        }
    }

    /// The values after `source` was copied into `target`: of `target` itself, and of the bases that it is a view of.
    pub(super) fn write(&mut self, target: &Tensor, source: &Tensor) -> Result<Vec<(Tensor, NodeId)>> {
        self.graph.set_place(place());
        let mut value = self.node(source)?;
        self.node(target)?;
        if target.numel() == 0 {
            let root = self.root(target);
            self.note_written(&root);
            return Ok(self.all_in_memory_of(&root));
        }
        let ty = target.ty();
        if self.graph[value].ty.sizes != ty.sizes {
            let sizes = ty.sizes.iter().map(|&size| size as i64).collect();
            value = self.graph.add(Op::Expand, &[value], smallvec![Attr::Ints(sizes), Attr::bool(false)])?;
        }
        let is_number = self.graph[value].ty.number;
        if self.graph[value].ty.dtype != ty.dtype || is_number {
            value = self.graph.add(Op::ToCopy, &[value], smallvec![Attr::DType(ty.dtype)])?;
        }
        let mut written = vec![(target.clone(), self.as_laid_out(value, target)?)];
        let mut view = target.clone();
        while let Some(of) = self.lineage(&view) {
            let before = self.node(&of.base)?;
            value = view_chain::write_through(&mut self.graph, before, &of.chain.steps(), value)?;
            let base = of.base.clone();
            written.push((base.clone(), self.as_laid_out(value, &base)?));
            view = base;
        }
        if let Some(why) = self.hides_writes(&view) {
            self.give_up(why);
        }
        self.note_written(&view);
        Ok(written)
    }

    /// The known tensors in the storage of `root`, with their values. A write of no elements counts, but changes none.
    fn all_in_memory_of(&self, root: &Tensor) -> Vec<(Tensor, NodeId)> {
        let known = |tensor: &Tensor| {
            self.nodes.get(&tensor.id()).filter(|known| known.stamp == self.stamp(tensor)).map(|known| known.node)
        };
        let all = std::iter::once(root.clone()).chain(self.views_of(root));
        all.filter_map(|tensor| known(&tensor).map(|node| (tensor, node))).collect()
    }

    /// Notes that `view`, which is no view of another tensor, was written to, if it is an input.
    fn note_written(&mut self, view: &Tensor) {
        if let Some(position) = self.inputs.iter().position(|input| input.id() == view.id()) {
            let is_other = |input: &Tensor| input.id() != view.id() && input.shares(view);
            if self.inputs.iter().any(is_other) {
                self.give_up(NotCaptured::WrittenInputShared);
            }
            if !self.written.contains(&position) {
                self.written.push(position);
            }
        }
    }

    /// The written inputs and their new values: as they are laid out if that is a result anyway, else in any layout.
    pub(super) fn writes(&self, results: &[NodeId]) -> Vec<(usize, NodeId)> {
        let write = |&input: &usize| {
            let node = self.nodes.get(&self.id_of_input(input))?.node;
            let value = self.laid_out.get(&node).filter(|_| !results.contains(&node));
            Some((input, value.copied().unwrap_or(node)))
        };
        self.written.iter().filter_map(write).collect()
    }

    /// Why a write to `root`, or through a view of it, cannot be functionalized, if it cannot. Values of a graph have
    /// elements, but no place in a larger memory.
    pub(super) fn hides_writes(&self, root: &Tensor) -> Option<NotCaptured> {
        if !self.knows_views_of(root) {
            return Some(NotCaptured::InferenceViews);
        }
        let layout = root.array().layout();
        if root.numel() > 0 && !layout.is_injective() {
            return Some(NotCaptured::OverlappingElements);
        }
        let shows_memory = |of: Lineage| of.chain.has(|step| step.op.is_window());
        let is_looked_into = || self.views_of(root).any(|tensor| self.lineage(&tensor).is_some_and(shows_memory));
        (self.may_be_part(root) && is_looked_into()).then_some(NotCaptured::GapsShown)
    }

    /// Whether `tensor` or its base is a written input, and its memory may have more than the elements of the new
    /// value. The memory of an input of the function may be another in each call.
    pub(super) fn hides_memory(&self, tensor: &Tensor) -> bool {
        let root = self.root(tensor);
        let is_written = self.written.iter().any(|&input| self.inputs[input].id() == root.id());
        is_written && self.may_be_part(&root)
    }

    pub(super) fn is_input(&self, tensor: &Tensor) -> bool {
        self.inputs.iter().any(|input| input.id() == tensor.id())
    }
}

/// The outputs, gradients that are left among them, that the mode of the call would make inference tensors if they are
/// none, or the other way round: the function made them in a mode of its own, or of a number from another one.
fn inference_outputs(outputs: &[Tensor], aliases: &[OutputAlias], gradients: &[GradientChange]) -> Vec<usize> {
    let mode = is_inference_mode();
    let is_other = |output: &Tensor| output.is_inference() != mode && output.as_number().is_none();
    let is_computed = |at: usize| aliases.iter().all(|alias| alias.output != at);
    let made = outputs.iter().enumerate().filter(|(at, output)| is_other(output) && is_computed(*at)).map(|(at, _)| at);
    let left = gradients.iter().filter_map(|change| match change.to {
        NewGradient::Output(output) if output >= outputs.len() && change.is_inference != mode => Some(output),
        NewGradient::Output(_) | NewGradient::Input(_) | NewGradient::Nothing => None,
    });
    made.chain(left).collect()
}
