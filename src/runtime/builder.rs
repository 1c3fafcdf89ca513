//! Builds an executable from a plan: every step is lowered, compiled, and gets its slots.

use super::action::Action;
use super::blocks::{BlockRun, BlockStep, ValueLocation};
use super::cuda::DeviceExecutable;
use super::executable::Executable;
use super::launch::{Launch, Slot};
use super::schedule::Schedule;
use super::single::Single;
use crate::codegen::lower::{ShortFolds, lower_with};
use crate::codegen::tier::Tier;
use crate::codegen::tier_up::Code;
use crate::codegen::{Kernel, LoopOrder};
use crate::debug;
use crate::device::Device;
use crate::error::{Error, Reason, TierLimit};
use crate::fusion::hoist::{Hoisted, hoist, may_hoist};
use crate::fusion::in_place::{InPlace, InPlaceWrites, in_place_writes};
use crate::fusion::region::Region;
use crate::fusion::role::same_elements;
use crate::fusion::unit::Blocks;
use crate::fusion::work::NodeWork;
use crate::fusion::{Plan, Step, StepKind};
use crate::ir::{Attrs, Graph, NodeId, Numerics, Op, SideTable, TensorType};
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// Decides whether a kernel is compiled; see [`Executable::build_if`].
pub type Accepts<'a> = &'a dyn Fn(&Kernel) -> Result<(), Reason>;

/// A step that could not be lowered or compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its position in the plan.
    pub step: usize,
    /// Why.
    pub reason: Reason,
}

impl Executable {
    /// Lowers and compiles every step of a plan. `tier` forces a tier; otherwise [`Tier::choose`] decides per kernel.
    ///
    /// # Errors
    /// If no tier compiles a step.
    pub fn build(graph: &Graph, plan: &Plan, tier: Option<Tier>) -> crate::error::Result<Executable> {
        Executable::build_if(graph, plan, tier, &|_| Ok(())).map_err(|Failure { step, reason }| {
            Error::invalid("plan", format!("step {step} is not compiled: {reason}"))
        })
    }

    /// Like [`Executable::build`], but kernels that `accepts` refuses are not compiled.
    ///
    /// # Errors
    /// The first step that is refused, or that no tier compiles.
    pub fn build_if(
        graph: &Graph,
        plan: &Plan,
        tier: Option<Tier>,
        accepts: Accepts<'_>,
    ) -> Result<Executable, Failure> {
        Builder::new(graph, tier, accepts).build(plan)
    }

    /// Like [`Executable::build`], for a GPU and with these numerics. What has no code for the GPU runs on the CPU,
    /// with a reason.
    ///
    /// # Errors
    /// The first step that cannot be lowered.
    pub fn build_on(device: Device, numerics: Numerics, graph: &Graph, plan: &Plan) -> Result<Executable, Failure> {
        let accepts = |_: &_| Ok(());
        let mut executable = Builder::new(graph, Some(Tier::Vm), &accepts).step_by_step().build(plan)?;
        executable.single = None;
        executable.on_device = Some(DeviceExecutable::new(device, numerics, &executable.schedule));
        Ok(executable)
    }
}

/// An executable under construction.
pub(super) struct Builder<'g> {
    graph: &'g Graph,
    tier: Option<Tier>,
    accepts: Accepts<'g>,
    actions: Vec<Action>,
    /// Per action, the kernel of the plan that it belongs to; the current kernel comes last.
    kernels: Vec<usize>,
    kernel: usize,
    declined: Vec<(usize, Reason)>,
    /// The slot of every value in memory.
    slots: SideTable<NodeId, Option<Slot>>,
    n_slots: usize,
    /// The work per node, computed on first use.
    node_work: Option<NodeWork>,
    blocks: BlockMode,
    /// Whether some step writes to an input.
    writes_inputs: bool,
}

/// How groups in blocks of rows run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockMode {
    /// As planned.
    Blocks,
    /// Each member as a step.
    Steps,
}

impl<'g> Builder<'g> {
    pub(super) fn new(graph: &'g Graph, tier: Option<Tier>, accepts: Accepts<'g>) -> Builder<'g> {
        let slots = SideTable::filled(graph, || None);
        let (actions, kernels, declined) = (Vec::new(), Vec::new(), Vec::new());
        Builder {
            graph,
            tier,
            accepts,
            actions,
            kernels,
            kernel: 0,
            declined,
            slots,
            n_slots: 0,
            node_work: None,
            blocks: BlockMode::Blocks,
            writes_inputs: false,
        }
    }

    /// Blocks of rows are for the cache of a core. On devices each member of a group is a step.
    pub(super) fn step_by_step(self) -> Builder<'g> {
        Builder { blocks: BlockMode::Steps, ..self }
    }

    fn push(&mut self, action: Action) {
        self.actions.push(action);
        self.kernels.push(self.kernel);
    }

    /// The slot of a value, which is allocated if it has none yet.
    fn slot(&mut self, node: NodeId) -> Slot {
        *self.slots[node].get_or_insert_with(|| {
            self.n_slots += 1;
            Slot::new(self.n_slots - 1)
        })
    }

    pub(super) fn build(mut self, plan: &Plan) -> Result<Executable, Failure> {
        let graph = self.graph;
        // On a device, what the host computes is copied there whole, so nothing may be written in part.
        let writes = match self.blocks {
            BlockMode::Blocks => in_place_writes(graph, plan),
            BlockMode::Steps => InPlaceWrites { steps: vec![SmallVec::new(); plan.steps.len()], inputs: Vec::new() },
        };
        let mut in_place = Vec::new();
        self.writes_inputs = !writes.inputs.is_empty();
        for (index, (step, places)) in plan.steps.iter().zip(writes.steps).enumerate() {
            in_place.extend(places.iter().map(|place| (self.kernel, place.clone())));
            self.step(index, step, &places).map_err(|reason| Failure { step: index, reason })?;
        }
        let outputs: Vec<Slot> = graph.outputs().iter().map(|&id| self.slot(id)).collect();
        let is_last = |(index, &slot): (usize, &Slot)| (slot, !outputs[index + 1..].contains(&slot));
        let last_outputs = outputs.iter().enumerate().map(is_last).collect();
        let inputs: Vec<Option<Slot>> = graph.inputs().iter().map(|&id| self.slots[id]).collect();
        let single = match (&self.actions[..], &outputs[..]) {
            ([Action::Allocate(to, ty), Action::Launch(launch)], [output]) if to == output => {
                Single::new(launch, &inputs, ty)
            }
            _ => None,
        };
        let (actions, kernels) = with_releases(self.actions, &self.kernels, self.n_slots, &outputs);
        Ok(Executable {
            schedule: Schedule {
                actions,
                kernels,
                n_slots: self.n_slots,
                inputs,
                input_types: graph.inputs().iter().map(|&id| graph[id].ty.clone()).collect(),
                outputs: last_outputs,
                rewritten: writes.inputs,
            },
            seen: graph.inputs().iter().map(|_| OnceLock::new()).collect(),
            declined: self.declined,
            in_place,
            single,
            on_device: None,
        })
    }

    /// Allocates memory for the outputs of a step, or reuses that of an operand for one that is written in place.
    fn take(&mut self, step: &Step, places: &[InPlace]) {
        for &output in &step.outputs {
            let to = self.slot(output);
            match places.iter().find(|place| place.to == output) {
                Some(place) => {
                    let from = self.slot(place.from);
                    self.push(Action::Alias { op: Op::Alias, attrs: Attrs::new(), from, to });
                }
                None => self.push(Action::Allocate(to, self.graph[output].ty.clone())),
            }
        }
    }

    fn step(&mut self, index: usize, step: &Step, places: &[InPlace]) -> Result<(), Reason> {
        let graph = self.graph;
        match &step.kind {
            StepKind::Kernel(region) => {
                self.take(step, places);
                self.kernel(index, region, &step.nodes)?;
            }
            StepKind::Parts(regions) => {
                self.take(step, places);
                for (at, region) in regions.iter().enumerate() {
                    if places.iter().all(|place| place.regions.contains(&at)) {
                        self.launch(index, region, &step.nodes)?;
                    }
                }
            }
            StepKind::Blocks(blocks) => self.blocks(index, blocks, &step.outputs)?,
            StepKind::Alias => {
                let node = &graph[step.nodes[0]];
                let op = node.op().expect("a view step is a call of an op");
                let (from, to) = (self.slot(node.args[0]), self.slot(step.nodes[0]));
                self.push(Action::Alias { op, attrs: node.attrs.clone(), from, to });
            }
            StepKind::Product => {
                let node = &graph[step.nodes[0]];
                let [left, right, to] = [node.args[0], node.args[1], step.nodes[0]].map(|node| self.slot(node));
                self.push(Action::Product { left, right, to, ty: node.ty.clone() });
            }
            StepKind::Routine => {
                let node = &graph[step.nodes[0]];
                let op = node.op().expect("a routine is a call of an op");
                let mut args: SmallVec<[Slot; 3]> = node.args.iter().map(|&arg| self.slot(arg)).collect();
                let to = self.slot(step.nodes[0]);
                self.take(step, places);
                if !places.is_empty() {
                    args[0] = to;
                }
                let is_kept = !places.is_empty() && self.writes_inputs;
                self.push(Action::Routine { op, attrs: node.attrs.clone(), args, to, is_kept });
            }
        }
        self.kernel += usize::from(!matches!(step.kind, StepKind::Alias));
        Ok(())
    }

    /// Adds a group in blocks of rows, or its members one by one if the outer loops of a kernel are not the rows.
    fn blocks(&mut self, step: usize, blocks: &Blocks, outputs: &[NodeId]) -> Result<(), Reason> {
        let graph = self.graph;
        if self.blocks == BlockMode::Steps {
            return self.members(step, blocks);
        }
        let mut steps = Vec::new();
        for member in &blocks.members {
            steps.push(match &member.region {
                Some(region) => {
                    let launch = Box::new(self.new_launch(step, region, &member.nodes, LoopOrder::Given)?);
                    let place = |node: &Option<NodeId>| node.map(|node| self.place(blocks, node));
                    let operands = launch.lowered.operands.clone().iter().map(place).collect();
                    let outputs = launch.lowered.outputs.clone().iter().map(|&node| self.place(blocks, node)).collect();
                    BlockStep::Kernel { launch, operands, outputs }
                }
                None => {
                    let node = member.nodes[0];
                    let [left, right] = [graph[node].args[0], graph[node].args[1]];
                    let last = |node: NodeId| graph[node].ty.sizes.last().copied().unwrap_or(1);
                    let is_view = self.own_output(blocks, left).is_some_and(|output| output != left);
                    let (k, n, dtype) = (last(left), last(node), graph[node].ty.dtype);
                    let (left, to) = (self.place(blocks, left), self.place(blocks, node));
                    BlockStep::Product { left, is_view, right: self.slot(right), to, k, n, dtype }
                }
            });
        }
        let inner = blocks.inner.iter().map(|&(node, count)| count * graph[node].ty.dtype.size()).collect();
        let run = BlockRun::new(blocks, inner, steps);
        if run.fits() {
            for &output in outputs {
                let slot = self.slot(output);
                self.push(Action::Allocate(slot, graph[output].ty.clone()));
            }
            self.push(Action::Blocks(Box::new(run)));
            return Ok(());
        }
        self.declined.push((step, Reason::DifferentRows));
        self.members(step, blocks)
    }

    /// Adds the members of a group one by one.
    fn members(&mut self, step: usize, blocks: &Blocks) -> Result<(), Reason> {
        let graph = self.graph;
        let mut made = Vec::new();
        for member in &blocks.members {
            // A kernel sees through views itself, except those of loaded values.
            let read: SmallVec<[NodeId; 6]> = match &member.region {
                Some(region) => region.loads.entities().map(|load| load.node).collect(),
                None => graph[member.nodes[0]].args.iter().copied().collect(),
            };
            read.into_iter().for_each(|node| self.views_of_inner(blocks, node, &mut made));
            match &member.region {
                Some(region) => {
                    for &output in &member.outputs {
                        let slot = self.slot(output);
                        self.push(Action::Allocate(slot, graph[output].ty.clone()));
                    }
                    self.launch(step, region, &member.nodes)?;
                }
                None => {
                    let node = member.nodes[0];
                    let [left, right, to] =
                        [graph[node].args[0], graph[node].args[1], node].map(|node| self.slot(node));
                    self.push(Action::Product { left, right, to, ty: graph[node].ty.clone() });
                }
            }
        }
        Ok(())
    }

    /// Adds the views between an inner value and `node`, which the group did not need, unless they exist already.
    fn views_of_inner(&mut self, blocks: &Blocks, node: NodeId, made: &mut Vec<NodeId>) {
        let graph = self.graph;
        let Some(root) = same_elements(graph, node).filter(|&root| root != node) else { return };
        if made.contains(&node) || !blocks.inner.iter().any(|&(inner, _)| inner == root) {
            return;
        }
        let source = graph[node].args[0];
        self.views_of_inner(blocks, source, made);
        made.push(node);
        if let Some(op) = graph[node].op() {
            let (from, to) = (self.slot(source), self.slot(node));
            self.push(Action::Alias { op, attrs: graph[node].attrs.clone(), from, to });
        }
    }

    /// The output of a member that has the elements of a value, which may be a view of it.
    fn own_output(&self, blocks: &Blocks, node: NodeId) -> Option<NodeId> {
        let root = same_elements(self.graph, node)?;
        blocks.members.iter().flat_map(|member| &member.outputs).copied().find(|&output| output == root)
    }

    /// Where a group finds a value; `node` may be a view of an inner value.
    fn place(&mut self, blocks: &Blocks, node: NodeId) -> ValueLocation {
        let root = same_elements(self.graph, node);
        let inner = blocks.inner.iter().position(|&(inner, _)| Some(inner) == root);
        match (inner, self.own_output(blocks, node)) {
            (Some(inner), _) => ValueLocation::Scratch(inner),
            (None, Some(output)) => ValueLocation::Memory(self.slot(output)),
            (None, None) => ValueLocation::Memory(self.slot(node)),
        }
    }

    /// Adds a kernel, after a prologue if some of its values depend on few loops.
    fn kernel(&mut self, step: usize, region: &Region, nodes: &[NodeId]) -> Result<(), Reason> {
        let graph = self.graph;
        if !may_hoist(region) {
            return self.launch(step, region, nodes);
        }
        let node_work = self.node_work.get_or_insert_with(|| NodeWork::of(graph));
        let Some(Hoisted { prologue, main, between }) = hoist(node_work, region) else {
            return self.launch(step, region, nodes);
        };
        for (node, sizes) in between {
            let slot = self.slot(node);
            self.push(Action::Scratch(slot, TensorType::contiguous(graph[node].ty.dtype, &sizes)));
        }
        self.launch(step, &prologue, nodes)?;
        self.launch(step, &main, nodes)
    }

    fn launch(&mut self, step: usize, region: &Region, nodes: &[NodeId]) -> Result<(), Reason> {
        let launch = self.new_launch(step, region, nodes, LoopOrder::OfMemory)?;
        self.push(Action::Launch(Arc::new(launch)));
        Ok(())
    }

    fn new_launch(
        &mut self,
        step: usize,
        region: &Region,
        nodes: &[NodeId],
        order: LoopOrder,
    ) -> Result<Launch, Reason> {
        // A kernel in blocks keeps its rows, and a GPU folds a short row in one thread.
        let is_free = self.blocks == BlockMode::Blocks && order == LoopOrder::OfMemory;
        let folds = if is_free { ShortFolds::Unrolled } else { ShortFolds::Kept };
        let lowered = lower_with(self.graph, region, order, folds)
            .map_err(|error| TierLimit::NotLowered { error: Arc::new(error) })?;
        (self.accepts)(&lowered.kernel)?;
        debug::dump(debug::Stage::Kernel, || lowered.kernel.to_string());
        let code = Code::new(self.tier, &lowered.kernel, &lowered.geometry)?;
        if let Some(reason) = &code.now().entry.declined {
            self.declined.push((step, reason.clone()));
        }
        let operands = lowered.operands.iter().map(|node| node.map(|node| self.slot(node))).collect();
        let outputs = lowered.outputs.iter().map(|&node| self.slot(node)).collect();
        let no_elements = lowered.geometry.n_inner() == 0 && !lowered.kernel.has_folds();
        let is_idle = no_elements || lowered.geometry.n_rows() == 0;
        let gathers = nodes.iter().filter_map(|&node| self.graph[node].op()).find(|op| op.is_gather());
        Ok(Launch { code, lowered, operands, outputs, gathers, is_idle })
    }
}

/// Adds a release after the last use of every slot that is not an output.
fn with_releases(
    actions: Vec<Action>,
    kernels: &[usize],
    n_slots: usize,
    outputs: &[Slot],
) -> (Vec<Action>, Vec<usize>) {
    let mut needed = SideTable::with_len(n_slots, || false);
    outputs.iter().for_each(|&slot| needed[slot] = true);
    let mut out = Vec::with_capacity(actions.len() * 2);
    for (action, &kernel) in actions.into_iter().zip(kernels).rev() {
        let used: SmallVec<[Slot; 6]> = match &action {
            Action::Launch(launch) => launch.operands.iter().flatten().chain(&launch.outputs).copied().collect(),
            Action::Alias { from, to, .. } => SmallVec::from_slice(&[*from, *to]),
            Action::Product { left, right, to, .. } => SmallVec::from_slice(&[*left, *right, *to]),
            Action::Blocks(blocks) => blocks.slots().collect(),
            Action::Routine { args, to, .. } => args.iter().chain([to]).copied().collect(),
            Action::Allocate(..) | Action::Scratch(..) | Action::Release(_) => SmallVec::new(),
        };
        for slot in used {
            if !needed[slot] {
                needed[slot] = true;
                out.push((Action::Release(slot), kernel));
            }
        }
        out.push((action, kernel));
    }
    out.into_iter().rev().unzip()
}
