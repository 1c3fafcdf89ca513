//! Operand staging by packing: rows of several inner loops are copied to contiguous memory.
//!
//! The order of a fold counts elements across all inner loops, so a vector would have to cross every end of the last
//! one. Folding over, say, the first and the last dimension of three is rare enough for a copy, which stays in cache.
//! The code is that of the same kernel with contiguous operands and outputs. It is compiled on first use.

#![allow(unsafe_code, reason = "copies elements of a launch from and to raw addresses")]

use super::code::Code;
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
                let to = line(slot);
                each(sizes, access, |index, offset| {
                    let offset = start.wrapping_add(offset as u64);
                    // SAFETY: the buffer has an element per position, and the caller vouches for the operand's
                    // elements.
                    unsafe {
                        if iota {
                            to.cast::<u64>().add(index).write(offset);
                        } else {
                            copy(pointers.operands[slot].wrapping_add(offset as usize), to.add(index * bytes), bytes);
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
                each(sizes, access, |index, offset| {
                    // SAFETY: as above; the caller lets this part write the output's elements.
                    unsafe { copy(from.add(if once { 0 } else { index * bytes }), to.wrapping_add(offset), bytes) };
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

/// Calls `visit` with the number and the offset of every position of nested loops, innermost fastest.
fn each(sizes: &[usize], access: &Access, mut visit: impl FnMut(usize, usize)) {
    let Some((&last, outer)) = sizes.split_last() else { return visit(0, 0) };
    let stride = access.inner[outer.len()];
    for run in 0..outer.iter().product() {
        let (mut offset, mut rest) = (0, run);
        for (&size, &stride) in outer.iter().zip(&access.inner).rev() {
            offset += rest % size * stride;
            rest /= size;
        }
        for index in 0..last {
            visit(run * last + index, offset + index * stride);
        }
    }
}

/// Copies an element.
///
/// # Safety
/// Both addresses have `bytes` live bytes, `to`'s writable, and do not overlap.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: passed on from the caller; in each case a copy is one machine instruction.
    unsafe {
        match bytes {
            1 => to.write(from.read()),
            2 => to.cast::<[u8; 2]>().write(from.cast::<[u8; 2]>().read()),
            4 => to.cast::<[u8; 4]>().write(from.cast::<[u8; 4]>().read()),
            _ => to.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read()),
        }
    }
}
