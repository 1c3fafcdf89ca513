//! Recorded calls of compiled functions, whose backward pass is compiled too.

use crate::autograd::engine::{Options, contributions_at};
use crate::autograd::meta::gradient_edge;
use crate::autograd::node::{Backward, BackwardCall, Edge, Expanded, Node, ResultType, reserve};
use crate::autograd::row::freed;
use crate::autograd::saved::Saved;
use crate::autograd::tape::{CallSet, Tape};
use crate::dispatch::key::grad_mode::{is_grad_enabled, no_grad};
use crate::error::{Error, Result};
use crate::tensor::handle::Tensor;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The gradients that a backward pass brings, and how it wants those of the operands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    /// Whether each differentiable result has a gradient.
    pub(crate) has_cotangent: SmallVec<[bool; 4]>,
    /// Whether the contributions to a gradient are returned one by one.
    pub(crate) is_apart: bool,
}

/// The kept tensor at a position.
pub(crate) type KeptTensors<'a> = dyn Fn(usize) -> Result<Tensor> + 'a;

/// Values that a tape saved, by tensor id.
pub(crate) type Values = HashMap<u64, Tensor>;

/// The backward pass of a compiled function.
///
/// Gradients are returned by edge. An operand has as many edges as there are contributions to its gradient. If sums are
/// returned, the first edge of an operand has the sum.
pub(crate) trait GradientProgram: Send + Sync {
    /// The number of edges to an operand.
    fn n_contributions(&self, operand: usize) -> usize;

    /// The gradients of the operands from the cotangents that there are, row-major, and from those kept tensors that
    /// `kept` is asked for by position.
    fn run(&self, request: &Request, kept: &KeptTensors<'_>, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>>;

    /// Whether the kept tensor at a position is one that the program holds anyway: a captured tensor.
    fn lasts(&self, kept: usize) -> bool;

    /// The tape of the function, for backward passes that are recorded. `None` if it cannot be copied.
    fn tape(&self) -> Option<&Tape>;

    /// The positions of the operands that [`GradientProgram::saved_values`] takes.
    fn reads(&self) -> &[usize];

    /// The values that the tape saved, from the kept tensors and from operands.
    fn saved_values(&self, kept: &[Tensor], operands: &[Tensor]) -> Result<Values>;
}

struct ProgramBackward {
    program: Arc<dyn GradientProgram>,
    /// The number of operands.
    n_operands: usize,
    saved: Mutex<SavedTensors>,
    /// The number of the first call of the tape.
    first: u64,
    expanded: OnceLock<Expanded>,
}

/// What a program saved.
///
/// A backward pass frees what the recorded calls have saved that it runs through, and nothing else. So the tensors are
/// dropped when a gradient of each result would run through a freed call. A derivative of a user may read captured
/// tensors without saving any, and run again, so these stay.
struct SavedTensors {
    /// The operands that the tape needs.
    read: Vec<Option<Saved>>,
    /// The kept tensors.
    kept: Vec<Option<Saved>>,
    /// The calls that the last backward pass ran through.
    passed: CallSet,
    /// The calls of the tape whose values were freed.
    freed: CallSet,
}

impl SavedTensors {
    /// Takes all values away, except plain numbers, which are never freed, and the kept tensors that last.
    fn drop_all(&mut self, lasts: impl Fn(usize) -> bool) {
        let kept = self.kept.iter_mut().enumerate().filter(|(at, _)| !lasts(*at)).map(|(_, saved)| saved);
        for saved in self.read.iter_mut().chain(kept) {
            saved.take_if(|saved| !saved.is_number());
        }
    }
}

/// The recorded run of a program.
pub(crate) struct ProgramHistory(Arc<Node>);

impl ProgramHistory {
    /// Gives a tensor the history of the differentiable result at position `index`.
    pub(crate) fn give(&self, tensor: &Tensor, index: usize) {
        tensor.set_edge(Edge::new(self.0.clone(), index));
    }
}

/// Records a program that ran on `operands`, read `read` of them and kept `kept`, and returned the differentiable
/// results `results`.
pub(crate) fn record_program(
    program: Arc<dyn GradientProgram>,
    operands: &[&Tensor],
    read: &[Tensor],
    kept: &[Tensor],
    results: &[&Tensor],
) -> Result<ProgramHistory> {
    let mut edges: SmallVec<[Option<Edge>; 2]> = SmallVec::new();
    for (index, operand) in operands.iter().enumerate() {
        let edge = gradient_edge(operand)?;
        edges.extend(std::iter::repeat_n(edge, program.n_contributions(index)));
    }
    let n_operands = operands.len();
    let save =
        |tensors: &[Tensor]| tensors.iter().map(|tensor| Saved::operand(tensor).map(Some)).collect::<Result<_>>();
    let (read, kept) = (save(read)?, save(kept)?);
    // In other backward passes, too, the calls of the tape come right before this one.
    let n_calls = program.tape().map_or(0, Tape::n_calls);
    let first = reserve(n_calls + 1);
    let saved = Mutex::new(SavedTensors { read, kept, passed: CallSet::default(), freed: CallSet::default() });
    let function = ProgramBackward { program, n_operands, saved, first, expanded: OnceLock::new() };
    let results = results.iter().map(|result| ResultType::of(result)).collect();
    Ok(ProgramHistory(Node::numbered(first + n_calls as u64, Box::new(function), edges, results)))
}

impl ProgramBackward {
    /// Whether a gradient has arrived before those of this call, where this call contributes several times.
    fn is_late(&self, call: &BackwardCall<'_>) -> bool {
        let mut edge = 0;
        (0..self.n_operands).any(|operand| {
            let (first, count) = (edge, self.program.n_contributions(operand));
            edge += count;
            count > 1 && call.node.next[first].as_ref().is_some_and(|edge| (call.has_arrived)(edge))
        })
    }
}

impl ProgramBackward {
    fn saved(&self) -> MutexGuard<'_, SavedTensors> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A saved value, unless it was freed or written to.
    fn unpack(&self, saved: &Option<Saved>, call: &BackwardCall<'_>) -> Result<Tensor> {
        saved.as_ref().ok_or_else(|| freed(&self.name()))?.unpack(call.node)
    }

    /// Notes that a backward pass with these gradients of results runs.
    ///
    /// # Errors
    /// If an earlier one freed what a recorded call had saved that this one runs through.
    fn pass(&self, gradients: &[Option<Tensor>]) -> Result<()> {
        let Some(tape) = self.program.tape() else { return Ok(()) };
        let mut passed = CallSet::default();
        let has_gradient = |result: &usize| gradients.get(*result).is_some_and(Option::is_some);
        (0..gradients.len()).filter(has_gradient).for_each(|result| passed.add(tape.saving_behind(result)));
        let mut saved = self.saved();
        if passed.meets(&saved.freed) {
            return Err(freed(&self.name()));
        }
        saved.passed = passed;
        Ok(())
    }

    /// A backward pass on a copy of the tape. If it is recorded, the copy takes the place of this call.
    fn run_on_tape(&self, gradients: Vec<Option<Tensor>>, call: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let is_recorded = is_grad_enabled();
        let counts: Vec<usize> = (0..self.n_operands).map(|operand| self.program.n_contributions(operand)).collect();
        let firsts = counts.iter().scan(0, |edge, count| {
            let first = *edge;
            *edge += count;
            Some(first)
        });
        let operands: Vec<Option<Edge>> = firsts.map(|first| call.node.next[first].clone()).collect();
        let results = match self.expanded.get() {
            Some(expanded) => expanded.results().to_vec(),
            None if is_recorded => {
                let copy = self.copied(&operands, call)?;
                self.expanded.get_or_init(|| Expanded::new(copy)).results().to_vec()
            }
            None => self.copied(&operands, call)?,
        };
        let roots = results.into_iter().zip(gradients).filter_map(|(edge, gradient)| Some((edge?, gradient?)));
        let options = Options { retain_graph: true, create_graph: is_recorded };
        let found = contributions_at(roots.collect(), operands, options)?;
        let mut all = Vec::new();
        for (parts, count) in found.into_iter().zip(counts) {
            all.extend(spread(parts, count)?);
        }
        Ok(all)
    }

    /// Copies the tape with the values of this call.
    fn copied(&self, operands: &[Option<Edge>], call: &BackwardCall<'_>) -> Result<Vec<Option<Edge>>> {
        let refused = || Error::NotImplemented {
            op: self.name(),
            what: "a backward pass through this compiled function cannot be recorded; call the function itself".into(),
        };
        let tape = self.program.tape().ok_or_else(refused)?;
        let (read, kept) = {
            let saved = self.saved();
            let all = |saved: &[Option<Saved>]| saved.iter().map(|saved| self.unpack(saved, call)).collect();
            let (read, kept): (Result<Vec<_>>, Result<Vec<_>>) = (all(&saved.read), all(&saved.kept));
            (read?, kept?)
        };
        let values = {
            let _values = no_grad();
            self.program.saved_values(&kept, &read)?
        };
        tape.copy(operands, &values, self.first)
    }
}

/// As many gradients as there are edges. If there are more contributions, the first are added up.
fn spread(parts: Vec<Tensor>, count: usize) -> Result<Vec<Option<Tensor>>> {
    let n_first = parts.len().saturating_sub(count - 1);
    let mut rest = parts.into_iter();
    let mut sum: Option<Tensor> = None;
    for part in rest.by_ref().take(n_first) {
        sum = Some(match sum {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    let mut all: Vec<Option<Tensor>> = std::iter::once(sum).chain(rest.map(Some)).collect();
    all.resize(count, None);
    Ok(all)
}

impl Backward for ProgramBackward {
    fn name(&self) -> String {
        "CompiledBackward".into()
    }

    fn apply(&self, gradients: Vec<Option<Tensor>>, call: &BackwardCall<'_>) -> Result<Vec<Option<Tensor>>> {
        self.pass(&gradients)?;
        // Where a result has no gradient, a user's derivative sees zeros or is not called at all.
        let is_whole = || gradients.iter().all(Option::is_some);
        if is_grad_enabled() || self.program.tape().is_some_and(|tape| !tape.is_linear()) && !is_whole() {
            return self.run_on_tape(gradients, call);
        }
        let has_cotangent = gradients.iter().map(Option::is_some).collect();
        let request = Request { has_cotangent, is_apart: self.is_late(call) };
        let cotangents: Vec<Tensor> = gradients.into_iter().flatten().collect();
        self.program.run(&request, &|at| self.unpack(&self.saved().kept[at], call), &cotangents)
    }

    fn release(&self) {
        let mut saved = self.saved();
        let SavedTensors { passed, freed, .. } = &mut *saved;
        freed.add(passed);
        match self.program.tape() {
            Some(tape) if tape.is_spent(freed) => saved.drop_all(|at| self.program.lasts(at)),
            Some(_) => {}
            None => saved.drop_all(|_| false),
        }
    }

    fn expanded(&self) -> Option<&Expanded> {
        self.expanded.get()
    }
}
