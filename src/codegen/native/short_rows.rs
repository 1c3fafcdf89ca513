//! Short rows that run as one long row.
//!
//! A row of machine code takes about twenty cycles to start, and its last vector is partly empty. So the rows of a
//! kernel without folds run as one row, as many at a time as stay in the nearest cache, where the rows of its outputs
//! follow each other. Operands whose rows do that, too, are read where they are. The others are copied, such as a
//! number per row (once per element), a row that all rows share, or rows at indices. The code is that of the same
//! kernel with these operands contiguous. It is compiled on first use.
//!
//! `a[:, :, None] * b[:, None]` for rows of 8 takes less than half the time
//! (`python/benches/torch_compile.py --small-functions --models "products of pairs 8"`).

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::code::Code;
use super::launch;
use super::patches::CacheLine;
use super::row_copies::{MOST_LANES, MOST_SPREAD, RowCopies};
use super::staged::StagedCode;
use crate::codegen::geometry::{Access, Geometry, Lanes};
use crate::codegen::kernel::Kernel;
use crate::codegen::launch::{Faults, Part, Pointers};
use smallvec::{SmallVec, smallvec};

/// Fewest rows that pay for the copies.
const LEAST_ROWS: usize = 16;
/// Elements of the rows that run as one. Their copies stay in the nearest cache.
const ELEMENTS: usize = 2048;

/// The operands that are copied, if a launch has short rows that can run as one, and else none.
pub(super) fn short_rows(kernel: &Kernel, geometry: &Geometry, part: &Part) -> SmallVec<[usize; 4]> {
    let lanes = geometry.n_inner();
    let has_rows = (2..=MOST_LANES).contains(&lanes) && part.outer.len() >= LEAST_ROWS && part.lanes == (0..lanes);
    if !has_rows || geometry.lanes != Lanes::Inner || kernel.has_folds() {
        return SmallVec::new();
    }
    geometry.copied_rows(kernel).unwrap_or_default()
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
    let height = (ELEMENTS / lanes).next_multiple_of(MOST_SPREAD).min(part.outer.len());
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
            unsafe { copy.write(pointers, to, n_rows, lanes, faults) };
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
        let operands =
            geometry.operands.iter().enumerate().map(|(slot, access)| of_row(access, kernel.operands[slot].unit()));
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
