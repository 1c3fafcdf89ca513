//! The interpreter: runs a plan over the loops of one part of a launch.
//!
//! With lanes along the inner loop, a row's elements are walked in tiles, and a fold has one set of partial results.
//! With lanes along the rows, a tile of rows is walked element by element, and a fold has partial results per lane.
//! Both walk the inner elements of a partial result in logical order, which is the order of the folds. If many partial
//! results would not fit the nearest cache, they are computed one after another.

#![allow(unsafe_code, reason = "operands, outputs and tiles are raw memory")]

use super::merged::Merged;
use super::plan::{AccessId, Fold, FoldId, Line, Location, Pass, Plan, TileShape};
use super::routine::{BLOCK, TileOperand};
use super::scratch::{Live, Partials, Scratch};
use crate::codegen::fold::{self, FoldValue, Step};
use crate::codegen::geometry::offset;
use crate::codegen::{Access, FOLD_BLOCK, FOLD_LANES, Faults, Geometry, Lanes, Pointers};
use std::ops::Range;

/// Most lanes along the rows for which memory is prefetched some inner elements ahead.
const NARROW_LANES: usize = 256;
/// How many inner elements ahead.
const AHEAD: usize = 4;
/// Bytes that are prefetched at the beginning of contiguous memory.
const HEAD_BYTES: usize = 1 << 10;
/// Bytes of partial results that stay in the nearest cache beside the elements that update them.
const NEAR_BYTES: usize = 32 << 10;
/// An operand of at most this many bytes is probably cached.
const CACHED_BYTES: usize = 1 << 20;

/// A plan for one launch, on one thread.
pub(super) struct Interpreter<'a> {
    pub(super) plan: &'a Plan,
    pub(super) geometry: &'a Geometry,
    pointers: Pointers<'a>,
    pub(super) faults: &'a Faults,
    pub(super) scratch: Box<Scratch>,
    /// Most elements of a tile, in whole blocks.
    tile: usize,
    /// From one partial result of a fold to the next with lanes along the rows, and between inner elements of row
    /// buffers.
    width: usize,
    /// The inner elements that a tile may hold.
    merged: Option<Merged>,
    /// Where row values are spread.
    pub(super) spread: *mut u8,
    /// Elements of the current tile.
    pub(super) n: usize,
    /// Offset of the current tile in a row buffer, in elements.
    pub(super) at: usize,
    /// Position of the current tile in the sequence of the folds.
    pub(super) element: usize,
}

impl<'a> Interpreter<'a> {
    /// An interpreter with tiles of at most `tile` lanes, in whole blocks.
    pub(super) fn new(
        plan: &'a Plan,
        geometry: &'a Geometry,
        pointers: Pointers<'a>,
        faults: &'a Faults,
        tile: usize,
        merged: Option<Merged>,
    ) -> Interpreter<'a> {
        let scratch = Scratch::take();
        let lanes = geometry.rows.last().copied().unwrap_or(1);
        let (tile, width) = match merged {
            Some(Merged { count }) => ((count * lanes).next_multiple_of(BLOCK), lanes),
            None => (tile, tile),
        };
        let (spread, n, at, element) = (std::ptr::null_mut(), 1, 0, 0);
        let mut interpreter =
            Interpreter { plan, geometry, pointers, faults, scratch, tile, width, merged, spread, n, at, element };
        interpreter.lay_out();
        interpreter
    }

    /// Returns the scratch memory.
    pub(super) fn finish(self) {
        self.scratch.keep();
    }

    pub(super) fn access(&self, access: AccessId) -> &'a Access {
        let n_operands = self.geometry.operands.len();
        match access.index().checked_sub(n_operands) {
            None => &self.geometry.operands[access.index()],
            Some(output) => &self.geometry.outputs[output],
        }
    }

    /// Lays out scratch memory and sets every place that does not move.
    fn lay_out(&mut self) {
        let (plan, geometry) = (self.plan, self.geometry);
        let n_inner = geometry.n_inner();
        let line = |bytes: usize| bytes.next_multiple_of(Line::BYTES);
        let (levels, width) = match geometry.lanes {
            Lanes::Inner => (1, 1),
            Lanes::Rows => (fold::levels(n_inner), self.width),
        };
        let tiles = line(plan.block_bytes);
        let partials = tiles + line(plan.tile_bytes * self.tile);
        // A result is read in whole blocks.
        let fold_bytes = |size: usize| line((levels * FOLD_LANES * width + BLOCK) * size);
        let of_fold = |fold: &Fold| (fold_bytes(fold.ty.size()), if fold.has_index() { fold_bytes(8) } else { 0 });
        let buffers = partials + plan.folds.entities().map(|fold| of_fold(fold).0 + of_fold(fold).1).sum::<usize>();
        let of_buffer = |&size: &usize| line((n_inner * width + BLOCK) * size);
        let scratch = &mut *self.scratch;
        let spread = buffers + plan.buffers.entities().map(of_buffer).sum::<usize>();
        let of_pass = |pass: &Pass| pass.rows_read.iter().map(|value| line(self.tile * value.size)).sum::<usize>();
        let spread_bytes = self.merged.map_or(0, |_| plan.passes.iter().map(of_pass).max().unwrap_or(0));
        let base = scratch.reserve(spread + spread_bytes);
        self.spread = base.wrapping_add(spread);
        let constants = plan.constants.as_ptr().cast::<u8>().cast_mut();
        scratch.places.refill(plan.locations.entities().map(|&(location, shape)| {
            let ptr = match location {
                Location::Constant(at) => constants.wrapping_add(at),
                Location::Block(at) => base.wrapping_add(at),
                Location::Tile(at) => base.wrapping_add(tiles + at * self.tile),
                Location::Moving => std::ptr::null_mut(),
            };
            let place = TileOperand { ptr, step: if shape == TileShape::Tile { BLOCK } else { 0 } };
            Live { place, source: std::ptr::null() }
        }));
        let mut next = partials;
        let mut take = |bytes: usize| {
            next += bytes;
            base.wrapping_add(next - bytes)
        };
        scratch.partials.refill(plan.folds.entities().map(|fold| {
            let (values, indices) = of_fold(fold);
            Partials { acc: take(values), index: take(indices).cast() }
        }));
        scratch.buffers.refill(plan.buffers.entities().map(|size| take(of_buffer(size))));
        scratch.blocks.resize_with(plan.folds.len(), Vec::new);
        let accesses = geometry.operands.iter().chain(&geometry.outputs);
        scratch.strides.refill(accesses.map(|access| geometry.lane_stride(access)));
        scratch.row.refill(scratch.strides.values().map(|_| std::ptr::null_mut()));
        scratch.here.clone_from(&scratch.row);
    }

    /// Moves to a row (or, with lanes along the rows, to a position of the outer row loops and a lane).
    pub(super) fn set_row(&mut self, outer: usize, lane: usize) {
        let loops = match self.geometry.lanes {
            Lanes::Inner => &self.geometry.rows[..],
            Lanes::Rows => &self.geometry.rows[..self.geometry.rows.len().saturating_sub(1)],
        };
        for id in self.scratch.row.ids() {
            let access = self.access(id);
            let pointer = match id.index().checked_sub(self.geometry.operands.len()) {
                // The base of an iota is a number, not an address.
                None if self.plan.iotas[id] => std::ptr::null_mut(),
                None => self.pointers.operands[id.index()].cast_mut(),
                Some(output) => self.pointers.outputs[output],
            };
            let lane_offset = lane.wrapping_mul(self.scratch.strides[id]);
            let offset = (access.base as usize).wrapping_add(offset(loops, &access.rows, outer));
            self.scratch.row[id] = pointer.wrapping_add(offset.wrapping_add(lane_offset));
        }
    }

    /// Runs the current row, or tile of `lanes` rows. Without folds, only the given elements of it.
    ///
    /// # Safety
    /// Every access of the current row, moved over all (or the given) inner elements and over `lanes` lanes, is inside
    /// its memory. Outputs are as [`VmProgram::run`](super::Program::run) says. The instruction set is available.
    pub(super) unsafe fn run_row(&mut self, lanes: usize, elements: Range<usize>) {
        for pass in &self.plan.passes {
            // SAFETY: passed on from the caller.
            unsafe {
                self.run_row_values(pass, lanes);
                if !pass.tile.is_empty() {
                    match self.geometry.lanes {
                        Lanes::Inner => self.sweep_row(pass, elements.clone()),
                        Lanes::Rows => self.sweep_rows(pass, lanes),
                    }
                }
            }
            if self.geometry.lanes == Lanes::Inner {
                for &id in &pass.folds {
                    let fold = &self.plan.folds[id];
                    let blocks = &self.scratch.blocks[id];
                    let value =
                        if let [one] = blocks[..] { one } else { fold::sequence(fold.combine, fold.ty, blocks) };
                    // SAFETY: the results of folds have blocks of their own.
                    unsafe { self.set_result(id, value) };
                }
            }
        }
    }

    /// Folds whole blocks of the current row. `values` gets a value per block and fold, blocks outermost.
    ///
    /// # Safety
    /// See [`Interpreter::run_row`]; outputs are not touched.
    pub(super) unsafe fn fold_stretch(&mut self, elements: Range<usize>, values: &mut [FoldValue]) {
        let pass = &self.plan.passes[0];
        // SAFETY: passed on from the caller.
        unsafe {
            self.run_steps(&pass.rows);
            self.sweep_row(pass, elements);
        }
        for (id, fold) in self.plan.folds.iter() {
            // A row without elements is one block without elements.
            let blocks = &self.scratch.blocks[id];
            let empty = [fold::sequence(fold.combine, fold.ty, &[])];
            let blocks = if blocks.is_empty() { &empty } else { &blocks[..] };
            for (value, &block) in values.iter_mut().skip(id.index()).step_by(self.plan.folds.len()).zip(blocks) {
                *value = block;
            }
        }
    }

    /// Computes what follows the folds of the current row, from the values of their blocks.
    ///
    /// # Safety
    /// See [`Interpreter::run_row`].
    pub(super) unsafe fn finish_folds(&mut self, values: &[FoldValue]) {
        let n_folds = self.plan.folds.len();
        for (id, fold) in self.plan.folds.iter() {
            let blocks: Vec<FoldValue> = values.iter().skip(id.index()).step_by(n_folds).copied().collect();
            let value = if let [one] = blocks[..] { one } else { fold::sequence(fold.combine, fold.ty, &blocks) };
            // SAFETY: only programs with lanes along the inner loop split.
            unsafe { self.set_result(id, value) };
        }
        for pass in &self.plan.passes {
            // SAFETY: passed on from the caller.
            unsafe { self.run_row_values(pass, 1) };
        }
    }

    /// Computes and stores the row values before a pass.
    ///
    /// # Safety
    /// See [`Interpreter::run_row`].
    pub(super) unsafe fn run_row_values(&mut self, pass: &Pass, lanes: usize) {
        self.n = lanes;
        // SAFETY: passed on from the caller.
        unsafe {
            self.run_steps(&pass.rows);
            self.run_steps(&pass.stores);
        }
    }

    /// Sets the result of a fold along the lanes.
    ///
    /// # Safety
    /// Lanes are along the inner loop.
    pub(super) unsafe fn set_result(&mut self, id: FoldId, value: FoldValue) {
        let fold = &self.plan.folds[id];
        let (bits, ptr) = (value.result(fold.combine), self.place(fold.result).ptr);
        // SAFETY: the fold's place is one block of its result's size in scratch memory.
        unsafe {
            match fold.result_size() {
                1 => std::slice::from_raw_parts_mut(ptr, BLOCK).fill(bits as u8),
                4 => std::slice::from_raw_parts_mut(ptr.cast::<u32>(), BLOCK).fill(bits as u32),
                _ => std::slice::from_raw_parts_mut(ptr.cast::<u64>(), BLOCK).fill(bits),
            }
        }
    }

    /// Walks elements of the current row in tiles. The results of the folds' blocks are kept.
    ///
    /// # Safety
    /// See [`Interpreter::run_row`].
    pub(super) unsafe fn sweep_row(&mut self, pass: &Pass, elements: Range<usize>) {
        self.start_folds(pass, 1);
        pass.folds.iter().for_each(|&fold| self.scratch.blocks[fold].clear());
        let (&last, outer_loops) = self.geometry.inner.split_last().expect("there is an inner loop");
        let has_folds = !pass.folds.is_empty();
        let mut element = elements.start;
        while element < elements.end {
            let (outer, lane) = (element / last, element % last);
            let run_end = elements.end.min(element + last - lane);
            for id in self.scratch.row.ids() {
                let offset = offset(outer_loops, &self.access(id).inner, outer);
                let offset = offset.wrapping_add(lane.wrapping_mul(self.scratch.strides[id]));
                self.scratch.here[id] = self.scratch.row[id].wrapping_add(offset);
            }
            while element < run_end {
                let mut n = self.tile.min(run_end - element);
                if has_folds {
                    n = n.min(FOLD_BLOCK - element % FOLD_BLOCK);
                }
                (self.n, self.at, self.element) = (n, element, element);
                // SAFETY: these elements are among those the caller vouched for.
                unsafe { self.run_steps(&pass.tile) };
                element += n;
                let scratch = &mut *self.scratch;
                for (here, stride) in scratch.here.values_mut().zip(scratch.strides.values()) {
                    *here = here.wrapping_add(n.wrapping_mul(*stride));
                }
                if has_folds && (element.is_multiple_of(FOLD_BLOCK) || element == elements.end) {
                    self.finish_block(pass);
                    if element < elements.end {
                        self.start_folds(pass, 1);
                    }
                }
            }
        }
    }

    /// Finishes a block of every fold of a pass with lanes along the inner loop.
    fn finish_block(&mut self, pass: &Pass) {
        for &id in &pass.folds {
            let (fold, partials) = (&self.plan.folds[id], self.scratch.partials[id]);
            // SAFETY: the fold has this many partial results in scratch memory.
            let value = unsafe { (fold.routines.finish)(partials.acc, partials.index) };
            self.scratch.blocks[id].push(value);
        }
    }

    /// Sets all partial results of a pass's folds, `width` lanes each, to the identity.
    fn start_folds(&mut self, pass: &Pass, width: usize) {
        for &id in &pass.folds {
            let (fold, partials) = (&self.plan.folds[id], self.scratch.partials[id]);
            // SAFETY: the fold has this many partial results in scratch memory.
            unsafe { (fold.routines.init)(partials.acc, partials.index, FOLD_LANES * width) };
        }
    }

    /// Walks all inner elements of a tile of rows.
    ///
    /// # Safety
    /// See [`Interpreter::run_row`].
    unsafe fn sweep_rows(&mut self, pass: &Pass, lanes: usize) {
        let n_inner = self.geometry.n_inner();
        let levels = fold::levels(n_inner);
        self.start_partials(pass, 0..levels, n_inner);
        self.n = lanes;
        self.scratch.here.clone_from(&self.scratch.row);
        let partials: usize = pass.folds.iter().map(|&fold| self.plan.folds[fold].bytes()).sum();
        let by_partial = partials * lanes * FOLD_LANES > NEAR_BYTES && n_inner > FOLD_LANES;
        let merged = self.merged.filter(|merged| merged.fits(self.plan, self.geometry, pass));
        // SAFETY: row values have an element per lane, and the layout has room for their copies.
        let unspread = merged.map(|merged| unsafe { self.spread_rows(pass, lanes, merged.count) });
        fold::steps(n_inner, |step| match step {
            // SAFETY: these elements are among those the caller vouched for.
            Step::Elements(block) => unsafe {
                if let Some(merged) = merged {
                    self.sweep_merged(pass, lanes, block, merged);
                } else if by_partial {
                    self.sweep_partials(pass, block);
                } else {
                    self.sweep_block(pass, lanes, block);
                }
            },
            Step::Halve { level, half, pairs } => self.halve(pass, level, half, pairs),
            Step::Carry { level, lane } => self.carry(pass, level, lane),
        });
        for (value, ptr) in pass.rows_read.iter().zip(unspread.into_iter().flatten()) {
            self.scratch.places[value.place].place.ptr = ptr;
        }
        for &id in &pass.folds {
            let (acc, acc_index) = self.partial(id, levels - 1, 0);
            let fold = &self.plan.folds[id];
            let place = &mut self.scratch.places[fold.result].place;
            place.ptr = if fold.has_index() { acc_index.cast() } else { acc };
        }
    }

    /// Walks the inner elements of a block of the folds in order.
    ///
    /// # Safety
    /// See [`Interpreter::run_row`].
    unsafe fn sweep_block(&mut self, pass: &Pass, lanes: usize, block: Range<usize>) {
        for element in block {
            (self.at, self.element) = (element * self.width, element);
            if lanes <= NARROW_LANES {
                self.prefetch(lanes);
            }
            // SAFETY: passed on from the caller.
            unsafe { self.run_steps(&pass.tile) };
            self.advance_inner(element, 1);
        }
    }

    /// Walks the inner elements of a block of the folds in order, some at a time.
    ///
    /// # Safety
    /// See [`Interpreter::run_row`]; the pass fits.
    unsafe fn sweep_merged(&mut self, pass: &Pass, lanes: usize, block: Range<usize>, merged: Merged) {
        for first in block.clone().step_by(merged.count) {
            let count = merged.count.min(block.end - first);
            (self.n, self.at, self.element) = (count * lanes, first * self.width, first);
            // SAFETY: passed on from the caller: the lanes of these inner elements follow each other in all memory that
            // the steps access, and so do their partial results.
            unsafe { self.run_steps(&pass.tile) };
            self.advance_inner(first, count);
        }
        self.n = lanes;
    }

    /// Walks the inner elements of a block of the folds, one partial result after another, so that each stays in the
    /// nearest cache.
    ///
    /// # Safety
    /// See [`Interpreter::run_row`].
    unsafe fn sweep_partials(&mut self, pass: &Pass, block: Range<usize>) {
        for first in (block.start..block.end).take(FOLD_LANES) {
            self.move_inner(first);
            for element in (first..block.end).step_by(FOLD_LANES) {
                (self.at, self.element) = (element * self.width, element);
                self.prefetch_heads();
                // SAFETY: passed on from the caller.
                unsafe { self.run_steps(&pass.tile) };
                self.advance_inner(element, FOLD_LANES);
            }
        }
        self.move_inner(block.end);
    }

    /// Prefetches what a tile of few rows reads some inner elements later. The hardware prefetcher does not follow
    /// short, distant runs of memory.
    fn prefetch(&self, lanes: usize) {
        let size = self.geometry.inner[self.geometry.inner.len() - 1];
        for (here, step, stride) in self.reads() {
            let (bytes, ahead) = (lanes.saturating_mul(stride), step.wrapping_mul(AHEAD));
            let is_far = ahead > bytes && step.wrapping_mul(size) > CACHED_BYTES;
            if is_far && bytes <= NARROW_LANES * size_of::<u64>() {
                prefetch_range(here.wrapping_add(ahead), bytes);
            }
        }
    }

    /// Prefetches the beginning of the next elements of a partial result, in a tile of many rows. The hardware
    /// prefetcher follows contiguous memory, but not to the beginning of the next run.
    fn prefetch_heads(&self) {
        for (here, step, stride) in self.reads() {
            let (bytes, ahead) = (self.n.saturating_mul(stride), step.wrapping_mul(FOLD_LANES));
            if stride <= size_of::<u64>() && ahead > bytes {
                prefetch_range(here.wrapping_add(ahead), bytes.min(HEAD_BYTES));
            }
        }
    }

    /// Per operand, where it is read now, and its strides per inner element and per lane, in bytes.
    fn reads(&self) -> impl Iterator<Item = (*mut u8, usize, usize)> {
        let last = self.geometry.inner.len() - 1;
        let places = self.scratch.here.values().zip(self.scratch.strides.values());
        self.geometry
            .operands
            .iter()
            .zip(places)
            .map(move |(access, (&here, &stride))| (here, access.inner[last], stride))
    }

    /// Advances all accesses by some inner elements.
    fn advance_inner(&mut self, element: usize, by: usize) {
        let sizes = &self.geometry.inner;
        let last = sizes.len() - 1;
        if last > 0 && element % sizes[last] + by >= sizes[last] {
            return self.move_inner(element + by);
        }
        let accesses = self.geometry.operands.iter().chain(&self.geometry.outputs);
        for (here, access) in self.scratch.here.values_mut().zip(accesses) {
            *here = here.wrapping_add(access.inner[last].wrapping_mul(by));
        }
    }

    /// Moves all accesses to an inner element.
    fn move_inner(&mut self, element: usize) {
        let sizes = &self.geometry.inner;
        let scratch = &mut *self.scratch;
        let accesses = self.geometry.operands.iter().chain(&self.geometry.outputs);
        for ((here, row), access) in scratch.here.values_mut().zip(scratch.row.values()).zip(accesses) {
            *here = row.wrapping_add(offset(sizes, &access.inner, element));
        }
    }

    /// A fold's partial results per lane, for a level and a partial result of the order.
    pub(super) fn partial(&self, fold: FoldId, level: usize, lane: usize) -> (*mut u8, *mut i64) {
        let partials = self.scratch.partials[fold];
        let at = (level * FOLD_LANES + lane) * self.width;
        (partials.acc.wrapping_add(at * self.plan.folds[fold].ty.size()), partials.index.wrapping_add(at))
    }

    /// Sets the partial results of some levels to the identity, as far as `n` elements reach.
    fn start_partials(&mut self, pass: &Pass, levels: Range<usize>, n: usize) {
        for &id in &pass.folds {
            let init = self.plan.folds[id].routines.init;
            for level in levels.clone() {
                let (acc, acc_index) = self.partial(id, level, 0);
                // SAFETY: every level has `FOLD_LANES` tiles of partial results in scratch memory.
                unsafe { init(acc, acc_index, n.clamp(1, FOLD_LANES) * self.width) };
            }
        }
    }

    /// Combines partial results of a level, from `half` on, into the first ones.
    fn halve(&mut self, pass: &Pass, level: usize, half: usize, pairs: usize) {
        for &id in &pass.folds {
            for lane in 0..pairs {
                let (low, high) = (self.partial(id, level, lane), self.partial(id, level, lane + half));
                self.combine_partials(id, low, high);
            }
        }
    }

    /// Combines the result of a level into the next one, and restarts the level.
    fn carry(&mut self, pass: &Pass, level: usize, lane: usize) {
        for &id in &pass.folds {
            let (to, from) = (self.partial(id, level + 1, lane), self.partial(id, level, 0));
            self.combine_partials(id, to, from);
        }
        self.start_partials(pass, level..level + 1, FOLD_LANES);
    }

    fn combine_partials(&self, fold: FoldId, to: (*mut u8, *mut i64), from: (*mut u8, *mut i64)) {
        let value = TileOperand { ptr: from.0, step: BLOCK };
        let index = TileOperand { ptr: from.1.cast(), step: BLOCK };
        let partials = Partials { acc: to.0, index: to.1 };
        // SAFETY: both are tiles of partial results in scratch memory, and they are different ones.
        unsafe { (self.plan.folds[fold].routines.into)(&partials.feed(value, index, self.n, 0)) };
    }
}

/// Prefetches the cache line at an address, which may be invalid.
#[inline(always)]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which accesses no memory; every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches a range of bytes, whose addresses may be invalid.
pub(in crate::codegen) fn prefetch_range(from: *mut u8, bytes: usize) {
    (0..bytes).step_by(Line::BYTES).for_each(|at| prefetch(from.wrapping_add(at)));
}
