//! Runs a compiled kernel on threads.
//!
//! A launch is cut into parts along its row loops, or along the vector loop of a kernel without folds. The worker pool
//! runs the parts if the work pays for waking it. A few long rows that are only folded are cut along the blocks of the
//! fold instead. Results do not depend on the cut.

use super::fold::FoldValue;
use super::geometry::{Geometry, Lanes};
use super::kernel::{Inst, Kernel};
use super::launch::{Faults, Part, Pointers};
use super::native::Splitting;
use super::tier::Compiled;
use super::vm;
use crate::device::pool;
use crate::error::{Error, Result};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Work, in modelled nanoseconds of one thread, that pays for waking one more thread.
const WORTH_A_THREAD: usize = 16_000;
/// Parts along the vector loop have a multiple of this many elements.
const LANE_GRAIN: usize = 4096;

/// The same for folds along an outer loop. Below a page per range, the hardware prefetcher does worse, which costs two
/// threads a quarter of the time (`cargo bench --bench fusion -- W08a`). But every thread gets a range.
const COLUMN_GRAINS: Range<usize> = 512..1024;
/// Column ranges are multiples of this: whole cache lines, for elements of any size.
const LINE: usize = 64;

/// Rows below which a long fold is cut along its blocks.
const FEW_ROWS: usize = 8;

/// The most blocks whose values are kept until the row is finished. More take days, on any number of threads.
const MOST_BLOCKS: usize = 1 << 22;

/// Blocks that one thread folds at a time.
const BLOCK_GRAIN: usize = 8;

/// How one launch is cut. It fits the kernel, its loops, and the number of threads when it was made.
#[derive(Debug, Clone)]
pub struct Cut {
    /// The whole launch as one part, for a single thread.
    whole: Part,
    /// What several threads do.
    pieces: Pieces,
    /// Threads that the work pays for.
    threads: usize,
    /// The whole launch with precomputed addresses, if it is so small that computing them would take longer than
    /// running.
    ready: Option<vm::PreparedRow>,
}

/// How the threads of a launch share the work.
#[derive(Debug, Clone)]
enum Pieces {
    /// One thread runs everything.
    None,
    /// Disjoint parts of the loops.
    Parts(Vec<Part>),
    /// The blocks of each row's folds.
    Blocks,
}

/// Raw pointers that threads may share: the parts they are used for are disjoint.
#[derive(Clone, Copy)]
struct Shared<'a>(Pointers<'a>);

#[allow(unsafe_code, reason = "raw pointers are shared between the threads of one launch")]
// SAFETY: the pointers are only used inside `Compiled::run`, whose contract the launch keeps for all parts together.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    fn pointers(&self) -> Pointers<'a> {
        self.0
    }
}

/// Nanoseconds that one thread takes for a launch in the vm, roughly.
pub(super) fn work(kernel: &Kernel, geometry: &Geometry) -> usize {
    // Sixteenths of a nanosecond per element: an instruction on a wide vector, or its share of memory traffic.
    let per_element: usize = kernel.insts.iter().map(Inst::weight).sum();
    geometry.n_rows().saturating_mul(geometry.n_inner()).saturating_mul(per_element + 4) / 16
}

impl Cut {
    /// Cuts the loops of a kernel.
    pub fn new(kernel: &Kernel, compiled: &Compiled, geometry: &Geometry) -> Cut {
        let (outer, lanes) = extents(geometry);
        let threads = (work(kernel, geometry) / WORTH_A_THREAD).clamp(1, 1024);
        let whole = Part { outer: 0..outer, lanes: 0..lanes };
        if threads == 1 || outer * lanes == 0 {
            let ready = match compiled {
                Compiled::Vm(program) => program.ready(geometry),
                Compiled::Cranelift(_) | Compiled::X64(_) => None,
            };
            return Cut { whole, pieces: Pieces::None, threads: 1, ready };
        }
        let is_long = || (2 * BLOCK_GRAIN..MOST_BLOCKS).contains(&vm::VmProgram::n_blocks(geometry));
        if outer < FEW_ROWS && kernel.has_folds() && is_long() && compiled.splitting(geometry).is_some() {
            return Cut { whole, pieces: Pieces::Blocks, threads, ready: None };
        }
        let wanted = (threads * 4).min(64);
        let divisible = !kernel.has_folds() || geometry.lanes == Lanes::Rows;
        let parts = if outer >= wanted || !divisible {
            pieces(outer, wanted, 1).map(|outer| Part { outer, lanes: 0..lanes }).collect()
        } else {
            let per_row = wanted.div_ceil(outer.max(1));
            let grain = match geometry.lanes {
                Lanes::Rows => column_grain(lanes),
                Lanes::Inner => LANE_GRAIN,
            };
            let cut = |row: usize| pieces(lanes, per_row, grain).map(move |lanes| Part { outer: row..row + 1, lanes });
            (0..outer).flat_map(cut).collect()
        };
        Cut { whole, pieces: Pieces::Parts(parts), threads, ready: None }
    }

    /// The threads that it would use of these.
    pub fn threads(&self, available: usize) -> usize {
        match &self.pieces {
            Pieces::None => 1,
            Pieces::Parts(parts) => self.threads.min(parts.len()).min(available),
            Pieces::Blocks => self.threads.min(available),
        }
    }

    /// Runs the kernel on every part.
    ///
    /// # Safety
    /// Every pointer must be good for every element that the geometry's accesses reach. Nothing else may read or write
    /// the outputs meanwhile.
    #[allow(unsafe_code, reason = "passes the contract of the pointers on to the tiers")]
    #[inline]
    pub unsafe fn run(&self, compiled: &Compiled, geometry: &Geometry, pointers: Pointers<'_>) -> Result<()> {
        match &self.ready {
            // SAFETY: the caller keeps the contract for the whole launch.
            Some(ready) => unsafe { ready.run(pointers) },
            // SAFETY: the same.
            None => return unsafe { self.run_pieces(compiled, geometry, pointers) },
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Cut::run`].
    #[allow(unsafe_code, reason = "passes the contract of the pointers on to the tiers")]
    unsafe fn run_pieces(&self, compiled: &Compiled, geometry: &Geometry, pointers: Pointers<'_>) -> Result<()> {
        let faults = Faults::new();
        let alone = self.threads == 1 || pool::num_threads() == 1;
        let pieces = if alone { &Pieces::None } else { &self.pieces };
        let splitting = match pieces {
            Pieces::Blocks => compiled.splitting(geometry),
            Pieces::None | Pieces::Parts(_) => None,
        };
        match (pieces, splitting) {
            (Pieces::Parts(parts), _) => {
                let shared = Shared(pointers);
                pool::run(parts.len(), self.threads, &|index| {
                    // SAFETY: the caller keeps the contract for the whole launch; the parts are disjoint.
                    unsafe { compiled.run(geometry, shared.pointers(), &parts[index], &faults) };
                });
            }
            (Pieces::Blocks, Some(splitting)) => {
                for row in 0..geometry.n_rows() {
                    // SAFETY: the caller keeps the contract for the whole launch, which this row is part of.
                    unsafe { self.run_blocks(&splitting, geometry, pointers, row, &faults) };
                }
            }
            (Pieces::None | Pieces::Blocks, _) => {
                // SAFETY: the caller keeps the contract for the whole launch.
                unsafe { compiled.run(geometry, pointers, &self.whole, &faults) };
            }
        }
        outcome(&faults, geometry)
    }

    /// Folds the blocks of one row on several threads, then finishes the row.
    ///
    /// # Safety
    /// As for [`Cut::run`].
    #[allow(unsafe_code, reason = "passes the contract of the pointers on to the tier")]
    unsafe fn run_blocks(
        &self,
        splitting: &Splitting<'_>,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        row: usize,
        faults: &Faults,
    ) {
        let n_blocks = vm::VmProgram::n_blocks(geometry);
        let mut values = vec![FoldValue { bits: 0, index: 0 }; n_blocks * splitting.n_folds()];
        let pieces: Vec<Mutex<&mut [FoldValue]>> =
            values.chunks_mut(BLOCK_GRAIN * splitting.n_folds()).map(Mutex::new).collect();
        let shared = Shared(pointers);
        pool::run(pieces.len(), self.threads, &|piece| {
            let start = piece * BLOCK_GRAIN;
            let blocks = start..(start + BLOCK_GRAIN).min(n_blocks);
            let mut values = pieces[piece].lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the caller keeps the contract; folding blocks writes no output.
            unsafe { splitting.fold_blocks(geometry, shared.pointers(), row, blocks, faults, &mut values) };
        });
        drop(pieces);
        // SAFETY: the caller keeps the contract; all blocks are done, and this thread alone writes the row.
        unsafe { splitting.finish_row(geometry, pointers, row, faults, &values) };
    }
}

/// Sizes of the two loops a launch can be cut along.
fn extents(geometry: &Geometry) -> (usize, usize) {
    match geometry.lanes {
        Lanes::Inner => (geometry.n_rows(), geometry.inner.last().copied().unwrap_or(1)),
        Lanes::Rows => {
            let (lanes, outer) = geometry.rows.split_last().expect("lanes along the rows need a row loop");
            (outer.iter().product(), *lanes)
        }
    }
}

/// Columns per range where rows are folded: two ranges for each current thread, within limits.
fn column_grain(columns: usize) -> usize {
    let of_thread = columns / (2 * pool::num_threads()).max(1);
    of_thread.clamp(COLUMN_GRAINS.start, COLUMN_GRAINS.end).next_multiple_of(LINE)
}

/// `total` in about `count` ranges, each but the last a multiple of `grain`.
fn pieces(total: usize, count: usize, grain: usize) -> impl Iterator<Item = Range<usize>> {
    let step = total.div_ceil(count.max(1)).next_multiple_of(grain).max(1);
    (0..total).step_by(step).map(move |start| start..(start + step).min(total))
}

/// The error that the faults of a launch stand for, if there are any.
///
/// # Errors
/// If an index was out of range or an integer divided by zero.
pub fn outcome(faults: &Faults, geometry: &Geometry) -> Result<()> {
    match faults.out_of_range() {
        None if faults.has_zero_divisor() => Err(Error::argument(
            "division",
            "ZeroDivisionError: an integer is divided by zero; convert to floats, or keep zeros out of the divisor",
        )),
        None => Ok(()),
        Some(index) => Err(out_of_range(geometry, index)),
    }
}

fn out_of_range(geometry: &Geometry, got: i64) -> Error {
    let sizes = geometry.operands.iter().filter_map(|access| access.gather).map(|(size, _)| size);
    let size = sizes.min().unwrap_or(0) as i64;
    Error::out_of_range("index", "index", [0, size - 1], got)
}
