//! Programs that call operators which no graph describes: stages, and calls between them.
//!
//! A stage is an executable of its own. So nothing is locked while the kernel of a user runs, and the kernel may call
//! anything, compiled functions included. The last stage is the program's own executable. Calls are made in the order
//! of the function, also those whose results nothing uses. Random keys of the program are drawn in that order, too.

use super::explain::CallReport;
use super::failure::located;
use super::output_form::OutputForm;
use super::passes_page::Subject;
use super::separation::input_behind;
use super::tuning::{Settings, Tuned};
use crate::error::{NotCaptured, Result};
use crate::ir::passes::{StageInput, stages};
use crate::ir::{Graph, NodeId};
use crate::runtime::Array;
use crate::tensor::handle::Tensor;
use crate::transforms::tracer::OpaqueCall;
use smallvec::SmallVec;
use std::borrow::Cow;

/// The calls of a program, and what runs before each.
pub(super) struct Calls {
    /// The graph before it was cut.
    whole: Graph,
    calls: Vec<Called>,
    /// The carried values that the last stage takes after the inputs of the program.
    pub(super) carried: Vec<usize>,
    /// The inputs of the last stage that are memory of the run: results of calls, and values of earlier stages.
    pub(super) own: Vec<usize>,
}

struct Called {
    stage: Tuned,
    inputs: Vec<StageInput>,
    /// What the outputs of the stage are, and those of its graph are not.
    forms: SmallVec<[(usize, OutputForm); 1]>,
    call: OpaqueCall,
}

impl Calls {
    /// Cuts a graph at calls, which read these nodes. Returns the last stage.
    ///
    /// # Errors
    /// If the graph breaks an invariant.
    pub(super) fn cut(
        graph: Graph,
        calls: Vec<OpaqueCall>,
        reads: Vec<Vec<NodeId>>,
        settings: &Settings,
    ) -> Result<(Graph, Option<Box<Calls>>)> {
        if calls.is_empty() {
            return Ok((graph, None));
        }
        let cut = stages(&graph, &reads)?;
        let mut own: Vec<usize> = calls.iter().flat_map(|call| call.results.iter().copied()).collect();
        // Whether each carried value has memory that nothing else has.
        let mut has_own_memory: Vec<bool> = Vec::new();
        let mut called = Vec::with_capacity(calls.len());
        for (stage, call) in cut.before.into_iter().zip(calls) {
            let outputs = stage.graph.outputs().iter().map(|&output| &stage.graph[output].ty);
            let types: Vec<_> = outputs.cloned().collect();
            let n_reads = call.reads.len();
            // A number is one for the call alone.
            let numbers: Vec<bool> = types.iter().enumerate().map(|(at, ty)| ty.number && at < n_reads).collect();
            let strides: Vec<_> = types.into_iter().map(|ty| ty.strides).collect();
            let strides: Vec<_> = call.strides.iter().cloned().chain(strides.into_iter().skip(n_reads)).collect();
            let stage_inputs = stage.inputs;
            let tuned = Tuned::build(stage.graph, Subject::Function, Vec::new(), settings)?;
            let built = &tuned.built().graph;
            let roots: Vec<NodeId> = built.outputs().iter().map(|&output| built.view_base(output)).collect();
            for (at, &output) in built.outputs().iter().enumerate().skip(n_reads) {
                let is_alone = !roots[n_reads..]
                    .iter()
                    .enumerate()
                    .any(|(other, root)| other + n_reads != at && *root == roots[at]);
                has_own_memory.push(is_alone && input_behind(built, output).is_none());
            }
            let forms = OutputForm::of_all(built, &numbers, &strides);
            called.push(Called { stage: tuned, inputs: stage_inputs, forms, call });
        }
        let n_inputs = graph.inputs().len();
        let taken = cut.carried.iter().enumerate().filter(|(_, value)| has_own_memory[**value]);
        own.extend(taken.map(|(at, _)| n_inputs + at));
        Ok((cut.last, Some(Box::new(Calls { whole: graph, calls: called, carried: cut.carried, own }))))
    }

    /// How many calls there are.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether an input of the last stage is a carried value that may lie in memory of an input of the program.
    pub(super) fn may_be_an_input(&self, input: usize) -> bool {
        input >= self.whole.inputs().len() && !self.own.contains(&input)
    }

    /// The graph before it was cut.
    pub(super) fn whole(&self) -> &Graph {
        &self.whole
    }

    /// Whether these are the calls of a trace.
    pub(super) fn are(&self, traced: &[OpaqueCall]) -> bool {
        self.calls.len() == traced.len() && self.calls.iter().zip(traced).all(|(one, other)| one.call.is_same(other))
    }

    /// Why the program must not run any more, if a call was other than declared.
    pub(super) fn refusal(&self) -> Option<NotCaptured> {
        self.calls.iter().find_map(|called| called.call.refusal().cloned())
    }

    /// Runs the stage before a call, and the call. `inputs` are those of the program so far. Values for later stages
    /// are added to `carried`.
    ///
    /// # Errors
    /// If a value is out of range, if there is not enough memory, or if the kernel fails.
    pub(super) fn run(
        &self,
        call: usize,
        inputs: &[Cow<'_, Tensor>],
        carried: &mut Vec<Tensor>,
        run: &mut impl FnMut(&Tuned, &[&Array]) -> Result<SmallVec<[Array; 2]>>,
    ) -> Result<Vec<Tensor>> {
        let Called { stage, inputs: sources, forms, call } = &self.calls[call];
        let results = {
            let given = sources.iter().map(|source| match *source {
                StageInput::Input(input) => &*inputs[input],
                StageInput::Carried(value) => &carried[value],
            });
            let given: SmallVec<[&Tensor; 8]> = given.collect();
            let arrays: SmallVec<[&Array; 8]> = given.iter().map(|tensor| tensor.array()).collect();
            run(stage, &arrays).map_err(|error| located(error, &stage.built().traced, &given))?
        };
        let mut results: Vec<Tensor> = results.into_iter().map(Tensor::from_array).collect();
        for (output, form) in forms {
            results[*output] = form.give(&results[*output])?;
        }
        let new = results.split_off(call.reads.len());
        carried.extend(new);
        call.run(&results)
    }

    /// The report of each call.
    pub(super) fn explain(&self) -> Vec<CallReport> {
        let report = |called: &Called| CallReport {
            operator: called.call.name(),
            results: called.call.types().to_vec(),
            place: called.call.place.clone(),
            reason: called.call.reason().into(),
            ops: called.call.body().ops,
            kernels: called.call.body().kernels,
            before: Box::new(called.stage.explain()),
        };
        self.calls.iter().map(report).collect()
    }
}
