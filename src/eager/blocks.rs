//! Running groups of products and kernels some rows at a time.
//!
//! A task computes one block: it takes scratch memory for the block's values, multiplies its rows, and runs each
//! kernel on the part of its loops that are those rows. Kernels know nothing of it: a value in scratch is handed to
//! them by the pointer that it would have if all of it lay in memory. Tasks are spread over the worker pool; blocks do
//! not depend on each other, and their heights change no bits.

#![allow(unsafe_code, reason = "blocks of shared arrays are read and written through raw pointers")]

use super::array::Array;
use super::executable::{Launch, Slot};
use super::product;
use crate::codegen::{Faults, Geometry, Lanes, Part, Pointers};
use crate::device::{Device, Storage, pool};
use crate::error::{Error, Result};
use crate::ir::DType;
use smallvec::SmallVec;
use std::sync::{Mutex, PoisonError};

/// Multiply-adds from which a second thread pays.
const WORTH_A_THREAD: usize = 1 << 18;

/// Where a value of a group lies.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// In an array.
    Memory(Slot),
    /// In the task's scratch memory: this inner value.
    Scratch(usize),
}

/// What is done for a block.
pub(super) enum Work {
    Product { left: Place, right: Slot, to: Place, k: usize, n: usize, dtype: DType },
    Kernel { launch: Box<Launch>, operands: SmallVec<[Option<Place>; 6]>, outputs: SmallVec<[Place; 2]> },
}

/// A group that runs.
pub(super) struct BlockRun {
    pub(super) batches: usize,
    pub(super) rows: usize,
    pub(super) height: usize,
    pub(super) least: usize,
    /// Bytes of a row of each inner value.
    pub(super) inner: Vec<usize>,
    pub(super) works: Vec<Work>,
}

/// Some rows of one matrix.
#[derive(Clone, Copy)]
struct Block {
    batch: usize,
    /// First row, counted through all matrices.
    first: usize,
    rows: usize,
}

impl BlockRun {
    /// The slots that it reads and writes.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let slot = |place: &Place| match place {
            Place::Memory(slot) => Some(*slot),
            Place::Scratch(_) => None,
        };
        self.works.iter().flat_map(move |work| -> SmallVec<[Slot; 8]> {
            match work {
                Work::Product { left, right, to, .. } => {
                    [slot(left), Some(*right), slot(to)].into_iter().flatten().collect()
                }
                Work::Kernel { operands, outputs, .. } => {
                    operands.iter().flatten().chain(outputs).filter_map(slot).collect()
                }
            }
        })
    }

    /// The kernels.
    pub(super) fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.works.iter().filter_map(|work| match work {
            Work::Kernel { launch, .. } => Some(&**launch),
            Work::Product { .. } => None,
        })
    }

    /// Whether the loops of every kernel can be run for some rows alone.
    pub(super) fn fits(&self) -> bool {
        let n_rows = self.batches * self.rows;
        self.works.iter().all(|work| match work {
            Work::Product { .. } => true,
            Work::Kernel { launch, operands, outputs, .. } => {
                let geometry = &launch.lowered.geometry;
                let of_inner = |place: &Place| match *place {
                    Place::Scratch(inner) => Some(self.inner[inner]),
                    Place::Memory(_) => None,
                };
                let operands = operands.iter().zip(&geometry.operands).map(|(place, access)| (place.as_ref(), access));
                let outputs = outputs.iter().zip(&geometry.outputs).map(|(place, access)| (Some(place), access));
                let walks_rows = |(place, access): (Option<&Place>, &crate::codegen::Access)| {
                    let Some(bytes) = place.and_then(of_inner) else { return true };
                    let outer: usize = geometry.rows.iter().product();
                    // A stretch of several rows is one loop only if they lie behind each other.
                    let mut stride = n_rows.checked_div(outer).unwrap_or(0) * bytes;
                    geometry.rows.iter().zip(&access.rows).rev().all(|(&size, &found)| {
                        let expected = stride;
                        stride *= size;
                        found == expected
                    })
                };
                self.part(geometry, Block { batch: 0, first: 0, rows: 1 }).is_some()
                    && operands.chain(outputs).all(walks_rows)
            }
        })
    }

    /// The part of a kernel's loops that is a block; `None` if its loops do not begin with the rows.
    fn part(&self, geometry: &Geometry, block: Block) -> Option<Part> {
        let n_rows = self.batches * self.rows;
        let outer = geometry.n_rows();
        let lanes = *geometry.inner.last()?;
        if geometry.lanes != Lanes::Inner || outer == 0 || !n_rows.is_multiple_of(outer) {
            return None;
        }
        let rows_in_one = n_rows / outer;
        if rows_in_one == 1 {
            return Some(Part { outer: block.first..block.first + block.rows, lanes: 0..lanes });
        }
        // Rows and columns are one loop, of one matrix or of several.
        let per_row = lanes / rows_in_one;
        let is_one_loop =
            geometry.inner.len() == 1 && lanes.is_multiple_of(rows_in_one) && rows_in_one.is_multiple_of(self.rows);
        let (at, first) = (block.first / rows_in_one, block.first % rows_in_one);
        is_one_loop.then(|| Part { outer: at..at + 1, lanes: first * per_row..(first + block.rows) * per_row })
    }

    /// Runs every block. `array` gives what lies in a slot.
    ///
    /// # Errors
    /// Out of memory, or what a kernel finds wrong with the elements.
    ///
    /// # Safety
    /// The arrays have the types that the group was built for; nobody else writes those that are read, and nobody else
    /// uses those that are written, until this returns.
    pub(super) unsafe fn run<'a>(&self, array: &(dyn Fn(Slot) -> &'a Array + Sync)) -> Result<()> {
        let work = |work: &Work| match work {
            Work::Product { k, n, .. } => k * n,
            Work::Kernel { .. } => 0,
        };
        let work: usize = self.works.iter().map(work).sum::<usize>() * self.batches * self.rows;
        let threads = (work / WORTH_A_THREAD).clamp(1, pool::num_threads());
        // Fewer rows at a time where there would be less than a block for each thread.
        let wanted = self.rows.div_ceil(self.height).max(threads.div_ceil(self.batches));
        let per_matrix = wanted.clamp(1, (self.rows / self.least).max(1));
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        pool::run(self.batches * per_matrix, threads, &|task| {
            let (batch, part) = (task / per_matrix, task % per_matrix);
            let at = |part: usize| part * self.rows / per_matrix;
            let block = Block { batch, first: batch * self.rows + at(part), rows: at(part + 1) - at(part) };
            // SAFETY: the caller's promise; blocks are disjoint.
            if let Err(error) = unsafe { self.run_block(array, block) } {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// # Safety
    /// As for [`BlockRun::run`], for the rows of the block.
    unsafe fn run_block<'a>(&self, array: &(dyn Fn(Slot) -> &'a Array + Sync), block: Block) -> Result<()> {
        let mut at = 0;
        let offsets: SmallVec<[usize; 8]> = self
            .inner
            .iter()
            .map(|bytes| {
                let offset = at;
                at += (bytes * block.rows).next_multiple_of(64);
                offset
            })
            .collect();
        let scratch = Storage::new(Device::CPU, at)?;
        // Where the first row of all would be.
        let pointer = |place: Place| match place {
            Place::Memory(slot) => array(slot).ptr(),
            Place::Scratch(inner) => {
                scratch.ptr().wrapping_add(offsets[inner]).wrapping_sub(block.first * self.inner[inner])
            }
        };
        for work in &self.works {
            match work {
                Work::Product { left, right, to, k, n, dtype } => {
                    let (size, right) = (dtype.size(), array(*right));
                    let (lhs, strides) = match *left {
                        Place::Memory(slot) => {
                            let (left, [batch, row, column]) = (array(slot), product::strides(array(slot)));
                            let row_in_batch = block.first - block.batch * self.rows;
                            (left.ptr().wrapping_add((block.batch * batch + row_in_batch * row) * size), [row, column])
                        }
                        Place::Scratch(_) => (pointer(*left).wrapping_add(block.first * k * size), [*k, 1]),
                    };
                    let [batch, row, column] = product::strides(right);
                    let rhs = right.ptr().wrapping_add(block.batch * batch * size);
                    let dst = pointer(*to).wrapping_add(block.first * n * size);
                    let call =
                        product::Rows { m: block.rows, k: *k, n: *n, dst, lhs, strides, rhs, right: [row, column] };
                    // SAFETY: these rows of the operands and of the result, which the caller vouches for; scratch has
                    // room for a block's rows, and only this task knows it.
                    unsafe { call.run(*dtype) };
                }
                Work::Kernel { launch, operands, outputs } => {
                    let geometry = &launch.lowered.geometry;
                    let part = self.part(geometry, block).expect("the group was checked when it was built");
                    let operands: SmallVec<[*const u8; 8]> = operands
                        .iter()
                        .map(|place| place.map_or(std::ptr::dangling(), |place| pointer(place).cast_const()))
                        .collect();
                    let outputs: SmallVec<[*mut u8; 4]> = outputs.iter().map(|&place| pointer(place)).collect();
                    let faults = Faults::new();
                    let pointers = Pointers { operands: &operands, outputs: &outputs };
                    // SAFETY: the part touches the block's rows alone of what lies in scratch (`fits`), and of what is
                    // written in memory; the caller vouches for the rest.
                    unsafe { launch.entry.compiled.run(geometry, pointers, &part, &faults) };
                    crate::codegen::parallel::outcome(&faults, geometry)?;
                }
            }
        }
        Ok(())
    }
}
