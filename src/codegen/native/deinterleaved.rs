//! Operand staging by deinterleaving: operands whose elements are a few apart along the vector loop, such as every
//! second column of a matrix, or one part of pairs. Outputs of columns that are put side by side are staged the same
//! way.
//!
//! Many processors gather and scatter slowly: eight elements take as long as sixteen loads and stores of one. So some
//! rows and lanes at a time are first copied to contiguous buffers. Where every second to fourth element is taken,
//! vectors do that. Four or more neighbouring columns are transposed together by vectors, however far apart the
//! elements of each are. The code is that of the same kernel with these operands contiguous. It is compiled on first
//! use.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::patches::{Patch, Patches};
use super::staged::StagedCode;
use super::transpose;
use crate::codegen::geometry::{Access, Class, Geometry};
use crate::codegen::kernel::{Kernel, Source};
use crate::codegen::launch::Pointers;
use crate::codegen::vm::Isa;
use smallvec::SmallVec;

/// Which operands and outputs whose elements are a few apart have contiguous copies. Machine code gathers and scatters
/// the elements of the others itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) enum Deinterleave {
    /// None.
    Never,
    /// Those of at most every fourth element, and neighbouring columns. On Zen 4 a copy of them takes half as long as
    /// gathering, and one of every sixteenth longer (`python/benches/torch_compile.py --functions --models "channels
    /// first,turns by quaternions"`).
    Near,
    /// All.
    Always,
}

/// Most elements from one of a near operand to the next.
pub(super) const NEAR: usize = 4;

/// Fewest neighbouring columns that are transposed together, however far their elements are apart.
const LEAST_COLUMNS: usize = 4;

/// The operands of a launch that are deinterleaved, and the outputs that are interleaved, whose numbers follow those of
/// the operands.
pub(super) fn deinterleaved(
    which: Deinterleave,
    kernel: &Kernel,
    geometry: &Geometry,
    pointers: Pointers<'_>,
) -> SmallVec<[usize; 4]> {
    copied(which, kernel, geometry, |slot| pointer_of(pointers, kernel.operands.len(), slot))
}

/// The operands and outputs that are copied where `start` is where the memory of one begins.
fn copied(
    which: Deinterleave,
    kernel: &Kernel,
    geometry: &Geometry,
    start: impl Fn(usize) -> usize,
) -> SmallVec<[usize; 4]> {
    if which == Deinterleave::Never {
        return SmallVec::new();
    }
    staged(kernel, geometry, start, |column, n_neighbours| {
        which == Deinterleave::Always || n_neighbours >= LEAST_COLUMNS || column.is_near()
    })
}

/// Where the memory of an operand or an output begins; outputs follow operands.
fn pointer_of(pointers: Pointers<'_>, n_operands: usize, slot: usize) -> usize {
    pointers.operands.get(slot).map_or_else(|| pointers.outputs[slot - n_operands].addr(), |operand| operand.addr())
}

/// The operands and outputs of a launch that are columns with enough neighbours to be transposed together, if its
/// operands have the same memory.
pub(in crate::codegen) fn wide_columns(kernel: &Kernel, geometry: &Geometry) -> SmallVec<[usize; 4]> {
    staged(kernel, geometry, |_| 0, |_, n_neighbours| n_neighbours >= LEAST_COLUMNS)
}

/// Like [`deinterleaved`], before there is memory: if the operands have the same.
pub(in crate::codegen) fn deinterleaved_of_one(
    which: Deinterleave,
    kernel: &Kernel,
    geometry: &Geometry,
) -> SmallVec<[usize; 4]> {
    copied(which, kernel, geometry, |_| 0)
}

/// The operands and outputs whose elements are apart and that are worth a copy, as they are and by how many neighbours
/// there are with them. `start` is where the memory of one begins. A kernel with folds has none, because its rows are
/// not cut.
fn staged(
    kernel: &Kernel,
    geometry: &Geometry,
    start: impl Fn(usize) -> usize,
    is_worth: impl Fn(&Column, usize) -> bool,
) -> SmallVec<[usize; 4]> {
    let mut slots = SmallVec::new();
    if kernel.has_folds() || geometry.n_inner() < LEAST_LANES {
        return slots;
    }
    for columns in &mut apart(kernel, geometry, start) {
        columns.sort_unstable_by_key(|column| column.address);
        for neighbours in columns.chunk_by(Column::is_before) {
            let worth = neighbours.iter().filter(|column| is_worth(column, neighbours.len()));
            slots.extend(worth.map(|column| column.slot));
        }
    }
    slots.sort_unstable();
    slots
}

/// The operands whose elements are apart, and the outputs, whose numbers follow those of the operands. `start` is where
/// the memory of one begins.
fn apart(kernel: &Kernel, geometry: &Geometry, start: impl Fn(usize) -> usize) -> [SmallVec<[Column; 8]>; 2] {
    let column = |slot: usize, access: &Access, bytes: usize| Column {
        slot,
        address: start(slot).wrapping_add(access.base as usize),
        bytes,
        strides: [access.rows.last().copied().unwrap_or(0), geometry.lane_stride(access)],
    };
    let is_apart = |access: &Access, bytes: usize| geometry.class(access, bytes) == Class::Strided;
    let operands = kernel.operands.iter().zip(&geometry.operands).enumerate();
    let operands = operands.filter(|(_, (operand, access))| {
        operand.source == Source::Memory && access.gather.is_none() && is_apart(access, operand.dtype.size())
    });
    let outputs = kernel.outputs.iter().zip(&geometry.outputs).enumerate();
    let outputs = outputs.filter(|(_, (output, access))| is_apart(access, output.dtype.size()));
    let n_operands = kernel.operands.len();
    [
        operands.map(|(slot, (operand, access))| column(slot, access, operand.dtype.size())).collect(),
        outputs.map(|(slot, (output, access))| column(n_operands + slot, access, output.dtype.size())).collect(),
    ]
}

/// An operand or an output whose elements are apart.
struct Column {
    slot: usize,
    /// Where its first element is.
    address: usize,
    bytes: usize,
    /// From one row and one lane to the next.
    strides: [usize; 2],
}

impl Column {
    /// Whether at most every fourth element is one of its own.
    fn is_near(&self) -> bool {
        (self.strides[1] as isize).unsigned_abs() <= NEAR * self.bytes
    }

    /// Whether another one is its neighbour in memory, in every row and lane.
    fn is_before(&self, next: &Column) -> bool {
        (self.bytes, self.strides) == (next.bytes, next.strides)
            && next.address == self.address.wrapping_add(self.bytes)
            && self.strides[1].cast_signed() > 0
    }
}

/// Fewest lanes that pay for a copy.
const LEAST_LANES: usize = 16;
/// Bytes of the copies of a patch, which stay in the nearest cache.
const COPY_BYTES: usize = 32 << 10;
/// Most lanes of a patch.
const LANES: usize = 1024;

/// How these operands are staged.
pub(super) fn patches(geometry: &Geometry, staged: &StagedCode) -> Patches {
    let bytes: usize = staged.operands.iter().chain(&staged.outputs).map(|&(_, bytes)| bytes).sum();
    let elements = (COPY_BYTES / bytes.max(1)).max(LEAST_LANES) / LEAST_LANES * LEAST_LANES;
    let lanes = geometry.n_inner().clamp(1, elements.min(LANES));
    Patches { rows: elements / lanes, lanes, read, write }
}

/// # Safety
/// As for [`Patches::read`].
unsafe fn read(patch: &Patch) {
    let Patch { strides: [_, stride], bytes, lanes, columns, column_pitch, .. } = *patch;
    for row in 0..patch.rows {
        // SAFETY: passed on from the caller, for one row.
        unsafe {
            let (from, to) = patch.place(row, 0);
            if patch.has_all_columns() {
                all_columns::<false>(patch, from, to);
            } else if columns >= LEAST_COLUMNS {
                transpose::transpose(from, stride, to, column_pitch, bytes, columns, lanes);
            } else {
                for column in 0..columns {
                    let (from, to) = patch.place(row, column);
                    line(from, stride, to, bytes, lanes);
                }
            }
        }
    }
}

/// # Safety
/// As for [`Patches::write`].
unsafe fn write(patch: &Patch) {
    let Patch { strides: [_, stride], bytes, lanes, columns, column_pitch, .. } = *patch;
    for row in 0..patch.rows {
        // SAFETY: passed on from the caller, for one row.
        unsafe {
            let (to, from) = patch.place(row, 0);
            if patch.has_all_columns() {
                all_columns::<true>(patch, to, from);
            } else if columns >= LEAST_COLUMNS {
                transpose::join(from, column_pitch, to, stride, bytes, columns, lanes);
            } else {
                for column in 0..columns {
                    let (to, from) = patch.place(row, column);
                    interleave(from, to, stride, bytes, lanes);
                }
            }
        }
    }
}

/// # Safety
/// As for [`Patches::write`], for one row of a column.
unsafe fn interleave(from: *const u8, to: *mut u8, stride: usize, bytes: usize, lanes: usize) {
    // SAFETY: passed on from the caller; in each case a copy is one machine instruction.
    unsafe {
        match bytes {
            1 => interleave_of::<u8>(from, to, stride, lanes),
            2 => interleave_of::<u16>(from.cast(), to, stride, lanes),
            4 => interleave_of::<u32>(from.cast(), to, stride, lanes),
            _ => interleave_of::<u64>(from.cast(), to, stride, lanes),
        }
    }
}

/// # Safety
/// As for [`interleave`], of elements of type `T`.
unsafe fn interleave_of<T: Copy>(from: *const T, to: *mut u8, stride: usize, lanes: usize) {
    for lane in 0..lanes {
        let element = to.wrapping_add(lane.wrapping_mul(stride)).cast::<T>();
        // SAFETY: passed on from the caller.
        unsafe { element.write_unaligned(from.add(lane).read()) };
    }
}

/// Copies all columns of a matrix of a few columns, each of which is a line of the copy, to the matrix or from it.
///
/// # Safety
/// As for [`Patches::write`] or [`Patches::read`], for one row, and the patch has all columns.
unsafe fn all_columns<const WRITES: bool>(patch: &Patch, memory: *mut u8, copy: *mut u8) {
    // SAFETY: passed on from the caller; in each case a copy is one machine instruction.
    unsafe {
        match (patch.bytes, patch.columns) {
            (1, 2) => columns::<u8, 2, WRITES>(patch, memory, copy),
            (1, 3) => columns::<u8, 3, WRITES>(patch, memory, copy),
            (1, _) => columns::<u8, 4, WRITES>(patch, memory, copy),
            (2, 2) => columns::<u16, 2, WRITES>(patch, memory, copy),
            (2, 3) => columns::<u16, 3, WRITES>(patch, memory, copy),
            (2, _) => columns::<u16, 4, WRITES>(patch, memory, copy),
            (4, 2) => columns::<u32, 2, WRITES>(patch, memory, copy),
            (4, 3) => columns::<u32, 3, WRITES>(patch, memory, copy),
            (4, _) => columns::<u32, 4, WRITES>(patch, memory, copy),
            (_, 2) => columns::<u64, 2, WRITES>(patch, memory, copy),
            (_, 3) => columns::<u64, 3, WRITES>(patch, memory, copy),
            (..) => columns::<u64, 4, WRITES>(patch, memory, copy),
        }
    }
}

/// # Safety
/// As for [`all_columns`], of `N` columns of type `T`.
unsafe fn columns<T: Copy, const N: usize, const WRITES: bool>(patch: &Patch, memory: *mut u8, copy: *mut u8) {
    // SAFETY: passed on from the caller; the level is one of this processor.
    unsafe {
        match Isa::best() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => columns_avx512::<T, N, WRITES>(patch, memory, copy),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => columns_avx2::<T, N, WRITES>(patch, memory, copy),
            _ => columns_of::<T, N, WRITES>(patch, memory, copy),
        }
    }
}

/// # Safety
/// As for [`columns`], and the processor has these instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn columns_avx512<T: Copy, const N: usize, const WRITES: bool>(patch: &Patch, memory: *mut u8, copy: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe { columns_of::<T, N, WRITES>(patch, memory, copy) }
}

/// # Safety
/// As for [`columns`], and the processor has these instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn columns_avx2<T: Copy, const N: usize, const WRITES: bool>(patch: &Patch, memory: *mut u8, copy: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe { columns_of::<T, N, WRITES>(patch, memory, copy) }
}

/// A constant number of columns lets the compiler move vectors and shuffle them.
///
/// # Safety
/// As for [`columns`].
#[inline(always)]
unsafe fn columns_of<T: Copy, const N: usize, const WRITES: bool>(patch: &Patch, memory: *mut u8, copy: *mut u8) {
    let (memory, copy) = (memory.cast::<T>(), copy.cast::<T>());
    for lane in 0..patch.lanes {
        for column in 0..N {
            // SAFETY: passed on from the caller.
            unsafe {
                let (far, near) = (memory.add(lane * N + column), copy.add(column * patch.column_pitch + lane));
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
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => every_avx2::<T, N>(from, to, lanes),
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

/// # Safety
/// As for [`every`], and the processor has these instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn every_avx2<T: Copy, const N: usize>(from: *const T, to: *mut T, lanes: usize) {
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
