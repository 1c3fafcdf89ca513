//! The cost model: how long a kernel takes, from what it moves and what it computes.
//!
//! A kernel takes a fixed time, plus the longer of two: the time to move its bytes, and the time to compute its values.
//! This is the roofline model (Williams, Waterman and Patterson, "Roofline", 2009). Bytes of a memory count once, at
//! the bandwidth of the smallest cache that holds what is touched between one use of the memory and the next. Work
//! counts once per element, or once per row if the value is the same in the whole row. The work of a value follows from
//! its scalar body.
//!
//! A memory has the same bandwidth in every kernel, so one kernel never moves for longer than its parts do.
//!
//! All times are those of one thread, so plans do not depend on the number of threads.

use super::hoist::Candidates;
use super::rates::{Nanos, Rates};
use super::region::{Region, Value, ValueId, Walk};
use super::unit::{Blocks, Unit, UnitKind};
use super::work::{NodeWork, Work};
use crate::error::Reason;
use crate::ir::{DType, Graph, Meaning, NodeId, Routine, SideTable};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::time::Duration;

/// The model of one graph.
#[derive(Debug)]
pub struct CostModel<'g> {
    graph: &'g Graph,
    rates: Rates,
    work: NodeWork,
    /// Whether a memory is that of an input or an output.
    is_outside: SideTable<NodeId, bool>,
    /// The bytes of all inputs and outputs.
    outside_bytes: usize,
}

impl<'g> CostModel<'g> {
    /// The model of a graph on a machine of these rates.
    pub fn new(graph: &'g Graph, rates: Rates) -> CostModel<'g> {
        let mut is_outside = SideTable::filled(graph, || false);
        let mut outside_bytes = 0;
        for &node in graph.inputs().iter().chain(graph.outputs()) {
            let root = graph.view_base(node);
            if !std::mem::replace(&mut is_outside[root], true) {
                outside_bytes += graph[root].ty.bytes();
            }
        }
        CostModel { graph, rates, work: NodeWork::of(graph), is_outside, outside_bytes }
    }

    /// The time to move that many bytes of a value, each of them in a cache line of its own if they are `scattered`.
    fn moving_of(&self, node: NodeId, bytes: usize, scattered: bool) -> Nanos {
        let root = self.graph.view_base(node);
        // Inputs and outputs were used in the call before. A value between kernels is most often used by the next one,
        // which touches a few values of its size.
        let held = if self.is_outside[root] { self.outside_bytes } else { KERNEL_VALUES * self.graph[root].ty.bytes() };
        self.rates.moving(bytes * if scattered { self.rates.jump.max(1) as usize } else { 1 }, held)
    }

    /// The time that a kernel takes besides its loops.
    pub fn launch_time(&self) -> Nanos {
        f64::from(self.rates.launch)
    }

    /// The time to move that many bytes and nothing else.
    pub fn moving(&self, bytes: usize) -> Nanos {
        self.rates.moving(bytes, bytes)
    }

    /// How long a unit, or a step of a plan, takes.
    pub fn unit(&self, unit: &Unit) -> Nanos {
        match &unit.kind {
            UnitKind::Kernel(region) => self.kernel(region),
            UnitKind::Alias => 0.0,
            UnitKind::Product => self.product(unit.nodes[0]),
            UnitKind::Parts(regions) => regions.iter().map(|region| self.launch(region, None)).sum(),
            UnitKind::Routine => self.alone(unit.nodes[0]),
            UnitKind::Blocks(blocks) => self.blocks(blocks),
        }
    }

    /// How long a kernel takes.
    pub fn kernel(&self, region: &Region) -> Nanos {
        self.launch(region, Candidates::of(&self.work, region).as_ref())
    }

    /// Like [`CostModel::kernel`], with some values hoisted.
    fn launch(&self, region: &Region, hoisted: Option<&Candidates>) -> Nanos {
        let running = self.moving_all(region).max(self.rates.computing(self.work(region, hoisted)));
        f64::from(self.rates.launch) + running + starting_calls(region)
    }

    /// The time to move what a kernel reads and writes, each element once. Elements of walks with another cache line
    /// for each of them are scattered.
    fn moving_all(&self, region: &Region) -> Nanos {
        let loops = || region.rows.iter().chain(&region.inner);
        // Row loops are ordered by the strides of the first output.
        let innermost = match region.outputs.first() {
            Some((_, walk)) if region.inner.is_empty() => densest(&walk.strides),
            Some(_) | None => loops().count().checked_sub(1),
        };
        let is_crossing = |walk: &Walk, dtype| innermost.is_some_and(|at| crosses_lines(walk.strides[at], dtype));
        let mut memories: BTreeMap<NodeId, (usize, bool)> = BTreeMap::new();
        for walk in region.loads.entities().chain(region.outputs.iter().map(|(_, walk)| walk)) {
            let is_walked = |&(_, &stride): &(&usize, &usize)| stride != 0 || walk.gather.is_some();
            let elements: usize = loops().zip(&walk.strides).filter(is_walked).map(|(&size, _)| size).product();
            let ty = &self.graph[walk.node].ty;
            let memory = memories.entry(walk.node).or_default();
            memory.0 = (memory.0 + elements * ty.dtype.size()).min(ty.bytes());
            memory.1 |= is_crossing(walk, ty.dtype);
        }
        memories.into_iter().map(|(node, (bytes, scattered))| self.moving_of(node, bytes, scattered)).sum()
    }

    fn work(&self, region: &Region, hoisted: Option<&Candidates>) -> Work {
        let rows: usize = region.rows.iter().product();
        let full = rows * region.inner.iter().product::<usize>();
        let own = hoisted.map_or(0, |hoisted| hoisted.elements(region));
        let mut sum = Work::default();
        for (id, value) in region.values.iter() {
            let times = match hoisted {
                Some(hoisted) if hoisted.contains(id) => own,
                Some(_) | None if region.is_full[id] => full,
                Some(_) | None => rows,
            };
            match value {
                Value::Body(node, _) => sum.add(self.work[*node], times),
                Value::Fold(node, _) => sum.add(self.work[*node], full),
                Value::Gather(..) => sum.add(Work::PICK, times),
                Value::Load(_) | Value::Number(..) | Value::Position(..) | Value::Extent(_) => {}
            }
        }
        sum
    }

    fn product(&self, node: NodeId) -> Nanos {
        let moving: Nanos =
            self.distinct_args(node).chain([node]).map(|id| self.moving_of(id, self.size(id), false)).sum();
        f64::from(self.rates.launch) + moving.max(self.multiplying(node))
    }

    fn multiplying(&self, node: NodeId) -> Nanos {
        let (inner, ty) = (self.inner(node), &self.graph[node].ty);
        let width = ty.dtype.compute().size() as f64 / 4.0;
        ty.numel() as f64 * inner as f64 * width * 1e3 / f64::from(self.rates.multiply_adds.max(1))
    }

    /// The steps of the chains of a product. A left operand has them in its last dim, that of windows after three dims.
    fn inner(&self, node: NodeId) -> usize {
        let sizes = &self.graph[self.graph[node].args[0]].ty.sizes;
        sizes[sizes.len().clamp(1, 4) - 1..].iter().product()
    }

    /// How long blocks of rows take. Members run one after the other. Only values outside of blocks are moved through
    /// memory, and right operands once per block.
    pub fn blocks(&self, blocks: &Blocks) -> Nanos {
        // Blocks of a matrix, and of all matrices: a block has rows of one.
        let of_matrix = blocks.rows.div_ceil(blocks.height.max(1)).max(1);
        let n_blocks = blocks.batches.max(1) * of_matrix;
        let rates = &self.rates;
        let is_inner = |node: NodeId| blocks.inner.iter().any(|&(inner, _)| inner == self.graph.view_base(node));
        let held: usize = blocks.inner.iter().map(|&(node, _)| self.graph[node].ty.bytes()).sum::<usize>() / n_blocks;
        let (mut time, mut outside): (Nanos, BTreeMap<NodeId, (usize, bool)>) = (0.0, BTreeMap::new());
        for member in &blocks.members {
            let mut inside = 0;
            let mut touch = |node: NodeId, jumps: bool| {
                let bytes = self.graph[node].ty.bytes();
                if is_inner(node) {
                    inside += bytes;
                } else {
                    let jumped = outside.get(&node).is_some_and(|&(_, jumped)| jumped);
                    outside.insert(node, (bytes, jumps || jumped));
                }
            };
            let computing = match &member.region {
                Some(region) => {
                    for walk in region.loads.entities().chain(region.outputs.iter().map(|(_, walk)| walk)) {
                        // The last loop is the innermost one.
                        let step = walk.strides.last().copied().unwrap_or(0);
                        touch(walk.node, crosses_lines(step, self.graph[walk.node].ty.dtype));
                    }
                    rates.computing(self.work(region, None)) + ROW_START * short_rows(region) as f64
                }
                None => {
                    let node = member.nodes[0];
                    let [left, right] = [self.graph[node].args[0], self.graph[node].args[1]];
                    let packed = self.graph[right].ty.bytes();
                    time += rates.moving(2 * (of_matrix - 1) * packed, packed);
                    [left, right, node].into_iter().for_each(|node| touch(node, false));
                    self.multiplying(node)
                }
            };
            time += f64::from(rates.launch) * n_blocks as f64 + computing.max(rates.moving(inside, held));
        }
        time.max(outside.into_iter().map(|(node, (bytes, scattered))| self.moving_of(node, bytes, scattered)).sum())
    }

    /// A rough estimate of how long a node takes as a kernel of its own, without laying it out.
    pub fn alone(&self, node: NodeId) -> Nanos {
        let call = &self.graph[node];
        let Some(op) = call.op().filter(|op| !op.is_view()) else { return 0.0 };
        if matches!(op.row().meaning, Meaning::Product | Meaning::Routine(Routine::WindowProduct)) {
            return self.product(node);
        }
        let mut work = Work::default();
        let elements = match op.row().meaning {
            Meaning::Fold(_) => self.graph[call.args[0]].ty.numel(),
            _ => call.ty.numel(),
        };
        work.add(self.work[node], elements);
        let mut moving = self.moving_of(node, call.ty.bytes(), false);
        // Counted from the last dim, because operands are aligned there.
        let innermost = densest(&call.ty.strides).map(|dim| call.ty.strides.len() - dim);
        for arg in self.distinct_args(node) {
            let ty = &self.graph[arg].ty;
            let stride = innermost.and_then(|from_end| ty.strides.get(ty.rank().checked_sub(from_end)?));
            // A gather reads no more of its source than it returns.
            let most = if op.is_gather() && arg == call.args[0] { call.ty.bytes() } else { usize::MAX };
            let size = self.size(arg).min(most);
            moving += self.moving_of(arg, size, stride.is_some_and(|&stride| crosses_lines(stride, ty.dtype)));
        }
        f64::from(self.rates.launch) + moving.max(self.rates.computing(work))
    }

    /// The arithmetic operations of a node, and how long one thread takes for them. Prims and functions count once per
    /// element, and a multiplication with an addition twice. Nothing is known of routines that search or sort.
    pub fn arithmetic(&self, node: NodeId) -> (f64, Nanos) {
        let call = &self.graph[node];
        let Some(op) = call.op().filter(|op| !op.is_view()) else { return (0.0, 0.0) };
        if matches!(op.row().meaning, Meaning::Product | Meaning::Routine(Routine::WindowProduct)) {
            return (2.0 * call.ty.numel() as f64 * self.inner(node) as f64, self.multiplying(node));
        }
        let elements = match op.row().meaning {
            Meaning::Fold(_) => self.graph[call.args[0]].ty.numel(),
            _ => call.ty.numel(),
        };
        let mut work = Work::default();
        work.add(self.work[node], elements);
        let width = call.ty.dtype.compute().size() as f64 / 4.0;
        ((work.plain + work.functions) / width, self.rates.computing(work))
    }

    fn distinct_args(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let mut args = self.graph[node].args.clone();
        args.sort_unstable();
        args.dedup();
        args.into_iter()
    }

    /// The bytes of a value that others read. An expanded view has no more than its base.
    fn size(&self, node: NodeId) -> usize {
        self.graph[node].ty.bytes().min(self.graph[self.graph.view_base(node)].ty.bytes())
    }
}

/// Checks that a merge pays: one kernel must take no longer than its parts.
///
/// # Errors
/// If it takes longer, with both times.
pub fn pays(together: Nanos, apart: Nanos) -> Result<(), Reason> {
    if together <= apart {
        return Ok(());
    }
    let [together, apart] = [together, apart].map(|time| Duration::from_nanos(time.round() as u64));
    Err(Reason::ModelledSlower { together, apart })
}

/// How many values of one size a kernel touches, about.
const KERNEL_VALUES: usize = 4;
/// How long machine code takes to start a row.
const ROW_START: Nanos = 20.0;
/// Rows of fewer elements are short.
const SHORT_ROW: usize = 8;

/// The rows of a kernel whose loops are kept in their order, if they are short: a kernel of its own would take a longer
/// loop for its vectors.
fn short_rows(region: &Region) -> usize {
    let loops: SmallVec<[usize; 6]> = region.rows.iter().chain(&region.inner).copied().collect();
    let walks = || region.loads.entities().chain(region.outputs.iter().map(|(_, walk)| walk));
    let first = first_of_run(&loops, walks);
    let row: usize = loops[first..].iter().product();
    if row < SHORT_ROW { loops[..first].iter().product() } else { 0 }
}

/// The first of the last loops that are one run, because every walk goes through them as one.
fn first_of_run<'w, W: Iterator<Item = &'w Walk>>(loops: &[usize], walks: impl Fn() -> W) -> usize {
    let mut first = loops.len().saturating_sub(1);
    let follows = |at: usize, walk: &Walk| walk.strides[at - 1] == loops[at] * walk.strides[at];
    while first > 0 && walks().all(|walk| follows(first, walk)) {
        first -= 1;
    }
    first
}

/// How long it takes to start rows and instructions in a fold:
///
/// - along runs of rows, where memory goes along these and not along the fold. Machine code starts each run of each
///   element, and the vm each instruction there;
/// - for elements at indices along the fold, which the vm takes one by one.
fn starting_calls(region: &Region) -> Nanos {
    let n_rows = region.rows.len();
    let (Some(last_row), Some(last)) = (n_rows.checked_sub(1), (n_rows + region.inner.len()).checked_sub(1)) else {
        return 0.0;
    };
    if !region.has_folds() || last == last_row {
        return 0.0;
    }
    let walks = || region.loads.entities();
    let elements: usize = region.rows.iter().chain(&region.inner).product();
    // An index may lead anywhere, so elements that are gathered one by one are not the same one.
    let smooth =
        |walk: &Walk, at: usize| i64::from(walk.strides[at] == 1 || walk.strides[at] == 0 && walk.gather.is_none());
    let score: i64 = walks().map(|walk| smooth(walk, last) - smooth(walk, last_row)).sum();
    let lanes: usize = region.rows[first_of_run(&region.rows, walks)..].iter().product();
    if score < 0 && lanes >= LEAST_LANES && is_one_sweep(region) {
        return (elements / lanes) as Nanos * RUN;
    }
    let at_indices = elements as Nanos * walks().filter(|walk| walk.gather.is_some()).count() as Nanos * GATHER;
    if score >= 0 || lanes >= LONG_LANES {
        return at_indices;
    }
    let calls = region.values.iter().filter(|&(id, _)| region.is_full[id]).count() + 1;
    at_indices + (elements / lanes.max(1) * calls) as Nanos * CALL
}

/// Whether no fold and no value per element follows a fold.
fn is_one_sweep(region: &Region) -> bool {
    let mut follows: SideTable<ValueId, bool> = SideTable::with_len(region.values.len(), || false);
    for (id, value) in region.values.iter() {
        follows[id] = match value {
            Value::Fold(_, of) if follows[*of] => return false,
            Value::Fold(..) => true,
            Value::Body(_, args) => args.iter().any(|&arg| follows[arg]),
            Value::Gather(_, index) => follows[*index],
            Value::Load(_) | Value::Number(..) | Value::Position(..) | Value::Extent(_) => false,
        };
    }
    !region.outputs.iter().any(|(id, _)| region.is_full[*id] && follows[*id])
}

/// How long the vm takes to start an instruction along rows, and for an element at an index in a fold; and machine code
/// to start a run of rows (`python/benches/torch_compile.py --functions --models "outer sums,embedding mean"`).
const CALL: Nanos = 15.0;
const GATHER: Nanos = 4.0;
const RUN: Nanos = 8.0;
/// Runs of fewer rows do not fill vectors of machine code.
const LEAST_LANES: usize = 16;
/// Runs of so many rows take longer to compute than to start.
const LONG_LANES: usize = 512;

/// The loop with the smallest stride other than 0.
fn densest(strides: &[usize]) -> Option<usize> {
    (0..strides.len()).filter(|&at| strides[at] != 0).min_by_key(|&at| strides[at])
}

/// Whether elements at that stride are in different cache lines.
fn crosses_lines(stride: usize, dtype: DType) -> bool {
    const CACHE_LINE: usize = 64;
    stride * dtype.size() > CACHE_LINE
}
