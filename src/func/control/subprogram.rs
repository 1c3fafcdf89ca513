//! A traced body as something that runs: executables, and the calls between them.
//!
//! Regions are remembered by what they compute, so a loop that is called again compiles nothing.

use crate::autograd::replay;
use crate::codegen::tier::Tier;
use crate::debug;
use crate::device::{Device, Shared};
use crate::eager::{self, Argument};
use crate::error::Result;
use crate::fusion::role::{Role, role};
use crate::fusion::{Options, StepKind, plan};
use crate::ir::passes::{StageInput, Target, passes_for, stages};
use crate::ir::{Attr, Attrs, Graph, Op, TensorType};
use crate::lru::Lru;
use crate::runtime::{Array, Executable};
use crate::tensor::Tensor;
use crate::transforms::tracer::{BodySize, OpaqueCall, Subgraph, SubgraphInput};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

/// How many subprograms are remembered.
const CAPACITY: usize = 128;

static KNOWN: Mutex<Lru<Graph, Arc<Subprogram>>> = Mutex::new(Lru::new(CAPACITY));

/// A compiled body.
pub(super) struct Subprogram {
    graph: Graph,
    /// What runs before each call, and the call.
    before: Vec<(Executable, Vec<StageInput>, OpaqueCall)>,
    last: Executable,
    /// What all of it computes.
    pub(super) size: BodySize,
    /// The carried values that the last executable takes after the inputs of the graph.
    carried: Vec<usize>,
    others: Vec<SubgraphInput>,
    /// The types of what the body is given, and of the captured tensors, in order.
    pub(super) inputs: Vec<TensorType>,
    /// The types of the results. They have dense strides.
    pub(super) results: Vec<TensorType>,
}

impl Subprogram {
    /// Compiles a body with that many results, unless it is known.
    ///
    /// # Errors
    /// If a kernel cannot be compiled.
    pub(super) fn of(body: Subgraph, n_results: usize) -> Result<Arc<Subprogram>> {
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(subprogram) = known().get(&body.graph).filter(|subprogram| subprogram.is_of(&body, n_results)) {
            return Ok(subprogram.clone());
        }
        let graph = body.graph.clone();
        let subprogram = Arc::new(Subprogram::build(body, n_results)?);
        known().put(graph, subprogram.clone());
        Ok(subprogram)
    }

    fn is_of(&self, body: &Subgraph, n_results: usize) -> bool {
        let calls = self.before.iter().map(|(_, _, call)| call);
        self.results.len() == n_results
            && self.others == body.others
            && self.before.len() == body.calls.len()
            && calls.zip(&body.calls).all(|(one, other)| one.is_same(other))
    }

    fn build(body: Subgraph, n_results: usize) -> Result<Subprogram> {
        let Subgraph { graph, calls, captured: _, others } = body;
        let reads: Vec<_> = calls.iter().map(|call| call.reads.clone()).collect();
        let cut = stages(&graph, &reads)?;
        let before = cut.before.into_iter().zip(calls);
        let mut size = BodySize::default();
        let before = before.map(|(stage, call)| {
            let (executable, own) = executable(&stage.graph)?;
            size = size + own + call.body();
            Ok((executable, stage.inputs, call))
        });
        let before = before.collect::<Result<_>>()?;
        let (last, own) = executable(&cut.last)?;
        size = size + own;
        let ty = |id: &crate::ir::NodeId| graph[*id].ty.clone();
        let n_given = graph.inputs().len() - others.len();
        let is_result = |at: usize| at >= n_given && matches!(others[at - n_given], SubgraphInput::Result { .. });
        let inputs = graph.inputs().iter().enumerate().filter(|(at, _)| !is_result(*at)).map(|(_, id)| ty(id));
        let inputs = inputs.collect();
        let dense = |id: &crate::ir::NodeId| TensorType::contiguous(graph[*id].ty.dtype, &graph[*id].ty.sizes);
        let results = graph.outputs()[..n_results].iter().map(dense).collect();
        Ok(Subprogram { last, size, carried: cut.carried, before, others, inputs, results, graph })
    }

    /// Whether both compute the same.
    pub(super) fn is_same(&self, other: &Subprogram) -> bool {
        let calls = self.before.iter().zip(&other.before);
        std::ptr::eq(self, other)
            || self.graph == other.graph
                && self.results == other.results
                && self.others == other.others
                && self.before.len() == other.before.len()
                && calls.into_iter().all(|((_, _, one), (_, _, other))| one.is_same(other))
    }

    /// Makes kernels use the code that they get once they are called often.
    pub(super) fn warm(&self) {
        self.before.iter().for_each(|(stage, ..)| stage.warm());
        self.last.warm();
    }

    /// The results of the body on tensors with a history, called op by op. `None` if there is a loop in the body.
    ///
    /// # Errors
    /// If a call fails.
    pub(super) fn replay(&self, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
        if !self.before.is_empty() {
            return Ok(None);
        }
        let mut results = replay(&self.graph, inputs, Device::CPU)?;
        results.truncate(self.results.len());
        Ok(Some(results))
    }

    /// Runs the body on arrays of the types [`Subprogram::inputs`]. More values may follow the results.
    ///
    /// # Errors
    /// If a value is out of range, or if there is not enough memory.
    pub(super) fn run(&self, inputs: &[&Array]) -> Result<SmallVec<[Array; 2]>> {
        if self.before.is_empty() {
            return self.last.run(inputs);
        }
        let n_given = self.graph.inputs().len() - self.others.len();
        let (given, captured) = inputs.split_at(n_given);
        let mut made: Vec<Vec<Array>> = Vec::with_capacity(self.before.len());
        let mut carried: Vec<Array> = Vec::new();
        // The results of later calls are asked for by none of the earlier stages.
        let input = |at: usize, made: &Vec<Vec<Array>>| match at.checked_sub(n_given).map(|at| self.others[at]) {
            None => given[at].clone(),
            Some(SubgraphInput::Captured(at)) => captured[at].clone(),
            Some(SubgraphInput::Result { call, result }) => made[call][result].clone(),
        };
        for (stage, sources, call) in &self.before {
            let source = |source: &StageInput| match *source {
                StageInput::Input(at) => input(at, &made),
                StageInput::Carried(at) => carried[at].clone(),
            };
            let arrays: SmallVec<[Array; 8]> = sources.iter().map(source).collect();
            let mut results = stage.run(&arrays.iter().collect::<SmallVec<[&Array; 8]>>())?.into_vec();
            carried.extend(results.split_off(call.reads.len()));
            let operands: Vec<Tensor> = results.into_iter().map(Tensor::from_array).collect();
            made.push(call.run(&operands)?.iter().map(|result| result.array().clone()).collect());
        }
        let all = (0..self.graph.inputs().len()).map(|at| input(at, &made));
        let all: SmallVec<[Array; 8]> = all.chain(self.carried.iter().map(|&at| carried[at].clone())).collect();
        self.last.run(&all.iter().collect::<SmallVec<[&Array; 8]>>())
    }
}

/// The executable of a graph on the CPU, and what it computes.
fn executable(graph: &Graph) -> Result<(Executable, BodySize)> {
    let planned =
        passes_for(Target::Cpu).try_fold(Cow::Borrowed(graph), |graph, pass| (pass.run)(&graph).map(Cow::Owned))?;
    let tier = debug::forced_tier().and_then(Tier::from_name);
    let plan = plan(&planned, &Options::default());
    let is_computed = |node| matches!(role(&planned, node), Role::Loop | Role::Product | Role::Parts | Role::Routine);
    let size = BodySize {
        ops: planned.nodes().filter(|&(node, _)| is_computed(node)).count(),
        kernels: plan.steps.iter().filter(|step| !matches!(step.kind, StepKind::Alias)).count(),
    };
    Ok((Executable::build(&planned, &plan, tier)?, size))
}

/// An array of this type with the same elements: itself, or a copy.
///
/// # Errors
/// If there is not enough memory.
pub(super) fn fitted<'a>(array: &'a Array, ty: &TensorType) -> Result<Cow<'a, Array>> {
    if array.is_of(ty) { Ok(Cow::Borrowed(array)) } else { copied(array, ty).map(Cow::Owned) }
}

/// Like [`fitted`], for an array that is not needed any more.
///
/// # Errors
/// If there is not enough memory.
pub(super) fn refitted(array: Array, ty: &TensorType) -> Result<Array> {
    if array.is_of(ty) { Ok(array) } else { copied(&array, ty) }
}

/// Arrays as the results of a call, of these types. None has the memory of another, or of an operand.
///
/// # Errors
/// If there is not enough memory.
pub(super) fn results_of<'a>(
    arrays: impl IntoIterator<Item = (Array, &'a TensorType)>,
    operands: &[Tensor],
) -> Result<Vec<Tensor>> {
    let mut results: Vec<Tensor> = Vec::new();
    for (array, ty) in arrays {
        let mut others = operands.iter().chain(&results);
        let is_shared = others.any(|other| Shared::ptr_eq(other.array().storage(), array.storage()));
        let own = if is_shared { copied(&array, ty) } else { refitted(array, ty) };
        results.push(Tensor::from_array(own?));
    }
    Ok(results)
}

/// The truth value in an array of one.
pub(super) fn is_true(array: &Array) -> bool {
    let at = array.layout().offset;
    array.storage().read(|bytes| bytes[at] != 0)
}

fn copied(array: &Array, ty: &TensorType) -> Result<Array> {
    let target = Array::new(array.device(), ty)?;
    let attrs = Attrs::from_iter([Attr::DType(ty.dtype)]);
    eager::run_into(Op::ToCopy, &[Argument { array, number: false }], &attrs, &target)?;
    Ok(target)
}
