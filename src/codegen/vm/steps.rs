//! What each step of a plan does to the current tile of an interpreter.

#![allow(unsafe_code, reason = "operands, outputs and tiles are raw memory")]

use super::interpreter::Interpreter;
use super::moves::{Gather, Reader};
use super::plan::{AccessId, Line, Pass, PlaceId, Plan, RowRead, RowValue, TileShape, TileStep};
use super::routine::{BLOCK, Call, TileOperand};
use super::scratch::Partials;
use crate::codegen::geometry::offset;
use crate::codegen::kernel::Level;
use crate::codegen::{FOLD_LANES, Lanes};
use smallvec::SmallVec;

impl Interpreter<'_> {
    pub(super) fn place(&self, place: PlaceId) -> TileOperand {
        self.scratch.places[place].place
    }

    fn pointer(&self, access: AccessId, level: Level) -> *mut u8 {
        match level {
            Level::Row => self.scratch.row[access],
            Level::Full => self.scratch.here[access],
        }
    }

    /// Copies the row values of a pass once per inner element that a tile holds, and makes the copies their places.
    /// Returns where the values themselves are.
    ///
    /// # Safety
    /// See [`Interpreter::run_row`]; tiles are merged, and the row values before the pass are computed.
    pub(super) unsafe fn spread_rows(&mut self, pass: &Pass, lanes: usize, count: usize) -> SmallVec<[*mut u8; 4]> {
        // Routines read whole blocks.
        let n = (lanes * count).next_multiple_of(BLOCK);
        let mut to = self.spread;
        let spread = |value: &RowValue| {
            let place = &mut self.scratch.places[value.place].place;
            let (from, bytes) = (place.ptr, lanes * value.size);
            for at in (0..n * value.size).step_by(bytes) {
                // SAFETY: the value has an element per lane. The copies have room for a tile, which is `n` elements.
                unsafe { std::ptr::copy_nonoverlapping(from, to.add(at), bytes.min(n * value.size - at)) };
            }
            place.ptr = to;
            to = to.wrapping_add((n * value.size).next_multiple_of(Line::BYTES));
            from
        };
        pass.rows_read.iter().map(spread).collect()
    }

    /// Runs a list of steps on the current tile.
    ///
    /// # Safety
    /// See [`Interpreter::run_row`].
    pub(super) unsafe fn run_steps(&mut self, steps: &[TileStep]) {
        for step in steps {
            // SAFETY: the plan gives every place the room and alignment that its type needs, and never gives a result
            // the place of an operand. An output that is where an operand is has its strides and dtype, so both are the
            // same where a step writes the output. The caller vouches for the accesses and the instruction set.
            unsafe { self.run_step(step) }
        }
    }

    /// # Safety
    /// See [`Interpreter::run_steps`].
    #[inline(always)]
    unsafe fn run_step(&mut self, step: &TileStep) {
        match *step {
            TileStep::Map { routine, dst, args, shape, whole } => {
                let n = match shape {
                    TileShape::Tile if whole => self.n.next_multiple_of(BLOCK),
                    TileShape::Tile => self.n,
                    TileShape::Splat => BLOCK,
                };
                let call = Call { dst: self.place(dst).ptr, src: args.map(|arg| self.place(arg)), n };
                // SAFETY: see `run_steps`.
                unsafe { routine(&call) }
            }
            TileStep::InPlace { place, access, level } => {
                let ptr = self.pointer(access, level);
                self.scratch.places[place].place.ptr = ptr;
            }
            TileStep::Widen { routine, dst, access, level } => {
                let src = [TileOperand { ptr: self.pointer(access, level), step: BLOCK }; 3];
                // SAFETY: see `run_steps`.
                unsafe { routine(&Call { dst: self.place(dst).ptr, src, n: self.n }) }
            }
            TileStep::Read { reader, dst, access, level, shape } => {
                let src = self.pointer(access, level);
                // SAFETY: see `run_steps`.
                unsafe { self.read(reader, shape, dst, access, src) }
            }
            TileStep::Row { read, dst, index, access, level, size } => {
                // SAFETY: see `run_steps`.
                unsafe { self.gather_row(read, dst, index, access, level, size) }
            }
            TileStep::Gather { gatherer, dst, index, access, level } => {
                let (size, index_stride) = self.gathered(access);
                let gather = Gather {
                    dst: self.place(dst).ptr,
                    src: self.pointer(access, level),
                    stride: self.scratch.strides[access],
                    index: self.place(index),
                    size,
                    index_stride,
                    n: self.n,
                };
                // SAFETY: see `run_steps`; indices are checked by the gatherer.
                if let Some(outside) = unsafe { gatherer(&gather) } {
                    self.faults.record(outside);
                }
            }
            TileStep::Repeat { repeater, place } => {
                if !self.n.is_multiple_of(BLOCK) {
                    // SAFETY: see `run_steps`; a tile in scratch memory has room for whole blocks.
                    unsafe { repeater(self.place(place).ptr, self.n) }
                }
            }
            TileStep::CheckDivisor { finder, src } => {
                // SAFETY: see `run_steps`.
                if unsafe { finder(self.place(src), self.n) } {
                    self.faults.record_zero_divisor();
                }
            }
            TileStep::Direct { place, access } => {
                self.scratch.places[place].place.ptr = self.scratch.here[access];
            }
            TileStep::Store { routine, src, access } => {
                let call = Call { dst: self.scratch.here[access], src: [self.place(src); 3], n: self.n };
                // SAFETY: see `run_steps`.
                unsafe { routine(&call) }
            }
            TileStep::Scatter { writer, src, access } => {
                let stride = self.scratch.strides[access];
                // SAFETY: see `run_steps`.
                unsafe { writer(self.scratch.here[access], stride, self.place(src), self.n) }
            }
            TileStep::ScatterRow { writer, src, access } => {
                let (stride, strides) = (self.scratch.strides[access], &self.access(access).inner);
                let sizes = &self.geometry.inner;
                // A row value is written once, unless the output has a separate element per inner element.
                let n = if strides.iter().all(|&stride| stride == 0) { 1 } else { self.geometry.n_inner() };
                for element in 0..n {
                    let at = self.scratch.row[access].wrapping_add(offset(sizes, strides, element));
                    // SAFETY: see `run_steps`.
                    unsafe { writer(at, stride, self.place(src), self.n) }
                }
            }
            TileStep::Keep { place, buffer } => {
                let size = self.plan.buffers[buffer];
                let ptr = self.scratch.buffers[buffer].wrapping_add(self.at * size);
                self.scratch.places[place].place.ptr = ptr;
            }
            TileStep::Fold { fold, value, index } => {
                let (value, index) = (self.place(value), self.place(index));
                let routines = &self.plan.folds[fold].routines;
                let phase = self.element % FOLD_LANES;
                // SAFETY: see `run_steps`; the fold's partial results are its own.
                unsafe {
                    match self.geometry.lanes {
                        Lanes::Inner => (routines.feed)(&self.scratch.partials[fold].feed(value, index, self.n, phase)),
                        Lanes::Rows => {
                            let (acc, acc_index) = self.partial(fold, 0, phase);
                            let partials = Partials { acc, index: acc_index };
                            (routines.into)(&partials.feed(value, index, self.n, phase));
                        }
                    }
                }
            }
        }
    }

    /// # Safety
    /// See [`Interpreter::run_steps`].
    unsafe fn read(&mut self, reader: Reader, shape: TileShape, dst: PlaceId, access: AccessId, src: *const u8) {
        let live = &mut self.scratch.places[dst];
        // SAFETY: see `run_steps`.
        unsafe {
            match shape {
                TileShape::Tile => reader(live.place.ptr, src, self.scratch.strides[access], self.n),
                TileShape::Splat if live.source == src && !src.is_null() => {}
                TileShape::Splat => {
                    live.source = src;
                    reader(live.place.ptr, src, 0, BLOCK);
                }
            }
        }
    }

    /// Size and stride of an operand's gathered dimension.
    fn gathered(&self, access: AccessId) -> (usize, usize) {
        self.geometry.operands[access.index()].gather.expect("a gathered operand has its dimension in the geometry")
    }

    /// # Safety
    /// See [`Interpreter::run_steps`].
    unsafe fn gather_row(
        &mut self,
        read: RowRead,
        dst: PlaceId,
        index: PlaceId,
        access: AccessId,
        level: Level,
        bytes: u8,
    ) {
        let (size, stride) = self.gathered(access);
        // SAFETY: the index is a block of i64.
        let at = unsafe { self.place(index).ptr.cast::<i64>().read() };
        let is_legal = at >= 0 && at < size as i64;
        let src = self.pointer(access, level).wrapping_add((at as usize).wrapping_mul(stride));
        let zeros = self.place(Plan::ZEROS);
        if !is_legal {
            self.faults.record(at);
        }
        match read {
            RowRead::InPlace => {
                let here = TileOperand { ptr: src, step: BLOCK };
                self.scratch.places[dst].place = if is_legal { here } else { zeros };
            }
            // SAFETY: see `run_steps`; the index is valid, or nothing is read.
            RowRead::Widen(routine) if is_legal => unsafe {
                routine(&Call { dst: self.place(dst).ptr, src: [TileOperand { ptr: src, step: BLOCK }; 3], n: self.n });
            },
            // SAFETY: as above.
            RowRead::Read(reader, shape) if is_legal => unsafe { self.read(reader, shape, dst, access, src) },
            RowRead::Widen(_) | RowRead::Read(..) => {
                let live = &mut self.scratch.places[dst];
                live.source = std::ptr::null();
                let n = if live.place.step == 0 { BLOCK } else { self.n };
                // SAFETY: a place in scratch memory, of its own size; zero is a value of every type.
                unsafe { std::ptr::write_bytes(live.place.ptr, 0, n * bytes as usize) };
            }
        }
    }
}
