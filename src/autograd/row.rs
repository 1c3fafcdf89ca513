//! Recorded calls of rows of the op table.
//!
//! The backward formula of a call is a graph from the derivative column ([`vjp`]). It is cached per thread by op,
//! arguments and types. The node saves exactly what the graph reads. The backward pass runs the graph fused, as one
//! executable. If the backward pass is itself recorded, traced, or seen by modes, the graph is called op by op through
//! the dispatcher. Both give the same bits.

use crate::autograd::node::{Backward, BackwardCall, Edge, Node};
use crate::autograd::saved::Saved;
use crate::autograd::tape::Places;
use crate::device::Device;
use crate::dispatch::key::alias::{AUTOCAST_KEYS, AUTOGRAD_AND_INPLACE_KEYS};
use crate::dispatch::key::dispatch_key::DispatchKey;
use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::key::local::{exclude, local_key_sets};
use crate::dispatch::key::set::KeySet;
use crate::dispatch::rows::call;
use crate::eager;
use crate::error::{Error, Result};
use crate::ir::autodiff::VjpInput;
use crate::ir::{Attr, Graph, NodeId, NodeKind, Op, SideTable};
use crate::ops::derivative::{Formula, Needs, formula};
use crate::ops::factories::made_on;
use crate::ops::part_place::PartPlace;
use crate::profile::Place;
use crate::runtime::Array;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// A recorded call of a row.
struct RowBackward {
    formula: Arc<Formula>,
    /// The inputs of the formula in order; `None` for the gradient. Emptied by `release`, unless all are plain numbers.
    saved: Mutex<Option<SmallVec<[Option<Saved>; 3]>>>,
}

/// Records a call that returned `result`. The operands have the edges `next`.
pub(crate) fn record(
    op: Op,
    attrs: &[Attr],
    tensors: &[&Tensor],
    next: SmallVec<[Option<Edge>; 2]>,
    result: &Tensor,
) -> Result<()> {
    let mut needs = Needs::new();
    for edge in &next {
        needs.push(edge.is_some());
    }
    let formula = formula(op, attrs, tensors, &needs, |_, _| Ok(result.ty()))?;
    let mut saved = SmallVec::new();
    for input in &formula.vjp.inputs {
        saved.push(match *input {
            VjpInput::Arg(index) => Some(Saved::operand_of(tensors[index], next[index].clone())?),
            VjpInput::Result => Some(Saved::result(result, 0)?),
            VjpInput::Grad => None,
        });
    }
    let function = Box::new(RowBackward { formula, saved: Mutex::new(Some(saved)) });
    let node = Node::new(function, next, &[result]);
    result.set_edge(Edge::new(node, 0));
    Ok(())
}

impl Backward for RowBackward {
    fn name(&self) -> String {
        format!("{:?}Backward", self.formula.op)
    }

    fn apply(&self, gradients: Vec<Option<Tensor>>, call: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let vjp = &self.formula.vjp;
        let Some(Some(gradient)) = gradients.into_iter().next() else { return Ok(vec![None; vjp.outputs.len()]) };
        let inputs: Vec<Tensor> = {
            let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
            let saved = saved.as_ref().ok_or_else(|| freed(&self.name()))?;
            let unpack = |saved: &Option<Saved>| match saved {
                Some(saved) => saved.unpack(call.node),
                None => Ok(gradient.clone()),
            };
            saved.iter().map(unpack).collect::<Result<_>>()?
        };
        let results = run_graph(self.formula.id, &vjp.graph, &inputs, gradient.device())?;
        let pick = |(place, &need): (&Option<usize>, &bool)| place.filter(|_| need).map(|at| results[at].clone());
        Ok(vjp.outputs.iter().zip(call.needs).map(pick).collect())
    }

    fn release(&self) {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.take_if(|saved| saved.iter().flatten().any(|saved| !saved.is_number()));
    }

    fn is_copyable(&self) -> bool {
        true
    }

    fn each_saved(&self, each: &mut dyn FnMut(&Tensor)) {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.iter().flatten().flatten().for_each(|saved| each(saved.value()));
    }

    fn check_backward(&self, node: &Arc<Node>) -> Result<()> {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = saved.as_ref().ok_or_else(|| freed(&self.name()))?;
        saved.iter().flatten().try_for_each(|saved| saved.check(node))
    }

    fn copy(&self, places: &Places<'_>) -> Result<Box<dyn Backward>> {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = saved.as_ref().ok_or_else(|| freed(&self.name()))?;
        let copy = |saved: &Option<Saved>| saved.as_ref().map(|saved| saved.copy(places)).transpose();
        let saved = saved.iter().map(copy).collect::<Result<_>>()?;
        Ok(Box::new(RowBackward { formula: self.formula.clone(), saved: Mutex::new(Some(saved)) }))
    }

    fn place(&self) -> Option<&PartPlace> {
        self.formula.part.as_ref()
    }
}

/// The error of a second backward pass over values that the first one freed.
pub(super) fn freed(name: &str) -> Error {
    let what = "Trying to backward through the graph a second time (or directly access saved tensors after they have \
                already been freed); pass retain_graph to the first backward to keep saved values";
    Error::argument(name, what)
}

/// The results of a graph on tensors. It runs fused, unless a key or mode must see the single ops.
fn run_graph(id: u64, graph: &Graph, inputs: &[Tensor], device: Device) -> Result<Vec<Tensor>> {
    if !runs_fused(inputs) {
        let results = replay(graph, inputs, device)?;
        return if is_recorded(inputs) { Ok(results) } else { apart(inputs, results) };
    }
    let arguments: SmallVec<[eager::Argument<'_>; 4]> = inputs.iter().map(Tensor::as_argument).collect();
    let results: SmallVec<[Array; 2]> = eager::run_graph(id, graph, &arguments)?;
    Ok(results.into_iter().map(Tensor::from_array).collect())
}

fn runs_fused(inputs: &[Tensor]) -> bool {
    // A profile times the graph as a whole.
    const UNSEEN: KeySet =
        AUTOGRAD_AND_INPLACE_KEYS.add(DispatchKey::BackendSelect).add(DispatchKey::PythonTLSSnapshot);
    let keys = inputs.iter().fold(KeySet::EMPTY, |keys, tensor| keys | tensor.key_set());
    let seen = local_key_sets().apply(keys) - UNSEEN;
    let plain = [DispatchKey::CPU, DispatchKey::CUDA].into_iter().any(|key| seen == KeySet::of(key));
    plain && !is_recorded(inputs) && inputs.iter().all(Tensor::has_data)
}

fn is_recorded(inputs: &[Tensor]) -> bool {
    is_grad_enabled() && inputs.iter().any(Tensor::requires_grad)
}

/// Results of single calls, as a fused graph gives them: tensors of their own, which are views of nothing as far as
/// gradients are concerned.
fn apart(inputs: &[Tensor], results: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let is_known = |at: usize, result: &Tensor| {
        inputs.iter().chain(&results[..at]).any(|other| other.is_handle_of(result)) || result.view_of().is_some()
    };
    let own = |(at, result): (usize, &Tensor)| if is_known(at, result) { result.detach() } else { Ok(result.clone()) };
    results.iter().enumerate().map(own).collect()
}

/// The results of a graph on tensors, called op by op. Ops without operands run on `device`.
pub(crate) fn replay(graph: &Graph, inputs: &[Tensor], device: Device) -> Result<Vec<Tensor>> {
    let (values, failed) = replay_until(graph, inputs, device);
    match failed {
        Some(error) => Err(error),
        None => Ok(graph.outputs().iter().map(|&output| values[output].clone()).collect()),
    }
}

/// The values of a graph on tensors, called op by op. If a call fails, its error, which says where the call was
/// recorded, and the values of those before it.
pub(crate) fn replay_until(
    graph: &Graph,
    inputs: &[Tensor],
    device: Device,
) -> (SideTable<NodeId, Tensor>, Option<Error>) {
    // The dtypes are those of the recorded call, whatever autocast and the default dtype are now.
    let _as_recorded = exclude(AUTOCAST_KEYS | KeySet::of(DispatchKey::PreDispatch));
    let mut values: SideTable<NodeId, Tensor> = SideTable::new();
    for (id, node) in graph.nodes() {
        let value = match node.kind {
            NodeKind::Input(index) => Ok(inputs[index as usize].clone()),
            NodeKind::Number(number) => Tensor::number(number),
            NodeKind::Extent(count) => observer::extent(count as usize),
            NodeKind::Op(op) => {
                let args: SmallVec<[&Tensor; 4]> = node.args.iter().map(|&arg| &values[arg]).collect();
                if args.is_empty() { made_on(device, op, &node.attrs) } else { call(op, &args, &node.attrs) }
            }
        };
        match value {
            Ok(value) => values.push(value),
            Err(error) => return (values, Some(recorded_at(graph, id, error))),
        };
    }
    (values, None)
}

/// An error of a node of a graph, with the place of the recorded call.
#[cold]
fn recorded_at(graph: &Graph, node: NodeId, error: Error) -> Error {
    match graph.place(node).map(Place::recorded) {
        Some(place) => error.recorded_at(&place),
        None => error,
    }
}
