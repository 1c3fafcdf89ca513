//! Short rows that run as one long row.
//!
//! A row of machine code takes about twenty cycles to start, and its last vector is partly empty. So the rows of a
//! kernel without folds run as one row, as many at a time as stay in the nearest cache, where the rows of its outputs
//! follow each other. Operands whose rows do that, too, are read where they are. The others are copied, such as a
//! number per row (once per element), or a row that all rows share. The code is that of the same kernel with these
//! operands contiguous. It is compiled on first use.
//!
//! `a[:, :, None] * b[:, None]` for rows of 8 takes less than half the time
//! (`python/benches/torch_compile.py --small-functions --models "products of pairs 8"`).

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::code::Code;
use super::launch;
use super::packed::copy_dense;
use super::patches::CacheLine;
use super::staged::StagedCode;
use crate::codegen::geometry::{Access, Geometry, Lanes};
use crate::codegen::kernel::{Kernel, Source};
use crate::codegen::launch::{Faults, Part, Pointers};
use crate::codegen::vm::Isa;
use smallvec::{SmallVec, smallvec};

/// Most elements of a short row. A copy of a number for each of 32 takes longer than to start a row.
const MOST_LANES: usize = 24;
/// Fewest rows that pay for the copies.
const LEAST_ROWS: usize = 16;
/// Elements of the rows that run as one. Their copies stay in the nearest cache.
const ELEMENTS: usize = 2048;
/// Elements that a copy of a number per row writes at once, some of them past its row.
const MOST_SPREAD: usize = 16;

/// The bytes from an element of an operand to the next one of a dense row; an iota has units.
fn unit(kernel: &Kernel, slot: usize) -> usize {
    let operand = &kernel.operands[slot];
    if operand.source == Source::Iota { 1 } else { operand.dtype.size() }
}

/// The operands that are copied, if a launch has short rows that can run as one, and else none.
pub(super) fn short_rows(kernel: &Kernel, geometry: &Geometry, part: &Part) -> SmallVec<[usize; 4]> {
    let lanes = geometry.n_inner();
    let has_rows = (2..=MOST_LANES).contains(&lanes) && part.outer.len() >= LEAST_ROWS && part.lanes == (0..lanes);
    if !has_rows || geometry.lanes != Lanes::Inner || kernel.has_folds() || !geometry.joins_rows(kernel) {
        return SmallVec::new();
    }
    let is_copied = |slot: &usize| {
        let access = &geometry.operands[*slot];
        let mut strides = access.rows.iter().chain(&access.inner);
        strides.any(|&stride| stride != 0) && !geometry.is_dense(access, unit(kernel, *slot))
    };
    (0..kernel.operands.len()).filter(is_copied).collect()
}

/// Runs a part of a launch.
///
/// # Safety
/// As for [`super::NativeProgram::run`]; the code is for copies of these operands.
pub(super) unsafe fn run(
    code: &Code,
    staged: &StagedCode,
    (kernel, geometry): (&Kernel, &Geometry),
    pointers: Pointers<'_>,
    part: &Part,
    faults: &Faults,
) {
    let lanes = geometry.n_inner();
    let height = (ELEMENTS / lanes).next_multiple_of(MOST_SPREAD);
    let mut row = OneRow::new(kernel, geometry, pointers, part.outer.start);
    let mut copies: SmallVec<[RowCopies<'_>; 4]> =
        staged.operands.iter().map(|&(slot, _)| RowCopies::new(kernel, geometry, slot, part.outer.start)).collect();
    let mut memory: SmallVec<[Vec<CacheLine>; 4]> =
        copies.iter().map(|copy| CacheLine::room((height * lanes + MOST_SPREAD) * copy.bytes)).collect();
    for first in part.outer.clone().step_by(height) {
        let n_rows = height.min(part.outer.end - first);
        for (copy, memory) in copies.iter_mut().zip(&mut memory) {
            let to = memory.as_mut_ptr().cast();
            // SAFETY: the caller vouches for the operand's elements in these rows; there is room for their copies.
            unsafe { copy.write(pointers.operands[copy.slot], to, n_rows, lanes) };
            row.put_copy(copy.slot, copy.bytes, to);
        }
        let whole = Part { outer: 0..1, lanes: 0..n_rows * lanes };
        let pointers = Pointers { operands: &row.operands, outputs: &row.outputs };
        // SAFETY: the rows are those of the part, which the caller vouches for; the copies hold theirs.
        unsafe { launch::run(code, &staged.codes.shape, &row.geometry, pointers, &whole, faults) };
        row.advance(n_rows * lanes);
    }
}

/// The rows in work as one.
struct OneRow {
    geometry: Geometry,
    operands: SmallVec<[*const u8; 8]>,
    outputs: SmallVec<[*mut u8; 4]>,
}

impl OneRow {
    /// The row that begins at row `first` of a launch.
    fn new(kernel: &Kernel, geometry: &Geometry, pointers: Pointers<'_>, first: usize) -> OneRow {
        let skipped = first * geometry.n_inner();
        let of_row = |access: &Access, unit: usize| {
            let (stride, base) = if geometry.is_dense(access, unit) { (unit, skipped * unit) } else { (0, 0) };
            let base = access.base.wrapping_add(base as i64);
            Access { rows: SmallVec::new(), inner: smallvec![stride], base, gather: None }
        };
        let operands = geometry.operands.iter().enumerate().map(|(slot, access)| of_row(access, unit(kernel, slot)));
        let outputs = geometry.outputs.iter().zip(&kernel.outputs);
        let outputs = outputs.map(|(access, output)| of_row(access, output.dtype.size()));
        let geometry = Geometry {
            rows: SmallVec::new(),
            inner: smallvec![geometry.n_inner()],
            operands: operands.collect(),
            outputs: outputs.collect(),
            lanes: Lanes::Inner,
        };
        OneRow { geometry, operands: pointers.operands.into(), outputs: pointers.outputs.into() }
    }

    /// Lets an operand be read from its copy.
    fn put_copy(&mut self, slot: usize, bytes: usize, copy: *mut u8) {
        self.operands[slot] = copy.cast_const();
        self.geometry.operands[slot] = Access { rows: SmallVec::new(), inner: smallvec![bytes], base: 0, gather: None };
    }

    /// Moves on by so many elements. Copies are written anew, or hold the same.
    fn advance(&mut self, n: usize) {
        let accesses = self.geometry.operands.iter_mut().chain(&mut self.geometry.outputs);
        accesses.for_each(|access| access.base = access.base.wrapping_add((n * access.inner[0]) as i64));
    }
}

/// Copies of the rows of an operand, some at a time.
struct RowCopies<'a> {
    slot: usize,
    bytes: usize,
    access: &'a Access,
    is_iota: bool,
    runs: Runs,
    /// Whether all rows are the same, and have been copied.
    is_done: bool,
}

impl<'a> RowCopies<'a> {
    fn new(kernel: &Kernel, geometry: &'a Geometry, slot: usize, first: usize) -> RowCopies<'a> {
        let (operand, access) = (&kernel.operands[slot], &geometry.operands[slot]);
        let is_iota = operand.source == Source::Iota;
        let runs = Runs::new(geometry, access, first);
        RowCopies { slot, bytes: operand.dtype.size(), access, is_iota, runs, is_done: false }
    }

    /// Copies the next rows.
    ///
    /// # Safety
    /// The rows are alive, as an access from `from` describes them, and there is room for them and for
    /// [`MOST_SPREAD`] elements more.
    unsafe fn write(&mut self, from: *const u8, to: *mut u8, n_rows: usize, lanes: usize) {
        if self.is_done {
            return;
        }
        self.is_done = self.access.rows.iter().all(|&stride| stride == 0);
        // SAFETY: passed on from the caller; the level is one of this processor.
        unsafe {
            match Isa::best() {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => self.write_avx512(from, to, n_rows, lanes),
                _ => self.write_rows(from, to, n_rows, lanes),
            }
        }
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
            let run = self.runs.next(n_rows - row);
            let to = to.wrapping_add(row * lanes * bytes);
            let start = run.offset.wrapping_add(base);
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
            row += run.n;
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
