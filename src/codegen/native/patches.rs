//! Runs launches patch by patch, on copies of some operands and outputs.
//!
//! A patch is a few neighbouring rows and lanes. [`super::transposed`] and [`super::deinterleaved`] say which operands
//! are staged and how. The copies are contiguous along the lanes and stay in a near cache.
//!
//! Several operands may be neighbouring columns of the same memory, as those of a cross product. Where a patch has one
//! row, they are copied together, as if they were its rows. The same holds for outputs.

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
        let read_from = |slot: usize| pointers.operands[slot].wrapping_offset(geometry.operands[slot].base as isize);
        let mut copies = Copies::new(&staged.operands, most, |slot| read_from(slot).addr());
        let write_to = |slot: usize| pointers.outputs[slot].wrapping_offset(geometry.outputs[slot].base as isize);
        let mut results = Copies::new(&staged.outputs, most, |slot| write_to(slot).addr());
        let mut row = part.outer.start;
        while row < part.outer.end {
            let rows = (last - row % last).min(part.outer.end - row).min(self.rows);
            for lane in part.lanes.clone().step_by(self.lanes) {
                let lanes = (part.lanes.end - lane).min(self.lanes);
                let mut patch = patch(geometry, row, rows, lane, lanes);
                let mut operands: SmallVec<[*const u8; 8]> = pointers.operands.into();
                let mut blocks = Blocks::default();
                for (slot, bytes, copy) in copies.iter() {
                    let access = &patch.operands[slot];
                    let memory = operands[slot].cast_mut().wrapping_offset(access.base as isize);
                    let strides = [access.rows[0], access.inner[0]];
                    blocks.add(Patch { memory, strides, copy, pitch: self.lanes, bytes, rows, lanes });
                    operands[slot] = copy.cast_const();
                    let is_shared = strides[0] == 0;
                    patch.operands[slot] = self.dense(bytes);
                    if is_shared {
                        patch.operands[slot].rows[0] = 0;
                    }
                }
                // SAFETY: the caller vouches for the operands' elements, of which these are the patch's; the copies
                // have room for a patch.
                blocks.all.iter().for_each(|block| unsafe { (self.read)(block) });
                let mut outputs: SmallVec<[*mut u8; 4]> = pointers.outputs.into();
                let mut blocks = Blocks::default();
                for (slot, bytes, copy) in results.iter() {
                    let access = std::mem::replace(&mut patch.outputs[slot], self.dense(bytes));
                    let memory = outputs[slot].wrapping_offset(access.base as isize);
                    let strides = [access.rows[0], access.inner[0]];
                    blocks.add(Patch { memory, strides, copy, pitch: self.lanes, bytes, rows, lanes });
                    outputs[slot] = copy;
                }
                let of_patch = Pointers { operands: &operands, outputs: &outputs };
                // SAFETY: the patch is part of the launch, which the caller vouches for; copies hold its elements.
                unsafe {
                    let part = Part { outer: 0..rows, lanes: 0..lanes };
                    launch::run(code, &staged.codes.shape, &patch, of_patch, &part, faults);
                }
                // SAFETY: the code has written the patch's elements, and the caller vouches for those of the outputs.
                blocks.all.iter().for_each(|block| unsafe { (self.write)(block) });
            }
            row += rows;
        }
    }
}

impl Patch {
    /// Whether another one is the next row of this one. Both have a column per row.
    fn takes(&self, next: &Patch) -> bool {
        let columns = self.rows * self.bytes;
        let is_alone = self.rows == 1 || self.strides[0] == self.bytes;
        let is_evenly_apart = |pitch: usize| self.rows == 1 || pitch == self.pitch;
        let apart = next.copy.addr().wrapping_sub(self.copy.addr());
        next.rows == 1
            && is_alone
            && (self.bytes, self.strides[1]) == (next.bytes, next.strides[1])
            && (self.strides[1].cast_signed()) > columns.cast_signed()
            && next.memory.addr() == self.memory.addr().wrapping_add(columns)
            && is_evenly_apart(apart / self.rows / self.bytes)
    }

    /// Whether the rows are all columns of a matrix of two to four columns, whose elements have four or eight bytes.
    pub(super) fn has_all_columns(&self) -> bool {
        matches!(self.rows, 2..=4)
            && matches!(self.bytes, 4 | 8)
            && self.strides == [self.bytes, self.rows * self.bytes]
    }

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

/// Memory for the copies of some operands or outputs, those of neighbouring columns one after the other.
struct Copies {
    lines: Vec<CacheLine>,
    /// Each operand or output, the bytes of its elements, and the line where its copy begins.
    places: SmallVec<[(usize, usize, usize); 8]>,
}

impl Copies {
    /// Room for `most` elements of each slot, in the order of their addresses.
    fn new(slots: &[(usize, usize)], most: usize, address: impl Fn(usize) -> usize) -> Copies {
        let mut places: SmallVec<[(usize, usize, usize); 8]> =
            slots.iter().map(|&(slot, bytes)| (slot, bytes, 0)).collect();
        places.sort_by_key(|&(slot, ..)| address(slot));
        let mut n_lines = 0;
        for (_, bytes, at) in &mut places {
            *at = n_lines;
            n_lines += (most * *bytes).div_ceil(size_of::<CacheLine>());
        }
        Copies { lines: vec![CacheLine { _bytes: [0; 64] }; n_lines], places }
    }

    /// The slots, the bytes of their elements, and where their copies begin.
    fn iter(&mut self) -> impl Iterator<Item = (usize, usize, *mut u8)> {
        let start = self.lines.as_mut_ptr();
        self.places.iter().map(move |&(slot, bytes, at)| (slot, bytes, start.wrapping_add(at).cast()))
    }
}

/// What is copied for a patch.
#[derive(Default)]
struct Blocks {
    all: SmallVec<[Patch; 8]>,
}

impl Blocks {
    /// Adds a row as one more of the rows before, if it is the next column of the same memory.
    fn add(&mut self, block: Patch) {
        if let Some(before) = self.all.last_mut()
            && before.takes(&block)
        {
            let pitch = (block.copy.addr() - before.copy.addr()) / before.rows / block.bytes;
            *before = Patch { strides: [block.bytes, before.strides[1]], rows: before.rows + 1, pitch, ..*before };
            return;
        }
        self.all.push(block);
    }
}

/// Memory of copies: every vector of a row that begins a line is in one line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct CacheLine {
    _bytes: [u8; 64],
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
