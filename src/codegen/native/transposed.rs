//! Operand staging by transposing: operands that are strided along the vector loop but contiguous along the rows.
//!
//! Read lane by lane, every element is in another cache line. The lines of a few rows map to so few cache sets that
//! they are evicted before the next row needs them. So a patch of rows and lanes is transposed into a copy first, and
//! each line is read once and whole. The code then reads the copy, which stays in a near cache. It is the same kernel's
//! code for contiguous operands. It is compiled on first use.
//!
//! Outputs are staged in the same way: the code writes a patch of them, which is transposed then. An operand that is
//! the same in all rows of a patch, but strided along the vector loop, is copied once per patch.
//!
//! A fold takes whole rows, so its patches are as long as rows. A softmax over the rows of a matrix is so computed on
//! copies of a few columns at a time.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::deinterleaved::line;
use super::patches::{Patch, Patches};
use super::transpose::transpose;
use crate::codegen::geometry::{Access, Class, Geometry, Lanes};
use crate::codegen::kernel::{Kernel, Source};
use smallvec::SmallVec;

/// Rows of a patch. So many elements are contiguous in memory, which is faster to read some lines at a time.
const ROWS: usize = 64;
/// Fewest rows that pay for copies: the elements of four bytes in a cache line.
const LEAST_ROWS: usize = 16;
/// Lanes of a patch. The lines of some rows, those of the next rows, and the copy stay in the nearest cache: 64 and 256
/// lanes take 1.5 and 1.1 times as long (`scripts/peers.sh --rows W11t --threads 1`).
const LANES: usize = 128;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Most bytes of the copies of the fewest whole rows: they stay in a second-level cache.
const WHOLE_BYTES: usize = 512 << 10;
/// Bytes of the copy of one operand that are aimed at.
const COPY_BYTES: usize = 128 << 10;
/// Most rows of a patch of whole rows.
const MOST_ROWS: usize = 1024;
/// Copies of rows are this many elements longer than rows, so that neighbours are in different sets of a cache.
const GAP: usize = 16;

/// The operands and outputs of a launch that are transposed. An output's number follows those of the operands. A kernel
/// with folds has none if its rows are too long, because they are not cut.
pub(in crate::codegen) fn transposed(kernel: &Kernel, geometry: &Geometry) -> SmallVec<[usize; 4]> {
    let is_one_line = geometry.inner.len() == 1 && geometry.lanes == Lanes::Inner;
    if geometry.rows.last().is_none_or(|&rows| rows < LEAST_ROWS) || kernel.has_folds() && !is_one_line {
        return SmallVec::new();
    }
    let is_transposed = |slot: &usize| {
        let (operand, access) = (&kernel.operands[*slot], &geometry.operands[*slot]);
        let apart = |stride: &usize| (*stride as isize).unsigned_abs();
        let in_line = access.rows.last().map(apart) == Some(operand.dtype.size());
        operand.source == Source::Memory
            && access.gather.is_none()
            && in_line
            && apart(&geometry.lane_stride(access)) > LINE_BYTES
    };
    let is_written = |slot: &usize| {
        let (access, bytes) = (&geometry.outputs[*slot], kernel.outputs[*slot].dtype.size());
        let stride = geometry.lane_stride(access);
        let is_far = (stride as isize).unsigned_abs() > LINE_BYTES && stride.is_multiple_of(bytes);
        access.rows.last() == Some(&bytes) && is_far
    };
    let outputs = (0..kernel.outputs.len()).filter(is_written).map(|slot| kernel.operands.len() + slot);
    let mut slots: SmallVec<[usize; 4]> = (0..kernel.operands.len()).filter(is_transposed).chain(outputs).collect();
    if !slots.is_empty() {
        let is_shared = |slot: &usize| {
            let (operand, access) = (&kernel.operands[*slot], &geometry.operands[*slot]);
            let is_strided = geometry.class(access, operand.dtype.size()) == Class::Strided;
            operand.source == Source::Memory && access.gather.is_none() && is_strided && access.rows.last() == Some(&0)
        };
        slots.extend((0..kernel.operands.len()).filter(is_shared));
        slots.sort_unstable();
    }
    let least =
        geometry.n_inner().saturating_mul(LEAST_ROWS * slots.iter().map(|&slot| bytes(kernel, slot)).sum::<usize>());
    if kernel.has_folds() && least > WHOLE_BYTES { SmallVec::new() } else { slots }
}

/// The bytes of an element of an operand, or of an output, whose number follows those of the operands.
fn bytes(kernel: &Kernel, slot: usize) -> usize {
    match slot.checked_sub(kernel.operands.len()) {
        None => kernel.operands[slot].dtype.size(),
        Some(output) => kernel.outputs[output].dtype.size(),
    }
}

/// Whether vectors may run along folds because all operands and outputs that jump there can be transposed.
pub(in crate::codegen) fn covers_jumps(kernel: &Kernel, geometry: &Geometry) -> bool {
    let slots = transposed(kernel, geometry);
    let is_far = |access: &Access| (geometry.lane_stride(access) as isize).unsigned_abs() > LINE_BYTES;
    let accesses = geometry.operands.iter().chain(&geometry.outputs).enumerate();
    let mut far = accesses.filter(|(_, access)| is_far(access)).map(|(slot, _)| slot);
    !slots.is_empty() && far.all(|slot| slots.contains(&slot))
}

/// How these operands are staged.
pub(super) fn patches(kernel: &Kernel, geometry: &Geometry) -> Patches {
    if !kernel.has_folds() {
        return Patches { rows: ROWS, lanes: geometry.n_inner().clamp(1, LANES), read, write };
    }
    let lanes = geometry.n_inner().next_multiple_of(GAP) + GAP;
    let rows = (COPY_BYTES / (lanes * size_of::<f32>())).clamp(LEAST_ROWS, MOST_ROWS) / LEAST_ROWS * LEAST_ROWS;
    Patches { rows, lanes, read, write }
}

/// # Safety
/// As for [`Patches::read`]; the elements of a lane are contiguous, forwards or backwards, and there are some. Or they
/// are the same one.
unsafe fn read(patch: &Patch) {
    for Patch { memory: from, strides: [row, stride], copy: to, pitch, bytes, rows, lanes, .. } in patch.each_column() {
        // SAFETY: passed on from the caller.
        unsafe {
            if row == 0 {
                line(from, stride, to, bytes, lanes);
            } else if row == bytes {
                transpose(from, stride, to, pitch, bytes, rows, lanes);
            } else {
                // Rows go backwards: the last one is the first in memory.
                let last = rows - 1;
                let (from, to) = (from.wrapping_sub(last * bytes), to.wrapping_add(last * pitch * bytes));
                transpose(from, stride, to, pitch.wrapping_neg(), bytes, rows, lanes);
            }
        }
    }
}

/// # Safety
/// As for [`Patches::write`]; the elements of a lane are contiguous.
unsafe fn write(patch: &Patch) {
    for Patch { memory, strides: [_, stride], copy, pitch, bytes, rows, lanes, .. } in patch.each_column() {
        // The rows of the output are the lines here, and the other way round.
        let to_pitch = (stride.cast_signed() / bytes as isize).cast_unsigned();
        // SAFETY: passed on from the caller.
        unsafe { transpose(copy, pitch * bytes, memory, to_pitch, bytes, lanes, rows) };
    }
}
