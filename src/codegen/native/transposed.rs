//! Operand staging by transposing: operands that are strided along the vector loop but contiguous along the rows.
//!
//! Read lane by lane, every element is in another cache line. The lines of a few rows map to so few cache sets that
//! they are evicted before the next row needs them. So a patch of rows and lanes is transposed into a copy first, and
//! each line is read once and whole. The code then reads the copy, which stays in a near cache. It is the same kernel's
//! code for contiguous operands. It is compiled on first use.
//!
//! Outputs are staged in the same way: the code writes a patch of them, which is transposed then. An operand that is
//! the same in all rows of a patch, but strided along the vector loop, is copied once per patch.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::deinterleaved::line;
use super::patches::{Patch, Patches};
use super::transpose::transpose;
use crate::codegen::geometry::{Class, Geometry};
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

/// The operands and outputs of a launch that are transposed. An output's number follows those of the operands. A kernel
/// with folds has none, because its rows are not cut.
pub(in crate::codegen) fn transposed(kernel: &Kernel, geometry: &Geometry) -> SmallVec<[usize; 4]> {
    if kernel.has_folds() || geometry.rows.last().is_none_or(|&rows| rows < LEAST_ROWS) {
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
    slots
}

/// How these operands are staged.
pub(super) const PATCHES: Patches = Patches { rows: ROWS, lanes: LANES, copy };

/// # Safety
/// As for [`Patches::copy`]; the elements of a lane are contiguous, forwards or backwards, and there are some. Or they
/// are the same one.
unsafe fn copy(patch: &Patch) {
    let Patch { from, strides: [row, stride], to, pitch, bytes, rows, lanes } = *patch;
    // SAFETY: passed on from the caller.
    unsafe {
        if row == 0 {
            return line(from, stride, to, bytes, lanes);
        }
        if row == bytes {
            return transpose(from, stride, to, pitch, bytes, rows, lanes);
        }
        // Rows go backwards: the last one is the first in memory.
        let last = rows - 1;
        let (from, to) = (from.wrapping_sub(last * bytes), to.wrapping_add(last * pitch * bytes));
        transpose(from, stride, to, pitch.wrapping_neg(), bytes, rows, lanes);
    }
}
