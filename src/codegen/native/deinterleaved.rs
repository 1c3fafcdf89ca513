//! Operand staging by deinterleaving: operands whose elements are a few apart along the vector loop, such as every
//! second column of a matrix, or one part of pairs.
//!
//! Processors without AVX-512 gather slowly: eight elements take as long as sixteen loads and stores of one. So some
//! rows and lanes at a time are first copied to contiguous buffers. Where every second to fourth element is taken,
//! vectors do that. The code is that of the same kernel with these operands contiguous. It is compiled on first use.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::patches::{Patch, Patches};
use crate::codegen::geometry::{Class, Geometry};
use crate::codegen::kernel::{Kernel, Source};
use smallvec::SmallVec;

/// Whether operands whose elements are a few apart are deinterleaved first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) enum Deinterleave {
    /// Machine code gathers the elements itself.
    Never,
    /// Machine code reads contiguous copies.
    Always,
}

/// The operands of a launch that are deinterleaved. A kernel with folds has none, because its rows are not cut.
pub(super) fn deinterleaved(kernel: &Kernel, geometry: &Geometry) -> SmallVec<[usize; 4]> {
    if kernel.has_folds() || geometry.n_inner() < LEAST_LANES {
        return SmallVec::new();
    }
    let is_interleaved = |slot: &usize| {
        let (operand, access) = (&kernel.operands[*slot], &geometry.operands[*slot]);
        let strided = geometry.class(access, operand.dtype.size()) == Class::Strided;
        strided && operand.source == Source::Memory && access.gather.is_none()
    };
    (0..kernel.operands.len()).filter(is_interleaved).collect()
}

/// Fewest lanes that pay for a copy.
const LEAST_LANES: usize = 16;
/// Elements of a patch: the copies of several operands stay in the nearest cache.
const ELEMENTS: usize = 4096;
/// Most lanes of a patch.
const LANES: usize = 1024;

/// How these operands are staged.
pub(super) fn patches(geometry: &Geometry) -> Patches {
    let lanes = geometry.n_inner().clamp(1, LANES);
    Patches { rows: ELEMENTS / lanes, lanes, copy }
}

/// # Safety
/// As for [`Patches::copy`].
unsafe fn copy(patch: &Patch) {
    for row in 0..patch.rows {
        let from = patch.from.wrapping_add(row.wrapping_mul(patch.strides[0]));
        let to = patch.to.wrapping_add(row * patch.pitch * patch.bytes);
        // SAFETY: passed on from the caller, for one row.
        unsafe { line(from, patch.strides[1], to, patch.bytes, patch.lanes) };
    }
}

/// Copies elements of `bytes` bytes that are `stride` bytes apart to contiguous memory.
///
/// # Safety
/// All of them are alive, and so are those starting at `to`, which nothing else uses.
pub(super) unsafe fn line(from: *const u8, stride: usize, to: *mut u8, bytes: usize, lanes: usize) {
    // SAFETY: passed on from the caller; in each case a copy is one machine instruction.
    unsafe {
        match bytes {
            1 => line_of::<u8>(from, stride, to, lanes),
            2 => line_of::<u16>(from, stride, to.cast(), lanes),
            4 => line_of::<u32>(from, stride, to.cast(), lanes),
            _ => line_of::<u64>(from, stride, to.cast(), lanes),
        }
    }
}

/// # Safety
/// As for [`line`], of elements of type `T`.
unsafe fn line_of<T: Copy>(from: *const u8, stride: usize, to: *mut T, lanes: usize) {
    if stride == size_of::<T>().wrapping_neg() && lanes > 0 {
        let first = from.wrapping_sub((lanes - 1) * size_of::<T>()).cast::<T>();
        // SAFETY: passed on from the caller; the elements are contiguous from the last one on.
        return unsafe { (0..lanes).for_each(|lane| to.add(lane).write(first.add(lanes - 1 - lane).read_unaligned())) };
    }
    // SAFETY: passed on from the caller; a constant stride lets the compiler load vectors and shuffle them.
    unsafe {
        match stride / size_of::<T>() {
            2 if stride == 2 * size_of::<T>() => every::<T, 2>(from.cast(), to, lanes),
            3 if stride == 3 * size_of::<T>() => every::<T, 3>(from.cast(), to, lanes),
            4 if stride == 4 * size_of::<T>() => every::<T, 4>(from.cast(), to, lanes),
            _ => {
                for lane in 0..lanes {
                    let element = from.wrapping_add(lane.wrapping_mul(stride)).cast::<T>();
                    to.add(lane).write(element.read_unaligned());
                }
            }
        }
    }
}

/// # Safety
/// As for [`line_of`], `N` elements apart.
unsafe fn every<T: Copy, const N: usize>(from: *const T, to: *mut T, lanes: usize) {
    for lane in 0..lanes {
        // SAFETY: passed on from the caller.
        unsafe { to.add(lane).write(from.add(lane * N).read_unaligned()) };
    }
}
