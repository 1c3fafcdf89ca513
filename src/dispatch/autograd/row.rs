//! Recorded calls of rows of the op table.
//!
//! What a call does on the way back is a graph of the derivative column ([`vjp`]), kept per thread by op, arguments
//! and types. The node saves what the graph reads and nothing else. On the way back the graph runs fused, as one
//! executable; or, when the way back is itself recorded, traced or watched, op by op through the dispatcher. Both have
//! the same bits.

use super::mode::is_grad_enabled;
use super::node::{Backward, BackwardCall, Edge, Node, ResultType};
use super::saved::Saved;
use crate::dispatch::alias::{AUTOCAST_KEYS, AUTOGRAD_AND_INPLACE_KEYS};
use crate::dispatch::key::DispatchKey;
use crate::dispatch::keys::tracer;
use crate::dispatch::keyset::KeySet;
use crate::dispatch::local::{exclude, local_key_sets};
use crate::dispatch::register::call;
use crate::dispatch::tensor::Tensor;
use crate::eager::{self, Array};
use crate::error::{Error, Result};
use crate::ir::autodiff::{Vjp, VjpInput, counted_from, vjp};
use crate::ir::{Attrs, Graph, NodeKind, Op, SideTable, TensorType};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

type Needs = SmallVec<[bool; 4]>;
type Types = SmallVec<[TensorType; 3]>;

/// Most derivatives a thread remembers.
const CAPACITY: usize = 4096;

/// The derivative of one kind of call.
struct Formula {
    op: Op,
    attrs: Attrs,
    types: Types,
    needs: Needs,
    vjp: Vjp,
    /// Its name in the cache of executables.
    id: u64,
}

thread_local! {
    static FORMULAS: RefCell<HashMap<u64, Arc<Formula>, std::hash::BuildHasherDefault<FxHasher>>> =
        RefCell::new(HashMap::default());
}

fn formula(op: Op, attrs: &Attrs, tensors: &[&Tensor], needs: Needs, result: &TensorType) -> Result<Arc<Formula>> {
    let placed = counted_from(op, attrs, || tracer::memory_start(tensors[0]));
    let attrs = placed.as_ref().unwrap_or(attrs);
    let types: Types = tensors.iter().map(|tensor| tensor.ty()).collect();
    let mut hasher = FxHasher::default();
    (op, &attrs[..], &types[..], &needs[..]).hash(&mut hasher);
    let hash = hasher.finish();
    let is_same =
        |known: &&Arc<Formula>| known.op == op && known.attrs == *attrs && known.types == types && known.needs == needs;
    if let Some(known) = FORMULAS.with_borrow(|formulas| formulas.get(&hash).filter(is_same).cloned()) {
        return Ok(known);
    }
    let vjp = vjp(op, &types.iter().collect::<SmallVec<[&TensorType; 4]>>(), attrs, result, &needs)?;
    let known = Arc::new(Formula { op, attrs: attrs.clone(), types, needs, vjp, id: eager::graph_id() });
    FORMULAS.with_borrow_mut(|formulas| {
        if formulas.len() >= CAPACITY {
            formulas.clear();
        }
        formulas.insert(hash, known.clone());
    });
    Ok(known)
}

/// A recorded call of a row.
struct RowBackward {
    formula: Arc<Formula>,
    /// What the formula reads, in the order of its inputs; `None` for the gradient. Empty once released.
    saved: Mutex<Option<SmallVec<[Option<Saved>; 3]>>>,
}

/// Whether the way back of a call reads its first operand as it was.
pub(in crate::dispatch) fn reads_first(op: Op, attrs: &Attrs, tensors: &[&Tensor]) -> Result<bool> {
    let needs: Needs = tensors.iter().map(|tensor| tensor.requires_grad()).collect();
    if !is_grad_enabled() || !needs.contains(&true) || !op.is_differentiable() {
        return Ok(false);
    }
    let types: Types = tensors.iter().map(|tensor| tensor.ty()).collect();
    let refs: SmallVec<[&TensorType; 4]> = types.iter().collect();
    let result = op.infer(&refs, attrs)?;
    let formula = formula(op, attrs, tensors, needs, &result)?;
    Ok(formula.vjp.inputs.iter().any(|input| matches!(input, VjpInput::Arg(0))))
}

/// Records a call that gave `result`, whose operands have the edges `next`.
pub(in crate::dispatch) fn record(
    op: Op,
    attrs: &Attrs,
    tensors: &[&Tensor],
    next: SmallVec<[Option<Edge>; 2]>,
    result: &Tensor,
) -> Result<()> {
    let needs: Needs = next.iter().map(Option::is_some).collect();
    let formula = formula(op, attrs, tensors, needs, &result.ty())?;
    let save = |input: &VjpInput| match *input {
        VjpInput::Arg(index) => Saved::operand(tensors[index]).map(Some),
        VjpInput::Result => Saved::result(result, 0).map(Some),
        VjpInput::Grad => Ok(None),
    };
    let saved = formula.vjp.inputs.iter().map(save).collect::<Result<_>>()?;
    let function = Box::new(RowBackward { formula, saved: Mutex::new(Some(saved)) });
    let node = Node::new(function, next, SmallVec::from_iter([ResultType::of(result)]));
    result.autograd_or_new().set_edge(Edge { node, output: 0 }, result.version());
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
        let results = run_graph(self.formula.id, &vjp.graph, &inputs)?;
        let pick = |(place, &need): (&Option<usize>, &bool)| place.filter(|_| need).map(|at| results[at].clone());
        Ok(vjp.outputs.iter().zip(call.needs).map(pick).collect())
    }

    fn release(&self) {
        *self.saved.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The error of a second way back over values that the first has let go of.
pub(super) fn freed(name: &str) -> Error {
    let what = "Trying to backward through the graph a second time (or directly access saved tensors after they have \
                already been freed); pass retain_graph to the first backward to keep saved values";
    Error::argument(name, what)
}

/// The results of a graph on tensors: fused if nobody needs to see the single ops.
fn run_graph(id: u64, graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    if !runs_fused(inputs) {
        return replay(graph, inputs);
    }
    let arguments: SmallVec<[eager::Argument<'_>; 4]> = inputs.iter().map(Tensor::as_argument).collect();
    let results: SmallVec<[Array; 2]> = eager::run_graph(id, graph, &arguments)?;
    Ok(results.into_iter().map(Tensor::from_array).collect())
}

fn runs_fused(inputs: &[Tensor]) -> bool {
    const UNSEEN: KeySet = AUTOGRAD_AND_INPLACE_KEYS.add(DispatchKey::BackendSelect);
    let keys = inputs.iter().fold(KeySet::EMPTY, |keys, tensor| keys | tensor.key_set());
    let plain = (local_key_sets().apply(keys) - UNSEEN) == KeySet::of(DispatchKey::CPU);
    let recorded = is_grad_enabled() && inputs.iter().any(Tensor::requires_grad);
    plain && !recorded && inputs.iter().all(Tensor::has_data)
}

/// The results of a graph on tensors, called op by op.
pub(super) fn replay(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    // The way back has the dtypes of the way there, whatever is set by now.
    let _as_recorded = exclude(AUTOCAST_KEYS);
    let mut values: SideTable<Tensor> = SideTable::new();
    for (_, node) in graph.nodes() {
        values.push(match node.kind {
            NodeKind::Input(index) => inputs[index as usize].clone(),
            NodeKind::Number(number) => Tensor::number(number)?,
            NodeKind::Extent(count) => tracer::extent(count as usize)?,
            NodeKind::Op(op) => {
                let args: SmallVec<[&Tensor; 4]> = node.args.iter().map(|&arg| &values[arg]).collect();
                call(op, &args, &node.attrs)?
            }
        });
    }
    Ok(graph.outputs().iter().map(|&output| values[output].clone()).collect())
}
