//! How a kernel is run on one set of shapes: loops, strides, and the loop that is vectorized.
//!
//! A geometry is built once per shape and kept; a call only brings pointers. Strides are in bytes for memory and in
//! units for an iota. Loops are merged where every access allows it. Row loops are sorted by the strides of the first
//! output, so that memory is walked forwards, unless the caller asks for an order. The inner loops of a fold keep
//! their logical order, because it is the order of the fold.

use super::kernel::{Kernel, Kind, Level, Operand, Output, Source};
use smallvec::SmallVec;

/// One stride per loop.
pub type LoopStrides = SmallVec<[usize; 4]>;

/// How one operand or output is laid out over the kernel's logical dimensions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Access {
    /// Per row dimension; bytes, or units for an iota.
    pub rows: LoopStrides,
    /// Per inner dimension.
    pub inner: LoopStrides,
    /// Offset of the first element from the pointer given at launch; the start of an iota.
    pub base: i64,
    /// For a gathered operand: size and stride of the gathered dimension.
    pub gather: Option<(usize, usize)>,
}

/// Which loop is vectorized: consecutive lanes are its consecutive elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// Along the last inner loop: a fold's partial results are lanes.
    Inner,
    /// Along the last row loop: every lane has its own partial results. For folds over an outer dimension, and for
    /// short ones.
    Rows,
}

/// The order of the row loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoopOrder {
    /// By the strides of the first output, largest outermost; ties keep their order.
    OfMemory,
    /// As they are given.
    Given,
}

/// How an access moves along the vector loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Neighbouring lanes are neighbours in memory.
    Contiguous,
    /// All lanes read the same element.
    Uniform,
    /// Anything else.
    Strided,
}

/// A last loop of fewer elements is short: a kernel without folds vectorizes another loop of [`LONG_LOOP`] or more.
const SHORT_LOOP: usize = 8;
/// Elements from which a loop is worth vectorizing with strides.
pub(super) const LONG_LOOP: usize = 64;

/// Elements from which short rows run as one: the vm, which small kernels run in, would take them one by one.
const LEAST_AS_ONE: usize = 1 << 14;

/// Most operands whose short rows are copied so that they run as one. To copy more takes longer than to start each row
/// (`python/benches/torch_compile.py --other-functions --models "factor machine,hidden markov"`).
const MOST_COPIES: usize = 4;

/// Fewest elements of a loop that is vectorized because operands are dense along it, though outputs are not.
const DENSE_LOOP: usize = 16;
/// Fewest operands that are far apart along the outputs' loop and dense along the other one: each would be transposed,
/// where otherwise the outputs are.
const DENSE_OPERANDS: usize = 2;

/// Most bytes of a row that is staged once for all rows.
const MAX_SHARED_BYTES: usize = 256 << 10;
/// Rows from which the copy pays.
const MIN_SHARED_ROWS: usize = 8;

/// With fewer rows, a vector along them is mostly empty.
const FEW_LANES: usize = 16;
/// A fold is long if it has this many times more elements than there are rows.
const LONG_FOLD: usize = 8;
/// Fewest elements that pay for a fold of several rows at a time, if there are others: without that, 500 sums of 64
/// rows of 3 take a sixth of the time (`python/benches/torch_compile.py --other-functions --models "volume rendered"`).
const LONG_MERGED: usize = 2048;
/// Bytes of a cache line: lanes farther apart touch one each.
pub(super) const CACHE_LINE: usize = 64;

/// The loops of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Sizes of the row loops, outermost first; empty for a single row.
    pub rows: SmallVec<[usize; 4]>,
    /// Sizes of the inner loops, outermost first; never empty. Without folds there is exactly one.
    pub inner: SmallVec<[usize; 4]>,
    /// Operands in order, with strides per loop of `rows` and `inner`.
    pub operands: Vec<Access>,
    /// Outputs in order; a row output has inner strides of 0.
    pub outputs: Vec<Access>,
    /// The vector loop.
    pub lanes: Lanes,
}

impl Geometry {
    /// The number of rows.
    pub fn n_rows(&self) -> usize {
        self.rows.iter().product()
    }

    /// The number of inner elements.
    pub fn n_inner(&self) -> usize {
        self.inner.iter().product()
    }

    /// The stride of an access along the vector loop.
    pub fn lane_stride(&self, access: &Access) -> usize {
        let strides = match self.lanes {
            Lanes::Inner => &access.inner,
            Lanes::Rows => &access.rows,
        };
        strides.last().copied().unwrap_or(0)
    }

    /// How an access of elements of `bytes` bytes moves along the vector loop. An iota is contiguous at stride 1.
    pub fn class(&self, access: &Access, bytes: usize) -> Class {
        match self.lane_stride(access) {
            0 => Class::Uniform,
            stride if stride == bytes => Class::Contiguous,
            _ => Class::Strided,
        }
    }

    /// Whether an operand is the same in every row (loop-invariant), and short enough to be staged once for all rows.
    pub(super) fn is_shared_row(&self, operand: &Operand, access: &Access) -> bool {
        let in_memory = operand.source == Source::Memory && access.gather.is_none();
        let is_invariant = access.rows.iter().all(|&stride| stride == 0) && self.inner.len() == 1;
        let is_short = self.n_inner().saturating_mul(operand.dtype.size()) <= MAX_SHARED_BYTES;
        in_memory && is_invariant && is_short && self.n_rows() >= MIN_SHARED_ROWS
    }

    /// The classes of all operands, then of all outputs. Compiled code depends on them and on the kernel.
    pub fn classes(&self, kernel: &Kernel) -> SmallVec<[Class; 8]> {
        let operand = |(access, operand): (&Access, &Operand)| self.class(access, operand.unit());
        let outputs = self.outputs.iter().zip(&kernel.outputs);
        let operands = self.operands.iter().zip(&kernel.operands).map(operand);
        operands.chain(outputs.map(|(access, output)| self.class(access, output.dtype.size()))).collect()
    }

    /// Plans the loops for accesses over logical `rows` and `inner` sizes. For a kernel without folds `inner` must be
    /// empty; its last loop becomes the inner one.
    pub fn plan(
        kernel: &Kernel,
        rows: &[usize],
        inner: &[usize],
        operands: Vec<Access>,
        outputs: Vec<Access>,
        order: LoopOrder,
    ) -> Geometry {
        let mut plan = Geometry { rows: rows.into(), inner: inner.into(), operands, outputs, lanes: Lanes::Inner };
        plan.drop_units();
        match order {
            LoopOrder::OfMemory => plan.order_rows(),
            LoopOrder::Given => {}
        }
        plan.merge(|access| &mut access.rows, |plan| &mut plan.rows);
        plan.merge(|access| &mut access.inner, |plan| &mut plan.inner);
        if !kernel.has_folds() {
            plan.split_row(kernel, order);
        }
        if plan.inner.is_empty() {
            plan.inner.push(1);
            plan.single_element(kernel);
        }
        if kernel.has_folds() {
            plan.lanes = plan.choose_lanes(kernel);
        }
        plan
    }

    fn each(&mut self, mut visit: impl FnMut(&mut Access)) {
        self.operands.iter_mut().chain(&mut self.outputs).for_each(&mut visit);
    }

    /// Removes loops of size 1.
    fn drop_units(&mut self) {
        for index in (0..self.rows.len()).rev().filter(|&index| self.rows[index] == 1).collect::<Vec<_>>() {
            self.rows.remove(index);
            self.each(|access| {
                access.rows.remove(index);
            });
        }
        for index in (0..self.inner.len()).rev().filter(|&index| self.inner[index] == 1).collect::<Vec<_>>() {
            self.inner.remove(index);
            self.each(|access| {
                access.inner.remove(index);
            });
        }
    }

    /// Sorts row loops by the strides of the first output, largest outermost; ties keep their order.
    fn order_rows(&mut self) {
        let Some(first) = self.outputs.first() else { return };
        let mut order: SmallVec<[usize; 6]> = (0..self.rows.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(first.rows[index]));
        self.rows = order.iter().map(|&index| self.rows[index]).collect();
        self.each(|access| access.rows = order.iter().map(|&index| access.rows[index]).collect());
    }

    /// Merges neighbouring loops that every access walks as one.
    fn merge(
        &mut self,
        strides: impl Fn(&mut Access) -> &mut LoopStrides,
        sizes: impl Fn(&mut Geometry) -> &mut SmallVec<[usize; 4]>,
    ) {
        let mut index = sizes(self).len();
        while index > 1 {
            index -= 1;
            let inner_size = sizes(self)[index];
            let mut whole = true;
            self.each(|access| {
                let strides = strides(access);
                whole &= strides[index - 1] == inner_size.wrapping_mul(strides[index]);
            });
            if whole {
                sizes(self)[index - 1] *= inner_size;
                sizes(self).remove(index);
                self.each(|access| {
                    let strides = strides(access);
                    strides.remove(index - 1);
                });
            }
        }
    }

    /// Moves a row loop inside: the last one, or a longer one where the last is too short to be worth starting.
    fn split_row(&mut self, kernel: &Kernel, order: LoopOrder) {
        let Some(last) = self.rows.len().checked_sub(1) else { return };
        let operands: Vec<(&Operand, &[usize])> =
            kernel.operands.iter().zip(&self.operands).map(|(operand, access)| (operand, &access.rows[..])).collect();
        let has_gathers = self.operands.iter().any(|access| access.gather.is_some());
        let dense = match order {
            LoopOrder::OfMemory if !has_gathers => dense_row(&self.rows, &operands),
            LoopOrder::OfMemory | LoopOrder::Given => None,
        };
        let is_short = order == LoopOrder::OfMemory && self.rows[last] < SHORT_LOOP && !self.runs_as_one(kernel);
        let longer = (0..last).rev().find(|&index| is_short && self.rows[index] >= LONG_LOOP);
        let index = dense.or(longer).unwrap_or(last);
        self.inner.push(self.rows.remove(index));
        self.each(|access| {
            let stride = access.rows.remove(index);
            access.inner.push(stride);
        });
        if order == LoopOrder::OfMemory {
            self.move_dense_row(kernel);
        }
    }

    /// Whether the elements of an access follow each other in all loops; they have so many bytes, or units of an iota.
    pub(super) fn is_dense(&self, access: &Access, unit: usize) -> bool {
        let rows = self.rows.iter().zip(&access.rows);
        is_dense(rows.chain(self.inner.iter().zip(&access.inner)), unit)
    }

    /// The operands that are copied where the rows of a kernel without folds run as one (`native::short_rows`); `None`
    /// if they cannot. The rows of outputs follow each other, and operands have neighbours or one element along them.
    /// An index is loaded, and is that of a whole row. What is at it is copied, and it is not needed then. Nor is what
    /// no instruction reads, which may have no elements.
    pub(super) fn copied_rows(&self, kernel: &Kernel) -> Option<SmallVec<[usize; 4]>> {
        let last = |access: &Access| access.inner.last().or(access.rows.last()).copied().unwrap_or(0);
        let is_near = |(access, operand): (&Access, &Operand)| {
            operand.source == Source::Iota || last(access) == 0 || last(access) == operand.dtype.size()
        };
        let is_dense = |(access, output): (&Access, &Output)| self.is_dense(access, output.dtype.size());
        let is_joined = self.outputs.iter().zip(&kernel.outputs).all(is_dense)
            && self.operands.iter().zip(&kernel.operands).all(is_near);
        let gathers = if is_joined { kernel.gathers_by_loads()? } else { return None };
        if gathers.iter().any(|&(_, index)| last(&self.operands[index]) != 0) {
            return None;
        }
        let is_copied = |slot: &usize| {
            let (access, operand) = (&self.operands[*slot], &kernel.operands[*slot]);
            if let Some(&(source, _)) = gathers.iter().find(|&&(source, index)| source == *slot || index == *slot) {
                return source == *slot;
            }
            let is_loaded = kernel.insts.iter().any(|inst| inst.kind == Kind::Load(*slot as u16));
            let moves = access.rows.iter().chain(&access.inner).any(|&stride| stride != 0);
            is_loaded && moves && !self.is_dense(access, operand.unit())
        };
        let copied: SmallVec<[usize; 4]> = (0..kernel.operands.len()).filter(is_copied).collect();
        (copied.len() <= MOST_COPIES).then_some(copied)
    }

    /// Whether machine code runs the rows of a kernel as one, though they are short.
    fn runs_as_one(&self, kernel: &Kernel) -> bool {
        self.rows.iter().product::<usize>() >= LEAST_AS_ONE
            && cfg!(target_arch = "x86_64")
            && kernel.prim_by_element().is_none()
            && self.copied_rows(kernel).is_some()
    }

    /// Makes the loop along which an operand is dense the last row loop, where the operand is far apart along the
    /// vector loop. Machine code stages such an operand by transposing it (`native::transposed`).
    fn move_dense_row(&mut self, kernel: &Kernel) {
        let Some(last) = self.rows.len().checked_sub(1) else { return };
        let apart = |stride: usize| (stride as isize).unsigned_abs();
        let is_transposed_by = |at: usize| {
            self.operands.iter().zip(&kernel.operands).any(|(access, operand)| {
                let is_far = apart(self.lane_stride(access)) > CACHE_LINE && access.gather.is_none();
                operand.source == Source::Memory && is_far && apart(access.rows[at]) == operand.dtype.size()
            })
        };
        if is_transposed_by(last) {
            return;
        }
        let Some(at) = (0..last).rev().find(|&at| self.rows[at] >= DENSE_LOOP && is_transposed_by(at)) else { return };
        let size = self.rows.remove(at);
        self.rows.push(size);
        self.each(|access| {
            let stride = access.rows.remove(at);
            access.rows.push(stride);
        });
    }

    /// Gives the loop of a single element its strides. Without folds they are those of neighbours, so that one element
    /// runs the same code as many. An operand whose dtype differs from the result's is mostly a number: its stride is
    /// 0.
    fn single_element(&mut self, kernel: &Kernel) {
        let streams = !kernel.has_folds();
        let result = kernel.outputs.first().map(|output| output.dtype);
        let has_result = kernel.operands.iter().any(|operand| Some(operand.dtype) == result);
        for (access, operand) in self.operands.iter_mut().zip(&kernel.operands) {
            let stride = match operand.source {
                Source::Memory if has_result && Some(operand.dtype) != result => 0,
                Source::Memory => operand.dtype.size(),
                Source::Iota => 1,
            };
            access.inner.push(if streams { stride } else { 0 });
        }
        for (access, output) in self.outputs.iter_mut().zip(&kernel.outputs) {
            access.inner.push(if streams { output.dtype.size() } else { 0 });
        }
    }

    /// Whether only operands move along the last inner loop, and each by at most a cache line.
    fn is_close_along_inner(&self, kernel: &Kernel) -> bool {
        let moves = |access: &Access| access.inner.iter().any(|&stride| stride != 0);
        let is_close = |access: &Access| {
            let stride = access.inner.last().copied().unwrap_or(0) as isize;
            access.gather.is_none() && stride.unsigned_abs() <= CACHE_LINE
        };
        let mut operands = self.operands.iter().zip(&kernel.operands);
        operands.all(|(access, operand)| operand.source == Source::Iota || is_close(access))
            && !self.outputs.iter().any(moves)
    }

    /// Whether all folds are of one pass over memory in which the rows of an inner element are neighbours, and those of
    /// the next one follow them.
    fn is_dense_along_rows(&self, kernel: &Kernel) -> bool {
        let (Some(&row_lanes), [_]) = (self.rows.last(), &self.inner[..]) else { return false };
        let in_row = |operand: &Operand, access: &Access| {
            let (row, inner) = (access.rows.last().copied().unwrap_or(0), access.inner.last().copied().unwrap_or(0));
            let bytes = operand.dtype.size();
            (row, inner) == (0, 0) || (row, inner) == (bytes, row_lanes * bytes)
        };
        let mut operands = kernel.operands.iter().zip(&self.operands);
        kernel.folds_once()
            && !kernel.has_gathers()
            && !kernel.folds_indices()
            && operands.all(|(operand, access)| operand.source == Source::Memory && in_row(operand, access))
    }

    /// Chooses the vector loop. It is the rows where more full accesses are contiguous along them, or the fold is
    /// short.
    /// It is never a few neighbouring rows, as in a mean per channel: vectors would be short, and start at each
    /// element.
    fn choose_lanes(&self, kernel: &Kernel) -> Lanes {
        let (Some(&row_lanes), Some(&inner_lanes)) = (self.rows.last(), self.inner.last()) else { return Lanes::Inner };
        if row_lanes < FEW_LANES && inner_lanes >= LONG_FOLD * row_lanes && self.is_close_along_inner(kernel) {
            // Rows that follow each other are folded several elements at a time (`vm::merged`), which starts slowly.
            let is_long = inner_lanes * row_lanes >= LONG_MERGED || self.rows.len() == 1;
            return if is_long && self.is_dense_along_rows(kernel) { Lanes::Rows } else { Lanes::Inner };
        }
        let full = |slot: usize| {
            kernel.insts.iter().any(|inst| {
                matches!(inst.kind, Kind::Load(s) | Kind::Gather(s) if s as usize == slot) && inst.level == Level::Full
            })
        };
        let sizes = kernel.operands.iter().map(|operand| operand.dtype.size());
        let mut score = 0i64;
        for (slot, (access, bytes)) in self.operands.iter().zip(sizes).enumerate() {
            if kernel.operands[slot].source == Source::Memory && full(slot) {
                // An index may lead anywhere, so a gathered element is not the same one where it has no stride.
                let is_still = |stride: usize| stride == 0 && access.gather.is_none();
                let smooth = |stride: Option<&usize>| stride.is_none_or(|&stride| is_still(stride) || stride == bytes);
                let inner = smooth(access.inner.last()) || self.is_shared_row(&kernel.operands[slot], access);
                score += inner as i64 - smooth(access.rows.last()) as i64;
            }
        }
        let short = inner_lanes < 16 && row_lanes > inner_lanes;
        if score < 0 || (score == 0 && short) || (inner_lanes < 8 && row_lanes >= 64) {
            Lanes::Rows
        } else {
            Lanes::Inner
        }
    }
}

/// Whether elements follow each other in loops of these sizes and strides, outermost first.
pub(super) fn is_dense<'a>(loops: impl DoubleEndedIterator<Item = (&'a usize, &'a usize)>, unit: usize) -> bool {
    let mut dense = unit;
    loops.rev().all(|(&size, &stride)| {
        let follows = stride == dense;
        dense = dense.wrapping_mul(size);
        follows
    })
}

/// The offset of a flat position in nested loops.
pub(super) fn offset(sizes: &[usize], strides: &[usize], mut flat: usize) -> usize {
    let mut sum = 0usize;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        // If a loop is empty, only the first position is asked for.
        if flat == 0 {
            break;
        }
        sum = sum.wrapping_add((flat % size).wrapping_mul(stride));
        flat /= size;
    }
    sum
}

/// A loop before the last one along which all operands are dense, where several are far apart along the last one. So it
/// is for the channels of windows whose outputs have the channels in front.
pub(super) fn dense_row(rows: &[usize], operands: &[(&Operand, &[usize])]) -> Option<usize> {
    // In a matrix the operands are transposed.
    let last = rows.len().checked_sub(1).filter(|&last| last >= 2)?;
    let in_memory = || operands.iter().filter(|(operand, _)| operand.source == Source::Memory);
    let is_far = |stride: usize| (stride as isize).unsigned_abs() > CACHE_LINE;
    if in_memory().filter(|(_, strides)| is_far(strides[last])).count() < DENSE_OPERANDS {
        return None;
    }
    let is_dense = |at: usize, operand: &Operand, strides: &[usize]| strides[at] == operand.dtype.size();
    // Numbers of a loop that are the same in all others, such as the weights of channels, are gathered once.
    let fits = |at: usize| {
        let is_shared = |strides: &[usize]| (0..rows.len()).all(|other| other == at || strides[other] == 0);
        in_memory().all(|(operand, strides)| is_dense(at, operand, strides) || is_shared(strides))
            && in_memory().filter(|(operand, strides)| is_dense(at, operand, strides)).count() >= DENSE_OPERANDS
    };
    (0..last).rev().find(|&at| rows[at] >= DENSE_LOOP && fits(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::kernel::{Inst, Kind};
    use crate::ir::scalar::{Reg, Ty};
    use crate::ir::{Combine, DType};
    use smallvec::smallvec;

    /// The vector loop of a sum over `length` elements that are `stride` bytes apart, in neighbouring rows.
    fn lanes(n_rows: usize, length: usize, stride: usize) -> Lanes {
        let inst = |kind, args: &[Reg], level| Inst { kind, args: args.into(), ty: Ty::F32, level };
        let kernel = Kernel {
            operands: vec![Operand { dtype: DType::F32, source: Source::Memory }],
            insts: vec![
                inst(Kind::Load(0), &[], Level::Full),
                inst(Kind::Fold(Combine::Sum), &[Reg::new(0)], Level::Row),
            ],
            outputs: vec![Output { dtype: DType::F32, value: Reg::new(1) }],
        };
        let operand = Access { rows: smallvec![4], inner: smallvec![stride], ..Access::default() };
        let output = Access { rows: smallvec![4], inner: smallvec![0], ..Access::default() };
        Geometry::plan(&kernel, &[n_rows], &[length], vec![operand], vec![output], LoopOrder::OfMemory).lanes
    }

    #[test]
    fn vectors_run_along_long_folds_of_few_rows() {
        assert_eq!(lanes(3, 1000, 16), Lanes::Inner);
        assert_eq!(lanes(15, 1000, 64), Lanes::Inner);
        assert_eq!(lanes(3, 1000, 12), Lanes::Rows, "rows follow each other");
        assert_eq!(lanes(16, 1000, 64), Lanes::Rows, "a vector is full");
        assert_eq!(lanes(3, 20, 12), Lanes::Rows, "the fold is short");
        assert_eq!(lanes(3, 1000, 68), Lanes::Rows, "each element is in another cache line");
        assert_eq!(lanes(1000, 1000, 4), Lanes::Inner, "rows are contiguous");
    }
}
