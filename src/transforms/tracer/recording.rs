//! A recording in progress: which node every tensor is, what was lifted, what was written to.

use crate::device::{Storage, WeakShared, n_settings};
use crate::error::{NotCaptured, Reason, Result};
use crate::ir::shape::elementwise_strides;
use crate::ir::{Attr, Attrs, Graph, Meaning, MemoryFormat, NodeId, Op, Strides, TensorType};
use crate::tensor::handle::{Tensor, ViewOf, WeakTensor};
use crate::tensor::view_chain;
use crate::transforms::tracer::condition::{Condition, Given, Outside, Property};
use crate::transforms::tracer::deferral::Deferral;
use crate::transforms::tracer::known_gradients::GradientsBefore;
use crate::transforms::tracer::trace::{Captured, GradientChange, Lifted, Trace, owners};
use indexmap::IndexMap;
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::HashMap;

/// What comes of reading a value while it is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// The trace is not used, and says so.
    Noted,
    /// An error.
    Refused,
}

/// A recording in progress.
pub(super) struct Recording {
    pub(super) reads: Reads,
    pub(super) graph: Graph,
    /// The node of every tensor seen so far, by the tensor's number, which is never given to another.
    pub(super) nodes: HashMap<u64, Known>,
    /// The tensors behind the inputs of the graph, in order.
    pub(super) inputs: Vec<Tensor>,
    /// Where the inputs that were not given to the function come from; they are the last.
    pub(super) lifted: Vec<Lifted>,
    /// How often this thread had set generators when the recording began.
    pub(super) n_settings: u64,
    /// Inputs that were written to, by position, in the order of their first write.
    pub(super) written: Vec<usize>,
    /// What the function was given, in the order of the first inputs.
    pub(super) given: Vec<Given>,
    /// The number that tensors of this thread had next when the recording began.
    pub(super) first_id: u64,
    /// What is taken for granted of tensors from outside.
    pub(super) conditions: Vec<Condition>,
    /// The gradients that leaves had before a call that has changed them since.
    pub(super) before: GradientsBefore,
    /// Leaves whose gradients were touched.
    pub(super) gradients: Vec<LeafGradient>,
    pub(super) broken: Option<Reason>,
    /// Every storage that a named tensor lies in, by address, which is its own as long as it is listed here.
    pub(super) storages: IndexMap<usize, Named>,
    /// Written values that were laid out as their target is, and what was laid out.
    pub(super) laid_out: HashMap<NodeId, NodeId>,
    /// What a deferred recording has besides; values of another one have shapes alone.
    pub(super) deferral: Option<Deferral>,
}

/// The tensors that lie in one storage.
pub(super) struct Named {
    pub(super) storage: WeakShared<Storage>,
    /// All that were named; the first one has the storage, the others are views.
    pub(super) tensors: SmallVec<[WeakTensor; 1]>,
    /// The first one's number and type.
    pub(super) id: u64,
    pub(super) ty: TensorType,
}

/// What a tensor was when it was last seen.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) node: NodeId,
    pub(super) version: u64,
}

/// A leaf whose gradient was touched while its function was traced. Meanwhile it holds what the function made of it.
pub(super) struct LeafGradient {
    pub(super) leaf: Tensor,
    /// What it is to the trace; `None` in a deferred recording.
    pub(super) of: Option<Outside>,
    /// What it held before it was touched, which it gets back.
    pub(super) kept: Option<Tensor>,
    /// The number of what stands for the gradient from before the call.
    pub(super) stand_in: Option<u64>,
    /// Whether another gradient, or none, took the place of that.
    pub(super) is_replaced: bool,
}

impl LeafGradient {
    /// A gradient whose value was lost becomes what it was before.
    pub(super) fn put_back_lost(&self) {
        if self.leaf.gradient().is_some_and(|gradient| !gradient.has_data()) {
            self.leaf.put_gradient(self.kept.as_ref());
        }
    }
}

impl Recording {
    pub(super) fn new(reads: Reads, deferral: Option<Deferral>) -> Recording {
        Recording {
            reads,
            graph: Graph::new(),
            nodes: HashMap::new(),
            inputs: Vec::new(),
            lifted: Vec::new(),
            n_settings: n_settings(),
            written: Vec::new(),
            given: Vec::new(),
            first_id: Tensor::upcoming_id(),
            conditions: Vec::new(),
            before: GradientsBefore::default(),
            gradients: Vec::new(),
            broken: None,
            storages: IndexMap::new(),
            laid_out: HashMap::new(),
            deferral,
        }
    }

    /// Whether what was recorded is run where a value is needed.
    pub(super) fn is_deferred(&self) -> bool {
        self.deferral.is_some()
    }

    /// Whether it may still become a trace: nothing was computed.
    pub(super) fn may_be_trace(&self) -> bool {
        self.deferral.as_ref().is_none_or(Deferral::is_whole)
    }

    /// The trace, whose graph ends with these outputs of the function.
    pub(super) fn finish(&mut self, outputs: &[Tensor]) -> Captured {
        let nodes = self.end(outputs);
        if let Some(reason) = self.broken.take() {
            return Err(reason);
        }
        if self.n_settings != n_settings() {
            return Err(NotCaptured::GeneratorSet.into());
        }
        let (nodes, gradients) = nodes.map_err(Reason::of_error)?;
        let aliases = self.aliases(outputs)?;
        let originals: Vec<&Tensor> = self.given.iter().map(|given| &given.original).collect();
        let has_changed = |condition: &&Condition| !condition.holds(&originals);
        let changed = self.conditions.iter().filter(has_changed).find_map(|condition| match condition {
            Condition::Is(Property::RequiresGrad, of, _) => Some(of.to_string().into()),
            _ => None,
        });
        if let Some(tensor) = changed {
            return Err(NotCaptured::RequiresGradChanged { tensor }.into());
        }
        self.graph.set_outputs(nodes);
        Ok(Trace {
            graph: std::mem::take(&mut self.graph),
            lifted: std::mem::take(&mut self.lifted),
            written: std::mem::take(&mut self.written),
            gradients,
            conditions: std::mem::take(&mut self.conditions),
            aliases,
            owners: owners(&self.inputs, outputs),
        })
    }

    /// The outputs of the whole trace, and what was done to gradients.
    fn end(&mut self, outputs: &[Tensor]) -> Result<(Vec<NodeId>, Vec<GradientChange>)> {
        let mut nodes = outputs.iter().map(|tensor| self.node(tensor)).collect::<Result<Vec<_>>>()?;
        nodes.extend(self.writes().into_iter().map(|(_, node)| node));
        let changes = self.gradient_changes(outputs, &mut nodes)?;
        Ok((nodes, changes))
    }

    pub(super) fn name(&mut self, tensor: &Tensor, node: NodeId) {
        let before = self.nodes.insert(tensor.id(), Known { node, version: tensor.version() });
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

    /// Whether every tensor in the storage of `root` that is still there is known to be a view of it, so that a write
    /// to `root` is seen by all of them. Views that were made in inference mode do not know what they are views of.
    pub(super) fn knows_views_of(&self, root: &Tensor) -> bool {
        let is_view = |view: &ViewOf| view.base.id() == root.id();
        // Nothing is seen by tensors without elements.
        self.views_of(root).all(|tensor| !tensor.shares(root) || tensor.view_of().is_some_and(is_view))
    }

    /// The other tensors in the storage of `root` that are still there.
    fn views_of(&self, root: &Tensor) -> impl Iterator<Item = Tensor> {
        let named = self.storages.get(&root.array().storage().as_ptr().addr());
        let tensors = named.into_iter().flat_map(|named| named.tensors.iter().filter_map(WeakTensor::upgrade));
        tensors.filter(|tensor| tensor.id() != root.id())
    }

    /// A new input that the function is given, as `handle`.
    pub(super) fn give(&mut self, handle: &Tensor, original: &Tensor) {
        self.add_input(handle);
        self.given.push(Given { handle: handle.clone(), original: original.clone() });
    }

    pub(super) fn add_input(&mut self, tensor: &Tensor) -> NodeId {
        let node = self.graph.input(tensor.ty());
        // A write to either would have to be seen by the other, whose node does not know.
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

    /// The node of a tensor; one that is not known is lifted, or recorded as the number it stands for. A view whose
    /// base was written to since is recorded anew.
    pub(super) fn node(&mut self, tensor: &Tensor) -> Result<NodeId> {
        let known = self.nodes.get(&tensor.id()).copied();
        // Nothing can be written to a tensor without elements.
        if let Some(known) = known.filter(|known| known.version == tensor.version() || tensor.numel() == 0) {
            return Ok(known.node);
        }
        if let Some(number) = tensor.as_number() {
            if self.deferral.as_ref().is_some_and(Deferral::lifts_numbers) {
                return Ok(self.add_input(tensor));
            }
            let node = self.graph.number(number);
            self.name(tensor, node);
            return Ok(node);
        }
        if self.is_deferred() {
            return self.deferred_node(tensor);
        }
        match (tensor.view_of(), known) {
            (Some(view), known) if known.is_some() || self.nodes.contains_key(&view.base.id()) => {
                let base = self.node(&view.base)?;
                let node = view_chain::apply(&mut self.graph, &base, &view.chain)?;
                self.name(tensor, node);
                Ok(node)
            }
            (_, Some(known)) => {
                self.give_up(NotCaptured::UntracedWrite { tensor: tensor.ty().to_string().into() });
                Ok(known.node)
            }
            (_, None) => {
                if !tensor.has_data() {
                    self.give_up(NotCaptured::TensorWithoutData { tensor: tensor.ty().to_string().into() });
                }
                Ok(self.lift(tensor))
            }
        }
    }

    /// The node of a tensor that the function was not given.
    pub(super) fn lift(&mut self, tensor: &Tensor) -> NodeId {
        if let (true, Some(of)) = (tensor.dtype().is_float(), self.outside(tensor)) {
            self.grant(Condition::Is(Property::RequiresGrad, of, tensor.may_require_grad()));
        }
        self.lifted.push(Lifted::Tensor(tensor.clone()));
        self.add_input(tensor)
    }

    pub(super) fn record(&mut self, op: Op, tensors: &[Tensor], attrs: Attrs) -> Result<NodeId> {
        let node = |tensor: &Tensor| if is_window(op) { self.memory_node(tensor) } else { self.node(tensor) };
        let args = tensors.iter().map(node).collect::<Result<Vec<_>>>()?;
        self.graph.add(op, &args, attrs)
    }

    /// A node that lies in memory as the tensor does: what was written through a view lies in its base.
    fn memory_node(&mut self, tensor: &Tensor) -> Result<NodeId> {
        match tensor.view_of().filter(|view| !self.is_input(tensor) && self.nodes.contains_key(&view.base.id())) {
            Some(view) => {
                let base = self.node(&view.base)?;
                view_chain::apply(&mut self.graph, &base, &view.chain)
            }
            None => self.node(tensor),
        }
    }

    /// The value that `target` has after `source` is copied into it, and the base it is a view of with its new value.
    pub(super) fn write(&mut self, target: &Tensor, source: &Tensor) -> Result<Vec<(Tensor, NodeId)>> {
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
        let mut written = vec![(target.clone(), self.as_laid_out(value, target)?)];
        let mut view = target.clone();
        while let Some(of) = view.view_of() {
            if self.is_input(&view) {
                break;
            }
            let before = self.node(&of.base)?;
            value = view_chain::write_through(&mut self.graph, before, &of.chain, value)?;
            let base = of.base.clone();
            written.push((base.clone(), self.as_laid_out(value, &base)?));
            view = base;
        }
        if let Some(why) = self.hides_writes(&view) {
            self.give_up(why);
        }
        if let Some(position) = self.inputs.iter().position(|input| input.id() == view.id()) {
            let aliased = |(other, input): (usize, &Tensor)| other != position && input.shares(&view);
            if self.inputs.iter().enumerate().any(aliased) {
                self.give_up(NotCaptured::WrittenInputShared);
            }
            if !self.written.contains(&position) {
                self.written.push(position);
            }
        }
        Ok(written)
    }

    /// `value` in memory of its own with the strides of `target`, or dense in their order if it has gaps. A write
    /// changes neither strides nor memory, and views of the target are recorded anew from this. Whoever reads it
    /// element by element reads `value`, and no kernel makes it.
    fn as_laid_out(&mut self, value: NodeId, target: &Tensor) -> Result<NodeId> {
        let sizes = target.sizes();
        let strides = dense_strides(target);
        // Memory is its own if it was computed and holds nothing else.
        let root = &self.graph[self.graph.view_base(value)];
        let is_own = root.op().is_some() && root.ty.numel() == target.numel();
        if is_own && lie_alike(sizes, &self.graph[value].ty.strides, &strides) {
            return Ok(value);
        }
        let mut outermost_first: SmallVec<[usize; 4]> = (0..sizes.len()).collect();
        outermost_first.sort_by_key(|&dim| Reverse((strides[dim], sizes[dim])));
        let mut inverse = smallvec![0; sizes.len()];
        outermost_first.iter().enumerate().for_each(|(place, &dim)| inverse[dim] = place as i64);
        let order = outermost_first.iter().map(|&dim| dim as i64).collect();
        let ordered = self.graph.add(Op::Permute, &[value], smallvec![Attr::Ints(order)])?;
        let dense = self.graph.add(Op::Clone, &[ordered], smallvec![MemoryFormat::Contiguous.into()])?;
        let laid_out = self.graph.add(Op::Permute, &[dense], smallvec![Attr::Ints(inverse)])?;
        self.laid_out.insert(laid_out, value);
        Ok(laid_out)
    }

    /// The inputs that were written to, and what is to be copied into them: it need not lie as they do.
    pub(super) fn writes(&self) -> Vec<(usize, NodeId)> {
        let write = |&input: &usize| {
            let node = self.nodes.get(&self.inputs[input].id())?.node;
            Some((input, self.laid_out.get(&node).copied().unwrap_or(node)))
        };
        self.written.iter().filter_map(write).collect()
    }

    /// Why a write to `root`, or through a view of it, would not be seen where it is to be seen, if that is so: values
    /// of a graph have elements, and know nothing of the memory that these lie in.
    pub(super) fn hides_writes(&self, root: &Tensor) -> Option<NotCaptured> {
        if !self.knows_views_of(root) {
            return Some(NotCaptured::InferenceViews);
        }
        let layout = root.array().layout();
        if root.numel() > 0 && !layout.is_injective() {
            return Some(NotCaptured::OverlappingElements);
        }
        let shows_memory = |view: &ViewOf| view.chain.iter().any(|step| is_window(step.op));
        let is_looked_into = || self.views_of(root).any(|tensor| tensor.view_of().is_some_and(shows_memory));
        (has_gaps(root) && is_looked_into()).then_some(NotCaptured::GapsShown)
    }

    /// Whether `tensor` was written to, or what it is a view of, and its value does not lie as it does.
    pub(super) fn is_written_apart(&self, tensor: &Tensor) -> bool {
        let root = tensor.view_of().filter(|_| !self.is_input(tensor)).map_or(tensor, |view| &view.base);
        has_gaps(root) && self.written.iter().any(|&input| self.inputs[input].id() == root.id())
    }

    pub(super) fn is_input(&self, tensor: &Tensor) -> bool {
        self.inputs.iter().any(|input| input.id() == tensor.id())
    }
}

/// The strides that an element-wise result has which follows a tensor.
fn dense_strides(tensor: &Tensor) -> Strides {
    elementwise_strides(tensor.sizes(), &[(tensor.sizes(), tensor.strides())])
}

/// Whether elements are next to elements that belong to nobody, or to another tensor.
fn has_gaps(tensor: &Tensor) -> bool {
    !lie_alike(tensor.sizes(), tensor.strides(), &dense_strides(tensor))
}

/// Whether tensors of these sizes have their elements in the same places, beginning alike.
fn lie_alike(sizes: &[usize], one: &[usize], other: &[usize]) -> bool {
    sizes.contains(&0) || (0..sizes.len()).all(|dim| sizes[dim] == 1 || one[dim] == other[dim])
}

/// Whether an op shows the memory of its operand rather than its elements.
pub(super) fn is_window(op: Op) -> bool {
    matches!(op.row().meaning, Meaning::Window(_))
}
