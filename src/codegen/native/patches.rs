//! Runs launches patch by patch, on copies of some operands and outputs.
//!
//! A patch is a few neighbouring rows and lanes. [`super::transposed`] and [`super::deinterleaved`] say which operands
//! are staged and how. The copies are contiguous along the lanes and stay in a near cache.
//!
//! Several operands may be neighbouring columns of the same memory, as those of a cross product. They are copied
//! together. The same holds for outputs.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::code::Code;
use super::launch::{self, LaunchShape, PieceCalls, row_offset};
use super::staged::StagedCode;
use crate::codegen::geometry::{Access, Geometry};
use crate::codegen::launch::{Faults, Part, Pointers};
use crate::codegen::vm::prefetch_range;
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
    /// One, if all rows are the same.
    pub(super) rows: usize,
    pub(super) lanes: usize,
    /// Operands or outputs that are neighbours in memory, and the elements between their copies.
    pub(super) columns: usize,
    pub(super) column_pitch: usize,
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
        let mut calls = PatchCalls::new(self, code, staged, geometry, pointers);
        copies.iter().for_each(|(slot, bytes, copy)| calls.put_operand(slot, self.dense(bytes), copy));
        results.iter().for_each(|(slot, bytes, copy)| calls.put_output(slot, self.dense(bytes), copy));
        calls.prepare();
        let (mut reads, mut writes) = (Blocks::default(), Blocks::default());
        let mut row = part.outer.start;
        while row < part.outer.end {
            let rows = (last - row % last).min(part.outer.end - row).min(self.rows);
            calls.move_to(row);
            for lane in part.lanes.clone().step_by(self.lanes) {
                let lanes = (part.lanes.end - lane).min(self.lanes);
                let place = Place { pitch: self.lanes, rows, lane, lanes };
                reads.all.clear();
                for (slot, bytes, copy) in copies.iter() {
                    reads.add(place.block(calls.operand(slot), copy, bytes));
                }
                // SAFETY: the caller vouches for the operands' elements, of which these are the patch's; the copies
                // have room for a patch.
                reads.all.iter().for_each(|block| unsafe { (self.read)(block) });
                writes.all.clear();
                for (slot, bytes, copy) in results.iter() {
                    writes.add(place.block(calls.output(slot), copy, bytes));
                }
                writes.all.iter().for_each(Patch::prefetch);
                // SAFETY: the patch is part of the launch, which the caller vouches for; copies hold its elements.
                unsafe { calls.call(&place, faults) };
                // SAFETY: the code has written the patch's elements, and the caller vouches for those of the outputs.
                writes.all.iter().for_each(|block| unsafe { (self.write)(block) });
            }
            row += rows;
        }
    }

    /// How code accesses a copy.
    fn dense(&self, bytes: usize) -> Access {
        Access { rows: smallvec![self.lanes * bytes], inner: smallvec![bytes], base: 0, gather: None }
    }
}

/// The code of a launch, patch by patch.
struct PatchCalls<'a> {
    code: &'a Code,
    shape: &'a LaunchShape,
    /// The accesses of the whole launch, operands first, and where they begin.
    whole: SmallVec<[(&'a Access, *mut u8); 16]>,
    /// The sizes of its row loops and of its vector loop, and the patch's first row in each access, as an offset.
    rows: &'a [usize],
    n_lanes: usize,
    starts: SmallVec<[u64; 16]>,
    /// Which accesses are staged.
    is_staged: SmallVec<[bool; 16]>,
    /// The loops of a patch, and its pointers.
    loops: Geometry,
    operands: SmallVec<[*const u8; 8]>,
    outputs: SmallVec<[*mut u8; 4]>,
    /// Prepared calls, for code that has any.
    pieces: Option<PieceCalls<'a>>,
    /// Whether the rows of every access follow each other, so that they run as one.
    is_one_row: bool,
}

impl<'a> PatchCalls<'a> {
    fn new(
        patches: &Patches,
        code: &'a Code,
        staged: &'a StagedCode,
        geometry: &'a Geometry,
        pointers: Pointers<'_>,
    ) -> PatchCalls<'a> {
        let access = |access: &Access| {
            let (row_stride, stride) = (access.rows.last().copied().unwrap_or(0), geometry.lane_stride(access));
            Access { rows: smallvec![row_stride], inner: smallvec![stride], base: 0, gather: access.gather }
        };
        let loops = Geometry {
            rows: smallvec![patches.rows],
            inner: smallvec![patches.lanes],
            operands: geometry.operands.iter().map(access).collect(),
            outputs: geometry.outputs.iter().map(access).collect(),
            lanes: geometry.lanes,
        };
        let shape = &staged.codes.shape;
        let operands = pointers.operands.iter().zip(&shape.iotas);
        let operands = operands.map(|(&pointer, &iota)| if iota { std::ptr::null_mut() } else { pointer.cast_mut() });
        let operands = geometry.operands.iter().zip(operands);
        let whole: SmallVec<[(&Access, *mut u8); 16]> =
            operands.chain(geometry.outputs.iter().zip(pointers.outputs.iter().copied())).collect();
        PatchCalls {
            code,
            shape,
            rows: &geometry.rows,
            n_lanes: geometry.n_inner(),
            starts: SmallVec::from_elem(0, whole.len()),
            is_staged: SmallVec::from_elem(false, whole.len()),
            whole,
            loops,
            operands: pointers.operands.into(),
            outputs: pointers.outputs.into(),
            pieces: None,
            is_one_row: false,
        }
    }

    /// Lets an operand be read from a copy.
    fn put_operand(&mut self, slot: usize, dense: Access, copy: *mut u8) {
        let is_shared = self.loops.operands[slot].rows[0] == 0;
        self.loops.operands[slot] = dense;
        if is_shared {
            self.loops.operands[slot].rows[0] = 0;
        }
        (self.operands[slot], self.is_staged[slot]) = (copy.cast_const(), true);
    }

    /// Lets an output be written to a copy.
    fn put_output(&mut self, slot: usize, dense: Access, copy: *mut u8) {
        self.loops.outputs[slot] = dense;
        self.outputs[slot] = copy;
        self.is_staged[self.operands.len() + slot] = true;
    }

    /// Makes ready to call, once all copies are put.
    fn prepare(&mut self) {
        self.pieces = PieceCalls::new(self.code, self.shape, &self.loops);
        let follows = |access: &Access| access.rows[0] == self.n_lanes.wrapping_mul(access.inner[0]);
        self.is_one_row =
            self.loops.inner[0] == self.n_lanes && self.loops.operands.iter().chain(&self.loops.outputs).all(follows);
        if let Some(pieces) = &mut self.pieces {
            let pointers = self.operands.iter().map(|operand| operand.addr());
            let pointers = pointers.chain(self.outputs.iter().map(|output| output.addr()));
            let staged = pointers.enumerate().filter(|(access, _)| self.is_staged[*access]);
            staged.for_each(|(access, address)| pieces.begin(access, address as u64));
        }
    }

    /// Moves to a row.
    fn move_to(&mut self, row: usize) {
        let starts = self.starts.iter_mut().zip(&self.whole);
        starts.for_each(|(start, (access, _))| *start = row_offset(self.rows, access, row));
    }

    /// An access, with where it begins in the rows of the patch.
    fn access(&self, access: usize) -> (&'a Access, *mut u8) {
        let (whole, pointer) = self.whole[access];
        (whole, pointer.wrapping_add(self.starts[access] as usize))
    }

    fn operand(&self, slot: usize) -> (&'a Access, *mut u8) {
        self.access(slot)
    }

    fn output(&self, slot: usize) -> (&'a Access, *mut u8) {
        self.access(self.operands.len() + slot)
    }

    /// Runs a patch.
    ///
    /// # Safety
    /// The patch is part of the launch, and copies hold its elements of operands.
    unsafe fn call(&mut self, place: &Place, faults: &Faults) {
        let (rows, lanes) = (place.rows, place.lanes);
        for access in (0..self.whole.len()).filter(|&access| !self.is_staged[access]) {
            let ahead = place.lane.wrapping_mul(lane_stride(self.whole[access].0)) as u64;
            match (&mut self.pieces, access.checked_sub(self.operands.len())) {
                (Some(pieces), _) => {
                    let (_, pointer) = self.whole[access];
                    pieces.begin(access, (pointer.addr() as u64).wrapping_add(self.starts[access]).wrapping_add(ahead));
                }
                (None, None) => self.loops.operands[access].base = self.starts[access].wrapping_add(ahead) as i64,
                (None, Some(slot)) => self.loops.outputs[slot].base = self.starts[access].wrapping_add(ahead) as i64,
            }
        }
        // SAFETY: passed on from the caller.
        unsafe {
            if let Some(pieces) = &mut self.pieces {
                let is_one_row = self.is_one_row && lanes == self.n_lanes;
                return if is_one_row { pieces.call(1, rows * lanes) } else { pieces.call(rows, lanes) };
            }
            (self.loops.rows[0], self.loops.inner[0]) = (rows, lanes);
            let pointers = Pointers { operands: &self.operands, outputs: &self.outputs };
            let part = Part { outer: 0..rows, lanes: 0..lanes };
            launch::run(self.code, self.shape, &self.loops, pointers, &part, faults);
        }
    }
}

/// Most bytes between lanes whose lines are loaded ahead: with more, they are not neighbours.
const MOST_PREFETCHED: usize = 64;

/// Bytes or units from one element of the vector loop to the next.
fn lane_stride(access: &Access) -> usize {
    access.inner.last().copied().unwrap_or(0)
}

/// Where a patch is among the lanes of its rows, and the elements between the rows of a copy.
struct Place {
    rows: usize,
    lane: usize,
    lanes: usize,
    pitch: usize,
}

impl Place {
    /// Its elements of an access, and their copy.
    fn block(&self, (access, start): (&Access, *mut u8), copy: *mut u8, bytes: usize) -> Patch {
        let (row_stride, stride) = (access.rows.last().copied().unwrap_or(0), lane_stride(access));
        Patch {
            memory: start.wrapping_add(self.lane.wrapping_mul(stride)),
            strides: [row_stride, stride],
            copy,
            pitch: self.pitch,
            bytes,
            rows: if row_stride == 0 { 1 } else { self.rows },
            lanes: self.lanes,
            columns: 1,
            column_pitch: 0,
        }
    }
}

impl Patch {
    /// The elements from the copies of this one to those of another one, if that is the next column.
    fn pitch_to(&self, next: &Patch) -> Option<usize> {
        let columns = self.columns * self.bytes;
        let apart = next.copy.addr().wrapping_sub(self.copy.addr()) / self.columns / self.bytes;
        let is_next = next.columns == 1
            && (self.bytes, self.strides) == (next.bytes, next.strides)
            && self.strides[1].cast_signed() > columns.cast_signed()
            && next.memory.addr() == self.memory.addr().wrapping_add(columns)
            && (self.columns == 1 || apart == self.column_pitch);
        is_next.then_some(apart)
    }

    /// Whether the columns are all those of a matrix of two to four columns.
    pub(super) fn has_all_columns(&self) -> bool {
        matches!(self.columns, 2..=4) && self.strides[1] == self.columns * self.bytes
    }

    /// Where a row of a column begins in memory, and in the copy.
    pub(super) fn place(&self, row: usize, column: usize) -> (*mut u8, *mut u8) {
        let memory = self.memory.wrapping_add(row.wrapping_mul(self.strides[0])).wrapping_add(column * self.bytes);
        (memory, self.copy.wrapping_add((row * self.pitch + column * self.column_pitch) * self.bytes))
    }

    /// Starts to load its lines of memory, while the code computes what is written to them. A write to lines that are
    /// in no cache would wait for each of them.
    fn prefetch(&self) {
        let [row, lane] = self.strides;
        if lane > MOST_PREFETCHED || lane < self.bytes {
            return;
        }
        for nth in 0..self.rows {
            prefetch_range(self.memory.wrapping_add(nth.wrapping_mul(row)), self.lanes * lane);
        }
    }

    /// Its columns, each as a patch.
    pub(super) fn each_column(&self) -> impl Iterator<Item = Patch> {
        (0..self.columns).map(|column| {
            let (memory, copy) = self.place(0, column);
            Patch { memory, copy, columns: 1, ..*self }
        })
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
            // A line more keeps the copies of columns in different sets of a cache.
            n_lines += (most * *bytes).div_ceil(size_of::<CacheLine>()) + 1;
        }
        Copies { lines: CacheLine::room(n_lines * size_of::<CacheLine>()), places }
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
    /// Adds a block as one more column of the one before, if it is the next one of the same memory.
    fn add(&mut self, block: Patch) {
        if let Some(before) = self.all.last_mut()
            && let Some(column_pitch) = before.pitch_to(&block)
        {
            *before = Patch { columns: before.columns + 1, column_pitch, ..*before };
            return;
        }
        self.all.push(block);
    }
}

/// Memory of copies: every vector of a row that begins a line is in one line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct CacheLine {
    _bytes: [u8; 64],
}

impl CacheLine {
    /// Room for so many bytes.
    pub(super) fn room(bytes: usize) -> Vec<CacheLine> {
        vec![CacheLine { _bytes: [0; 64] }; bytes.div_ceil(size_of::<CacheLine>())]
    }
}
