//! Operand staging by deinterleaving: operands whose elements are a few apart along the vector loop, such as every
//! second column of a matrix, or one part of pairs. Outputs of columns that are put side by side are staged the same
//! way.
//!
//! Many processors gather and scatter slowly: eight elements take as long as sixteen loads and stores of one. So some
//! rows and lanes at a time are first copied to contiguous buffers. Where every second to fourth element is taken,
//! vectors do that. The code is that of the same kernel with these operands contiguous. It is compiled on first use.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::patches::{Patch, Patches};
use crate::codegen::geometry::{Access, Class, Geometry};
use crate::codegen::kernel::{Kernel, Source};
use crate::codegen::vm::Isa;
use smallvec::SmallVec;

/// Which operands and outputs whose elements are a few apart have contiguous copies. Machine code gathers and scatters
/// the elements of the others itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) enum Deinterleave {
    /// None.
    Never,
    /// Those of at most every fourth element. On Zen 4 a copy of them takes half as long as gathering, and one of every
    /// sixteenth longer (`python/benches/torch_compile.py --functions --models "channels first,turns by quaternions"`).
    Near,
    /// All.
    Always,
}

/// Most elements from one of a near operand to the next.
const NEAR: usize = 4;

/// The operands of a launch that are deinterleaved, and the outputs that are interleaved, whose numbers follow those of
/// the operands. A kernel with folds has none, because its rows are not cut.
pub(super) fn deinterleaved(which: Deinterleave, kernel: &Kernel, geometry: &Geometry) -> SmallVec<[usize; 4]> {
    if which == Deinterleave::Never || kernel.has_folds() || geometry.n_inner() < LEAST_LANES {
        return SmallVec::new();
    }
    let is_apart = |access: &Access, bytes: usize| {
        let stride = (geometry.lane_stride(access) as isize).unsigned_abs();
        let is_near = which == Deinterleave::Always || stride <= NEAR * bytes;
        is_near && geometry.class(access, bytes) == Class::Strided
    };
    let is_interleaved = |slot: &usize| {
        let (operand, access) = (&kernel.operands[*slot], &geometry.operands[*slot]);
        operand.source == Source::Memory && access.gather.is_none() && is_apart(access, operand.dtype.size())
    };
    let is_written = |slot: &usize| is_apart(&geometry.outputs[*slot], kernel.outputs[*slot].dtype.size());
    let outputs = (0..kernel.outputs.len()).filter(is_written).map(|slot| kernel.operands.len() + slot);
    (0..kernel.operands.len()).filter(is_interleaved).chain(outputs).collect()
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
    Patches { rows: ELEMENTS / lanes, lanes, read, write }
}

/// # Safety
/// As for [`Patches::read`].
unsafe fn read(patch: &Patch) {
    if patch.has_all_columns() {
        // SAFETY: passed on from the caller.
        return unsafe { all_columns::<false>(patch) };
    }
    for row in 0..patch.rows {
        let (from, to) = patch.row(row);
        // SAFETY: passed on from the caller, for one row.
        unsafe { line(from, patch.strides[1], to, patch.bytes, patch.lanes) };
    }
}

/// # Safety
/// As for [`Patches::write`].
unsafe fn write(patch: &Patch) {
    if patch.has_all_columns() {
        // SAFETY: passed on from the caller.
        return unsafe { all_columns::<true>(patch) };
    }
    for row in 0..patch.rows {
        let (to, from) = patch.row(row);
        let (stride, lanes) = (patch.strides[1], patch.lanes);
        // SAFETY: passed on from the caller, for one row; in each case a copy is one machine instruction.
        unsafe {
            match patch.bytes {
                1 => interleave::<u8>(from, to, stride, lanes),
                2 => interleave::<u16>(from.cast(), to, stride, lanes),
                4 => interleave::<u32>(from.cast(), to, stride, lanes),
                _ => interleave::<u64>(from.cast(), to, stride, lanes),
            }
        }
    }
}

/// # Safety
/// As for [`Patches::write`], for one row of elements of type `T`.
unsafe fn interleave<T: Copy>(from: *const T, to: *mut u8, stride: usize, lanes: usize) {
    for lane in 0..lanes {
        let element = to.wrapping_add(lane.wrapping_mul(stride)).cast::<T>();
        // SAFETY: passed on from the caller.
        unsafe { element.write_unaligned(from.add(lane).read()) };
    }
}

/// Copies all columns of a matrix of a few columns, each of which is a row of the copy, to the matrix or from it.
///
/// # Safety
/// As for [`Patches::write`] or [`Patches::read`], and the patch has all columns.
unsafe fn all_columns<const WRITES: bool>(patch: &Patch) {
    // SAFETY: passed on from the caller; in each case a copy is one machine instruction.
    unsafe {
        match (patch.bytes, patch.rows) {
            (4, 2) => columns::<u32, 2, WRITES>(patch),
            (4, 3) => columns::<u32, 3, WRITES>(patch),
            (4, _) => columns::<u32, 4, WRITES>(patch),
            (_, 2) => columns::<u64, 2, WRITES>(patch),
            (_, 3) => columns::<u64, 3, WRITES>(patch),
            (..) => columns::<u64, 4, WRITES>(patch),
        }
    }
}

/// # Safety
/// As for [`all_columns`], of `N` columns of type `T`.
unsafe fn columns<T: Copy, const N: usize, const WRITES: bool>(patch: &Patch) {
    // SAFETY: passed on from the caller; the level is one of this processor.
    unsafe {
        match Isa::best() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => columns_avx512::<T, N, WRITES>(patch),
            _ => columns_of::<T, N, WRITES>(patch),
        }
    }
}

/// # Safety
/// As for [`columns`], and the processor has these instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn columns_avx512<T: Copy, const N: usize, const WRITES: bool>(patch: &Patch) {
    // SAFETY: passed on from the caller.
    unsafe { columns_of::<T, N, WRITES>(patch) }
}

/// A constant number of columns lets the compiler move vectors and shuffle them.
///
/// # Safety
/// As for [`columns`].
#[inline(always)]
unsafe fn columns_of<T: Copy, const N: usize, const WRITES: bool>(patch: &Patch) {
    let (memory, copy) = (patch.memory.cast::<T>(), patch.copy.cast::<T>());
    for lane in 0..patch.lanes {
        for column in 0..N {
            // SAFETY: passed on from the caller.
            unsafe {
                let (far, near) = (memory.add(lane * N + column), copy.add(column * patch.pitch + lane));
                if WRITES { far.write_unaligned(near.read()) } else { near.write(far.read_unaligned()) }
            }
        }
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
    // SAFETY: passed on from the caller.
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
    // SAFETY: passed on from the caller; the level is one of this processor.
    unsafe {
        match Isa::best() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => every_avx512::<T, N>(from, to, lanes),
            _ => every_of::<T, N>(from, to, lanes),
        }
    }
}

/// # Safety
/// As for [`every`], and the processor has these instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn every_avx512<T: Copy, const N: usize>(from: *const T, to: *mut T, lanes: usize) {
    // SAFETY: passed on from the caller.
    unsafe { every_of::<T, N>(from, to, lanes) }
}

/// A constant stride lets the compiler load vectors and shuffle them.
///
/// # Safety
/// As for [`every`].
#[inline(always)]
unsafe fn every_of<T: Copy, const N: usize>(from: *const T, to: *mut T, lanes: usize) {
    for lane in 0..lanes {
        // SAFETY: passed on from the caller.
        unsafe { to.add(lane).write(from.add(lane * N).read_unaligned()) };
    }
}
