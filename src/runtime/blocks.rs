//! Runs groups of products and kernels in blocks of rows.
//!
//! A task computes one block: it takes scratch memory for the block's values, multiplies its rows, and runs each kernel
//! on the loops of these rows. Kernels need not know: a value in scratch is passed by the address that it would have if
//! all of it were in memory. The worker pool runs the tasks. Blocks are independent, and their heights do not change
//! bits.

#![allow(unsafe_code, reason = "blocks of shared arrays are read and written through raw pointers")]

use super::array::Array;
use super::launch::{Launch, Slot};
use super::product;
use crate::codegen::lower::Lowered;
use crate::codegen::{Access, Faults, Geometry, Lanes, Part, Pointers};
use crate::device::{Device, Storage, pool};
use crate::error::{Error, Result};
use crate::fusion::unit::Blocks;
use crate::ir::DType;
use smallvec::{SmallVec, smallvec};
use std::sync::{Mutex, PoisonError};

/// Multiply-adds that pay for one more thread.
const WORTH_A_THREAD: usize = 1 << 18;

/// Where a value of a group is.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValueLocation {
    /// In an array.
    Memory(Slot),
    /// In the task's scratch memory: the inner value with this number.
    Scratch(usize),
}

/// One step of a block.
pub(super) enum BlockStep {
    Product {
        left: ValueLocation,
        /// Whether the left operand has other sizes than its array: a member computed it, and the product reads a view
        /// of that. Its rows follow each other.
        is_view: bool,
        right: Slot,
        to: ValueLocation,
        k: usize,
        n: usize,
        dtype: DType,
    },
    Kernel {
        launch: Box<Launch>,
        operands: SmallVec<[Option<ValueLocation>; 6]>,
        outputs: SmallVec<[ValueLocation; 2]>,
    },
}

impl BlockStep {
    /// The values that it reads and writes.
    fn places(&self) -> SmallVec<[ValueLocation; 8]> {
        match self {
            BlockStep::Product { left, right, to, .. } => smallvec![*left, ValueLocation::Memory(*right), *to],
            BlockStep::Kernel { operands, outputs, .. } => operands.iter().flatten().chain(outputs).copied().collect(),
        }
    }
}

/// A group of steps that run in blocks.
pub(super) struct BlockRun {
    pub(super) batches: usize,
    pub(super) rows: usize,
    pub(super) height: usize,
    /// Bytes of a row of each inner value.
    pub(super) inner: Vec<usize>,
    /// The place in scratch memory of each inner value. Values share a place if they are not live at the same time.
    place_of: Vec<usize>,
    /// Bytes per row of each place.
    places: Vec<usize>,
    pub(super) steps: Vec<BlockStep>,
}

/// Some rows of one matrix.
#[derive(Clone, Copy)]
struct RowBlock {
    batch: usize,
    /// The first row, counted over all matrices.
    first: usize,
    rows: usize,
}

impl BlockRun {
    /// A group of these steps; `inner` are the bytes per row of inner values.
    pub(super) fn new(blocks: &Blocks, inner: Vec<usize>, steps: Vec<BlockStep>) -> BlockRun {
        let &Blocks { batches, rows, height, .. } = blocks;
        // The first and the last step that uses each inner value.
        let mut live: Vec<Option<(usize, usize)>> = vec![None; inner.len()];
        for (at, work) in steps.iter().enumerate() {
            for &place in work.places().iter() {
                if let ValueLocation::Scratch(inner) = place {
                    live[inner] = Some((live[inner].map_or(at, |(first, _)| first), at));
                }
            }
        }
        let mut order: Vec<usize> = (0..inner.len()).collect();
        order.sort_by_key(|&value| live[value]);
        // Per place, the bytes per row, and the last step that uses it.
        let mut places: Vec<(usize, Option<usize>)> = Vec::new();
        let mut place_of = vec![0; inner.len()];
        for value in order {
            let (first, last) = live[value].unzip();
            let is_free = |place: &usize| places[*place].1 < first;
            // The free place of the nearest size.
            let free = (0..places.len()).filter(is_free).min_by_key(|&place| places[place].0.abs_diff(inner[value]));
            let place = free.unwrap_or(places.len());
            places.resize(places.len().max(place + 1), (0, None));
            places[place] = (places[place].0.max(inner[value]), last);
            place_of[value] = place;
        }
        let places = places.into_iter().map(|(bytes, _)| bytes).collect();
        BlockRun { batches, rows, height, inner, place_of, places, steps }
    }

    /// The slots that it reads and writes.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.steps.iter().flat_map(BlockStep::places).filter_map(|place| match place {
            ValueLocation::Memory(slot) => Some(slot),
            ValueLocation::Scratch(_) => None,
        })
    }

    /// The kernels.
    pub(super) fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.steps.iter().filter_map(|work| match work {
            BlockStep::Kernel { launch, .. } => Some(&**launch),
            BlockStep::Product { .. } => None,
        })
    }

    /// Whether the loops of every kernel can be restricted to some rows.
    pub(super) fn fits(&self) -> bool {
        self.steps.iter().all(|work| match work {
            BlockStep::Product { .. } => true,
            BlockStep::Kernel { launch, operands, outputs, .. } => {
                let geometry = &launch.lowered.geometry;
                let operands = operands.iter().zip(&geometry.operands).map(|(place, access)| (place.as_ref(), access));
                let outputs = outputs.iter().zip(&geometry.outputs).map(|(place, access)| (Some(place), access));
                let walks_rows = |(place, access): (Option<&ValueLocation>, &Access)| match place {
                    Some(&ValueLocation::Scratch(inner)) => self.walks_rows(geometry, access, self.inner[inner]),
                    Some(ValueLocation::Memory(_)) | None => true,
                };
                self.parts(geometry, RowBlock { batch: 0, first: 0, rows: 1 }).is_some()
                    && operands.chain(outputs).all(walks_rows)
            }
        })
    }

    /// Whether an access goes through rows of that many bytes in order, and stays inside each row.
    fn walks_rows(&self, geometry: &Geometry, access: &Access, bytes: usize) -> bool {
        let strides = access.rows.iter().chain(&access.inner);
        // What goes backwards is not in order.
        if strides.clone().any(|&stride| (stride as isize) < 0) {
            return false;
        }
        // Rows that the remaining loops go through.
        let (mut rows, mut reach) = (self.batches * self.rows, access.base as usize);
        for (&size, &stride) in geometry.rows.iter().chain(&geometry.inner).zip(strides) {
            if rows == 1 {
                reach += (size - 1) * stride;
            } else if rows.is_multiple_of(size) {
                rows /= size;
                if stride != rows * bytes {
                    return false;
                }
            } else {
                // The last rows and the elements of each row are one loop.
                let per_row = size / rows;
                if !size.is_multiple_of(rows) || per_row * stride != bytes {
                    return false;
                }
                (rows, reach) = (1, reach + (per_row - 1) * stride);
            }
        }
        rows == 1 && reach < bytes
    }

    /// The parts of a kernel's loops for a block; `None` if its outer loops are not the rows.
    fn parts(&self, geometry: &Geometry, block: RowBlock) -> Option<SmallVec<[Part; 2]>> {
        let (n_rows, end) = (self.batches * self.rows, block.first + block.rows);
        let outer = geometry.n_rows();
        let lanes = *geometry.inner.last()?;
        if geometry.lanes != Lanes::Inner || outer == 0 {
            return None;
        }
        if outer.is_multiple_of(n_rows) {
            let per_row = outer / n_rows;
            return Some(smallvec![Part { outer: block.first * per_row..end * per_row, lanes: 0..lanes }]);
        }
        // The last loop goes through several rows, and the block may need several of its iterations.
        let in_one = n_rows / outer;
        if geometry.inner.len() != 1 || !n_rows.is_multiple_of(outer) || !lanes.is_multiple_of(in_one) {
            return None;
        }
        let per_row = lanes / in_one;
        let part = |index: usize| {
            let at = |row: usize| row.clamp(index * in_one, (index + 1) * in_one) - index * in_one;
            Part { outer: index..index + 1, lanes: at(block.first) * per_row..at(end) * per_row }
        };
        Some((block.first / in_one..end.div_ceil(in_one)).map(part).collect())
    }

    /// Runs every block. `array` gives the array of a slot.
    ///
    /// # Errors
    /// Out of memory, or a fault of a kernel.
    ///
    /// # Safety
    /// The arrays have the types that the group was built for. Until this returns, nothing else writes those that are
    /// read, and nothing else uses those that are written.
    pub(super) unsafe fn run<'a>(&self, array: &(dyn Fn(Slot) -> &'a Array + Sync)) -> Result<()> {
        let work = |work: &BlockStep| match work {
            BlockStep::Product { k, n, .. } => k * n,
            BlockStep::Kernel { .. } => 0,
        };
        let work: usize = self.steps.iter().map(work).sum::<usize>() * self.batches * self.rows;
        let threads = (work / WORTH_A_THREAD).clamp(1, pool::num_threads());
        // Lower blocks where there would be less than one per thread.
        let wanted = self.rows.div_ceil(self.height).max(threads.div_ceil(self.batches));
        let per_matrix = wanted.clamp(1, self.rows.max(1));
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        pool::run(self.batches * per_matrix, threads, &|task| {
            let (batch, part) = (task / per_matrix, task % per_matrix);
            let at = |part: usize| part * self.rows / per_matrix;
            let block = RowBlock { batch, first: batch * self.rows + at(part), rows: at(part + 1) - at(part) };
            // SAFETY: passed on from the caller; blocks are disjoint.
            if let Err(error) = unsafe { self.run_block(array, block) } {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// # Safety
    /// As for [`BlockRun::run`], for the rows of the block.
    unsafe fn run_block<'a>(&self, array: &(dyn Fn(Slot) -> &'a Array + Sync), block: RowBlock) -> Result<()> {
        let mut at = 0;
        let offsets: SmallVec<[usize; 8]> = self
            .places
            .iter()
            .map(|bytes| {
                let offset = at;
                at += (bytes * block.rows).next_multiple_of(64);
                offset
            })
            .collect();
        let scratch = Storage::new(Device::CPU, at)?;
        // The address that the first of all rows would have.
        let pointer = |place: ValueLocation| match place {
            ValueLocation::Memory(slot) => array(slot).ptr(),
            ValueLocation::Scratch(inner) => {
                let offset = offsets[self.place_of[inner]];
                scratch.ptr().wrapping_add(offset).wrapping_sub(block.first * self.inner[inner])
            }
        };
        for work in &self.steps {
            match work {
                BlockStep::Product { left, is_view, right, to, k, n, dtype } => {
                    let (size, right) = (dtype.size(), array(*right));
                    let (lhs, strides) = match *left {
                        ValueLocation::Memory(slot) if !is_view => {
                            let (left, [batch, row, column]) = (array(slot), product::strides(array(slot).layout()));
                            let row_in_batch = block.first - block.batch * self.rows;
                            (left.ptr().wrapping_add((block.batch * batch + row_in_batch * row) * size), [row, column])
                        }
                        ValueLocation::Memory(_) | ValueLocation::Scratch(_) => {
                            (pointer(*left).wrapping_add(block.first * k * size), [*k, 1])
                        }
                    };
                    let [batch, row, column] = product::strides(right.layout());
                    let rhs = right.ptr().wrapping_add(block.batch * batch * size);
                    let dst = pointer(*to).wrapping_add(block.first * n * size);
                    let call =
                        product::Rows { m: block.rows, k: *k, n: *n, dst, lhs, strides, rhs, right: [row, column] };
                    // SAFETY: these rows of the operands and of the result, which the caller vouches for; scratch has
                    // room for a block's rows, and only this task uses it.
                    unsafe { call.run(*dtype) };
                }
                BlockStep::Kernel { launch, operands, outputs } => {
                    let Lowered { kernel, geometry, .. } = &launch.lowered;
                    let compiled = &launch.code.next(kernel, geometry).entry.compiled;
                    let parts = self.parts(geometry, block).expect("the group was checked when it was built");
                    let operands: SmallVec<[*const u8; 8]> = operands
                        .iter()
                        .map(|place| place.map_or(std::ptr::dangling(), |place| pointer(place).cast_const()))
                        .collect();
                    let outputs: SmallVec<[*mut u8; 4]> = outputs.iter().map(|&place| pointer(place)).collect();
                    let faults = Faults::new();
                    let pointers = Pointers { operands: &operands, outputs: &outputs };
                    for part in &parts {
                        // SAFETY: in scratch, the part accesses only the block's rows (`fits`); in memory, every
                        // iteration writes its own elements; the caller vouches for the rest.
                        unsafe { compiled.run(geometry, pointers, part, &faults) };
                    }
                    crate::codegen::parallel::outcome(&faults, geometry)?;
                }
            }
        }
        Ok(())
    }
}
