//! Programs: what runs instead of a captured function.
//!
//! A program is an executable with more inputs and outputs than the function has. They are lifted tensors, random keys,
//! values to copy back, gradients to add, and the tensors that its backward pass reads. The backward pass is compiled
//! too; see [`Gradients`].

use super::calls::Calls;
use super::copies::{Writes, copies};
use super::explain::Explain;
use super::failure::located;
use super::gradients::{BackwardCalls, Gradient, Gradients, Inputs};
use super::numbers::are_alike;
use super::output_form::OutputForm;
use super::passes_page::Subject;
use super::separation::{Separation, input_behind};
use super::tuning::{Settings, Tuned};
use crate::autograd::{Tape, is_unrecorded_view};
use crate::device::Shared;
use crate::dispatch::key::grad_mode::no_grad;
use crate::error::{Error, NotCaptured, Result};
use crate::fusion::Rewritten;
use crate::ir::passes::{Halves, Kept, split};
use crate::ir::{Graph, NodeId};
use crate::runtime::Array;
use crate::tensor::handle::Tensor;
use crate::tensor::ids::Mark;
use crate::tensor::structure::{Flat, Tensors, Words};
use crate::transforms::tracer::checks_come_before;
use crate::transforms::tracer::{Condition, Outside, Property};
use crate::transforms::tracer::{Draws, GradientChange, Lifted, NewGradient, Owner, Trace};
use crate::transforms::tracer::{OpaqueCall, Origin, OutputAlias};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// The structure of a trace: its results, and the positions of its gradients.
pub(super) struct Joint {
    /// The positions of the function's outputs that require gradients.
    pub(super) differentiable: Vec<usize>,
    /// The number of the function's outputs, including the bases that several of them share.
    pub(super) n_outputs: usize,
    /// The number of the function's results.
    pub(super) n_results: usize,
    /// The words of the function's result.
    pub(super) words: Words,
    /// The inputs that get gradients, by position.
    pub(super) operands: Vec<(usize, Gradient)>,
    /// The number of outputs that are gradients or contributions to them. They follow the function's outputs.
    pub(super) n_gradients: usize,
    /// The tape of the trace, with the nodes of the values that it saved, by tensor id.
    pub(super) tape: Option<(Tape, Vec<(u64, NodeId)>)>,
}

/// A compiled graph that runs instead of a function.
pub(super) struct Program {
    tuned: Tuned,
    /// The calls that no graph contains.
    calls: Option<Box<Calls>>,
    lifted: Vec<Lifted>,
    written: Vec<usize>,
    /// How often the function writes to each of them.
    n_writes: Vec<u64>,
    changes: Vec<GradientChange>,
    /// Captured tensors, and whether they require gradients. This is the most frequent condition.
    flows: Vec<(Tensor, bool)>,
    /// All other conditions.
    conditions: Vec<Condition>,
    /// Whether a lifted input is the gradient of a tensor before the call.
    reads_gradients: bool,
    aliases: Vec<OutputAlias>,
    separation: Separation,
    n_outputs: usize,
    /// What outputs of the function are, and outputs of the graph are not.
    forms: SmallVec<[(usize, OutputForm); 1]>,
    /// The outputs that are inference tensors where the mode of the call makes none, or the other way round.
    inference: Vec<usize>,
    n_results: usize,
    words: Words,
    gradients: Option<Arc<Gradients>>,
    /// Whether the inputs and outputs of the graph are exactly those of the function, without side effects.
    is_plain: bool,
}

impl Program {
    /// Builds the program of a trace. `joint` has the positions of the gradients.
    ///
    /// # Errors
    /// If the graph breaks an invariant, or cannot be split into a forward and a backward graph.
    pub(super) fn build(trace: Trace, mut joint: Joint, settings: &Settings) -> Result<Program> {
        let Trace {
            graph,
            mut lifted,
            calls,
            backward_calls,
            mut written,
            n_writes,
            mut gradients,
            conditions,
            mut aliases,
            mut owners,
            strides,
            mut inference,
            has_repeats,
            numbers: _,
            kept: _,
        } = trace;
        let (flows, conditions) = Condition::split_requires_grad(conditions);
        let reads_gradients = lifted.iter().any(|lifted| matches!(lifted, Lifted::Gradient(..)));
        // Gradients follow the function's outputs. They are never rebuilt as aliases.
        aliases.retain(|alias| alias.output < joint.n_outputs);
        let n_given = graph.inputs().len() - lifted.len();
        let outputs = graph.outputs().iter().take(joint.n_outputs);
        let numbers: Vec<bool> = outputs.map(|&node| graph[node].ty.number).collect();
        let forms = |built: &Graph| OutputForm::of_all(built, &numbers, &strides);
        if joint.differentiable.is_empty() {
            let (n_outputs, n_results) = (joint.n_outputs, joint.n_results);
            // Nothing is written in place where an input is given twice: the other one is read in the same run. Nor
            // where a call may fail.
            let rewritten = match has_repeats || !calls.is_empty() {
                true => Vec::new(),
                false => rewritten(&graph, n_outputs, &written, &aliases),
            };
            let reads = calls.iter().map(|call| call.reads.clone()).collect();
            let (graph, calls) = Calls::cut(graph, calls, reads, settings)?;
            let tuned = Tuned::build(graph, Subject::Function, rewritten, settings)?;
            let separation =
                separation(&tuned.built().graph, &owners[..n_outputs], &aliases, &written, calls.as_deref());
            let changes = gradients;
            let (words, gradients) = (joint.words, None);
            let does_more = !(lifted.is_empty() && written.is_empty() && changes.is_empty() && aliases.is_empty());
            let forms = forms(&tuned.built().graph);
            let returns_all =
                forms.is_empty() && inference.is_empty() && tuned.built().graph.outputs().len() == n_outputs;
            let is_plain = !does_more && separation.is_empty() && returns_all;
            return Ok(Program {
                tuned,
                calls,
                lifted,
                written,
                n_writes,
                changes,
                flows,
                conditions,
                reads_gradients,
                aliases,
                separation,
                n_outputs,
                forms,
                inference,
                n_results,
                words,
                gradients,
                is_plain,
            });
        }
        let is_cotangent = |(_, lifted): &(usize, &Lifted)| matches!(lifted, Lifted::Declared);
        let cotangents: Vec<usize> =
            lifted.iter().enumerate().filter(is_cotangent).map(|(index, _)| n_given + index).collect();
        let n_made: usize = backward_calls.iter().map(|call| call.results.len()).sum();
        if cotangents.len() != joint.differentiable.len() + n_made {
            return Err(Error::invalid("trace", "not every result that requires gradients has a cotangent"));
        }
        lifted.retain(|lifted| !matches!(lifted, Lifted::Declared));
        let n_inputs = n_given + lifted.len();
        // A user's derivative may have lifted tensors after the cotangents.
        let moved = |input: usize| input - cotangents.iter().filter(|&&cotangent| cotangent < input).count();
        written.iter_mut().for_each(|input| *input = moved(*input));
        for owner in &mut owners {
            if let Owner::Input(input) = owner {
                *input = moved(*input);
            }
        }
        for alias in &mut aliases {
            if let Origin::Input(input) = &mut alias.origin {
                *input = moved(*input);
            }
        }
        let outputs = joint.n_outputs..joint.n_outputs + joint.n_gradients;
        let made: Vec<usize> = calls.iter().flat_map(|call| call.results.iter().copied()).collect();
        let (mut halves, reads, backward_reads) = halves(&graph, &cotangents, outputs, &calls, &backward_calls)?;
        let backward_calls = BackwardCalls::of(backward_calls, backward_reads, halves.kept.len(), &cotangents);
        let (forward, calls) = Calls::cut(std::mem::take(&mut halves.forward), calls, reads, settings)?;
        for change in &mut gradients {
            match &mut change.to {
                NewGradient::Output(output) if *output >= joint.n_outputs => *output -= joint.n_gradients,
                NewGradient::Input(input) => *input = moved(*input),
                NewGradient::Output(_) | NewGradient::Nothing => {}
            }
        }
        inference
            .iter_mut()
            .filter(|output| **output >= joint.n_outputs)
            .for_each(|output| *output -= joint.n_gradients);
        let inputs = Inputs { n_given, n_all: n_inputs, cotangents: &cotangents, made: &made };
        let own = Gradients::build(graph, &halves, backward_calls, &mut joint, inputs, settings)?;
        let tuned = Tuned::build(forward, Subject::Function, Vec::new(), settings)?;
        let forms = forms(&tuned.built().graph);
        Ok(Program {
            separation: separation(
                &tuned.built().graph,
                &owners[..joint.n_outputs],
                &aliases,
                &written,
                calls.as_deref(),
            ),
            tuned,
            calls,
            lifted,
            written,
            n_writes,
            changes: gradients,
            flows,
            conditions,
            reads_gradients,
            aliases,
            n_outputs: joint.n_outputs,
            forms,
            inference,
            n_results: joint.n_results,
            words: joint.words,
            gradients: Some(Arc::new(own)),
            is_plain: false,
        })
    }

    /// Whether the conditions hold for these inputs.
    #[inline]
    pub(super) fn holds(&self, inputs: &[&Tensor]) -> bool {
        self.flows.iter().all(|(tensor, flows)| tensor.may_require_grad() == *flows)
            && (self.conditions.is_empty() || self.conditions.iter().all(|condition| condition.holds(inputs)))
            && (!self.reads_gradients || self.lifted.iter().all(|lifted| lifted.holds(inputs)))
    }

    /// The first condition that does not hold, in words.
    pub(super) fn violation(&self, inputs: &[&Tensor]) -> Option<String> {
        if let Some((tensor, flows)) = self.flows.iter().find(|(tensor, flows)| tensor.may_require_grad() != *flows) {
            return Some(Condition::Is(Property::RequiresGrad, Outside::Captured(tensor.clone()), *flows).to_string());
        }
        let condition = self.conditions.iter().find(|condition| !condition.holds(inputs)).map(ToString::to_string);
        condition.or_else(|| {
            let gradient = self.lifted.iter().find(|lifted| !lifted.holds(inputs))?;
            let Lifted::Gradient(of, ty) = gradient else { return None };
            Some(format!("{of} has a gradient {ty}"))
        })
    }

    /// Why the program must not run on these inputs, if it must not.
    ///
    /// - A written input shares elements with another input. The graph would not see the write in the other input.
    /// - An eager call would refuse the write, because of where the input comes from.
    pub(super) fn refuses(&self, inputs: &[&Tensor]) -> Option<NotCaptured> {
        if let Some(refusal) = self.calls.as_ref().and_then(|calls| calls.refusal()) {
            return Some(refusal);
        }
        if self.written.is_empty() {
            return None;
        }
        match () {
            () if self.has_aliased_writes(inputs) => Some(NotCaptured::WrittenInputShared),
            () if self.written.iter().filter_map(|&index| inputs.get(index)).any(|input| is_unrecorded_view(input)) => {
                Some(NotCaptured::WrittenViewUnrecorded)
            }
            () => None,
        }
    }

    fn has_aliased_writes(&self, inputs: &[&Tensor]) -> bool {
        let lifted = self.lifted.iter().map(|lifted| match lifted {
            Lifted::Tensor(tensor) => Some(Cow::Borrowed(tensor)),
            Lifted::Gradient(..) => lifted.tensor(inputs).ok(),
            Lifted::Number(_) | Lifted::Draw { .. } | Lifted::Declared | Lifted::Result { .. } => None,
        });
        let lifted: SmallVec<[Option<Cow<'_, Tensor>>; 4]> = lifted.collect();
        let all = inputs.iter().copied().map(Some).chain(lifted.iter().map(Option::as_deref)).enumerate();
        // By storage, so that tensors of one storage are neighbours: there may be thousands of inputs.
        let mut stored: SmallVec<[(usize, usize, &Tensor); 8]> = all
            .filter_map(|(index, tensor)| tensor.filter(|tensor| tensor.numel() > 0).map(|tensor| (index, tensor)))
            .map(|(index, tensor)| (tensor.storage_address(), index, tensor))
            .collect();
        stored.sort_unstable_by_key(|&(address, index, _)| (address, index));
        stored.chunk_by(|(one, ..), (other, ..)| one == other).filter(|group| group.len() > 1).any(|group| {
            let written = group.iter().filter(|(_, index, _)| self.written.contains(index));
            written.into_iter().any(|&(_, written, target)| {
                // The guard says which inputs are the same tensor, so the function knew.
                let is_repeat =
                    |index: usize, other: &Tensor| index.max(written) < inputs.len() && other.is_handle_of(target);
                group.iter().any(|&(_, index, other)| index != written && !is_repeat(index, other))
            })
        })
    }

    /// The lifted inputs.
    pub(super) fn lifted(&self) -> &[Lifted] {
        &self.lifted
    }

    /// Whether the function may have written or drawn before it found a value out of range. A program that fails has
    /// done nothing, so the function can run then.
    pub(super) fn has_effects(&self) -> bool {
        let draws = || self.lifted.iter().any(|lifted| matches!(lifted, Lifted::Draw { .. }));
        !(self.written.is_empty() && self.changes.is_empty()) || draws() || self.is_refused()
    }

    /// Whether a call was other than declared, so that the program must not run any more.
    fn is_refused(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.refusal().is_some())
    }

    /// Whether the program makes calls that no graph contains.
    pub(super) fn makes_calls(&self) -> bool {
        self.calls.is_some()
    }

    /// The traced graph.
    fn traced(&self) -> &Graph {
        match (&self.gradients, &self.calls) {
            (Some(gradients), _) => gradients.joint(),
            (None, Some(calls)) => calls.whole(),
            (None, None) => &self.tuned.built().traced,
        }
    }

    /// Whether these are the calls of the program.
    fn are_calls(&self, traced: &[OpaqueCall]) -> bool {
        self.calls.as_ref().map_or(traced.is_empty(), |calls| calls.are(traced))
    }

    /// Takes back the draws of a run that failed, whose lifted inputs these are.
    fn take_back_draws(&self, lifted: &[Cow<'_, Tensor>]) {
        let is_draw = |(one, _): &(&Lifted, &Cow<'_, Tensor>)| matches!(one, Lifted::Draw { .. });
        let keys = self.lifted.iter().zip(lifted).filter(is_draw).map(|(_, key)| &**key);
        Draws::of(&self.lifted, keys).take_back();
    }

    /// Whether a second trace equals that of this program: the same calls on the same tensors, with the same structure
    /// of the result.
    pub(super) fn is_of(&self, trace: &Trace, joint: &Joint) -> bool {
        // Cotangents are declared inputs, which a program does not keep.
        let lifted = trace.lifted.iter().filter(|lifted| !matches!(lifted, Lifted::Declared));
        *self.traced() == trace.graph
            && self.are_calls(&trace.calls)
            && self.written == trace.written
            && self.words == joint.words
            && lifted.clone().count() == self.lifted.len()
            && lifted.zip(&self.lifted).all(|(one, other)| one.is_same(other))
    }

    /// Whether a trace with other plain numbers has the same graph and fitting inputs. The trace was made after
    /// `start`.
    pub(super) fn is_of_numbers(&self, trace: &Trace, start: &Mark) -> bool {
        are_alike(&self.lifted, &trace.lifted, start) && *self.traced() == trace.graph && self.are_calls(&trace.calls)
    }

    /// The report of the program, with that of its backward pass.
    pub(super) fn explain(&self) -> Explain {
        let backward = self.gradients.as_ref().map(|gradients| Box::new(gradients.explain()));
        let calls = self.calls.as_ref().map_or_else(Vec::new, |calls| calls.explain());
        let writes = Writes { inputs: &self.written, first: self.n_outputs };
        let copies = copies(self.tuned.built(), &self.separation, writes);
        Explain { backward, calls, ..self.tuned.explain() }.with_copies(copies)
    }

    /// Runs the program and returns the flattened result. The inputs must have no aliased writes. `keys` are random
    /// keys that were drawn already. The others are drawn now.
    ///
    /// # Errors
    /// If there is not enough memory, if an index is out of range, or if an input cannot be written to.
    pub(super) fn run(&self, inputs: &[&Tensor], keys: &[Tensor]) -> Result<Flat> {
        self.run_by(inputs, keys, &self.lifted, Tuned::run)
    }

    /// Like [`Program::run`], with the lifted inputs of another trace that fits.
    pub(super) fn run_with(&self, inputs: &[&Tensor], lifted: &[Lifted]) -> Result<Flat> {
        self.run_by(inputs, &[], lifted, Tuned::run)
    }

    /// Like [`Program::run`] with these lifted inputs, where `run` runs the executable.
    #[inline]
    pub(super) fn run_by(
        &self,
        inputs: &[&Tensor],
        keys: &[Tensor],
        from: &[Lifted],
        mut run: impl FnMut(&Tuned, &[&Array]) -> Result<SmallVec<[Array; 2]>>,
    ) -> Result<Flat> {
        if self.is_plain {
            // Pushed one by one, here and below: `extend` is a call, which matters for small graphs.
            let mut arrays: SmallVec<[&Array; 8]> = SmallVec::new();
            for tensor in inputs {
                arrays.push(tensor.array());
            }
            let results = run(&self.tuned, &arrays).map_err(|error| self.located(error, inputs))?;
            return Ok(Flat { tensors: tensors_of(results), words: self.words() });
        }
        let mut lifted: SmallVec<[Cow<'_, Tensor>; 4]> = SmallVec::new();
        let mut keys = keys.iter();
        let (mut made, mut carried) = (Vec::new().into_iter(), Vec::new());
        for one in from {
            if let (Lifted::Result { call, result }, Some(calls)) = (one, &self.calls) {
                if *result == 0 {
                    let given: Vec<Cow<'_, Tensor>> =
                        inputs.iter().map(|&input| Cow::Borrowed(input)).chain(lifted.iter().cloned()).collect();
                    let results = calls.run(*call, &given, &mut carried, &mut run);
                    made = results.inspect_err(|_| self.take_back_draws(&lifted))?.into_iter();
                }
                lifted.extend(made.next().map(Cow::Owned));
                continue;
            }
            let drawn = if let Lifted::Draw { .. } = one { keys.next() } else { None };
            lifted.push(drawn.map_or_else(|| one.tensor(inputs), |key| Ok(Cow::Borrowed(key)))?);
        }
        let mut all: SmallVec<[&Tensor; 8]> = SmallVec::from_slice(inputs);
        for tensor in &lifted {
            all.push(tensor);
        }
        let n_all = all.len();
        if let Some(calls) = &self.calls {
            all.extend(calls.carried.iter().map(|&value| &carried[value]));
        }
        let mut arrays: SmallVec<[&Array; 8]> = SmallVec::new();
        for tensor in &all {
            arrays.push(tensor.array());
        }
        let checked = self.written.iter().try_for_each(|&input| all[input].check_write());
        let mut run = || run(&self.tuned, &arrays).map_err(|error| self.located(error, &all));
        let ran = checked.and_then(|()| run());
        all.truncate(n_all);
        let mut results = ran.inspect_err(|_| self.take_back_draws(&lifted))?;
        self.separation.apply(&mut results)?;
        let mut results = tensors_of(results);
        for (output, form) in &self.forms {
            results[*output] = form.give(&results[*output])?;
        }
        for &output in &self.inference {
            results[output] = results[output].with_other_inference();
        }
        let history = match &self.gradients {
            Some(gradients) => Some(gradients.record(&all, &results, &self.written)?),
            None => None,
        };
        self.write(inputs, &all, &results)?;
        for alias in &self.aliases {
            let origin = match alias.origin {
                Origin::Input(input) => all[input],
                Origin::Output(output) => &results[output],
            };
            results[alias.output] = alias.made_of(origin)?;
            if let Some(history) = &history {
                history.give(&results[alias.output], alias.output);
            }
        }
        results.truncate(self.n_results);
        Ok(Flat { tensors: results, words: self.words() })
    }

    /// An error of the executable on these inputs, with the place of the call that failed.
    #[cold]
    fn located(&self, error: Error, inputs: &[&Tensor]) -> Error {
        located(error, &self.tuned.built().traced, inputs)
    }

    fn words(&self) -> Words {
        self.words.clone()
    }

    /// The side effects of a run.
    fn write(&self, inputs: &[&Tensor], all: &[&Tensor], results: &[Tensor]) -> Result<()> {
        if self.written.is_empty() && self.changes.is_empty() {
            return Ok(());
        }
        // Writes whose values have a history are not captured, so none is recorded here.
        let _unrecorded = no_grad();
        for ((&input, &times), value) in self.written.iter().zip(&self.n_writes).zip(&results[self.n_outputs..]) {
            let is_there = Shared::ptr_eq(all[input].array().storage(), value.array().storage())
                && all[input].array().layout() == value.array().layout();
            // If the executable wrote in place, only the version remains to be changed.
            if !is_there {
                all[input].with_own_version().copy_(value)?;
            }
            all[input].note_writes(times);
        }
        for change in &self.changes {
            let value = match change.to {
                NewGradient::Nothing => None,
                NewGradient::Output(output) => Some(&results[output]),
                NewGradient::Input(input) => Some(all[input]),
            };
            change.of.of(inputs).set_grad(value)?;
        }
        Ok(())
    }
}

/// Splits a graph. Also returns the nodes of the forward half that each call reads, and those of the backward half that
/// each of its calls reads.
#[allow(clippy::type_complexity, reason = "two lists of lists")]
fn halves(
    graph: &Graph,
    cotangents: &[usize],
    gradients: Range<usize>,
    calls: &[OpaqueCall],
    backward_calls: &[OpaqueCall],
) -> Result<(Halves, Vec<Vec<NodeId>>, Vec<Vec<NodeId>>)> {
    if calls.is_empty() && backward_calls.is_empty() {
        return Ok((split(graph, cotangents, gradients)?, Vec::new(), Vec::new()));
    }
    let reads_of = |calls: &[OpaqueCall]| calls.iter().flat_map(|call| call.reads.clone()).collect::<Vec<_>>();
    let by_call = |calls: &[OpaqueCall], reads: &[NodeId]| {
        let mut rest = reads.iter().copied();
        calls.iter().map(|call| rest.by_ref().take(call.reads.len()).collect()).collect::<Vec<Vec<_>>>()
    };
    // What calls read is an output of its half, until it is known.
    let (own, backward) = (reads_of(calls), reads_of(backward_calls));
    let (before, after) = graph.outputs().split_at(gradients.end);
    let mut with_reads = graph.clone();
    with_reads.set_outputs([before, &backward, after, &own].concat());
    let (n_gradients, first) = (gradients.len(), graph.outputs().len() - gradients.len());
    let mut halves = split(&with_reads, cotangents, gradients.start..gradients.end + backward.len())?;
    let mut outputs = halves.forward.outputs().to_vec();
    let reads: Vec<NodeId> = outputs.drain(first..first + own.len()).collect();
    halves.forward.set_outputs(outputs);
    for kept in &mut halves.kept {
        if let Kept::Output(output) = kept {
            *output -= own.len();
        }
    }
    let mut outputs = halves.backward.outputs().to_vec();
    let backward_reads = outputs.split_off(n_gradients);
    halves.backward.set_outputs(outputs);
    Ok((halves, by_call(calls, &reads), by_call(backward_calls, &backward_reads)))
}

fn tensors_of(arrays: SmallVec<[Array; 2]>) -> Tensors {
    let mut tensors = Tensors::new();
    for array in arrays {
        tensors.push(Tensor::from_array(array));
    }
    tensors
}

/// The inputs that are overwritten after each run, in place where that pays. None if there is a backward pass, which
/// may read their old values. None that could be overwritten before a value is found out of range.
fn rewritten(graph: &Graph, n_outputs: usize, written: &[usize], aliases: &[OutputAlias]) -> Vec<Rewritten> {
    let is_last = |&(index, _): &(usize, &usize)| checks_come_before(graph, graph.outputs()[n_outputs + index]);
    let of = |(index, &input): (usize, &usize)| {
        let ignored =
            aliases.iter().filter(|alias| alias.origin == Origin::Input(input)).map(|alias| alias.output).collect();
        Rewritten { input, output: n_outputs + index, ignored }
    };
    written.iter().enumerate().filter(is_last).map(of).collect()
}

/// The copies that keep outputs of `graph` apart as in the function, and that keep writes in order.
fn separation(
    graph: &Graph,
    owners: &[Owner],
    aliases: &[OutputAlias],
    written: &[usize],
    calls: Option<&Calls>,
) -> Separation {
    let mut owners = owners.to_vec();
    for alias in aliases {
        owners[alias.output] = Owner::Anyone;
    }
    for (output, &node) in graph.outputs().iter().enumerate().skip(owners.len()) {
        // The new value of an input may be the old value of another one, which is overwritten first.
        let may_be = |input: usize| calls.is_some_and(|calls| calls.may_be_an_input(input));
        let old = input_behind(graph, node).is_some_and(|input| written.contains(&input) || may_be(input));
        let is_write = output - owners.len() < written.len();
        owners.push(if is_write && !old { Owner::Anyone } else { Owner::Output(output) });
    }
    Separation::of(graph, &owners, calls.map_or(&[], |calls| &calls.own))
}
