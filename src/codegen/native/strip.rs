//! The memory of a strip of rows whose folds have vectors along the rows.
//!
//! Partial results stay in a near cache: of each fold of a stage there is one per row and [`FOLD_LANES`] elements, and
//! one more in a fold of indices. Beside them are the values per row that stages keep for later ones, and copies of
//! operands, if columns are [merged](super::merged_rows) with elements.

#![allow(unsafe_code, reason = "writes to scratch memory by addresses")]

use super::along_rows::Fold;
use super::argument;
use super::dense_copies::repeat;
use super::merged_rows::Merged;
use super::sweeps::Partial;
use crate::codegen::fold;
use crate::codegen::geometry::{CACHE_LINE, Geometry};
use crate::codegen::kernel::{FOLD_LANES, Kernel};
use crate::codegen::launch::{Part, Pointers};
use crate::ir::scalar::Ty;
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes of the partial results of a strip of rows.
const PARTIAL_BYTES: usize = 32 << 10;
/// Most bytes of the operands of a strip that several stages read, so that they stay in a core's second-level cache. If
/// those of the narrowest strip are more, a strip is as wide as its partial results allow.
const OPERAND_BYTES: usize = 512 << 10;
/// A strip that is a part of all rows has a multiple of so many.
const STRIP: usize = 64;
/// A strip of all rows has memory for a multiple of so many, which are whole vectors or halves of these.
const VECTOR: usize = 16;
/// Most elements of the folds that are finished together: the time that starting code takes is shared, which long folds
/// need not.
const SHARED_ELEMENTS: usize = 2048;
/// Most rows of a strip.
const MOST_ROWS: usize = 4096;
/// Bytes of the largest element.
const MOST_BYTES: usize = 8;

/// How large a strip is.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Outer positions.
    pub(super) rows: usize,
    /// Rows of the last row loop.
    pub(super) width: usize,
    /// Bytes of the partial results of a stage.
    partial_bytes: usize,
}

impl Shape {
    /// The strips of a part of a launch. There are so many stages, each with at most so many bytes of partial results
    /// of a row and lane.
    pub(super) fn new(
        kernel: &Kernel,
        geometry: &Geometry,
        part: &Part,
        merged: Option<&Merged>,
        (n_stages, bytes): (usize, usize),
    ) -> Shape {
        let n_inner = geometry.n_inner();
        let mut near = PARTIAL_BYTES / (bytes * n_inner.clamp(1, FOLD_LANES)).max(1);
        if n_stages > 1 {
            let element: usize = kernel.operands.iter().map(|operand| operand.dtype.size()).sum();
            let cached = OPERAND_BYTES / (element * n_inner).max(1);
            near = if cached < STRIP { near } else { near.min(cached) };
        }
        let width = match merged {
            Some(merged) => merged.columns,
            None => near.clamp(STRIP, MOST_ROWS).next_multiple_of(STRIP).min(part.lanes.len().next_multiple_of(VECTOR)),
        };
        let rows = (near / width.max(1)).min(SHARED_ELEMENTS / n_inner.max(1)).min(part.outer.len()).max(1);
        let partial_bytes = fold::levels(n_inner) * rows * FOLD_LANES * width * bytes;
        Shape { rows, width, partial_bytes: partial_bytes.next_multiple_of(CACHE_LINE) }
    }

    /// The elements of a buffer for one value per row, or for one per merged element.
    fn of_value(self, is_merged: bool) -> usize {
        let n = self.rows * self.width * if is_merged { FOLD_LANES } else { 1 };
        n.next_multiple_of(CACHE_LINE)
    }

    /// The words of all memory of a strip.
    pub(super) fn words(self, values: &[Ty], merged: Option<&Merged>) -> usize {
        let values = values.len() * self.of_value(merged.is_some()) * MOST_BYTES;
        (self.partial_bytes + values) / 8 + merged.map_or(0, |merged| merged.copied_words(self.rows))
    }
}

/// The memory of a strip.
pub(super) struct Strip<'a> {
    pub(super) shape: Shape,
    /// The types of what stages keep for later ones.
    pub(super) values: &'a [Ty],
    pub(super) merged: Option<&'a Merged>,
    /// Where [`Shape::words`] begin.
    pub(super) start: *mut u8,
}

impl Strip<'_> {
    /// The columns that are merged with elements.
    pub(super) fn columns(&self) -> Option<usize> {
        self.merged.map(|merged| merged.columns)
    }

    /// Where a kept value is, and the bytes of its elements.
    pub(super) fn value(&self, nth: usize) -> (*mut u8, usize) {
        let before = nth * self.shape.of_value(self.merged.is_some()) * MOST_BYTES;
        (self.start.wrapping_add(self.shape.partial_bytes + before), self.values[nth].dtype().size())
    }

    /// Where an operand is copied to, and the bytes of its elements, if it is copied.
    pub(super) fn copied(&self, slot: usize) -> Option<(*mut u8, usize)> {
        let (offset, bytes) = self.merged?.copied(slot, self.shape.rows)?;
        Some((self.copies().wrapping_add(offset), bytes))
    }

    fn copies(&self) -> *mut u8 {
        let values = self.values.len() * self.shape.of_value(self.merged.is_some()) * MOST_BYTES;
        self.start.wrapping_add(self.shape.partial_bytes + values)
    }

    /// Copies the operands of some outer positions that merged columns need.
    ///
    /// # Safety
    /// These positions belong to the launch of the pointers.
    pub(super) unsafe fn copy(&self, geometry: &Geometry, pointers: Pointers<'_>, outer: &Range<usize>) {
        if let Some(merged) = self.merged {
            // SAFETY: passed on from the caller; the strip has room for the copies.
            unsafe { merged.copy(geometry, pointers, outer, self.shape.rows, self.copies()) };
        }
    }

    /// Repeats a kept value for each element that is merged with the columns.
    pub(super) fn repeat(&self, nth: usize, rows: usize, n_inner: usize) {
        let Some(columns) = self.columns() else { return };
        let (start, bytes) = self.value(nth);
        let row_bytes = columns * bytes;
        for row in 0..rows {
            let first = start.wrapping_add(row * FOLD_LANES * row_bytes);
            let n = n_inner.min(FOLD_LANES);
            // SAFETY: a value has so many elements, of which the first ones were written.
            unsafe { repeat(first, first.wrapping_add(row_bytes), row_bytes, n.saturating_sub(1)) };
        }
    }
}

/// The partial results of a stage: of each fold, of each level, [`FOLD_LANES`] per row.
#[derive(Clone, Copy)]
pub(super) struct Partials<'a> {
    pub(super) folds: &'a [Fold],
    shape: Shape,
    /// The partial results of each kind that a fold has.
    n: usize,
    start: *mut u8,
}

impl<'a> Partials<'a> {
    /// Those of a strip, for folds of so many elements.
    pub(super) fn new(folds: &'a [Fold], strip: &Strip<'_>, n_inner: usize) -> Partials<'a> {
        let Shape { rows, width, .. } = strip.shape;
        Partials { folds, shape: strip.shape, n: fold::levels(n_inner) * rows * FOLD_LANES * width, start: strip.start }
    }

    /// The partial results of all folds, each with its place for the first level and lane.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'a Partial, *mut u8)> {
        let (mut at, n) = (self.start, self.n);
        self.folds.iter().flat_map(|fold| &fold.partials).map(move |partial| {
            let place = at;
            at = at.wrapping_add(n * partial.bytes());
            (partial, place)
        })
    }

    /// The bytes from the first partial result of a kind to one of a level and a lane of the order.
    pub(super) fn offset(&self, partial: &Partial, level: usize, lane: usize) -> usize {
        (level * self.shape.rows * FOLD_LANES + lane) * self.shape.width * partial.bytes()
    }

    /// Sets the partial results that no sweep writes first to the identity: those of later levels, or those of a fold
    /// over nothing.
    pub(super) fn start_levels(&self, n_inner: usize) {
        (1..fold::levels(n_inner)).for_each(|level| self.set_identity(level));
        if n_inner == 0 {
            self.set_identity(0);
        }
    }

    fn set_identity(&self, level: usize) {
        let n = self.shape.rows * FOLD_LANES * self.shape.width;
        for (partial, place) in self.all() {
            let (to, bits) = (place.wrapping_add(self.offset(partial, level, 0)), partial.identity);
            // SAFETY: every level has so many partial results in scratch memory, which is aligned.
            unsafe {
                match partial.bytes() {
                    1 => std::slice::from_raw_parts_mut(to, n).fill(bits as u8),
                    4 => std::slice::from_raw_parts_mut(to.cast::<u32>(), n).fill(bits as u32),
                    _ => std::slice::from_raw_parts_mut(to.cast::<u64>(), n).fill(bits),
                }
            }
        }
    }

    /// Combines partial results of a level, from `half` on, into the first ones.
    pub(super) fn halve(&self, level: usize, half: usize, pairs: usize) {
        self.combine((level, 0), (level, half), pairs);
    }

    /// Combines the result of a level into a partial result of the next one, and restarts that level where a later
    /// block may write fewer of its partial results.
    pub(super) fn carry(&self, level: usize, lane: usize) {
        self.combine((level + 1, lane), (level, 0), 1);
        if level > 0 {
            self.set_identity(level);
        }
    }

    /// Combines some partial results of each fold, of all rows, into as many others. They are given by level and lane.
    fn combine(&self, to: (usize, usize), from: (usize, usize), count: usize) {
        let mut all = self.all();
        for fold in self.folds {
            let own: SmallVec<[_; 2]> = all.by_ref().take(fold.partials.len()).collect();
            let of = |(level, lane): (usize, usize)| {
                let words = move |(partial, place): &(&Partial, *mut u8)| {
                    let bytes = partial.bytes();
                    let row = FOLD_LANES * self.shape.width * bytes;
                    [place.wrapping_add(self.offset(partial, level, lane)) as u64, row as u64, bytes as u64]
                };
                own.iter().map(words)
            };
            let mut words: SmallVec<[u64; 32]> = SmallVec::from_elem(0, argument::gather(3 * own.len(), 0));
            words[argument::ROWS] = self.shape.rows as u64;
            words[argument::INNER] = (count * self.shape.width) as u64;
            for (access, of_access) in of(to).chain(of(from)).chain(of(to)).enumerate() {
                let at = argument::ACCESSES + access * argument::ACCESS_WORDS;
                words[at..at + argument::ACCESS_WORDS].copy_from_slice(&of_access);
            }
            // SAFETY: both are so many partial results in scratch memory, and they do not overlap.
            unsafe { fold.combine.code.call(&mut words) };
        }
    }
}
