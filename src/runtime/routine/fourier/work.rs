//! The transforms of a call: which lines a task takes, and its memory.

use super::lines::{Lines, ROWS, scatter};
use super::plans::Planned;
use crate::device::{Device, Storage, pool};
use crate::error::{Error, Result};
use crate::ir::attrs::*;
use crate::ir::shape::normalize_dim;
use crate::ir::{Attr, Fourier, Op};
use crate::runtime::routine::elements::Operands;
use opfuse_fourier::{Plan, TOGETHER, Transform};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// Elements of a result that are worth a task: some tens of microseconds.
const TASK: usize = 1 << 14;
/// Bytes of copied lines that stay in the cache of a core.
const CACHED: usize = 1 << 19;
/// Bytes of a cache line, at least so many of which are copied together.
const CACHE_LINE: usize = 64;
/// The greatest length of lines that are transformed several at a time.
const SHORT: usize = 32;
/// Elements between copied lines, which else would share sets of the cache if their length is a power of two.
const GAP: usize = 16;

pub(super) fn run<T: Planned>(op: Op, kind: Fourier, attrs: &[Attr], mut operands: Operands<'_>) -> Result<()> {
    let (from, to) = (operands.inputs.array(0).layout(), operands.output.array().layout().clone());
    let rank = match kind {
        Fourier::Complex | Fourier::ToReal => from.rank() - 1,
        Fourier::FromReal => from.rank(),
    };
    let part = from.strides.get(rank).copied().unwrap_or(1);
    let dim = normalize_dim(op.name(), Along::read(attrs).dim, from.rank())?;
    let (transform, length, scale, whole) = match kind {
        Fourier::Complex => {
            let FftPairs { forward, scale, .. } = FftPairs::read(attrs);
            let transform = if forward { Transform::Forward } else { Transform::Backward };
            (transform, to.sizes[dim], scale, false)
        }
        Fourier::FromReal => {
            let RfftPairs { onesided, scale, .. } = RfftPairs::read(attrs);
            (Transform::FromReal, from.sizes[dim], scale, !onesided)
        }
        Fourier::ToReal => (Transform::ToReal, to.sizes[dim], IrfftPairs::read(attrs).scale, false),
    };
    let lines = Lines::new(&from.sizes[..rank], &from.strides[..rank], dim, part);
    let after = to.sizes[dim + 1..rank].iter().product();
    let plan = T::plans().get(transform, length);
    let work = Work { lines, plan, length, scale: T::factor(scale), whole, after };
    let (from, to) = (operands.inputs.elements::<T>(0), operands.output.elements::<T>());
    match kind {
        Fourier::Complex => work.run::<2, 2>(from, to),
        Fourier::FromReal => work.run::<1, 2>(from, to),
        Fourier::ToReal => work.run::<2, 1>(from, to),
    }
}

/// A transform of every line.
struct Work<T: Planned> {
    lines: Lines,
    plan: Arc<Plan<T>>,
    length: usize,
    scale: T,
    /// Whether the result of a real line has the elements that are conjugates of others, too.
    whole: bool,
    /// How many lines of the result are between neighbours of one line.
    after: usize,
}

/// A thread's memory: a tile of rows, copied lines, results, and what the plan needs.
struct Scratch<'a, T> {
    tile: &'a mut [T],
    from: &'a mut [T],
    to: &'a mut [T],
    plan: &'a mut [T],
}

impl<T: Planned> Work<T> {
    /// The number of elements of a line of the result.
    fn n_to(&self) -> usize {
        if self.whole { 2 * self.length } else { self.plan.n_to() }
    }

    fn run<const FROM: usize, const TO: usize>(&self, from: &[T], to: &mut [T]) -> Result<()> {
        if self.after == 1 { self.lines::<FROM, TO>(from, to) } else { self.columns::<FROM, TO>(from, to) }
    }

    /// Whether a call of the plan costs as much as the arithmetic, so that it takes several lines.
    fn is_short(&self) -> bool {
        self.plan.is_in_place() && self.length <= SHORT
    }

    /// How many lines are copied together.
    fn together<const N: usize>(&self) -> usize {
        let least = CACHE_LINE / (N * size_of::<T>());
        let bytes = self.plan.n_from().max(self.n_to()) * size_of::<T>();
        let (least, most) = if self.is_short() { (TOGETHER, 8 * TOGETHER) } else { (least, 8 * least) };
        (CACHED / bytes).clamp(least, most)
    }

    /// Calls `work` with a thread's memory for so many copied lines and so many results.
    fn with_scratch(&self, n_from: usize, n_to: usize, work: impl FnOnce(&mut Scratch<'_, T>)) -> Result<()> {
        let n_from = if self.is_short() { n_from.next_multiple_of(TOGETHER) } else { n_from };
        // An element has at most two parts.
        let n_tile = 2 * ROWS * n_from;
        let (n_from, n_to) = (n_from * self.pitch_from(), n_to * self.pitch_to());
        let n_elements = n_tile + n_from + n_to + self.plan.n_scratch();
        let mut storage = Storage::new(Device::CPU, n_elements * size_of::<T>())?;
        let (tile, rest) = bytemuck::cast_slice_mut(storage.bytes_mut()).split_at_mut(n_tile);
        let (from, rest) = rest.split_at_mut(n_from);
        let (to, plan) = rest.split_at_mut(n_to);
        work(&mut Scratch { tile, from, to, plan });
        Ok(())
    }

    fn pitch_from(&self) -> usize {
        if self.is_short() { self.plan.n_from() } else { self.plan.n_from() + GAP }
    }

    fn pitch_to(&self) -> usize {
        self.n_to() + GAP
    }

    /// Transforms copied lines in place.
    fn transform_copies(&self, count: usize, scratch: &mut Scratch<'_, T>) {
        let (n_from, pitch) = (self.plan.n_from(), self.pitch_from());
        if self.is_short() {
            // Always a multiple, so that the bits of a line do not depend on others. The last ones may be arbitrary.
            let lines = &mut scratch.from[..count.next_multiple_of(TOGETHER) * n_from];
            return self.plan.run(&mut [], lines, scratch.plan, self.scale);
        }
        for line in scratch.from.chunks_exact_mut(pitch).take(count) {
            self.plan.run(&mut [], &mut line[..n_from], scratch.plan, self.scale);
        }
    }

    /// Transforms one line, which is in `to` if the plan works in place.
    fn transform(&self, from: &mut [T], to: &mut [T], scratch: &mut [T]) {
        self.plan.run(from, &mut to[..self.plan.n_to()], scratch, self.scale);
        if self.whole {
            for k in self.length / 2 + 1..self.length {
                let [real, imaginary] = [0, 1].map(|part: usize| to[2 * (self.length - k) + part]);
                (to[2 * k], to[2 * k + 1]) = (real, -imaginary);
            }
        }
    }

    /// Transforms where lines of the result are dense.
    fn lines<const FROM: usize, const TO: usize>(&self, from: &[T], to: &mut [T]) -> Result<()> {
        let n_to = self.n_to();
        let is_direct = self.lines.are_dense::<FROM>() && !self.is_short();
        let together = if is_direct { 1 } else { self.together::<FROM>() };
        let task = |first: usize, part: &mut [T]| {
            let n_copied = if is_direct && self.plan.is_in_place() { 0 } else { together };
            self.with_scratch(n_copied, 0, |scratch| {
                let (mut line, mut rest) = (first, part);
                while !rest.is_empty() {
                    let count = together.min(rest.len() / n_to).min(self.lines.run_from(line));
                    let (block, others) = std::mem::take(&mut rest).split_at_mut(count * n_to);
                    if is_direct {
                        self.direct(from, line, block, scratch);
                    } else {
                        self.block::<FROM>(from, line, block, scratch);
                    }
                    (line, rest) = (line + count, others);
                }
            })
        };
        let n_lines = to.len() / n_to;
        let group = TASK.div_ceil(n_to).next_multiple_of(together);
        let threads = n_lines.div_ceil(group).min(pool::num_threads());
        if threads <= 1 {
            return task(0, to);
        }
        let parts = to.chunks_mut(group * n_to).enumerate().map(|(at, part)| (at * group, part));
        shared(parts.collect(), threads, |(first, part)| task(first, part))
    }

    /// Transforms a dense line to a dense one.
    fn direct(&self, from: &[T], line: usize, to: &mut [T], scratch: &mut Scratch<'_, T>) {
        if self.plan.is_in_place() {
            self.lines.copy_dense(from, line, to);
            return self.transform(&mut [], to, scratch.plan);
        }
        let copied = &mut scratch.from[..self.plan.n_from()];
        self.lines.copy_dense(from, line, copied);
        self.transform(copied, to, scratch.plan);
    }

    /// Transforms lines, which are equally far apart, to dense ones.
    fn block<const FROM: usize>(&self, from: &[T], line: usize, to: &mut [T], scratch: &mut Scratch<'_, T>) {
        let (n_from, n_to, pitch) = (self.plan.n_from(), self.n_to(), self.pitch_from());
        let count = to.len() / n_to;
        self.lines.gather::<T, FROM>(from, line, count, scratch.tile, scratch.from, pitch);
        if self.plan.is_in_place() {
            self.transform_copies(count, scratch);
            if pitch == n_to {
                return to.copy_from_slice(&scratch.from[..to.len()]);
            }
            let copies = scratch.from.chunks_exact(pitch).zip(to.chunks_exact_mut(n_to));
            return copies.for_each(|(copy, to)| to.copy_from_slice(&copy[..n_to]));
        }
        for (copied, to) in scratch.from.chunks_exact_mut(pitch).zip(to.chunks_exact_mut(n_to)) {
            self.transform(&mut copied[..n_from], to, scratch.plan);
        }
    }

    /// Transforms where lines of the result are columns.
    fn columns<const FROM: usize, const TO: usize>(&self, from: &[T], to: &mut [T]) -> Result<()> {
        let n_row = self.after * TO;
        let n_outer = self.n_to() / TO * n_row;
        let together = self.together::<FROM>().min(self.together::<TO>()).min(self.after);
        let task = |first: usize, rows: &mut [&mut [T]], scratch: &mut Scratch<'_, T>| {
            let n_columns = rows[0].len() / TO;
            let mut column = 0;
            while column < n_columns {
                let line = first + column;
                let count = together.min(n_columns - column).min(self.lines.run_from(line));
                let rows = rows.iter_mut().map(|row| &mut row[column * TO..(column + count) * TO]);
                self.column_block::<FROM, TO>(from, line, count, rows, scratch);
                column += count;
            }
        };
        let n_results = if self.plan.is_in_place() { 0 } else { together };
        let (n_tasks, n_outers) = (to.len().div_ceil(TASK), to.len() / n_outer);
        let threads = n_tasks.min(pool::num_threads());
        // Whole matrices of columns.
        let outers = |first: usize, part: &mut [T]| {
            self.with_scratch(together, n_results, |scratch| {
                for (at, matrix) in part.chunks_exact_mut(n_outer).enumerate() {
                    let mut rows: SmallVec<[&mut [T]; 32]> = matrix.chunks_exact_mut(n_row).collect();
                    task((first + at) * self.after, &mut rows, scratch);
                }
            })
        };
        if threads <= 1 {
            return outers(0, to);
        }
        if n_outers >= 4 * threads {
            let group = n_outers.div_ceil(n_tasks);
            let parts = to.chunks_mut(group * n_outer).enumerate().map(|(at, part)| (at * group, part));
            return shared(parts.collect(), threads, |(first, part)| outers(first, part));
        }
        // Parts of the columns of each matrix.
        let columns = self.after.div_ceil(n_tasks.div_ceil(n_outers)).next_multiple_of(together);
        let mut parts: Vec<(usize, Vec<&mut [T]>)> = Vec::new();
        for (outer, matrix) in to.chunks_exact_mut(n_outer).enumerate() {
            let start = parts.len();
            parts.extend((0..self.after).step_by(columns).map(|first| (outer * self.after + first, Vec::new())));
            for row in matrix.chunks_exact_mut(n_row) {
                let pieces = parts[start..].iter_mut().zip(row.chunks_mut(columns * TO));
                pieces.for_each(|((_, rows), piece)| rows.push(piece));
            }
        }
        shared(parts, threads, |(first, mut rows)| {
            self.with_scratch(together, n_results, |scratch| task(first, &mut rows, scratch))
        })
    }

    /// Transforms `count` lines from `line` on, which lie equally far apart, to columns.
    fn column_block<'a, const FROM: usize, const TO: usize>(
        &self,
        from: &[T],
        line: usize,
        count: usize,
        rows: impl ExactSizeIterator<Item = &'a mut [T]>,
        scratch: &mut Scratch<'_, T>,
    ) {
        let (n_from, pitch) = (self.plan.n_from(), self.pitch_from());
        self.lines.gather::<T, FROM>(from, line, count, scratch.tile, scratch.from, pitch);
        if self.plan.is_in_place() {
            self.transform_copies(count, scratch);
            return scatter::<T, TO>(scratch.from, pitch, count, scratch.tile, rows);
        }
        let results = scratch.to.chunks_exact_mut(self.pitch_to());
        for (from, to) in scratch.from.chunks_exact_mut(pitch).zip(results).take(count) {
            self.transform(&mut from[..n_from], &mut to[..self.n_to()], scratch.plan);
        }
        scatter::<T, TO>(scratch.to, self.pitch_to(), count, scratch.tile, rows);
    }
}

/// Calls `work` with every part, on so many threads.
///
/// # Errors
/// One of those of `work`.
fn shared<P: Send>(parts: Vec<P>, threads: usize, work: impl Fn(P) -> Result<()> + Sync) -> Result<()> {
    let parts: Vec<Mutex<Option<P>>> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    pool::run(parts.len(), threads, &|task| {
        let part = parts[task].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = part.map(&work) {
            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
