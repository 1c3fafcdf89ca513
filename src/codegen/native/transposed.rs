//! Operand staging by transposing: operands that are strided along the vector loop but contiguous along the rows.
//!
//! Read lane by lane, every element is another cache line. The lines of a few rows share so few sets of a cache that they are
//! evicted before the next row needs them. So a patch of rows and lanes is transposed into a copy first; each line is read
//! once and whole. The code then walks the copy, which stays in a near cache. It is the same kernel's code for contiguous
//! operands, compiled on first use.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::patches::{Patch, Patches};
use super::transpose::transpose;
use crate::codegen::geometry::Geometry;
use crate::codegen::kernel::{Kernel, Source};
use smallvec::SmallVec;

/// Rows of a patch: as many elements lie side by side in memory, which likes to be read some lines at a time.
const ROWS: usize = 64;
/// Rows that pay for copies: elements of four bytes in a line of memory.
const LEAST_ROWS: usize = 16;
/// Lanes of a patch, few enough for the lines of some rows, the next ones, and the copy to stay in the nearest cache: 64 and 256 take
/// 1.5 and 1.1 times as long (`scripts/peers.sh --rows W11t --threads 1`).
const LANES: usize = 128;
/// Bytes of a line of memory.
const LINE_BYTES: usize = 64;

/// The operands of a launch that are transposed; none of a kernel with folds, whose rows are not cut.
pub(in crate::codegen) fn transposed(kernel: &Kernel, geometry: &Geometry) -> SmallVec<[usize; 4]> {
    if kernel.has_folds() || geometry.rows.last().is_none_or(|&rows| rows < LEAST_ROWS) {
        return SmallVec::new();
    }
    let is_transposed = |slot: &usize| {
        let (operand, access) = (&kernel.operands[*slot], &geometry.operands[*slot]);
        let in_line = access.rows.last() == Some(&operand.dtype.size());
        operand.source == Source::Memory && in_line && geometry.lane_stride(access) > LINE_BYTES
    };
    (0..kernel.operands.len()).filter(is_transposed).collect()
}

/// How these operands are staged.
pub(super) const PATCHES: Patches = Patches { rows: ROWS, lanes: LANES, copy };

/// # Safety
/// As for [`Patches::copy`]; the elements of a lane lie in a line.
unsafe fn copy(patch: &Patch) {
    let Patch { from, strides: [_, stride], to, pitch, bytes, rows, lanes } = *patch;
    // SAFETY: the caller's promise.
    unsafe { transpose(from, stride, to, pitch, bytes, rows, lanes) };
}
