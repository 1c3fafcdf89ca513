//! The backward pass of a program.
//!
//! A trace contains the gradients of all results that require them. The backward half of its graph is compiled too. A
//! backward pass that brings gradients for some results only runs a variant of it: nothing is computed from results
//! without a gradient, as in an eager backward pass.
//!
//! An eager backward pass adds the contributions to a gradient one by one, in order of arrival. If another call has
//! contributed before, the program returns its contributions one by one too. So the sum has eager's bits.

use super::calls::Calls;
use super::explain::Explain;
use super::failure::located;
use super::passes_page::Subject;
use super::program::Joint;
use super::tuning::{Settings, Tuned};
use crate::autograd::{GradientProgram, KeptTensors, ProgramHistory, Request, Tape, Values, record_program, replay};
use crate::device::Device;
use crate::eager::{self, Argument};
use crate::error::{Error, Result};
use crate::ir::attrs::{Full, ints};
use crate::ir::passes::{Halves, Kept, extract, omit};
use crate::ir::{Attr, Attrs, Graph, NodeId, Op, Scalar, TensorType};
use crate::lru::Lru;
use crate::ops::element::scalar_in;
use crate::runtime::Array;
use crate::tensor::handle::Tensor;
use crate::transforms::tracer::OpaqueCall;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The most variants of a backward pass besides the usual one.
const MAX_VARIANTS: usize = 16;

/// The gradient of one input, as outputs of the trace. They count from the first gradient.
#[derive(Debug, Clone)]
pub(super) struct Gradient {
    /// The sum of all contributions.
    pub(super) sum: usize,
    /// The contributions, if there are several.
    pub(super) parts: Range<usize>,
    /// Whether a gradient of each differentiable result flows to the input. It does where it is zero, too.
    pub(super) flows_from: Vec<bool>,
    /// The type of the input, with dense strides.
    pub(super) ty: TensorType,
}

/// The backward pass of a program.
pub(super) struct Gradients {
    /// The function and its gradients.
    joint: Graph,
    /// The gradients alone. It takes the kept tensors, then the cotangents.
    backward: Graph,
    calls: BackwardCalls,
    kept: Vec<Kept>,
    /// The number of inputs of the program that are given, and not captured.
    n_given: usize,
    /// The inputs that calls of the program make.
    made: Vec<usize>,
    differentiable: Vec<usize>,
    /// By input of the program.
    operands: Vec<Option<Gradient>>,
    /// What the trace recorded, and where the values come from that it saved.
    tape: Option<(Tape, SavedValues)>,
    settings: Settings,
    /// The usual variant.
    usual: (Request, Arc<Variant>),
    others: Mutex<Lru<Request, Arc<Variant>>>,
}

/// The calls of a backward pass that its graph does not contain, and the nodes that each reads. Their results are the
/// last inputs of the graph.
#[derive(Default, Clone)]
pub(super) struct BackwardCalls {
    calls: Vec<OpaqueCall>,
    reads: Vec<Vec<NodeId>>,
}

impl BackwardCalls {
    /// The calls of a joint graph, in a backward graph that takes so many kept tensors, and then these inputs of the
    /// joint graph.
    pub(super) fn of(
        mut calls: Vec<OpaqueCall>,
        reads: Vec<Vec<NodeId>>,
        n_kept: usize,
        cotangents: &[usize],
    ) -> BackwardCalls {
        let place = |input: usize| cotangents.iter().position(|&one| one == input).map(|at| n_kept + at);
        for result in calls.iter_mut().flat_map(|call| &mut call.results) {
            *result = place(*result).expect("results of these calls are among the cotangents");
        }
        BackwardCalls { calls, reads }
    }
}

/// The inputs of a program and of its joint graph.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    /// How many inputs are given.
    pub(super) n_given: usize,
    /// How many inputs the program has. Those after the given ones are captured, or made by calls.
    pub(super) n_all: usize,
    /// The positions of the cotangents, and of results of calls among the gradients, which the joint graph takes, too.
    pub(super) cotangents: &'a [usize],
    /// The inputs that calls make.
    pub(super) made: &'a [usize],
}

/// The backward graph for one kind of request.
struct Variant {
    /// `None` if it computes nothing.
    tuned: Option<Tuned>,
    /// The calls that its graph does not contain.
    calls: Option<Box<Calls>>,
    /// The inputs of the backward graph that it reads, without results of calls.
    inputs: Vec<usize>,
    /// The output for each edge of the recorded call.
    places: Vec<Option<usize>>,
}

/// Where the values come from that a tape saved.
struct SavedValues {
    /// Computes those that were not kept, from the kept tensors and from inputs.
    graph: Graph,
    /// The inputs of the program that the graph takes after the kept tensors.
    inputs: Vec<usize>,
    /// The output of each value, by tensor id.
    ids: Vec<u64>,
}

impl SavedValues {
    fn of(joint: &Graph, kept: &[NodeId], nodes: &[(u64, NodeId)], cotangents: &[usize]) -> Result<SavedValues> {
        let wanted: Vec<NodeId> = nodes.iter().map(|(_, node)| *node).collect();
        let (graph, mut inputs) = extract(joint, kept, &wanted)?;
        // The program does not take the cotangents.
        let moved = |input: usize| input - cotangents.iter().filter(|&&cotangent| cotangent < input).count();
        inputs.iter_mut().for_each(|input| *input = moved(*input));
        Ok(SavedValues { graph, inputs, ids: nodes.iter().map(|(id, _)| *id).collect() })
    }
}

impl Gradients {
    /// Builds the backward pass of a trace that was split.
    ///
    /// # Errors
    /// If the graph breaks an invariant.
    pub(super) fn build(
        joint_graph: Graph,
        halves: &Halves,
        calls: BackwardCalls,
        joint: &mut Joint,
        Inputs { n_given, n_all, cotangents, made }: Inputs<'_>,
        settings: &Settings,
    ) -> Result<Gradients> {
        let mut operands = vec![None; n_all];
        for (operand, gradient) in &joint.operands {
            operands[*operand] = Some(gradient.clone());
        }
        // Bases that several results are views of are no results themselves, so they usually get no gradient.
        let is_usual = |&output: &usize| output < joint.n_results || !calls.calls.is_empty();
        let has_cotangent = joint.differentiable.iter().map(is_usual).collect();
        let request = Request { has_cotangent, is_apart: false };
        let usual = Variant::build(&halves.backward, &calls, halves.kept.len(), &operands, &request, settings)?;
        let tape = match joint.tape.take() {
            Some((tape, nodes)) => Some((tape, SavedValues::of(&joint_graph, &halves.kept_nodes, &nodes, cotangents)?)),
            None => None,
        };
        Ok(Gradients {
            joint: joint_graph,
            backward: halves.backward.clone(),
            calls,
            kept: halves.kept.clone(),
            n_given,
            made: made.to_vec(),
            differentiable: joint.differentiable.clone(),
            operands,
            tape,
            settings: *settings,
            usual: (request, Arc::new(usual)),
            others: Mutex::new(Lru::new(MAX_VARIANTS)),
        })
    }

    /// The function and its gradients, as they were traced.
    pub(super) fn joint(&self) -> &Graph {
        &self.joint
    }

    /// The report of the usual variant.
    pub(super) fn explain(&self) -> Explain {
        let usual = &self.usual.1;
        match &usual.tuned {
            Some(tuned) => {
                let calls = usual.calls.as_ref().map_or_else(Vec::new, |calls| calls.explain());
                Explain { calls, ..tuned.explain() }
            }
            None => Explain::eager(crate::error::NotCaptured::ComputesNothing.into()),
        }
    }

    /// Records a run of the program with these inputs and outputs, before it writes to the inputs `written`.
    ///
    /// # Errors
    /// If the history of an input cannot be recomputed. If there is not enough memory.
    pub(super) fn record(
        self: &Arc<Gradients>,
        inputs: &[&Tensor],
        outputs: &[Tensor],
        written: &[usize],
    ) -> Result<History<'_>> {
        // The function saved what it had computed of an input before it wrote to it. Writes to inference tensors are
        // not counted, so it cannot have saved one of them.
        let value = |tensor: &Tensor, is_written: bool| match is_written || tensor.is_inference() {
            true => value_of(tensor),
            false => Ok(tensor.clone()),
        };
        let before = |index: usize| value(inputs[index], written.contains(&index));
        let kept = self.kept.iter().map(|kept| match *kept {
            Kept::Input(index) => before(index),
            Kept::Output(index) => value(&outputs[index], false),
        });
        let kept = kept.collect::<Result<SmallVec<[Tensor; 4]>>>()?;
        let read = self.reads().iter().map(|&index| before(index)).collect::<Result<SmallVec<[Tensor; 4]>>>()?;
        let results: SmallVec<[&Tensor; 2]> = self.differentiable.iter().map(|&at| &outputs[at]).collect();
        let recorded = record_program(self.clone(), inputs, &read, &kept, &results)?;
        for (index, result) in results.iter().enumerate() {
            recorded.give(result, index);
        }
        Ok(History { recorded, differentiable: &self.differentiable })
    }

    fn variant(&self, request: &Request) -> Result<Arc<Variant>> {
        if self.usual.0 == *request {
            return Ok(self.usual.1.clone());
        }
        let others = || self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = others().get(request) {
            return Ok(known.clone());
        }
        let built =
            Variant::build(&self.backward, &self.calls, self.kept.len(), &self.operands, request, &self.settings)?;
        let built = Arc::new(built);
        others().put(request.clone(), built.clone());
        Ok(built)
    }
}

/// A copy of the elements, with the same strides.
fn value_of(tensor: &Tensor) -> Result<Tensor> {
    let array = Array::new(tensor.device(), &tensor.ty())?;
    let attrs = Attrs::from_iter([Attr::DType(tensor.dtype())]);
    eager::run_into(Op::ToCopy, &[Argument { array: tensor.array(), number: false }], &attrs, &array)?;
    Ok(Tensor::from_array(array))
}

/// The history that a run of a program gives to its results.
pub(super) struct History<'a> {
    recorded: ProgramHistory,
    differentiable: &'a [usize],
}

impl History<'_> {
    /// Gives a result that was made anew the history of the output that it stands for.
    pub(super) fn give(&self, result: &Tensor, output: usize) {
        if let Some(index) = self.differentiable.iter().position(|&at| at == output) {
            self.recorded.give(result, index);
        }
    }
}

impl Variant {
    fn build(
        backward: &Graph,
        calls: &BackwardCalls,
        n_kept: usize,
        operands: &[Option<Gradient>],
        request: &Request,
        settings: &Settings,
    ) -> Result<Variant> {
        let mut wanted = backward.clone();
        let outputs = edges(operands, request.is_apart);
        wanted.set_outputs(outputs.iter().flatten().map(|&at| backward.outputs()[at]).collect());
        let is_whole = request.has_cotangent.iter().all(|has| *has);
        let (mut graph, found) = match calls.calls.is_empty() {
            true => without(&wanted, n_kept, request)?,
            false if is_whole => {
                let n_outputs = wanted.outputs().len();
                (wanted, (0..n_outputs).map(Some).collect())
            }
            // Such a backward pass runs on the tape, which a derivative of a user's has a copy of.
            false => {
                let what = "a result of a compiled function with a loop has no gradient; call the function itself";
                return Err(Error::NotImplemented { op: "compile".into(), what: what.into() });
            }
        };
        let mut found = found.into_iter();
        let places = outputs.iter().map(|output| output.and_then(|_| found.next().flatten())).collect();
        let places = as_flows(&mut graph, places, operands, request)?;
        let (calls, reads) = (calls.calls.clone(), calls.reads.clone());
        let n_made: usize = calls.iter().map(|call| call.results.len()).sum();
        let (graph, inputs) = match calls.is_empty() {
            true => extract(&graph, &[], graph.outputs())?,
            false => {
                let n_given = graph.inputs().len() - n_made;
                (graph, (0..n_given).collect())
            }
        };
        let (graph, calls) = Calls::cut(graph, calls, reads, settings)?;
        let tuned = match graph.outputs().is_empty() {
            true => None,
            false => Some(Tuned::build(graph, Subject::Backward, Vec::new(), settings)?),
        };
        Ok(Variant { tuned, calls, inputs, places })
    }
}

/// Gives zeros to inputs that gradients flow to, where `graph` computes none: a formula may make zeros without its
/// gradient. Takes back those of inputs that no gradient flows to.
fn as_flows(
    graph: &mut Graph,
    mut places: Vec<Option<usize>>,
    operands: &[Option<Gradient>],
    request: &Request,
) -> Result<Vec<Option<usize>>> {
    let mut outputs = graph.outputs().to_vec();
    let mut edges = places.iter_mut();
    for operand in operands {
        let n_edges = operand.as_ref().map_or(1, |gradient| gradient.parts.len().max(1));
        let mut own: SmallVec<[&mut Option<usize>; 4]> = edges.by_ref().take(n_edges).collect();
        let Some(Gradient { flows_from, ty, .. }) = operand else { continue };
        let flows = flows_from.iter().zip(&request.has_cotangent).any(|(flows, has)| *flows && *has);
        if !flows {
            own.iter_mut().for_each(|place| **place = None);
        } else if own.iter().all(|place| place.is_none()) {
            let attrs = Full { size: ints(&ty.sizes), fill_value: Scalar::Int(0), dtype: Some(ty.dtype) };
            outputs.push(graph.add(Op::Full, &[], attrs.into())?);
            *own[0] = Some(outputs.len() - 1);
        }
    }
    graph.set_outputs(outputs);
    Ok(places)
}

/// The gradient output for each edge of the recorded call: one edge per contribution. If sums are returned, only the
/// first edge of an input has one.
fn edges(operands: &[Option<Gradient>], is_apart: bool) -> Vec<Option<usize>> {
    let mut edges = Vec::new();
    for operand in operands {
        match operand {
            Some(Gradient { parts, .. }) if is_apart && !parts.is_empty() => edges.extend(parts.clone().map(Some)),
            Some(Gradient { sum, parts, .. }) => {
                edges.push(Some(*sum));
                edges.extend(parts.clone().skip(1).map(|_| None));
            }
            None => edges.push(None),
        }
    }
    edges
}

/// A graph whose inputs from `n_before` on are cotangents, without those that the request does not have.
fn without(graph: &Graph, n_before: usize, request: &Request) -> Result<(Graph, Vec<Option<usize>>)> {
    let is_cotangent = |index: usize| index >= n_before;
    let cotangents: Vec<bool> = (0..graph.inputs().len()).map(is_cotangent).collect();
    let is_omitted = |index: usize| is_cotangent(index) && !request.has_cotangent[index - n_before];
    let omitted: Vec<bool> = (0..graph.inputs().len()).map(is_omitted).collect();
    omit(graph, &cotangents, &omitted)
}

impl GradientProgram for Gradients {
    fn n_contributions(&self, operand: usize) -> usize {
        self.operands[operand].as_ref().map_or(1, |gradient| gradient.parts.len().max(1))
    }

    fn run(&self, request: &Request, kept: &KeptTensors<'_>, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let variant = self.variant(request)?;
        let Some(tuned) = &variant.tuned else { return Ok(vec![None; variant.places.len()]) };
        let read = |&input: &usize| match input.checked_sub(self.kept.len()) {
            Some(cotangent) => cotangents[cotangent].contiguous(),
            None => kept(input),
        };
        let mut read = variant.inputs.iter().map(read).collect::<Result<SmallVec<[Tensor; 8]>>>()?;
        if let Some(calls) = &variant.calls {
            let mut carried = Vec::new();
            for call in 0..calls.len() {
                let given: Vec<Cow<'_, Tensor>> = read.iter().map(Cow::Borrowed).collect();
                let made = calls.run(call, &given, &mut carried, &mut Tuned::run)?;
                read.extend(made);
            }
            read.extend(calls.carried.iter().map(|&value| carried[value].clone()));
        }
        let arrays: SmallVec<[&Array; 8]> = read.iter().map(Tensor::array).collect();
        let failed =
            |error: Error| located(error, &tuned.built().traced, &read.iter().collect::<SmallVec<[&Tensor; 8]>>());
        let results = tuned.run(&arrays).map_err(failed)?;
        let results: Vec<Tensor> = results.into_iter().map(Tensor::from_array).collect();
        Ok(variant.places.iter().map(|place| place.map(|at| results[at].clone())).collect())
    }

    fn lasts(&self, kept: usize) -> bool {
        matches!(self.kept[kept], Kept::Input(index) if index >= self.n_given && !self.made.contains(&index))
    }

    fn tape(&self) -> Option<&Tape> {
        self.tape.as_ref().map(|(tape, _)| tape)
    }

    fn reads(&self) -> &[usize] {
        self.tape.as_ref().map_or(&[], |(_, values)| &values.inputs)
    }

    fn saved_values(&self, kept: &[Tensor], inputs: &[Tensor]) -> Result<Values> {
        let Some((_, values)) = &self.tape else { return Ok(Values::new()) };
        let types = values.graph.inputs().iter().map(|&input| values.graph[input].ty.number);
        let as_traced = |(tensor, is_number): (&Tensor, bool)| match is_number && tensor.as_number().is_none() {
            true => Tensor::number(scalar_in(tensor)?),
            false => Ok(tensor.clone()),
        };
        let given: Vec<Tensor> = kept.iter().chain(inputs).zip(types).map(as_traced).collect::<Result<_>>()?;
        let device = given.first().map_or(Device::CPU, Tensor::device);
        let results = replay(&values.graph, &given, device)?;
        Ok(values.ids.iter().copied().zip(results).collect())
    }
}
