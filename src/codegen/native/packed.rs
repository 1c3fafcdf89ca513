//! Operand staging by packing: rows of several inner loops are copied to contiguous memory.
//!
//! The order of a fold counts elements across all inner loops, so a vector would have to cross every end of the last
//! one. Folding over, say, the first and the last dimension of three is rare enough for a copy, which stays in cache.
//! The code is that of the same kernel with contiguous operands and outputs. It is compiled on first use.

#![allow(unsafe_code, reason = "copies elements of a launch from and to raw addresses")]

use super::code::Code;
use super::deinterleaved;
use super::launch::{self, LaunchShape, row_offset};
use super::{Compile, Manner};
use crate::codegen::geometry::{Access, Class, Geometry, Lanes};
use crate::codegen::kernel::{Kernel, Kind, Level, Source};
use crate::codegen::launch::{Faults, Part, Pointers};
use crate::error::Reason;
use smallvec::{SmallVec, smallvec};

/// A kernel compiled for packed rows.
pub(super) struct Packed {
    code: Code,
    shape: LaunchShape,
    /// Per operand: bytes of an element, whether it is an iota, and how it is read. Code that was simplified may not
    /// read an operand, which then may have no elements.
    operands: Vec<(usize, bool, Option<Level>)>,
    /// Per output: bytes of an element, and whether it is computed once per row.
    outputs: Vec<(usize, bool)>,
}

impl Packed {
    /// Compiles `kernel` for packed rows.
    pub(super) fn compile(compile: Compile, kernel: &Kernel) -> Result<Packed, Reason> {
        let mut kernel = kernel.clone();
        let level = |slot: usize| {
            let loads = kernel.insts.iter().filter(|inst| inst.kind == Kind::Load(slot as u16));
            loads.map(|inst| inst.level).max()
        };
        let operands: Vec<(usize, bool, Option<Level>)> = (kernel.operands.iter().enumerate())
            .map(|(slot, operand)| (operand.dtype.size(), operand.source == Source::Iota, level(slot)))
            .collect();
        let outputs: Vec<(usize, bool)> = (kernel.outputs.iter())
            .map(|output| (output.dtype.size(), kernel.inst(output.value).level == Level::Row))
            .collect();
        // Iotas become memory, too.
        kernel.operands.iter_mut().for_each(|operand| operand.source = Source::Memory);
        let class = |once: bool| if once { Class::Uniform } else { Class::Contiguous };
        let classes = operands.iter().map(|_| Class::Contiguous).chain(outputs.iter().map(|output| class(output.1)));
        let (code, shape) = compile(&kernel, &classes.collect::<Vec<_>>(), Manner::USUAL)?;
        Ok(Packed { code, shape, operands, outputs })
    }

    /// Runs whole rows.
    ///
    /// # Safety
    /// As for [`super::NativeProgram::run`].
    pub(super) unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part) {
        let n_inner = geometry.n_inner();
        // Every operand and output gets a buffer for a row, also an iota or a value per row.
        let lines = self.operands.iter().map(|operand| operand.0).chain(self.outputs.iter().map(|output| output.0));
        let ends: SmallVec<[usize; 8]> = lines
            .scan(0, |end, bytes| {
                *end += (bytes * n_inner.max(1)).div_ceil(8);
                Some(*end)
            })
            .collect();
        let mut lines: Vec<u64> = vec![0; ends.last().copied().unwrap_or(0)];
        let base = lines.as_mut_ptr();
        // SAFETY: buffers start inside `lines`, which outlives every use of them.
        let line = |index: usize| unsafe { base.add(if index == 0 { 0 } else { ends[index - 1] }) }.cast::<u8>();
        let one_row = self.one_row(n_inner);
        let operand_lines: SmallVec<[*const u8; 8]> =
            (0..self.operands.len()).map(|slot| line(slot).cast_const()).collect();
        let output_lines: SmallVec<[*mut u8; 4]> =
            (0..self.outputs.len()).map(|slot| line(self.operands.len() + slot)).collect();
        for row in part.outer.clone() {
            for (slot, (&(bytes, iota, level), access)) in self.operands.iter().zip(&geometry.operands).enumerate() {
                let Some(level) = level else { continue };
                let sizes = if level == Level::Full { &geometry.inner[..] } else { &[] };
                let start = row_offset(geometry, access, row);
                let from = pointers.operands[slot];
                runs(sizes, access, |index, offset, stride, n| {
                    let offset = start.wrapping_add(offset as u64);
                    // SAFETY: the buffer has an element per position, and the caller vouches for the operand's
                    // elements.
                    unsafe {
                        let to = line(slot).add(index * bytes);
                        if iota {
                            let unit = |index: usize| offset.wrapping_add(index.wrapping_mul(stride) as u64);
                            (0..n).for_each(|index| to.cast::<u64>().add(index).write(unit(index)));
                        } else {
                            run(from.wrapping_add(offset as usize), stride, to, bytes, bytes, n);
                        }
                    }
                });
            }
            let lines = Pointers { operands: &operand_lines, outputs: &output_lines };
            // SAFETY: every access of `one_row` is a buffer of `n_inner` elements.
            unsafe {
                let part = Part { outer: 0..1, lanes: 0..n_inner };
                launch::run(&self.code, &self.shape, &one_row, lines, &part, &Faults::new());
            }
            for (slot, (&(bytes, once), access)) in self.outputs.iter().zip(&geometry.outputs).enumerate() {
                let from = output_lines[slot];
                let still = access.inner.iter().all(|&stride| stride == 0);
                let sizes = if once && still { &[] } else { &geometry.inner[..] };
                let to = pointers.outputs[slot].wrapping_add(row_offset(geometry, access, row) as usize);
                runs(sizes, access, |index, offset, stride, n| {
                    let (from, apart) = if once { (from, 0) } else { (from.wrapping_add(index * bytes), bytes) };
                    // SAFETY: as above; the caller lets this part write the output's elements.
                    unsafe { run(from, apart, to.wrapping_add(offset), stride, bytes, n) };
                });
            }
        }
    }

    /// The geometry of a single packed row.
    fn one_row(&self, n_inner: usize) -> Geometry {
        let access = |stride: usize| Access { rows: smallvec![], inner: smallvec![stride], base: 0, gather: None };
        Geometry {
            rows: smallvec![],
            inner: smallvec![n_inner],
            operands: self.operands.iter().map(|operand| access(operand.0)).collect(),
            outputs: self.outputs.iter().map(|output| access(if output.1 { 0 } else { output.0 })).collect(),
            lanes: Lanes::Inner,
        }
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

/// Copies elements of `bytes` bytes: the strides are those of `from` and of `to`.
///
/// # Safety
/// All elements are alive, those of `to` writable, and the two do not overlap.
#[inline(always)]
unsafe fn run(from: *const u8, apart: usize, to: *mut u8, stride: usize, bytes: usize, n: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        if apart == bytes && stride == bytes {
            return dense(from, to, n * bytes);
        }
        match bytes {
            1 => strided::<u8>(from, apart, to, stride, n),
            2 => strided::<u16>(from, apart, to, stride, n),
            4 => strided::<u32>(from, apart, to, stride, n),
            _ => strided::<u64>(from, apart, to, stride, n),
        }
    }
}

/// Copies bytes. A run is often so short that a call would take longer.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn dense(from: *const u8, to: *mut u8, bytes: usize) {
    type Block = [u8; BLOCK];
    // SAFETY: passed on from the caller. The last block ends where the run does.
    unsafe {
        if !(BLOCK..=MOST_BLOCKS * BLOCK).contains(&bytes) {
            return std::ptr::copy_nonoverlapping(from, to, bytes);
        }
        for at in (0..bytes - BLOCK).step_by(BLOCK) {
            to.add(at).cast::<Block>().write_unaligned(from.add(at).cast::<Block>().read_unaligned());
        }
        let last = bytes - BLOCK;
        to.add(last).cast::<Block>().write_unaligned(from.add(last).cast::<Block>().read_unaligned());
    }
}

/// The bytes of a vector.
const BLOCK: usize = 16;
/// Runs of more blocks are left to the system's copy.
const MOST_BLOCKS: usize = 32;

/// As [`run`], for elements of type `T`.
///
/// # Safety
/// As for [`run`].
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
