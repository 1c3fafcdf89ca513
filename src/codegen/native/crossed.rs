//! Operands that jump along the vector loop but lie in a line along the rows: a transposed matrix.
//!
//! Read lane by lane, every element is another line of memory, and the lines of a few rows share so few sets of a cache
//! that they are gone before the next row needs them. So a patch of rows and lanes is copied first, line by line, each
//! line read once and whole; the code then walks the copy, which stays in a near cache. It is the same kernel's code
//! for operands in a line, and is compiled on first use.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::patches::{Block, Patches};
use super::turn::turn;
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

/// How what crosses is copied.
pub(super) const PATCHES: Patches = Patches { rows: ROWS, lanes: LANES, copy };

/// # Safety
/// As for [`Patches::copy`]; the elements of a lane lie in a line.
unsafe fn copy(block: &Block) {
    let Block { from, strides: [_, stride], to, pitch, bytes, rows, lanes } = *block;
    // SAFETY: the caller's promise.
    unsafe { turn(from, stride, to, pitch, bytes, rows, lanes) };
}
