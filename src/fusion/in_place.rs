//! Steps that write their result to the memory of an operand.
//!
//! An overlay and a write by index return a copy of their first operand with some elements changed. If nothing reads
//! that operand afterwards, they reuse its memory and write only the changed elements. The memory is that of a value
//! that the graph computes, or of an input that its caller overwrites with an output anyway. A kernel that computes the
//! new value of such an input, as the step of an optimizer does, writes it straight into the input.
//!
//! A step reuses the memory of a value under these conditions:
//!
//! - Neither the value nor a view of it is an output or has a later reader.
//! - The regions of the step that still run read the value, if at all, only at the elements that they write.
//! - The value is its whole memory, with the layout of the result.
//! - An input ends up with its new value, or is not overwritten at all.
//! - A call that fails leaves inputs as they were, because the function then runs eagerly from them. So an input is
//!   written to after all checks of values. A kernel writes in place only where the function itself first does all that
//!   may fail, and then all its writes.

use super::plan::{Plan, Rewritten, Step, StepKind};
use super::region::{Region, Value};
use super::role::{Role, role};
use crate::ir::shape::contiguous_strides;
use crate::ir::{Graph, Meaning, NodeId, NodeKind, Op, Routine, SideTable};
use smallvec::SmallVec;
use std::collections::BTreeSet;

impl Plan {
    /// The same plan for a caller that overwrites these inputs with their new values.
    #[must_use]
    pub fn writing_over(self, graph: &Graph, rewritten: Vec<Rewritten>) -> Plan {
        Plan { steps: written_last(graph, self.steps, &rewritten), rewritten, ..self }
    }
}

/// A step that writes to the memory of an operand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InPlace {
    /// The operand.
    pub from: NodeId,
    /// The value that takes its memory.
    pub to: NodeId,
    /// The regions of the step that run. The others would copy the operand to itself.
    pub regions: Vec<usize>,
}

/// The in-place writes of a plan.
#[derive(Debug, Clone, Default)]
pub struct InPlaceWrites {
    /// For each step of the plan. A kernel may write to several operands, other steps to one.
    pub steps: Vec<SmallVec<[InPlace; 1]>>,
    /// The inputs whose memory is written, in order.
    pub inputs: Vec<usize>,
}

/// Finds the in-place writes of a plan, for steps in this order.
pub fn in_place_writes(graph: &Graph, plan: &Plan) -> InPlaceWrites {
    if plan.rewritten.is_empty() && !plan.steps.iter().any(|step| written_over(graph, step).is_some()) {
        return InPlaceWrites { steps: vec![SmallVec::new(); plan.steps.len()], inputs: Vec::new() };
    }
    let mut rewritten: Vec<&Rewritten> = plan.rewritten.iter().collect();
    loop {
        let found = Search::new(graph, plan, &rewritten).run();
        // An input is not overwritten if it would end up with another value than its new one, or if another output
        // would share its memory.
        let is_fine = |one: &Rewritten| {
            let is_other = |&output: &usize| output != one.output && !one.ignored.contains(&output);
            let shares = |output: usize| found.input_of(graph.view_base(graph.outputs()[output])) == Some(one.input);
            let escapes = (0..graph.outputs().len()).filter(is_other).any(shares);
            found.input_of_output(one.output) == Some(one.input) && !escapes && !found.may_run_out(plan, one)
        };
        let kept: Vec<&Rewritten> = rewritten.iter().copied().filter(|one| is_fine(one)).collect();
        if kept.len() == rewritten.len() {
            let inputs: BTreeSet<usize> = found.inputs().collect();
            return InPlaceWrites { steps: found.steps, inputs: inputs.into_iter().collect() };
        }
        rewritten = kept;
    }
}

/// Moves writes to rewritten inputs, and views of these, after all steps that do not read what they write. Then the old
/// value has no later reader, and few steps that may fail run after it is overwritten.
fn written_last(graph: &Graph, steps: Vec<Step>, rewritten: &[Rewritten]) -> Vec<Step> {
    if rewritten.is_empty() {
        return steps;
    }
    // Whether a node is a value of a rewritten input, old or new.
    let mut is_version = SideTable::filled(graph, || false);
    for (id, node) in graph.nodes() {
        is_version[id] = match node.kind {
            NodeKind::Input(input) => rewritten.iter().any(|one| one.input == input as usize),
            NodeKind::Op(op) if op.is_view() || writes_over(op) => is_version[node.args[0]],
            NodeKind::Op(_) | NodeKind::Number(_) | NodeKind::Extent(_) => false,
        };
    }
    let is_renewal = |node: &NodeId| rewritten.iter().any(|one| graph.outputs()[one.output] == *node);
    let mut is_read = SideTable::filled(graph, || false);
    let mut waits = vec![false; steps.len()];
    for (index, step) in steps.iter().enumerate().rev() {
        let writes = written_over(graph, step).is_some_and(|(_, to)| is_version[to]);
        let views = matches!(step.kind, StepKind::Alias) && is_version[step.nodes[0]];
        let renews = matches!(step.kind, StepKind::Kernel(_)) && step.outputs.iter().any(is_renewal);
        waits[index] = (writes || views || renews) && !step.nodes.iter().any(|&node| is_read[node]);
        if waits[index] {
            continue;
        }
        for &arg in step.nodes.iter().flat_map(|&node| &graph[node].args) {
            let mut seen = arg;
            is_read[seen] = true;
            // A view inside a kernel is no step, but its base may be one.
            while graph[seen].op().is_some_and(Op::is_view) {
                seen = graph[seen].args[0];
                is_read[seen] = true;
            }
        }
    }
    let (last, first): (Vec<_>, Vec<_>) = steps.into_iter().zip(waits).partition(|(_, waits)| *waits);
    let last = allocating_first(graph, last.into_iter().map(|(step, _)| step).collect());
    first.into_iter().map(|(step, _)| step).chain(last).collect()
}

/// Moves kernels with folds before others, if they read no results of these. They do not write in place, and memory may
/// run out where they allocate their results: no input must have changed by then.
fn allocating_first(graph: &Graph, steps: Vec<Step>) -> impl Iterator<Item = Step> {
    let mut is_made = SideTable::filled(graph, || false);
    steps.iter().flat_map(|step| &step.nodes).for_each(|&node| is_made[node] = true);
    let allocates = |step: &Step| {
        let is_own = |arg: NodeId| step.nodes.contains(&arg) || !is_made[arg];
        matches!(&step.kind, StepKind::Kernel(region) if region.has_folds())
            && step
                .nodes
                .iter()
                .flat_map(|&node| &graph[node].args)
                .all(|&arg| is_own(arg) && is_own(graph.view_base(arg)))
    };
    let (first, last): (Vec<_>, Vec<_>) = steps.into_iter().partition(allocates);
    first.into_iter().chain(last)
}

/// Whether the op returns a copy of its first operand with some elements changed.
fn writes_over(op: Op) -> bool {
    matches!(op.row().meaning, Meaning::Overlay | Meaning::Routine(Routine::Scatter(_)))
}

/// The operand that a step copies and changes, and the result.
fn written_over(graph: &Graph, step: &Step) -> Option<(NodeId, NodeId)> {
    if !matches!(step.kind, StepKind::Parts(_) | StepKind::Routine) {
        return None;
    }
    let to = step.nodes.iter().copied().find(|&node| graph[node].op().is_some_and(writes_over))?;
    Some((graph[to].args[0], to))
}

struct Search<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    rewritten: &'a [&'a Rewritten],
    step_of: SideTable<NodeId, Option<usize>>,
    /// The last step that reads a value or a view of it. `usize::MAX` for an output.
    last_read: SideTable<NodeId, usize>,
    /// For each step, the first node of it or of later steps that may find an index out of range.
    fallible: Vec<Option<NodeId>>,
    /// The last step that checks values.
    last_check: Option<usize>,
    /// The input whose memory a value is written to.
    input_of: SideTable<NodeId, Option<usize>>,
    steps: Vec<SmallVec<[InPlace; 1]>>,
    /// The first step from which on kernels may write to inputs, if any may.
    first_renewal: Option<usize>,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph, plan: &'a Plan, rewritten: &'a [&'a Rewritten]) -> Search<'a> {
        let mut step_of = SideTable::filled(graph, || None);
        let mut last_read = SideTable::filled(graph, || 0);
        let mut fallible = vec![None; plan.steps.len() + 1];
        for (index, step) in plan.steps.iter().enumerate() {
            for &node in &step.nodes {
                step_of[node] = Some(index);
                for &arg in &graph[node].args {
                    last_read[graph.view_base(arg)] = index;
                }
            }
        }
        for (index, step) in plan.steps.iter().enumerate().rev() {
            let may_fail = |node: &&NodeId| {
                let op = graph[**node].op();
                op.is_some_and(|op| op.is_gather() || matches!(op.row().meaning, Meaning::Routine(_)))
            };
            let first = step.nodes.iter().filter(may_fail).copied();
            fallible[index] = first.chain(fallible[index + 1]).min();
        }
        let last_check = last_check(graph, plan);
        let first_renewal = first_renewal(graph, plan, last_check);
        for (index, &output) in graph.outputs().iter().enumerate() {
            if !rewritten.iter().any(|one| one.output == index || one.ignored.contains(&index)) {
                last_read[graph.view_base(output)] = usize::MAX;
            }
        }
        let (input_of, steps) = (SideTable::filled(graph, || None), Vec::with_capacity(plan.steps.len()));
        Search { graph, plan, rewritten, step_of, last_read, fallible, last_check, input_of, steps, first_renewal }
    }

    fn run(mut self) -> Found<'a> {
        for (index, step) in self.plan.steps.iter().enumerate() {
            let found: SmallVec<[InPlace; 1]> = match &step.kind {
                StepKind::Kernel(region) => self.renewals(index, step, region),
                StepKind::Parts(_) | StepKind::Routine => self.in_place(index, step).into_iter().collect(),
                StepKind::Alias | StepKind::Product | StepKind::Blocks(_) => SmallVec::new(),
            };
            for InPlace { from, to, .. } in &found {
                let root = self.graph.view_base(*from);
                self.input_of[*to] = match self.graph[root].kind {
                    NodeKind::Input(input) => Some(input as usize),
                    NodeKind::Op(_) | NodeKind::Number(_) | NodeKind::Extent(_) => self.input_of[root],
                };
            }
            self.steps.push(found);
        }
        Found { graph: self.graph, input_of: self.input_of, steps: self.steps }
    }

    fn in_place(&self, index: usize, step: &Step) -> Option<InPlace> {
        let graph = self.graph;
        let (from, to) = written_over(graph, step)?;
        let root = graph.view_base(from);
        let (old, new) = (&graph[from].ty, &graph[to].ty);
        let is_same = old.dtype == new.dtype && old.sizes == new.sizes && old.strides == new.strides;
        let is_all = graph[root].ty.dtype == old.dtype && graph[root].ty.numel() == old.numel() && old.numel() > 0;
        let is_there = step.outputs.contains(&to) && self.step_of[from] != Some(index);
        if !(is_same && is_all && is_there) || self.last_read[root] > index {
            return None;
        }
        let input = match graph[root].kind {
            NodeKind::Input(input) => {
                let input = input as usize;
                self.rewritten.iter().any(|one| one.input == input).then_some(Some(input))?
            }
            NodeKind::Op(_) => match role(graph, root) {
                Role::Loop | Role::Product | Role::Parts | Role::Routine => self.input_of[root],
                Role::Input | Role::Inline | Role::View => return None,
            },
            NodeKind::Number(_) | NodeKind::Extent(_) => return None,
        };
        // Eager calls check the index of an earlier op before they write. After a failed check the function runs again,
        // from the inputs on.
        let is_early = || self.fallible[index + 1].is_some_and(|fallible| fallible < to);
        if input.is_some() && (is_early() || self.last_check.is_some_and(|last| last > index)) {
            return None;
        }
        let regions = match &step.kind {
            StepKind::Parts(regions) => self.regions(regions, from, to, input.is_some())?,
            StepKind::Routine => {
                let is_source = |&arg: &NodeId| graph.view_base(arg) == root;
                if graph[to].args[1..].iter().any(is_source) {
                    return None;
                }
                Vec::new()
            }
            StepKind::Kernel(_) | StepKind::Alias | StepKind::Product | StepKind::Blocks(_) => return None,
        };
        Some(InPlace { from, to, regions })
    }

    /// The outputs of a kernel that take the memory of the inputs whose new values they are. Every element is read, if
    /// at all, where it is written.
    fn renewals(&self, index: usize, step: &Step, region: &Region) -> SmallVec<[InPlace; 1]> {
        let mut found: SmallVec<[InPlace; 1]> = SmallVec::new();
        if region.has_folds() || self.first_renewal.is_none_or(|first| index < first) {
            return found;
        }
        let graph = self.graph;
        for one in self.rewritten {
            let (from, to) = (graph.inputs()[one.input], graph.outputs()[one.output]);
            let (old, new) = (&graph[from].ty, &graph[to].ty);
            let is_same = old == new && old.numel() > 0;
            // An earlier step may have written to the input already: its result has the same memory.
            let is_in_memory = |root: NodeId| root == from || self.input_of[root] == Some(one.input);
            let is_read_later = |(id, _): (NodeId, _)| is_in_memory(id) && self.last_read[id] > index;
            let is_last = !graph.nodes().any(is_read_later) && step.outputs.contains(&to);
            let is_taken = found.iter().any(|other| other.to == to);
            let written = region.outputs.iter().map(|(_, walk)| walk).find(|walk| walk.node == to);
            let Some(written) = written.filter(|_| is_same && is_last && !is_taken) else { continue };
            let is_there = |load: &super::region::Walk| {
                let root = graph.view_base(load.node);
                let same = load.node == root && load.strides == written.strides && load.base == written.base;
                !is_in_memory(root) || (same && load.gather.is_none())
            };
            // An operand that is stored unchanged is read when it is stored, which may be later.
            let is_kept = |value: &super::region::ValueId| match region.values[*value] {
                Value::Load(load) => is_in_memory(graph.view_base(region.loads[load].node)),
                Value::Number(..)
                | Value::Body(..)
                | Value::Fold(..)
                | Value::Gather(..)
                | Value::Position(..)
                | Value::Extent(_) => false,
            };
            if region.outputs.iter().any(|(value, _)| is_kept(value)) {
                continue;
            }
            if region.loads.entities().all(is_there) {
                found.push(InPlace { from, to, regions: Vec::new() });
            }
        }
        found
    }

    /// The regions that must run, without those that copy `from` to itself. `None` if there are none of the latter, or
    /// if a remaining region could read overwritten elements, or could fail after an input has changed.
    fn regions(&self, regions: &[Region], from: NodeId, to: NodeId, is_input: bool) -> Option<Vec<usize>> {
        let root = self.graph.view_base(from);
        let left = regions.iter().enumerate().filter(|(_, region)| !copies_to_itself(region, from, to));
        let left: Vec<usize> = left.map(|(index, _)| index).collect();
        let is_safe = |&index: &usize| {
            let region = &regions[index];
            let gathers = region.values.entities().any(|value| matches!(value, Value::Gather(..)));
            let in_step = region.loads.entities().all(|load| {
                let is_old = self.graph.view_base(load.node) == root;
                let same = |written: &super::region::Walk| {
                    written.node == to && written.strides == load.strides && written.base == load.base
                };
                let is_there = load.node == from && load.gather.is_none() && !region.has_folds();
                !is_old || (is_there && region.outputs.iter().any(|(_, written)| same(written)))
            });
            in_step && !(gathers && is_input)
        };
        (left.len() < regions.len() && left.iter().all(is_safe)).then_some(left)
    }
}

/// The last step that may find a value out of range.
fn last_check(graph: &Graph, plan: &Plan) -> Option<usize> {
    plan.steps.iter().rposition(|step| step.nodes.iter().any(|&node| checks_values(graph, node)))
}

fn checks_values(graph: &Graph, node: NodeId) -> bool {
    let call = &graph[node];
    call.op().is_some_and(|op| op.checks_values(call.ty.dtype))
}

/// The first step from which on nothing can find a value out of range, if the function writes to inputs after all that
/// can. Then a call that fails has written nothing, as an eager call.
fn first_renewal(graph: &Graph, plan: &Plan, last_check: Option<usize>) -> Option<usize> {
    let first_write = plan.rewritten.iter().map(|one| graph.outputs()[one.output]).min()?;
    let writes_last = graph.nodes().all(|(id, _)| id < first_write || !checks_values(graph, id));
    writes_last.then_some(last_check.map_or(0, |last| last + 1))
}

/// Whether a region only copies elements of `from` to the same places of `to`.
fn copies_to_itself(region: &Region, from: NodeId, to: NodeId) -> bool {
    let [(value, written)] = &region.outputs[..] else { return false };
    let Value::Load(load) = region.values[*value] else { return false };
    let load = &region.loads[load];
    let is_plain = load.gather.is_none() && load.node == from && written.node == to;
    is_plain && load.strides == written.strides && load.base == written.base
}

/// The result of a search.
struct Found<'a> {
    graph: &'a Graph,
    input_of: SideTable<NodeId, Option<usize>>,
    steps: Vec<SmallVec<[InPlace; 1]>>,
}

impl Found<'_> {
    /// The input whose memory has the value `root`, which is no view.
    fn input_of(&self, root: NodeId) -> Option<usize> {
        self.input_of[root]
    }

    /// The input whose memory has an output, if the output is the whole of it.
    fn input_of_output(&self, output: usize) -> Option<usize> {
        let node = self.graph.outputs()[output];
        let root = self.graph.view_base(node);
        let (whole, value) = (&self.graph[root].ty, &self.graph[node].ty);
        let is_whole = whole.numel() == value.numel() && value.strides == contiguous_strides(&value.sizes);
        self.input_of[root].filter(|_| is_whole && whole.dtype == value.dtype)
    }

    /// Whether memory may run out after a kernel has written to the input, because a later step allocates some.
    fn may_run_out(&self, plan: &Plan, one: &Rewritten) -> bool {
        let to = self.graph.outputs()[one.output];
        let wrote = (0..plan.steps.len()).find(|&at| {
            matches!(plan.steps[at].kind, StepKind::Kernel(_)) && self.steps[at].iter().any(|place| place.to == to)
        });
        let allocates = |at: usize| match plan.steps[at].kind {
            StepKind::Alias => false,
            StepKind::Kernel(_) => {
                let is_in_place = |output: &NodeId| self.steps[at].iter().any(|place| place.to == *output);
                !plan.steps[at].outputs.iter().all(is_in_place)
            }
            StepKind::Parts(_) | StepKind::Routine | StepKind::Product | StepKind::Blocks(_) => true,
        };
        wrote.is_some_and(|wrote| (wrote + 1..plan.steps.len()).any(allocates))
    }

    /// The inputs whose memory is written.
    fn inputs(&self) -> impl Iterator<Item = usize> + '_ {
        self.steps.iter().flatten().filter_map(|found| self.input_of[found.to])
    }
}
