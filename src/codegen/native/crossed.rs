//! Operands that jump along the vector loop but lie in a line along the rows: a transposed matrix.
//!
//! Read lane by lane, every element is another line of memory, and the lines of a few rows share so few sets of a cache
//! that they are gone before the next row needs them. So a patch of rows and lanes is copied first, line by line, each
//! line read once and whole; the code then walks the copy, which stays in a near cache. It is the same kernel's code
//! for operands in a line, and is compiled on first use.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::copied::Copied;
use super::launch::{self, row_offset};
use super::turn::turn;
use crate::codegen::geometry::{Access, Geometry};
use crate::codegen::kernel::{Kernel, Source};
use crate::codegen::launch::{Part, Pointers};
use smallvec::{SmallVec, smallvec};

/// Rows of a patch: as many elements lie side by side in memory, which likes to be read some lines at a time.
const ROWS: usize = 64;
/// Rows that pay for copies: elements of four bytes in a line of memory.
const LEAST_ROWS: usize = 16;
/// Lanes of a patch.
const LANES: usize = 256;
/// Bytes of a line of memory.
const LINE_BYTES: usize = 64;

/// The operands of a launch that jump along the vector loop and lie in a line along the rows; none of a kernel with
/// folds, whose rows are not cut.
pub(in crate::codegen) fn crossing(kernel: &Kernel, geometry: &Geometry) -> SmallVec<[usize; 4]> {
    if kernel.has_folds() || geometry.rows.last().is_none_or(|&rows| rows < LEAST_ROWS) {
        return SmallVec::new();
    }
    let crosses = |slot: &usize| {
        let (operand, access) = (&kernel.operands[*slot], &geometry.operands[*slot]);
        let in_line = access.rows.last() == Some(&operand.dtype.size());
        operand.source == Source::Memory && in_line && geometry.lane_stride(access) > LINE_BYTES
    };
    (0..kernel.operands.len()).filter(crosses).collect()
}

/// Runs a part of a launch on copies of what crosses.
///
/// # Safety
/// As [`super::Program::run`]; the code is that for copies of these operands.
pub(super) unsafe fn run(copied: &Copied, geometry: &Geometry, pointers: Pointers<'_>, part: &Part) {
    let last = geometry.rows.last().copied().unwrap_or(1);
    let mut copies: Vec<Vec<u64>> =
        copied.operands.iter().map(|&(_, bytes)| vec![0; (ROWS * LANES * bytes).div_ceil(8)]).collect();
    let mut row = part.outer.start;
    while row < part.outer.end {
        let rows = (last - row % last).min(part.outer.end - row).min(ROWS);
        for lane in part.lanes.clone().step_by(LANES) {
            let lanes = (part.lanes.end - lane).min(LANES);
            let mut patch = patch(geometry, row, rows, lane, lanes);
            let mut operands: SmallVec<[*const u8; 8]> = pointers.operands.into();
            for (&(slot, bytes), copy) in copied.operands.iter().zip(&mut copies) {
                let access = &patch.operands[slot];
                let from = operands[slot].wrapping_offset(access.base as isize);
                let stride = access.inner[0];
                // SAFETY: the caller vouches for the operand's elements, of which these are the patch's; the copy has
                // room for a patch.
                unsafe { turn(from, stride, copy.as_mut_ptr().cast(), LANES, bytes, rows, lanes) };
                operands[slot] = copy.as_ptr().cast();
                patch.operands[slot] =
                    Access { rows: smallvec![LANES * bytes], inner: smallvec![bytes], base: 0, gather: None };
            }
            let of_patch = Pointers { operands: &operands, outputs: pointers.outputs };
            // SAFETY: the patch is part of the launch, which the caller vouches for; copies hold its elements.
            unsafe {
                launch::run(&copied.code, &copied.shape, &patch, of_patch, &Part { outer: 0..rows, lanes: 0..lanes });
            }
        }
        row += rows;
    }
}

/// The loops of a patch: neighbouring rows of the last row loop, and some lanes.
fn patch(geometry: &Geometry, row: usize, rows: usize, lane: usize, lanes: usize) -> Geometry {
    let access = |access: &Access| {
        let (row_stride, stride) = (access.rows.last().copied().unwrap_or(0), geometry.lane_stride(access));
        let base = row_offset(geometry, access, row).wrapping_add((lane as u64).wrapping_mul(stride as u64));
        Access { rows: smallvec![row_stride], inner: smallvec![stride], base: base as i64, gather: None }
    };
    Geometry {
        rows: smallvec![rows],
        inner: smallvec![lanes],
        operands: geometry.operands.iter().map(access).collect(),
        outputs: geometry.outputs.iter().map(access).collect(),
        lanes: geometry.lanes,
    }
}
