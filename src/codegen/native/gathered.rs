//! Operand staging by gathering: strided operands that are the same in every row, such as a column of a matrix added to
//! its rows.
//!
//! Otherwise every row would gather them again. So their elements are gathered to contiguous memory once per part of a
//! launch. The code is that of the same kernel with these operands contiguous. It is compiled on first use.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::code::Code;
use super::deinterleaved;
use super::launch;
use super::staged::StagedCode;
use crate::codegen::geometry::{Access, Class, Geometry};
use crate::codegen::kernel::Kernel;
use crate::codegen::launch::{Faults, Part, Pointers};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// The operands of a launch that are gathered, in order.
pub(in crate::codegen) fn gathered(kernel: &Kernel, geometry: &Geometry) -> SmallVec<[usize; 4]> {
    let is_gathered = |slot: &usize| {
        let (operand, access) = (&kernel.operands[*slot], &geometry.operands[*slot]);
        let strided = geometry.class(access, operand.dtype.size()) == Class::Strided;
        strided && geometry.is_shared_row(operand, access)
    };
    (0..kernel.operands.len()).filter(is_gathered).collect()
}

/// Runs a part of a launch on gathered operands.
///
/// # Safety
/// As for [`super::NativeProgram::run`]; the code is for copies of these operands.
pub(super) unsafe fn run(
    code: &Code,
    staged: &StagedCode,
    geometry: &Geometry,
    pointers: Pointers<'_>,
    part: &Part,
    faults: &Faults,
) {
    let mut of_lines = geometry.clone();
    let mut operands: SmallVec<[*const u8; 8]> = pointers.operands.into();
    // Only the lanes of the part may be read. Words keep every element aligned.
    let Range { start, end } = part.lanes;
    let mut lines: SmallVec<[Vec<u64>; 4]> =
        staged.operands.iter().map(|&(_, bytes)| vec![0; (end * bytes).div_ceil(8)]).collect();
    for (&(slot, bytes), line) in staged.operands.iter().zip(&mut lines) {
        let access = &geometry.operands[slot];
        let stride = geometry.lane_stride(access);
        let from = operands[slot].wrapping_offset(access.base as isize).wrapping_add(start.wrapping_mul(stride));
        let to = line.as_mut_ptr().cast::<u8>().wrapping_add(start * bytes);
        // SAFETY: the caller vouches for the operand's elements in these lanes; they are the same in every row, so one
        // row is copied. The copy has room for them.
        unsafe { deinterleaved::line(from, stride, to, bytes, end - start) };
        operands[slot] = line.as_ptr().cast();
        let rows = SmallVec::from_elem(0, geometry.rows.len());
        of_lines.operands[slot] = Access { rows, inner: smallvec![bytes], base: 0, gather: None };
    }
    let pointers = Pointers { operands: &operands, outputs: pointers.outputs };
    // SAFETY: the part is the caller's, and the copies hold the elements of its lanes.
    unsafe { launch::run(code, &staged.codes.shape, &of_lines, pointers, part, faults) };
}
