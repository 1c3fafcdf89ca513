//! Copies of short rows that follow each other: of rows that are apart, of one row or number for many, of numbers that
//! are counted, and of rows at indices.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::dense_copies::copy_dense;
use crate::codegen::geometry::{Access, Geometry};
use crate::codegen::kernel::{Kernel, Source};
use crate::codegen::launch::{Faults, Pointers};
use crate::codegen::vm::Isa;
use smallvec::{SmallVec, smallvec};

/// Most elements of a short row. A copy of a number for each of 32 takes longer than to start a row.
pub(super) const MOST_LANES: usize = 24;
/// Elements that a copy of a number per row writes at once, some of them past its row.
pub(super) const MOST_SPREAD: usize = 16;

/// Most bytes of a short row.
const MOST_BYTES: usize = MOST_LANES * 8;
/// The row at an index that is out of range, which is an error of the launch.
static ZEROS: [u8; MOST_BYTES] = [0; MOST_BYTES];

/// Copies of the rows of an operand, some at a time.
pub(super) struct RowCopies<'a> {
    pub(super) slot: usize,
    pub(super) bytes: usize,
    access: &'a Access,
    is_iota: bool,
    indices: Option<Indices<'a>>,
    runs: Runs,
    /// Whether all rows are the same, and have been copied.
    is_done: bool,
}

/// The indices of rows, one for each.
struct Indices<'a> {
    slot: usize,
    access: &'a Access,
    runs: Runs,
    /// The rows that can be copied, and the bytes from one to the next.
    size: usize,
    step: usize,
}

impl<'a> RowCopies<'a> {
    /// The copies of an operand from row `first` on.
    pub(super) fn new(kernel: &Kernel, geometry: &'a Geometry, slot: usize, first: usize) -> RowCopies<'a> {
        let (operand, access) = (&kernel.operands[slot], &geometry.operands[slot]);
        let is_iota = operand.source == Source::Iota;
        let runs = Runs::new(geometry, access, first);
        let gathers = kernel.gathers_by_loads().unwrap_or_default();
        let indices = gathers.iter().find(|&&(source, _)| source == slot).map(|&(_, slot)| {
            let (size, step) = access.gather.unwrap_or_default();
            let access = &geometry.operands[slot];
            Indices { slot, access, runs: Runs::new(geometry, access, first), size, step }
        });
        RowCopies { slot, bytes: operand.dtype.size(), access, is_iota, indices, runs, is_done: false }
    }

    /// Copies the next rows.
    ///
    /// # Safety
    /// The rows are alive, as the accesses of the operand and of its indices describe them, and there is room for them
    /// and for [`MOST_SPREAD`] elements more.
    pub(super) unsafe fn write(
        &mut self,
        pointers: Pointers<'_>,
        to: *mut u8,
        n_rows: usize,
        lanes: usize,
        faults: &Faults,
    ) {
        if self.is_done {
            return;
        }
        let is_still = |access: &Access| access.rows.iter().all(|&stride| stride == 0);
        self.is_done = is_still(self.access) && self.indices.as_ref().is_none_or(|indices| is_still(indices.access));
        let from = pointers.operands[self.slot];
        if let Some(at) = self.indices.as_ref().map(|indices| pointers.operands[indices.slot]) {
            // SAFETY: passed on from the caller.
            if let Some(index) = unsafe { self.write_gathered(at, from, to, n_rows, lanes) } {
                faults.record(index);
            }
            return;
        }
        // SAFETY: passed on from the caller; the level is one of this processor.
        unsafe {
            match Isa::best() {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => self.write_avx512(from, to, n_rows, lanes),
                _ => self.write_rows(from, to, n_rows, lanes),
            }
        }
    }

    /// Copies rows at the indices in `at`. Returns one that is out of range, if there is one; its row is zero.
    ///
    /// # Safety
    /// As for [`RowCopies::write`].
    unsafe fn write_gathered(
        &mut self,
        at: *const u8,
        from: *const u8,
        to: *mut u8,
        n_rows: usize,
        lanes: usize,
    ) -> Option<i64> {
        let Some(indices) = &mut self.indices else { return None };
        let (stride, bytes) = (self.access.inner[0], self.bytes);
        let (mut row, mut outside) = (0, None);
        while row < n_rows {
            let run = self.runs.next(n_rows - row);
            let start = from.wrapping_add(self.access.base as usize).wrapping_add(run.offset);
            let mut done = 0;
            while done < run.n {
                let places = indices.runs.next(run.n - done);
                let first = at.wrapping_add(indices.access.base as usize).wrapping_add(places.offset);
                let to = to.wrapping_add((row + done) * lanes * bytes);
                let start = start.wrapping_add(done.wrapping_mul(run.stride));
                let (size, step, row_bytes) = (indices.size as u64, indices.step, lanes * bytes);
                // Rows that are followed by another one, whose bytes may be read, too.
                let n_followed = if step < row_bytes { 0 } else { size.saturating_sub(1) };
                let rows = (0..places.n).map(|nth| {
                    let place = first.wrapping_add(nth.wrapping_mul(places.stride));
                    // SAFETY: the caller vouches for the indices.
                    let index = unsafe { place.cast::<i64>().read() };
                    let from = start.wrapping_add(nth.wrapping_mul(run.stride));
                    // A negative index is large as an unsigned one.
                    let from = if (index as u64) < size {
                        from.wrapping_add((index as usize).wrapping_mul(step))
                    } else {
                        outside = Some(index);
                        ZEROS.as_ptr()
                    };
                    (from, to.wrapping_add(nth * row_bytes), (index as u64) < n_followed)
                });
                // SAFETY: passed on from the caller; zeros are as long as any row.
                unsafe {
                    match row_bytes {
                        _ if stride == 0 => rows.for_each(|(from, to, _)| repeat(from, 0, to, bytes, 1, lanes)),
                        5..=7 => copy_ahead::<u64>(rows, row_bytes),
                        9..=15 => copy_ahead::<[u8; 16]>(rows, row_bytes),
                        _ => copy_dense(rows.map(|(from, to, _)| (from, to)), row_bytes),
                    }
                }
                done += places.n;
            }
            row += run.n;
        }
        outside
    }

    /// # Safety
    /// As for [`RowCopies::write`], and the processor has these instructions.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn write_avx512(&mut self, from: *const u8, to: *mut u8, n_rows: usize, lanes: usize) {
        // SAFETY: passed on from the caller.
        unsafe { self.write_rows(from, to, n_rows, lanes) }
    }

    /// # Safety
    /// As for [`RowCopies::write`].
    #[inline(always)]
    unsafe fn write_rows(&mut self, from: *const u8, to: *mut u8, n_rows: usize, lanes: usize) {
        let (stride, bytes) = (self.access.inner[0], self.bytes);
        let base = self.access.base as usize;
        let mut row = 0;
        while row < n_rows {
            let block = self.runs.next_block(n_rows - row);
            for nth in 0..block.n_runs {
                let run = &block.first;
                let to = to.wrapping_add((row + nth * run.n) * lanes * bytes);
                let start = run.offset.wrapping_add(base).wrapping_add(nth.wrapping_mul(block.apart));
                // SAFETY: passed on from the caller; an iota has 64-bit units.
                unsafe {
                    if self.is_iota {
                        count(start, [run.stride, stride], to.cast(), run.n, lanes);
                    } else if stride == 0 {
                        repeat(from.wrapping_add(start), run.stride, to, bytes, run.n, lanes);
                    } else if run.stride == 0 && matches!(lanes * bytes, 8 | 16 | 32 | 64) {
                        copy_again(from.wrapping_add(start), to, lanes * bytes, run.n);
                    } else {
                        let rows = (0..run.n).map(|nth| {
                            let from = from.wrapping_add(start).wrapping_add(nth.wrapping_mul(run.stride));
                            (from, to.wrapping_add(nth * lanes * bytes))
                        });
                        copy_dense(rows, lanes * bytes);
                    }
                }
            }
            row += block.n_runs * block.first.n;
        }
    }
}

/// Walks through the rows of an access, along the last of its loops at a time.
struct Runs {
    /// Sizes and strides of its loops, outermost first. Loops that are walked as one are merged.
    loops: SmallVec<[(usize, usize); 4]>,
    /// The position in each loop, and its offset.
    at: SmallVec<[usize; 4]>,
    offset: usize,
}

/// Rows that are evenly apart.
struct Run {
    offset: usize,
    stride: usize,
    n: usize,
}

/// Runs that are evenly apart.
struct Block {
    first: Run,
    apart: usize,
    n_runs: usize,
}

impl Runs {
    /// A walk that begins at row `first`.
    fn new(geometry: &Geometry, access: &Access, first: usize) -> Runs {
        let mut loops: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (&size, &stride) in geometry.rows.iter().zip(&access.rows) {
            match loops.last_mut() {
                Some(outer) if outer.1 == size.wrapping_mul(stride) => *outer = (outer.0 * size, stride),
                Some(_) | None => loops.push((size, stride)),
            }
        }
        let (mut rest, mut offset) = (first, 0_usize);
        let mut at: SmallVec<[usize; 4]> = smallvec![0; loops.len()];
        for (at, &(size, stride)) in at.iter_mut().zip(&loops).rev() {
            *at = rest % size;
            offset = offset.wrapping_add(at.wrapping_mul(stride));
            rest /= size;
        }
        Runs { loops, at, offset }
    }

    /// The next whole runs along the last loop but one, or a part of one. They have at most so many rows.
    #[inline(always)]
    fn next_block(&mut self, most: usize) -> Block {
        let last = self.loops.len() - 1;
        let size = self.loops[last].0;
        let (n_outer, apart) = if last > 0 { self.loops[last - 1] } else { (1, 0) };
        let at = if last > 0 { self.at[last - 1] } else { 0 };
        // All but the last one of whole runs change nothing but the position along the outer loop.
        let n_runs = if self.at[last] == 0 { (n_outer - at).min(most / size) } else { 1 };
        if n_runs > 1 {
            let offset = self.offset;
            self.at[last - 1] += n_runs - 1;
            self.offset = self.offset.wrapping_add((n_runs - 1).wrapping_mul(apart));
            let first = Run { offset, ..self.next(size) };
            return Block { first, apart, n_runs };
        }
        Block { first: self.next(most), apart, n_runs: 1 }
    }

    /// The next rows along the last loop, of which there are at most so many.
    #[inline(always)]
    fn next(&mut self, most: usize) -> Run {
        let last = self.loops.len() - 1;
        let (size, stride) = self.loops[last];
        let run = Run { offset: self.offset, stride, n: most.min(size - self.at[last]) };
        self.at[last] += run.n;
        self.offset = self.offset.wrapping_add(run.n.wrapping_mul(stride));
        for nth in (0..=last).rev() {
            let (size, stride) = self.loops[nth];
            if self.at[nth] < size {
                break;
            }
            self.at[nth] = 0;
            self.offset = self.offset.wrapping_sub(size.wrapping_mul(stride));
            if let Some(outer) = nth.checked_sub(1) {
                self.at[outer] += 1;
                self.offset = self.offset.wrapping_add(self.loops[outer].1);
            }
        }
        run
    }
}

/// Writes the numbers of an iota.
///
/// # Safety
/// There is room for them.
#[inline(always)]
unsafe fn count(start: usize, [row, inner]: [usize; 2], to: *mut u64, n_rows: usize, lanes: usize) {
    for nth in 0..n_rows {
        let first = start.wrapping_add(nth.wrapping_mul(row));
        for lane in 0..lanes {
            // SAFETY: passed on from the caller.
            unsafe { to.add(nth * lanes + lane).write(first.wrapping_add(lane.wrapping_mul(inner)) as u64) };
        }
    }
}

/// Writes a row of 8, 16, 32 or 64 bytes several times.
///
/// # Safety
/// The row is alive, and there is room for its copies.
#[inline(always)]
unsafe fn copy_again(from: *const u8, to: *mut u8, bytes: usize, n: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        match bytes {
            8 => copy_block::<8>(from, to, n),
            16 => copy_block::<16>(from, to, n),
            32 => copy_block::<32>(from, to, n),
            _ => copy_block::<64>(from, to, n),
        }
    }
}

/// # Safety
/// As for [`copy_again`], for rows of `N` bytes.
#[inline(always)]
unsafe fn copy_block<const N: usize>(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        let row = from.cast::<[u8; N]>().read_unaligned();
        (0..n).for_each(|nth| to.add(nth * N).cast::<[u8; N]>().write_unaligned(row));
    }
}

/// Copies rows that begin a block of type `T`. The rest of the block is copied, too, where a row is followed by another
/// one. In the copies it is the next one's, which is written later.
///
/// # Safety
/// Rows are alive, and so is as much again after those that are followed. There is room for copies of blocks.
#[inline(always)]
unsafe fn copy_ahead<T: Copy>(rows: impl Iterator<Item = (*const u8, *mut u8, bool)>, bytes: usize) {
    for (from, to, is_followed) in rows {
        // SAFETY: passed on from the caller.
        unsafe {
            if is_followed {
                to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned());
            } else {
                std::ptr::copy_nonoverlapping(from, to, bytes);
            }
        }
    }
}

/// Writes each element of a run as often as a row is long.
///
/// # Safety
/// As for [`RowCopies::write`].
#[inline(always)]
unsafe fn repeat(from: *const u8, stride: usize, to: *mut u8, bytes: usize, n_rows: usize, lanes: usize) {
    // SAFETY: passed on from the caller; in each case a copy is one machine instruction.
    unsafe {
        match bytes {
            1 => repeat_of::<u8>(from, stride, to, n_rows, lanes),
            2 => repeat_of::<u16>(from, stride, to.cast(), n_rows, lanes),
            4 => repeat_of::<u32>(from, stride, to.cast(), n_rows, lanes),
            _ => repeat_of::<u64>(from, stride, to.cast(), n_rows, lanes),
        }
    }
}

/// # Safety
/// As for [`repeat`], of elements of type `T`.
#[inline(always)]
unsafe fn repeat_of<T: Copy>(from: *const u8, stride: usize, to: *mut T, n_rows: usize, lanes: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        match lanes {
            ..=4 => spread::<T, 4>(from, stride, to, n_rows, lanes),
            5..=8 => spread::<T, 8>(from, stride, to, n_rows, lanes),
            _ => spread::<T, MOST_SPREAD>(from, stride, to, n_rows, lanes),
        }
    }
}

/// Whole blocks of `N` elements are written. Those past a row are the next one's, which are written later.
///
/// # Safety
/// As for [`repeat_of`].
#[inline(always)]
unsafe fn spread<T: Copy, const N: usize>(from: *const u8, stride: usize, to: *mut T, n_rows: usize, lanes: usize) {
    for nth in 0..n_rows {
        // SAFETY: passed on from the caller.
        unsafe {
            let value = from.wrapping_add(nth.wrapping_mul(stride)).cast::<T>().read_unaligned();
            let row = to.add(nth * lanes);
            for at in (0..lanes).step_by(N) {
                row.add(at).cast::<[T; N]>().write_unaligned([value; N]);
            }
        }
    }
}
