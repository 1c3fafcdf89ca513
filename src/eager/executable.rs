//! Executables: planned graphs as steps that run.
//!
//! An executable belongs to one set of shapes; its kernels are shared by all shapes through the kernel cache. Values
//! live in slots; a slot is emptied after its last use, so its buffer goes back to the allocator and serves the next
//! step. An eager call runs the executable of its one-op graph, a compiled function that of its traced graph.

use super::array::Array;
use super::product::product;
use crate::codegen::Pointers;
use crate::codegen::cache::{self, Entry};
use crate::codegen::lower::{Lowered, lower};
use crate::codegen::parallel::Cut;
use crate::codegen::tier::Tier;
use crate::debug;
use crate::device::Device;
use crate::error::{Error, Reason, Result};
use crate::fusion::region::{Region, place_concat};
use crate::fusion::{Plan, StepKind};
use crate::ir::{Attrs, Graph, Layout, Meaning, NodeId, Op, SideTable, TensorType};
use smallvec::SmallVec;
use std::sync::Arc;

/// Holds a value while an executable runs.
type Slot = usize;

/// A kernel launch with everything that does not change between calls.
pub struct Launch {
    /// The code.
    pub entry: Arc<Entry>,
    /// The kernel and its loops.
    pub lowered: Lowered,
    cut: Cut,
    operands: SmallVec<[Option<Slot>; 6]>,
    outputs: SmallVec<[Slot; 2]>,
    /// Whether there is nothing to write. Its operands may then have no memory to read from.
    is_idle: bool,
}

/// One step.
enum Action {
    /// Takes new memory for a value.
    Allocate(Slot, TensorType),
    Launch(Box<Launch>),
    /// A view of memory.
    Alias {
        op: Op,
        attrs: Attrs,
        from: Slot,
        to: Slot,
    },
    Product {
        left: Slot,
        right: Slot,
        to: Slot,
        ty: TensorType,
    },
    /// The value is not needed any more.
    Release(Slot),
}

/// A graph that runs.
pub struct Executable {
    actions: Vec<Action>,
    n_slots: usize,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    /// Reasons why a tier was not taken, by step of the plan.
    pub declined: Vec<(usize, Reason)>,
}

impl Executable {
    /// Lowers and compiles every step of a plan. `tier` forces one; otherwise each kernel gets the one that suits it.
    pub fn build(graph: &Graph, plan: &Plan, tier: Option<Tier>) -> Result<Executable> {
        let builder = Builder { graph, tier, actions: Vec::new(), declined: Vec::new() };
        builder.build(plan)
    }

    /// Every launch, in order.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.actions.iter().filter_map(|action| match action {
            Action::Launch(launch) => Some(&**launch),
            Action::Allocate(..) | Action::Alias { .. } | Action::Product { .. } | Action::Release(_) => None,
        })
    }

    /// Runs on inputs that have exactly the types of the graph's inputs; their offsets may differ.
    ///
    /// # Errors
    /// Out of memory, or an index outside its dimension.
    pub fn run(&self, inputs: &[&Array]) -> Result<SmallVec<[Array; 2]>> {
        let mut slots: SmallVec<[Option<Array>; 16]> = SmallVec::from_elem(None, self.n_slots);
        for (&slot, &input) in self.inputs.iter().zip(inputs) {
            slots[slot] = Some(input.clone());
        }
        for action in &self.actions {
            match action {
                Action::Allocate(slot, ty) => slots[*slot] = Some(Array::new(Device::CPU, ty)?),
                Action::Launch(launch) => launch.run(&slots)?,
                Action::Alias { op, attrs, from, to } => slots[*to] = Some(view(*op, attrs, held(&slots, *from))?),
                Action::Product { left, right, to, ty } => {
                    slots[*to] = Some(product(held(&slots, *left), held(&slots, *right), ty)?);
                }
                Action::Release(slot) => slots[*slot] = None,
            }
        }
        Ok(self.outputs.iter().map(|&slot| held(&slots, slot).clone()).collect())
    }
}

fn held(slots: &[Option<Array>], slot: Slot) -> &Array {
    slots[slot].as_ref().expect("steps are ordered by their edges, and released after the last use")
}

/// The view of an array that a view op makes.
pub fn view(op: Op, attrs: &Attrs, array: &Array) -> Result<Array> {
    let Meaning::View(rule) = op.row().meaning else {
        return Err(Error::invalid("plan", format!("{} is no view", op.name())));
    };
    let layout: Layout = rule(&array.layout, attrs)?;
    Ok(array.with_layout(layout))
}

impl Launch {
    fn run(&self, slots: &[Option<Array>]) -> Result<()> {
        if self.is_idle {
            return Ok(());
        }
        let operands: SmallVec<[*const u8; 8]> = self
            .operands
            .iter()
            .map(|slot| slot.map_or(std::ptr::dangling(), |slot| held(slots, slot).ptr().cast_const()))
            .collect();
        let outputs: SmallVec<[*mut u8; 4]> = self.outputs.iter().map(|&slot| held(slots, slot).ptr()).collect();
        let pointers = Pointers { operands: &operands, outputs: &outputs };
        #[allow(unsafe_code, reason = "kernels work on raw pointers")]
        // SAFETY: operands are arrays of exactly the types the accesses were made from, inside storages that the
        // slots keep alive; outputs were allocated by this run for this launch and nobody else knows them yet.
        unsafe {
            self.cut.run(&self.entry.compiled, &self.lowered.geometry, pointers)
        }
    }
}

struct Builder<'g> {
    graph: &'g Graph,
    tier: Option<Tier>,
    actions: Vec<Action>,
    declined: Vec<(usize, Reason)>,
}

impl Builder<'_> {
    fn build(mut self, plan: &Plan) -> Result<Executable> {
        let graph = self.graph;
        for (index, step) in plan.steps.iter().enumerate() {
            match &step.kind {
                StepKind::Kernel(region) => {
                    for &output in &step.outputs {
                        self.actions.push(Action::Allocate(output.index(), graph[output].ty.clone()));
                    }
                    self.launch(index, region)?;
                }
                StepKind::Concat => {
                    let node = step.nodes[0];
                    self.actions.push(Action::Allocate(node.index(), graph[node].ty.clone()));
                    for region in place_concat(graph, node) {
                        self.launch(index, &region)?;
                    }
                }
                StepKind::Alias => {
                    let node = &graph[step.nodes[0]];
                    let op = node.op().ok_or_else(|| Error::invalid("plan", "a view step has no op"))?;
                    let (from, to) = (node.args[0].index(), step.nodes[0].index());
                    self.actions.push(Action::Alias { op, attrs: node.attrs.clone(), from, to });
                }
                StepKind::Product => {
                    let node = &graph[step.nodes[0]];
                    let (left, right, to) = (node.args[0].index(), node.args[1].index(), step.nodes[0].index());
                    self.actions.push(Action::Product { left, right, to, ty: node.ty.clone() });
                }
            }
        }
        let actions = with_releases(graph, self.actions);
        Ok(Executable {
            actions,
            n_slots: graph.len(),
            inputs: graph.inputs().iter().map(|id| id.index()).collect(),
            outputs: graph.outputs().iter().map(|id| id.index()).collect(),
            declined: self.declined,
        })
    }

    fn launch(&mut self, step: usize, region: &Region) -> Result<()> {
        let lowered = lower(self.graph, region)?;
        debug::dump(debug::Stage::Kernel, || lowered.kernel.to_string());
        let tier = self.tier.unwrap_or_else(|| Tier::choose(&lowered.kernel, &lowered.geometry));
        let entry = cache::compiled(tier, &lowered.kernel, &lowered.geometry).map_err(|reason| Error::Internal {
            message: format!("no tier compiles a kernel: {reason}\n{}", lowered.kernel),
        })?;
        if let Some(reason) = &entry.declined {
            self.declined.push((step, reason.clone()));
        }
        let cut = Cut::new(&lowered.kernel, &entry.compiled, &lowered.geometry);
        let operands = lowered.operands.iter().map(|node| node.map(NodeId::index)).collect();
        let outputs = lowered.outputs.iter().map(|node| node.index()).collect();
        let no_elements = lowered.geometry.n_inner() == 0 && !lowered.kernel.has_folds();
        let is_idle = no_elements || lowered.geometry.n_rows() == 0;
        self.actions.push(Action::Launch(Box::new(Launch { entry, lowered, cut, operands, outputs, is_idle })));
        Ok(())
    }
}

/// Puts a release behind the last use of every slot that is not an output.
fn with_releases(graph: &Graph, actions: Vec<Action>) -> Vec<Action> {
    let mut needed = SideTable::filled(graph, || false);
    for &output in graph.outputs() {
        needed[output] = true;
    }
    let mut out = Vec::with_capacity(actions.len() * 2);
    for action in actions.into_iter().rev() {
        let used: SmallVec<[Slot; 6]> = match &action {
            Action::Launch(launch) => launch.operands.iter().flatten().chain(&launch.outputs).copied().collect(),
            Action::Alias { from, to, .. } => SmallVec::from_slice(&[*from, *to]),
            Action::Product { left, right, to, .. } => SmallVec::from_slice(&[*left, *right, *to]),
            Action::Allocate(..) | Action::Release(_) => SmallVec::new(),
        };
        for slot in used {
            let node = NodeId(slot as u32);
            if !needed[node] {
                needed[node] = true;
                out.push(Action::Release(slot));
            }
        }
        out.push(action);
    }
    out.reverse();
    out
}
