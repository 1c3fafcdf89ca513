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

use super::along_rows::{goes_along_rows, times_computed};
use super::hoist::{self, Candidates};
use super::rates::{Nanos, Rates};
use super::region::{Region, Value, Walk};
use super::routines;
use super::starts::{self, TRANSPOSED_ROW};
use super::unit::{Blocks, Unit, UnitKind};
use super::work::{NodeWork, Work};
use crate::error::Reason;
use crate::ir::{DType, Graph, Meaning, NodeId, Op, Routine, SideTable};
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
        let mut gathers = region.values.iter().filter(|(_, value)| matches!(value, Value::Gather(..)));
        // Those in a prologue have a kernel of their own.
        let picks = gathers.any(|(id, _)| !hoisted.is_some_and(|hoisted| hoisted.contains(id)));
        let starting = starts::calls(region) + starts::indices(self.graph, region) + starts::rows(region, picks);
        f64::from(self.rates.launch) + running + starting
    }

    /// The time to move what a kernel reads and writes, each element once. Elements of walks with another cache line
    /// for each of them are scattered.
    fn moving_all(&self, region: &Region) -> Nanos {
        let loops = || region.rows.iter().chain(&region.inner);
        let innermost = innermost(region);
        let mut memories: BTreeMap<NodeId, (usize, bool)> = BTreeMap::new();
        for walk in region.loads.entities().chain(region.outputs.iter().map(|(_, walk)| walk)) {
            let is_walked = |&(_, &stride): &(&usize, &usize)| stride != 0 || walk.gather.is_some();
            let elements: usize = loops().zip(&walk.strides).filter(is_walked).map(|(&size, _)| size).product();
            let ty = &self.graph[walk.node].ty;
            let memory = memories.entry(walk.node).or_default();
            memory.0 = (memory.0 + elements * ty.dtype.size()).min(ty.bytes());
            memory.1 |= is_crossing(walk, innermost, ty.dtype);
        }
        memories.into_iter().map(|(node, (bytes, scattered))| self.moving_of(node, bytes, scattered)).sum()
    }

    fn work(&self, region: &Region, hoisted: Option<&Candidates>) -> Work {
        let rows: usize = region.rows.iter().product();
        let full = rows * region.inner.iter().product::<usize>();
        let own = hoisted.map_or(0, |hoisted| hoisted.elements(region));
        let (mut sum, mut picks, computed) = (Work::default(), None, times_computed(region));
        let innermost = innermost(region);
        let folds_along_vectors = region.has_folds() && !goes_along_rows(region) && full >= rows * TRANSPOSED_ROW;
        let moving = |walk: &Walk| {
            let is_strided = innermost.is_some_and(|at| !matches!(walk.strides[at] as isize, -1..=1));
            Work::moving(self.graph[walk.node].ty.dtype, is_strided)
        };
        for (value, walk) in &region.outputs {
            sum.add(moving(walk), if region.is_full[*value] { full } else { rows });
        }
        for (id, value) in region.values.iter() {
            let times = match hoisted {
                Some(hoisted) if hoisted.contains(id) => own,
                Some(_) | None if region.is_full[id] => full * computed[id],
                Some(_) | None => rows,
            };
            match value {
                Value::Body(node, _) => {
                    let mut work = self.work[*node];
                    if folds_along_vectors && !region.is_full[id] && work.functions > LONG_FUNCTION {
                        work.functions *= ROW_LANES;
                    }
                    sum.add(work, times);
                }
                Value::Fold(node, _) => sum.add(self.work[*node], full),
                Value::Gather(_, index) => {
                    let picked = picks.get_or_insert_with(|| hoist::loops_of_values(region));
                    sum.add(Work::PICK, times.min(hoist::elements(region, picked[*index])));
                }
                Value::Load(load) => sum.add(moving(&region.loads[*load]), times),
                Value::Number(..) | Value::Position(..) | Value::Extent(_) => {}
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
        // Vectors go along the columns, or along the chain of a single one. Few columns leave lanes unused.
        let elements = match ty.sizes.last() {
            Some(&columns) if columns > 1 => ty.numel() / columns * columns.next_multiple_of(PRODUCT_LANES),
            Some(_) | None => ty.numel(),
        };
        elements as f64 * inner as f64 * width * 1e3 / f64::from(self.rates.multiply_adds.max(1))
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
                    rates.computing(self.work(region, None)) + starts::short_rows(region)
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
        let mut work = self.whole(node, op);
        let mut moving = self.moving_of(node, call.ty.bytes(), false);
        // Counted from the last dim, because operands are aligned there.
        let innermost = densest(&call.ty.strides).map(|dim| call.ty.strides.len() - dim);
        for arg in self.distinct_args(node) {
            let ty = &self.graph[arg].ty;
            let stride = innermost.and_then(|from_end| ty.strides.get(ty.rank().checked_sub(from_end)?));
            // A gather reads no more of its source than it returns.
            let most = if op.is_gather() && arg == call.args[0] { call.ty.bytes() } else { usize::MAX };
            let size = self.size(arg).min(most);
            let is_strided = stride.is_some_and(|&stride| !matches!(stride as isize, -1..=1));
            work.add(Work::moving(ty.dtype, is_strided), size / ty.dtype.size().max(1));
            moving += self.moving_of(arg, size, stride.is_some_and(|&stride| crosses_lines(stride, ty.dtype)));
        }
        f64::from(self.rates.launch) + moving.max(self.rates.computing(work))
    }

    /// The arithmetic operations of a node, and how long one thread takes for them. Prims and functions count once per
    /// element, and a multiplication with an addition twice. Routines have no arithmetic operations, but take their
    /// time.
    pub fn arithmetic(&self, node: NodeId) -> (f64, Nanos) {
        let call = &self.graph[node];
        let Some(op) = call.op().filter(|op| !op.is_view()) else { return (0.0, 0.0) };
        if matches!(op.row().meaning, Meaning::Product | Meaning::Routine(Routine::WindowProduct)) {
            return (2.0 * call.ty.numel() as f64 * self.inner(node) as f64, self.multiplying(node));
        }
        let work = self.whole(node, op);
        (work.operations, self.rates.computing(work))
    }

    /// The work of all elements of a node, without what moving them takes.
    fn whole(&self, node: NodeId, op: Op) -> Work {
        let call = &self.graph[node];
        let elements = match op.row().meaning {
            Meaning::Routine(routine) => return routines::work(self.graph, node, routine),
            Meaning::Fold(_) => self.graph[call.args[0]].ty.numel(),
            _ => call.ty.numel(),
        };
        let mut work = Work::default();
        work.add(self.work[node], elements);
        work
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

/// The elements for which a function of a folded row takes as long, where a vector has one row: it uses one lane, and
/// nothing else runs meanwhile. Shorter functions, such as roots, are hidden by the next row's loads.
const ROW_LANES: f64 = 48.0;
const LONG_FUNCTION: f64 = 2.0;
/// The columns of a product that are computed together.
const PRODUCT_LANES: usize = 16;
/// How many values of one size a kernel touches, about.
const KERNEL_VALUES: usize = 4;

/// The loop that runs fastest through memory. Row loops are ordered by the strides of the first output. Folds go along
/// their last loop, unless memory goes along the rows.
fn innermost(region: &Region) -> Option<usize> {
    let n_rows = region.rows.len();
    match region.outputs.first() {
        Some((_, walk)) if region.inner.is_empty() => densest(&walk.strides),
        Some(_) | None if goes_along_rows(region) => n_rows.checked_sub(1),
        Some(_) | None => (n_rows + region.inner.len()).checked_sub(1),
    }
}

/// Whether neighbours along the innermost loop are in different cache lines.
fn is_crossing(walk: &Walk, innermost: Option<usize>, dtype: DType) -> bool {
    innermost.is_some_and(|at| crosses_lines(walk.strides[at], dtype))
}

/// The loop with the smallest stride other than 0.
fn densest(strides: &[usize]) -> Option<usize> {
    (0..strides.len()).filter(|&at| strides[at] != 0).min_by_key(|&at| strides[at])
}

/// Whether elements at that stride are in different cache lines.
fn crosses_lines(stride: usize, dtype: DType) -> bool {
    const CACHE_LINE: usize = 64;
    // A stride may be negative, as it wraps.
    (stride as isize).unsigned_abs() * dtype.size() > CACHE_LINE
}
