//! Folds over an outer dimension of few columns: columns and elements are one loop.
//!
//! A sweep that goes element by element has a short row of code per element, and starting it takes longer than the
//! row. Where the columns of an element follow those of the element before, [`FOLD_LANES`] elements of all columns are
//! one run in memory, and so are their partial results. An operand that is the same for all elements is copied so
//! often before. Rows of the code are positions of the last outer loop then.
//!
//! Sums over the middle of (30, 200, 20) take a third of the time (`python/benches/torch_compile.py --other-functions
//! --models "moments of middle"`).

#![allow(unsafe_code, reason = "copies operands of a launch")]

use super::dense_copies::repeat;
use super::launch::row_offset;
use crate::codegen::geometry::{CACHE_LINE, Geometry};
use crate::codegen::kernel::{FOLD_LANES, Kernel, Level, Source};
use crate::codegen::launch::Pointers;
use smallvec::SmallVec;
use std::ops::Range;

/// Most columns that are merged: more make rows of their own that are long enough.
const MOST_COLUMNS: usize = 96;
/// Most of those for which operands are copied.
const MOST_COPIED: usize = 48;

/// How the columns of a launch are merged with the elements of its folds.
pub(super) struct Merged {
    /// The rows of the last row loop.
    pub(super) columns: usize,
    /// The operands of sweeps that are the same for all elements: their numbers, and the bytes of an element.
    copies: SmallVec<[(usize, usize); 4]>,
}

impl Merged {
    /// How a launch of a kernel with folds is merged, if it can be. The operands of sweeps are `swept`.
    pub(super) fn of(kernel: &Kernel, swept: &[bool], geometry: &Geometry) -> Option<Merged> {
        let (&columns, &[_]) = (geometry.rows.last()?, &geometry.inner[..]) else { return None };
        if !(1..=MOST_COLUMNS).contains(&columns) {
            return None;
        }
        let mut copies: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (slot, (operand, access)) in kernel.operands.iter().zip(&geometry.operands).enumerate() {
            let bytes = operand.dtype.size();
            match [geometry.lane_stride(access), access.inner[0]] {
                _ if access.gather.is_some() => return None,
                _ if !swept[slot] => {}
                [0, 0] => {}
                _ if operand.source == Source::Iota => return None,
                [lane, 0] if lane == bytes && columns <= MOST_COPIED => copies.push((slot, bytes)),
                [lane, element] if lane == bytes && element == columns * bytes => {}
                _ => return None,
            }
        }
        for (output, access) in kernel.outputs.iter().zip(&geometry.outputs) {
            let bytes = output.dtype.size();
            let follows = (geometry.lane_stride(access), access.inner[0]) == (bytes, columns * bytes);
            if kernel.inst(output.value).level == Level::Full && !follows {
                return None;
            }
        }
        Some(Merged { columns, copies })
    }

    /// Bytes of one operand's copies.
    fn copied_bytes(&self, bytes: usize, rows: usize) -> usize {
        (rows * FOLD_LANES * self.columns * bytes).next_multiple_of(CACHE_LINE)
    }

    /// Words of the copies of all operands.
    pub(super) fn copied_words(&self, rows: usize) -> usize {
        self.copies.iter().map(|&(_, bytes)| self.copied_bytes(bytes, rows) / 8).sum()
    }

    /// Where an operand is among the copies, and the bytes of its elements, if it is copied.
    pub(super) fn copied(&self, slot: usize, rows: usize) -> Option<(usize, usize)> {
        let at = self.copies.iter().position(|&(copied, _)| copied == slot)?;
        let before = self.copies[..at].iter().map(|&(_, bytes)| self.copied_bytes(bytes, rows)).sum();
        Some((before, self.copies[at].1))
    }

    /// Copies the operands of some outer positions, which are at most `rows`.
    ///
    /// # Safety
    /// These positions belong to the launch of the pointers. From `to` on there are [`Merged::copied_words`].
    pub(super) unsafe fn copy(
        &self,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        outer: &Range<usize>,
        rows: usize,
        to: *mut u8,
    ) {
        let loops = &geometry.rows[..geometry.rows.len() - 1];
        let n = geometry.n_inner().min(FOLD_LANES);
        let mut to = to;
        for &(slot, bytes) in &self.copies {
            let row_bytes = self.columns * bytes;
            for (nth, position) in outer.clone().enumerate() {
                let offset = row_offset(loops, &geometry.operands[slot], position) as usize;
                let from = pointers.operands[slot].wrapping_add(offset);
                let first = to.wrapping_add(nth * FOLD_LANES * row_bytes);
                // SAFETY: passed on from the caller. Columns follow each other.
                unsafe { repeat(from, first, row_bytes, n) };
            }
            to = to.wrapping_add(self.copied_bytes(bytes, rows));
        }
    }
}
