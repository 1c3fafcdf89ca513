//! Runs launches patch by patch, on copies of some operands and outputs.
//!
//! A patch is a few neighbouring rows and lanes. [`super::transposed`] and [`super::deinterleaved`] say which operands
//! are staged and how. The copies are contiguous along the lanes and stay in a near cache.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::code::Code;
use super::launch::{self, row_offset};
use super::staged::StagedCode;
use crate::codegen::geometry::{Access, Geometry};
use crate::codegen::launch::{Faults, Part, Pointers};
use smallvec::{SmallVec, smallvec};

/// A way to copy operands and outputs in patches.
pub(super) struct Patches {
    /// Most rows of a patch.
    pub(super) rows: usize,
    /// Most lanes of a patch, and the elements between the rows of a copy.
    pub(super) lanes: usize,
    /// Copies an operand's elements of a patch.
    ///
    /// # Safety
    /// All of them are alive, and so are those of the copy, which nothing else uses.
    pub(super) read: unsafe fn(&Patch),
    /// Copies the elements of a patch to an output.
    ///
    /// # Safety
    /// All of the copy are alive, and so are those of the output, which nothing else uses.
    pub(super) write: unsafe fn(&Patch),
}

/// Elements of a patch, and their copy.
#[derive(Clone, Copy)]
pub(super) struct Patch {
    /// Those of an operand, which are only read, or of an output.
    pub(super) memory: *mut u8,
    /// Bytes between rows, and between lanes.
    pub(super) strides: [usize; 2],
    pub(super) copy: *mut u8,
    /// Elements between the rows of the copy.
    pub(super) pitch: usize,
    /// Bytes of an element.
    pub(super) bytes: usize,
    pub(super) rows: usize,
    pub(super) lanes: usize,
}

impl Patches {
    /// Runs a part of a launch.
    ///
    /// # Safety
    /// As for [`super::NativeProgram::run`]; the code is for copies of these operands.
    pub(super) unsafe fn run(
        &self,
        code: &Code,
        staged: &StagedCode,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        part: &Part,
        faults: &Faults,
    ) {
        let last = geometry.rows.last().copied().unwrap_or(1);
        let most = self.rows.min(part.outer.len()) * self.lanes;
        let mut copies: Vec<Vec<CacheLine>> = staged.operands.iter().map(|&(_, bytes)| lines(most * bytes)).collect();
        let mut results: Vec<Vec<CacheLine>> = staged.outputs.iter().map(|&(_, bytes)| lines(most * bytes)).collect();
        let mut row = part.outer.start;
        while row < part.outer.end {
            let rows = (last - row % last).min(part.outer.end - row).min(self.rows);
            for lane in part.lanes.clone().step_by(self.lanes) {
                let lanes = (part.lanes.end - lane).min(self.lanes);
                let mut patch = patch(geometry, row, rows, lane, lanes);
                let mut operands: SmallVec<[*const u8; 8]> = pointers.operands.into();
                for (&(slot, bytes), copy) in staged.operands.iter().zip(&mut copies) {
                    let access = &patch.operands[slot];
                    let memory = operands[slot].cast_mut().wrapping_offset(access.base as isize);
                    let (strides, copy) = ([access.rows[0], access.inner[0]], copy.as_mut_ptr().cast());
                    let block = Patch { memory, strides, copy, pitch: self.lanes, bytes, rows, lanes };
                    // SAFETY: the caller vouches for the operand's elements, of which these are the patch's; the copy
                    // has room for a patch.
                    unsafe { (self.read)(&block) };
                    operands[slot] = copy.cast_const();
                    let is_shared = strides[0] == 0;
                    patch.operands[slot] = self.dense(bytes);
                    if is_shared {
                        patch.operands[slot].rows[0] = 0;
                    }
                }
                let mut outputs: SmallVec<[*mut u8; 4]> = pointers.outputs.into();
                let mut written: SmallVec<[Access; 1]> = SmallVec::new();
                for (&(slot, bytes), result) in staged.outputs.iter().zip(&mut results) {
                    outputs[slot] = result.as_mut_ptr().cast();
                    written.push(std::mem::replace(&mut patch.outputs[slot], self.dense(bytes)));
                }
                let of_patch = Pointers { operands: &operands, outputs: &outputs };
                // SAFETY: the patch is part of the launch, which the caller vouches for; copies hold its elements.
                unsafe {
                    let part = Part { outer: 0..rows, lanes: 0..lanes };
                    launch::run(code, &staged.codes.shape, &patch, of_patch, &part, faults);
                }
                for ((&(slot, bytes), result), access) in staged.outputs.iter().zip(&mut results).zip(&written) {
                    let memory = pointers.outputs[slot].wrapping_offset(access.base as isize);
                    let (strides, copy) = ([access.rows[0], access.inner[0]], result.as_mut_ptr().cast());
                    let block = Patch { memory, strides, copy, pitch: self.lanes, bytes, rows, lanes };
                    // SAFETY: the code has written the patch's elements, and the caller vouches for those of the
                    // output.
                    unsafe { (self.write)(&block) };
                }
            }
            row += rows;
        }
    }
}

impl Patch {
    /// Where a row begins in memory, and in the copy.
    pub(super) fn row(&self, row: usize) -> (*mut u8, *mut u8) {
        let memory = self.memory.wrapping_add(row.wrapping_mul(self.strides[0]));
        (memory, self.copy.wrapping_add(row * self.pitch * self.bytes))
    }
}

impl Patches {
    /// How code accesses a copy.
    fn dense(&self, bytes: usize) -> Access {
        Access { rows: smallvec![self.lanes * bytes], inner: smallvec![bytes], base: 0, gather: None }
    }
}

/// Memory of copies: every vector of a row that begins a line is in one line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct CacheLine {
    _bytes: [u8; 64],
}

/// Memory for some bytes.
fn lines(bytes: usize) -> Vec<CacheLine> {
    vec![CacheLine { _bytes: [0; 64] }; bytes.div_ceil(size_of::<CacheLine>())]
}

/// The loops of a patch: neighbouring rows of the last row loop, and some lanes.
fn patch(geometry: &Geometry, row: usize, rows: usize, lane: usize, lanes: usize) -> Geometry {
    let access = |access: &Access| {
        let (row_stride, stride) = (access.rows.last().copied().unwrap_or(0), geometry.lane_stride(access));
        let base = row_offset(&geometry.rows, access, row).wrapping_add((lane as u64).wrapping_mul(stride as u64));
        Access { rows: smallvec![row_stride], inner: smallvec![stride], base: base as i64, gather: access.gather }
    };
    Geometry {
        rows: smallvec![rows],
        inner: smallvec![lanes],
        operands: geometry.operands.iter().map(access).collect(),
        outputs: geometry.outputs.iter().map(access).collect(),
        lanes: geometry.lanes,
    }
}
