//! Predicts the memory traffic of a run from types alone.
//!
//! A kernel reads every byte once and writes every byte once, whatever the caches do. Views are seen through, so a
//! value and a view of it are the same bytes. Two things depend on the inputs, and are estimated from above: an index
//! counts as if it picked no element twice, and inputs as if they shared no memory. Rows that a group in blocks passes
//! on in a core's cache are not counted. [`Executable::run_counted`] measures what is predicted here.

use super::action::Action;
use super::blocks::{self, BlockRun, BlockStep};
use super::executable::Executable;
use super::footprint::{ByteWalk, distinct};
use super::launch::{Launch, Slot};
use super::view::view_layout;
use crate::codegen::kernel::{Kind, Level};
use crate::ir::routine::Write;
use crate::ir::{DType, Layout, Meaning, Op, Routine, SideTable, TensorType};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that one kernel moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Its position among the kernels of the plan.
    pub kernel: usize,
    /// Bytes read.
    pub read: usize,
    /// Bytes written.
    pub written: usize,
}

impl Traffic {
    /// Adds what an action moved to a list with one entry per kernel.
    pub(super) fn add(self, all: &mut Vec<Traffic>) {
        match all.last_mut() {
            Some(last) if last.kernel == self.kernel => {
                last.read += self.read;
                last.written += self.written;
            }
            Some(_) | None => all.push(self),
        }
    }
}

/// The memory of a slot's value: that of another slot, or its own.
#[derive(Clone)]
struct SlotLocation {
    root: Slot,
    layout: Layout,
    dtype: DType,
}

impl SlotLocation {
    fn own(slot: Slot, ty: &TensorType) -> SlotLocation {
        let layout = Layout { sizes: ty.sizes.clone(), strides: ty.strides.clone(), offset: 0 };
        SlotLocation { root: slot, layout, dtype: ty.dtype }
    }
}

/// What is accessed of one memory.
#[derive(Default)]
struct Reached {
    walks: Vec<ByteWalk>,
    /// Bytes that an index picks, and from where.
    picked: usize,
    pools: Vec<ByteWalk>,
}

impl Reached {
    fn bytes(mut self) -> usize {
        let surely = distinct(&self.walks);
        if self.picked == 0 {
            return surely;
        }
        self.walks.append(&mut self.pools);
        (surely + self.picked).min(distinct(&self.walks))
    }
}

impl Executable {
    /// The traffic of each kernel, in the order in which they run.
    pub fn traffic(&self) -> Vec<Traffic> {
        let mut reach = Reach { homes: SideTable::with_len(self.schedule.n_slots, || None), ..Reach::default() };
        for (slot, ty) in self.schedule.inputs.iter().zip(&self.schedule.input_types) {
            if let Some(slot) = *slot {
                reach.homes[slot] = Some(SlotLocation::own(slot, ty));
            }
        }
        let mut all = Vec::new();
        for (action, &kernel) in self.schedule.actions.iter().zip(&self.schedule.kernels) {
            if reach.action(action) {
                let total = |side: &mut Side| std::mem::take(side).into_values().map(Reached::bytes).sum();
                Traffic { kernel, read: total(&mut reach.read), written: total(&mut reach.written) }.add(&mut all);
            }
        }
        all
    }
}

/// What is accessed, by memory.
type Side = BTreeMap<Slot, Reached>;

/// What an action accesses.
#[derive(Default)]
struct Reach {
    homes: SideTable<Slot, Option<SlotLocation>>,
    read: Side,
    written: Side,
}

impl Reach {
    /// Adds an action. Returns whether it moves anything.
    fn action(&mut self, action: &Action) -> bool {
        match action {
            Action::Allocate(slot, ty) => self.homes[*slot] = Some(SlotLocation::own(*slot, ty)),
            Action::Alias { op, attrs, from, to } => {
                let view = |SlotLocation { root, layout, dtype }: SlotLocation| {
                    let (layout, dtype) = view_layout(*op, attrs, &layout, dtype).ok()?;
                    Some(SlotLocation { root, layout, dtype })
                };
                self.homes[*to] = self.homes[*from].clone().and_then(view);
            }
            Action::Scratch(..) | Action::Release(_) => {}
            Action::Launch(launch) => {
                self.launch(launch, |index| launch.operands[index], |index| Some(launch.outputs[index]));
                return true;
            }
            Action::Product { left, right, to, ty } => {
                self.homes[*to] = Some(SlotLocation::own(*to, ty));
                if ty.numel() > 0 {
                    self.reads(*left);
                    self.reads(*right);
                    self.writes(*to);
                }
                return true;
            }
            Action::Routine { op, args, to, .. } => {
                self.routine(*op, args, *to);
                return true;
            }
            Action::Blocks(blocks) => {
                self.blocks(blocks);
                return true;
            }
        }
        false
    }

    /// Reads all of a value.
    fn reads(&mut self, slot: Slot) {
        let Some(SlotLocation { root, layout, dtype }) = &self.homes[slot] else { return };
        self.read.entry(*root).or_default().walks.extend(ByteWalk::of_layout(layout, dtype.size()));
    }

    fn writes(&mut self, slot: Slot) {
        let Some(SlotLocation { root, layout, dtype }) = &self.homes[slot] else { return };
        self.written.entry(*root).or_default().walks.extend(ByteWalk::of_layout(layout, dtype.size()));
    }

    /// Adds what a kernel accesses in memory.
    fn launch(
        &mut self,
        launch: &Launch,
        operand: impl Fn(usize) -> Option<Slot>,
        output: impl Fn(usize) -> Option<Slot>,
    ) {
        if launch.is_idle {
            return;
        }
        let (kernel, geometry) = (&launch.lowered.kernel, &launch.lowered.geometry);
        let start = |home: &SlotLocation, base: i64| home.layout.offset * home.dtype.size() + base as usize;
        for inst in &kernel.insts {
            let (slot, is_picked) = match inst.kind {
                Kind::Load(slot) => (slot as usize, false),
                Kind::Gather(slot) => (slot as usize, true),
                Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) | Kind::Fold(_) => continue,
            };
            let Some(home) = operand(slot).and_then(|slot| self.homes[slot].as_ref()) else { continue };
            let access = &geometry.operands[slot];
            let inner = if inst.level == Level::Full { &geometry.inner[..] } else { &[] };
            let reached = self.read.entry(home.root).or_default();
            if is_picked {
                reached.picked += geometry.rows.iter().chain(inner).product::<usize>() * home.dtype.size();
                reached.pools.extend(ByteWalk::of_layout(&home.layout, home.dtype.size()));
            } else {
                let loops = geometry.rows.iter().zip(&access.rows).chain(inner.iter().zip(&access.inner));
                let loops = loops.map(|(&size, &stride)| (size, stride));
                reached.walks.extend(ByteWalk::new(start(home, access.base), home.dtype.size(), loops));
            }
        }
        for (index, (written, access)) in kernel.outputs.iter().zip(&geometry.outputs).enumerate() {
            let Some(home) = output(index).and_then(|slot| self.homes[slot].as_ref()) else { continue };
            // A row value is stored once, even if a row has no elements.
            let is_row = kernel.inst(written.value).level == Level::Row;
            let once = is_row && kernel.has_folds() && access.inner.iter().all(|&stride| stride == 0);
            let inner = if once { &[] } else { &geometry.inner[..] };
            let loops = geometry.rows.iter().zip(&access.rows).chain(inner.iter().zip(&access.inner));
            let loops = loops.map(|(&size, &stride)| (size, stride));
            let walk = ByteWalk::new(start(home, access.base), home.dtype.size(), loops);
            self.written.entry(home.root).or_default().walks.extend(walk);
        }
    }

    /// A routine reads its operands whole and writes its result. But of a source, it reads at most as many elements as
    /// the index has, and a write in place touches at most as many.
    fn routine(&mut self, op: Op, args: &[Slot], to: Slot) {
        let (&[into, index, source], Meaning::Routine(Routine::Scatter(write))) = (args, &op.row().meaning) else {
            self.writes(to);
            return args.iter().for_each(|&arg| self.reads(arg));
        };
        self.reads(index);
        match (into == to, write) {
            (false, _) => {
                self.reads(into);
                self.writes(to);
            }
            (true, Write::Overwrite) => self.picks(to, index, |reach| &mut reach.written),
            (true, Write::Add | Write::Reduce) => {
                self.picks(to, index, |reach| &mut reach.written);
                self.picks(to, index, |reach| &mut reach.read);
            }
        }
        let (Some(index), Some(home)) = (&self.homes[index], &self.homes[source]) else { return };
        let sizes = &index.layout.sizes;
        let mut part = home.layout.clone();
        part.strides.resize(sizes.len(), 0);
        part.sizes = sizes.clone();
        self.read.entry(home.root).or_default().walks.extend(ByteWalk::of_layout(&part, home.dtype.size()));
    }

    /// Adds as many elements of a value as an index has.
    fn picks(&mut self, of: Slot, index: Slot, side: impl FnOnce(&mut Reach) -> &mut Side) {
        let (Some(home), Some(index)) = (self.homes[of].clone(), &self.homes[index]) else { return };
        let bytes = index.layout.numel() * home.dtype.size();
        let reached = side(self).entry(home.root).or_default();
        reached.picked += bytes;
        reached.pools.extend(ByteWalk::of_layout(&home.layout, home.dtype.size()));
    }

    fn blocks(&mut self, run: &BlockRun) {
        let in_memory = |place: &blocks::ValueLocation| match place {
            blocks::ValueLocation::Memory(slot) => Some(*slot),
            blocks::ValueLocation::Scratch(_) => None,
        };
        for work in &run.steps {
            match work {
                BlockStep::Product { left, right, to, .. } => {
                    [in_memory(left), Some(*right)].into_iter().flatten().for_each(|slot| self.reads(slot));
                    in_memory(to).into_iter().for_each(|slot| self.writes(slot));
                }
                BlockStep::Kernel { launch, operands, outputs } => {
                    let operand = |index: usize| operands[index].as_ref().and_then(in_memory);
                    self.launch(launch, operand, |index| in_memory(&outputs[index]));
                }
            }
        }
        // What the group wrote is cached when it is read.
        let written: BTreeSet<Slot> = self.written.keys().copied().collect();
        self.read.retain(|root, _| !written.contains(root));
    }
}
