//! Operand staging by packing: rows of several inner loops are copied to contiguous memory.
//!
//! The order of a fold counts elements across all inner loops, so a vector would have to cross every end of the last
//! one. Folding over, say, the first and the last dimension of three is rare enough for a copy, which stays in cache.
//! The code is that of the same kernel with contiguous operands and outputs. It is compiled on first use. What is
//! contiguous in memory already is not copied: in a group norm only the weights are, which have a number per channel.

#![allow(unsafe_code, reason = "copies elements of a launch from and to raw addresses")]

use super::code::Code;
use super::deinterleaved;
use super::dense_copies::copy_dense;
use super::launch::{self, LaunchShape, row_offset};
use super::{Compile, Manner};
use crate::codegen::geometry::{Access, Class, Geometry, Lanes, is_dense as dense};
use crate::codegen::kernel::{Kernel, Kind, Level, Source};
use crate::codegen::launch::{Faults, Part, Pointers};
use crate::error::Reason;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// A kernel compiled for packed rows.
pub(super) struct Packed {
    code: Code,
    shape: LaunchShape,
    operands: Vec<Line>,
    /// Whether code reads an operand. One that it does not may have no elements.
    is_read: Vec<bool>,
    outputs: Vec<Line>,
}

/// An operand or an output.
#[derive(Clone, Copy)]
struct Line {
    /// Bytes of an element.
    bytes: usize,
    is_iota: bool,
    /// Whether it has one element per row.
    is_once: bool,
}

impl Line {
    /// The elements of a packed row.
    fn width(self, n_inner: usize) -> usize {
        if self.is_once { 1 } else { n_inner.max(1) }
    }

    fn class(self) -> Class {
        if self.is_once { Class::Uniform } else { Class::Contiguous }
    }
}

impl Packed {
    /// Compiles `kernel` for packed rows.
    pub(super) fn compile(compile: Compile, kernel: &Kernel) -> Result<Packed, Reason> {
        let mut kernel = kernel.clone();
        let level = |slot: usize| {
            let loads = kernel.insts.iter().filter(|inst| inst.kind == Kind::Load(slot as u16));
            loads.map(|inst| inst.level).max()
        };
        let levels: Vec<Option<Level>> = (0..kernel.operands.len()).map(level).collect();
        let operands: Vec<Line> = (kernel.operands.iter().zip(&levels))
            .map(|(operand, level)| Line {
                bytes: operand.dtype.size(),
                is_iota: operand.source == Source::Iota,
                is_once: *level != Some(Level::Full),
            })
            .collect();
        let outputs: Vec<Line> = (kernel.outputs.iter())
            .map(|output| Line {
                bytes: output.dtype.size(),
                is_iota: false,
                is_once: kernel.inst(output.value).level == Level::Row,
            })
            .collect();
        // Iotas become memory, too.
        kernel.operands.iter_mut().for_each(|operand| operand.source = Source::Memory);
        let classes: Vec<Class> = operands.iter().chain(&outputs).map(|line| line.class()).collect();
        let (code, shape) = compile(&kernel, &classes, Manner::USUAL)?;
        let is_read = levels.iter().map(Option::is_some).collect();
        Ok(Packed { code, shape, operands, is_read, outputs })
    }

    /// Runs whole rows, some of which are packed at a time.
    ///
    /// # Safety
    /// As for [`super::NativeProgram::run`].
    pub(super) unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part) {
        let n_inner = geometry.n_inner();
        let row_bytes = |line: &Line| line.bytes * line.width(n_inner);
        let all = || self.operands.iter().chain(&self.outputs).map(row_bytes);
        let most = (BUFFER_BYTES / all().sum::<usize>().max(1)).clamp(1, part.outer.len().max(1));
        // Every operand and output gets a buffer.
        let ends: SmallVec<[usize; 8]> = all()
            .scan(0, |end, bytes| {
                *end += (bytes * most).div_ceil(8);
                Some(*end)
            })
            .collect();
        let mut lines: Vec<u64> = vec![0; ends.last().copied().unwrap_or(0)];
        let base = lines.as_mut_ptr();
        // SAFETY: buffers start inside `lines`, which outlives every use of them.
        let line = |index: usize| unsafe { base.add(if index == 0 { 0 } else { ends[index - 1] }) }.cast::<u8>();
        let in_place = self.in_place(geometry, most);
        let packed_rows = self.packed_rows(geometry, most, &in_place);
        let mut operand_lines: SmallVec<[*const u8; 8]> =
            (0..self.operands.len()).map(|slot| line(slot).cast_const()).collect();
        let mut output_lines: SmallVec<[*mut u8; 4]> =
            (0..self.outputs.len()).map(|slot| line(self.operands.len() + slot)).collect();
        for first in part.outer.clone().step_by(most) {
            let rows = first..part.outer.end.min(first + most);
            let first_row = |access: &Access| row_offset(&geometry.rows, access, first) as usize;
            for (slot, access) in geometry.operands.iter().enumerate().filter(|&(slot, _)| in_place[slot]) {
                operand_lines[slot] = pointers.operands[slot].wrapping_add(first_row(access));
            }
            for (slot, access) in geometry.outputs.iter().enumerate() {
                if in_place[self.operands.len() + slot] {
                    output_lines[slot] = pointers.outputs[slot].wrapping_add(first_row(access));
                }
            }
            for (slot, (operand, access)) in self.operands.iter().zip(&geometry.operands).enumerate() {
                if !self.is_read[slot] || in_place[slot] {
                    continue;
                }
                let (bytes, step) = (operand.bytes, row_bytes(operand));
                let sizes = if operand.is_once { &[] } else { &geometry.inner[..] };
                let (from, to) = (pointers.operands[slot], line(slot));
                let starts = starts(geometry, access, rows.clone());
                runs(sizes, access, |index, offset, stride, n| {
                    // Copies of their own stay in registers while the buffer is written.
                    let (from, to, step) = (from, to.wrapping_add(index * bytes), step);
                    let units = starts.iter().map(move |start| start.wrapping_add(offset as u64)).enumerate();
                    // SAFETY: the buffer has an element per position, and the caller vouches for the elements.
                    unsafe {
                        if operand.is_iota {
                            let unit = |start: u64, nth: usize| start.wrapping_add(nth.wrapping_mul(stride) as u64);
                            units.for_each(|(row, start)| {
                                let to = to.add(row * step).cast::<u64>();
                                (0..n).for_each(|nth| to.add(nth).write(unit(start, nth)));
                            });
                        } else {
                            let pairs = units.map(move |(row, start)| {
                                (from.wrapping_add(start as usize), to.wrapping_add(row * step))
                            });
                            copy_runs(pairs, [stride, bytes], bytes, n);
                        }
                    }
                });
            }
            let lines = Pointers { operands: &operand_lines, outputs: &output_lines };
            // SAFETY: every access of `packed_rows` is a buffer of so many rows, or these rows in memory, for which the
            // caller vouches.
            unsafe {
                let part = Part { outer: 0..rows.len(), lanes: 0..n_inner };
                launch::run(&self.code, &self.shape, &packed_rows, lines, &part, &Faults::new());
            }
            for (slot, (output, access)) in self.outputs.iter().zip(&geometry.outputs).enumerate() {
                if in_place[self.operands.len() + slot] {
                    continue;
                }
                let (bytes, step, once) = (output.bytes, row_bytes(output), output.is_once);
                let still = access.inner.iter().all(|&stride| stride == 0);
                let sizes = if once && still { &[] } else { &geometry.inner[..] };
                let (from, to) = (output_lines[slot], pointers.outputs[slot]);
                let starts = starts(geometry, access, rows.clone());
                runs(sizes, access, |index, offset, stride, n| {
                    let (index, apart) = if once { (0, 0) } else { (index, bytes) };
                    let (from, step) = (from.wrapping_add(index * bytes).cast_const(), step);
                    let to = to.wrapping_add(offset);
                    let pairs = starts
                        .iter()
                        .enumerate()
                        .map(move |(row, &start)| (from.wrapping_add(row * step), to.wrapping_add(start as usize)));
                    // SAFETY: as above; the caller lets this part write the output's elements.
                    unsafe { copy_runs(pairs, [apart, stride], bytes, n) };
                });
            }
        }
    }

    /// For each operand, then each output, whether rows are contiguous in memory. Several at a time must be evenly
    /// apart.
    fn in_place(&self, geometry: &Geometry, count: usize) -> SmallVec<[bool; 12]> {
        let is_even = count == 1 || geometry.rows.len() <= 1;
        let accesses = geometry.operands.iter().chain(&geometry.outputs);
        let is_dense = |(line, access): (&Line, &Access)| {
            is_even && !line.is_iota && !line.is_once && dense(geometry.inner.iter().zip(&access.inner), line.bytes)
        };
        self.operands.iter().chain(&self.outputs).zip(accesses).map(is_dense).collect()
    }

    /// The geometry of so many packed rows, which follow each other in each buffer, or are as far apart as in memory.
    fn packed_rows(&self, geometry: &Geometry, count: usize, in_place: &[bool]) -> Geometry {
        let n_inner = geometry.n_inner();
        let access = |((line, access), &in_place): ((&Line, &Access), &bool)| {
            let in_memory = access.rows.last().copied().unwrap_or(0);
            let row = if in_place { in_memory } else { line.width(n_inner) * line.bytes };
            Access {
                rows: smallvec![row],
                inner: smallvec![if line.is_once { 0 } else { line.bytes }],
                base: 0,
                gather: None,
            }
        };
        let (of_operands, of_outputs) = in_place.split_at(self.operands.len());
        Geometry {
            rows: smallvec![count],
            inner: smallvec![n_inner],
            operands: self.operands.iter().zip(&geometry.operands).zip(of_operands).map(access).collect(),
            outputs: self.outputs.iter().zip(&geometry.outputs).zip(of_outputs).map(access).collect(),
            lanes: Lanes::Inner,
        }
    }
}

/// Bytes of all buffers. They stay in a core's second-level cache.
const BUFFER_BYTES: usize = 64 << 10;

/// Where each of some rows starts.
fn starts(geometry: &Geometry, access: &Access, rows: Range<usize>) -> SmallVec<[u64; 16]> {
    match access.rows[..] {
        [stride] => {
            rows.map(|row| (access.base as u64).wrapping_add((row as u64).wrapping_mul(stride as u64))).collect()
        }
        _ => rows.map(|row| row_offset(&geometry.rows, access, row)).collect(),
    }
}

/// Calls `visit` for runs of elements that are evenly apart, in the order of nested loops, innermost fastest: with the
/// number and the offset of the first, the stride, and how many they are.
fn runs(sizes: &[usize], access: &Access, mut visit: impl FnMut(usize, usize, usize, usize)) {
    let Some((&last, outer)) = sizes.split_last() else { return visit(0, 0, 0, 1) };
    let stride = access.inner[outer.len()];
    if stride == 0 && access.inner.iter().all(|&stride| stride == 0) {
        return visit(0, 0, 0, sizes.iter().product());
    }
    for run in 0..outer.iter().product() {
        let (mut offset, mut rest) = (0_usize, run);
        for (&size, &stride) in outer.iter().zip(&access.inner).rev() {
            offset = offset.wrapping_add((rest % size).wrapping_mul(stride));
            rest /= size;
        }
        visit(run * last, offset, stride, last);
    }
}

/// Copies a run of `n` elements of `bytes` bytes for each pair of addresses. The strides are those of `from` and of
/// `to`.
///
/// # Safety
/// All elements are alive, those of `to` writable, and the two do not overlap.
#[inline(always)]
unsafe fn copy_runs(
    pairs: impl Iterator<Item = (*const u8, *mut u8)>,
    [apart, stride]: [usize; 2],
    bytes: usize,
    n: usize,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        if apart == bytes && stride == bytes {
            return copy_dense(pairs, n * bytes);
        }
        match bytes {
            1 => pairs.for_each(|(from, to)| strided::<u8>(from, apart, to, stride, n)),
            2 => pairs.for_each(|(from, to)| strided::<u16>(from, apart, to, stride, n)),
            4 => pairs.for_each(|(from, to)| strided::<u32>(from, apart, to, stride, n)),
            _ => pairs.for_each(|(from, to)| strided::<u64>(from, apart, to, stride, n)),
        }
    }
}

/// Copies a run of elements of type `T`.
///
/// # Safety
/// As for [`copy_runs`].
#[inline(always)]
unsafe fn strided<T: Copy>(from: *const u8, apart: usize, to: *mut u8, stride: usize, n: usize) {
    // SAFETY: passed on from the caller. Two cases have a constant stride each, so that vectors write.
    unsafe {
        match (apart, stride == size_of::<T>()) {
            (0, true) if n > 0 => {
                let value = from.cast::<T>().read_unaligned();
                (0..n).for_each(|index| to.cast::<T>().add(index).write_unaligned(value));
            }
            (_, true) => deinterleaved::line(from, apart, to, size_of::<T>(), n),
            (_, false) => {
                for index in 0..n {
                    let value = from.wrapping_add(index.wrapping_mul(apart)).cast::<T>().read_unaligned();
                    to.wrapping_add(index.wrapping_mul(stride)).cast::<T>().write_unaligned(value);
                }
            }
        }
    }
}
