//! Values that are written where an operand lies.
//!
//! An overlay and a write by index give a copy of their first operand with some places changed. Where nobody reads that
//! operand afterwards they take its memory, and only the places that change are written. The memory is that of a value
//! that the graph computes, or of an input that its caller overwrites with an output anyway.
//!
//! Memory is handed on if its value, seen through all views, has no later reader and is no output; if what still runs of
//! the step reads it, if at all, element by element where it writes; and if the value is the whole of its memory, of the same
//! layout. An input is overwritten for good or not at all: the last of its values has to be the one that is asked for.
//! A call that fails leaves inputs as they were, or as eager calls leave them: no index is checked behind a write that the
//! function makes after it.

use super::plan::{Plan, Rewritten, Step, StepKind};
use super::region::{Region, Value};
use super::role::{Role, role};
use crate::ir::shape::contiguous_strides;
use crate::ir::{Graph, Meaning, NodeId, NodeKind, Op, Routine, SideTable};
use std::collections::BTreeSet;

impl Plan {
    /// The same for a caller that overwrites these inputs with their new values.
    #[must_use]
    pub fn writing_over(self, graph: &Graph, rewritten: Vec<Rewritten>) -> Plan {
        Plan { steps: written_last(graph, self.steps, &rewritten), rewritten, ..self }
    }
}

/// How a step writes where an operand lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InPlace {
    /// The operand.
    pub from: NodeId,
    /// The value that takes its memory.
    pub to: NodeId,
    /// The regions of the step that run: the others would copy the operand to where it is.
    pub regions: Vec<usize>,
}

/// What is written in place.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// By step of the plan.
    pub steps: Vec<Option<InPlace>>,
    /// The inputs whose memory is written, in order.
    pub inputs: Vec<usize>,
}

/// What the steps of a plan may write in place, in the order in which they stand.
pub fn places(graph: &Graph, plan: &Plan) -> Places {
    if !plan.steps.iter().any(|step| written_over(graph, step).is_some()) {
        return Places { steps: vec![None; plan.steps.len()], inputs: Vec::new() };
    }
    let mut rewritten: Vec<&Rewritten> = plan.rewritten.iter().collect();
    loop {
        let found = Search::new(graph, plan, &rewritten).run();
        // An input that would be left with another value than its new one is not written to at all, nor is one whose memory
        // would be that of a result too.
        let is_fine = |one: &Rewritten| {
            let is_other = |&output: &usize| output != one.output && !one.ignored.contains(&output);
            let lies_there = |output: usize| found.home(graph.behind_views(graph.outputs()[output])) == Some(one.input);
            let escapes = (0..graph.outputs().len()).filter(is_other).any(lies_there);
            found.home_of_output(one.output) == Some(one.input) && !escapes
        };
        let kept: Vec<&Rewritten> = rewritten.iter().copied().filter(|one| is_fine(one)).collect();
        if kept.len() == rewritten.len() {
            let inputs: BTreeSet<usize> = found.inputs().collect();
            return Places { steps: found.steps, inputs: inputs.into_iter().collect() };
        }
        rewritten = kept;
    }
}

/// The steps with writes to rewritten inputs, and views of them, behind all others that do not read what they write: the old
/// value then has no later reader, and little is left that may fail once it is gone.
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
    let mut is_read = SideTable::filled(graph, || false);
    let mut waits = vec![false; steps.len()];
    for (index, step) in steps.iter().enumerate().rev() {
        let writes = written_over(graph, step).is_some_and(|(_, to)| is_version[to]);
        let views = matches!(step.kind, StepKind::Alias) && is_version[step.nodes[0]];
        waits[index] = (writes || views) && !step.nodes.iter().any(|&node| is_read[node]);
        if waits[index] {
            continue;
        }
        for &arg in step.nodes.iter().flat_map(|&node| &graph[node].args) {
            let mut seen = arg;
            is_read[seen] = true;
            // A view inside a kernel is no step, but what it is a view of may be.
            while graph[seen].op().is_some_and(Op::is_view) {
                seen = graph[seen].args[0];
                is_read[seen] = true;
            }
        }
    }
    let (last, first): (Vec<_>, Vec<_>) = steps.into_iter().zip(waits).partition(|(_, waits)| *waits);
    first.into_iter().chain(last).map(|(step, _)| step).collect()
}

/// Whether the op gives a copy of its first operand with some places changed.
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
    step_of: SideTable<Option<usize>>,
    /// The last step that reads a value or a view of it; for an output, a number that no step has.
    last_read: SideTable<usize>,
    /// By step, the first node among those of it and of later ones that may find an index outside its dimension.
    fallible: Vec<u32>,
    /// The input in whose memory a value is written.
    home: SideTable<Option<usize>>,
    steps: Vec<Option<InPlace>>,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph, plan: &'a Plan, rewritten: &'a [&'a Rewritten]) -> Search<'a> {
        let mut step_of = SideTable::filled(graph, || None);
        let mut last_read = SideTable::filled(graph, || 0);
        let mut fallible = vec![u32::MAX; plan.steps.len() + 1];
        for (index, step) in plan.steps.iter().enumerate() {
            for &node in &step.nodes {
                step_of[node] = Some(index);
                for &arg in &graph[node].args {
                    last_read[graph.behind_views(arg)] = index;
                }
            }
        }
        for (index, step) in plan.steps.iter().enumerate().rev() {
            let may_fail = |node: &&NodeId| {
                let op = graph[**node].op();
                op.is_some_and(|op| op.is_gather() || matches!(op.row().meaning, Meaning::Routine(_)))
            };
            let first = step.nodes.iter().filter(may_fail).map(|node| node.0).min();
            fallible[index] = fallible[index + 1].min(first.unwrap_or(u32::MAX));
        }
        for (index, &output) in graph.outputs().iter().enumerate() {
            if !rewritten.iter().any(|one| one.output == index || one.ignored.contains(&index)) {
                last_read[graph.behind_views(output)] = usize::MAX;
            }
        }
        let (home, steps) = (SideTable::filled(graph, || None), Vec::with_capacity(plan.steps.len()));
        Search { graph, plan, rewritten, step_of, last_read, fallible, home, steps }
    }

    fn run(mut self) -> Found<'a> {
        for (index, step) in self.plan.steps.iter().enumerate() {
            let found = self.in_place(index, step);
            if let Some(InPlace { from, to, .. }) = &found {
                let root = self.graph.behind_views(*from);
                self.home[*to] = match self.graph[root].kind {
                    NodeKind::Input(input) => Some(input as usize),
                    NodeKind::Op(_) | NodeKind::Number(_) | NodeKind::Extent(_) => self.home[root],
                };
            }
            self.steps.push(found);
        }
        Found { graph: self.graph, home: self.home, steps: self.steps }
    }

    fn in_place(&self, index: usize, step: &Step) -> Option<InPlace> {
        let graph = self.graph;
        let (from, to) = written_over(graph, step)?;
        let root = graph.behind_views(from);
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
                Role::Loop | Role::Product | Role::Parts | Role::Routine => self.home[root],
                Role::Input | Role::Inline | Role::View => return None,
            },
            NodeKind::Number(_) | NodeKind::Extent(_) => return None,
        };
        // Eager calls check an index that comes first before they write.
        if input.is_some() && self.fallible[index + 1] < to.0 {
            return None;
        }
        let regions = match &step.kind {
            StepKind::Parts(regions) => self.regions(regions, from, to, input.is_some())?,
            StepKind::Routine => {
                let is_source = |&arg: &NodeId| graph.behind_views(arg) == root;
                if graph[to].args[1..].iter().any(is_source) {
                    return None;
                }
                Vec::new()
            }
            StepKind::Kernel(_) | StepKind::Alias | StepKind::Product | StepKind::Blocks(_) => return None,
        };
        Some(InPlace { from, to, regions })
    }

    /// The regions that are left if those that copy `from` to where it is are not run; `None` if none does, or if one that
    /// is left could read what is overwritten, or fail, once an input has changed.
    fn regions(&self, regions: &[Region], from: NodeId, to: NodeId, is_input: bool) -> Option<Vec<usize>> {
        let root = self.graph.behind_views(from);
        let left = regions.iter().enumerate().filter(|(_, region)| !copies_to_itself(region, from, to));
        let left: Vec<usize> = left.map(|(index, _)| index).collect();
        let is_safe = |&index: &usize| {
            let region = &regions[index];
            let gathers = region.values.iter().any(|value| matches!(value, Value::Gather(..)));
            let in_step = region.loads.iter().all(|load| {
                let is_old = self.graph.behind_views(load.node) == root;
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

/// Whether a region does nothing but to copy elements of `from` to the same places of `to`.
fn copies_to_itself(region: &Region, from: NodeId, to: NodeId) -> bool {
    let [(value, written)] = &region.outputs[..] else { return false };
    let Value::Load(load) = region.values[*value] else { return false };
    let load = &region.loads[load];
    let is_plain = load.gather.is_none() && load.node == from && written.node == to;
    is_plain && load.strides == written.strides && load.base == written.base
}

/// What a search found.
struct Found<'a> {
    graph: &'a Graph,
    home: SideTable<Option<usize>>,
    steps: Vec<Option<InPlace>>,
}

impl Found<'_> {
    /// The input in whose memory a value lies that is no view.
    fn home(&self, root: NodeId) -> Option<usize> {
        self.home[root]
    }

    fn home_of_output(&self, output: usize) -> Option<usize> {
        let node = self.graph.outputs()[output];
        let root = self.graph.behind_views(node);
        let (whole, value) = (&self.graph[root].ty, &self.graph[node].ty);
        let is_whole = whole.numel() == value.numel() && value.strides == contiguous_strides(&value.sizes);
        self.home[root].filter(|_| is_whole && whole.dtype == value.dtype)
    }

    /// The inputs whose memory is written.
    fn inputs(&self) -> impl Iterator<Item = usize> + '_ {
        self.steps.iter().flatten().filter_map(|found| self.home[found.to])
    }
}
