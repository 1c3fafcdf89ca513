//! Calls compiled code for a geometry and pointers: one call per run of rows in the last row loop.

#![allow(unsafe_code, reason = "hands addresses of a launch to generated code")]

use super::argument;
use super::block_folds::fold_blocks_address;
use super::code::Code;
use super::gathers;
use crate::codegen::geometry::{Access, Geometry, offset};
use crate::codegen::kernel::FOLD_BLOCK;
use crate::codegen::launch::{Faults, Part, Pointers};
use smallvec::SmallVec;
use std::cell::Cell;

/// What a launch must know of a compiled kernel.
#[derive(Clone)]
pub(in crate::codegen) struct LaunchShape {
    /// The operands that are gathered.
    pub(in crate::codegen) gathers: SmallVec<[usize; 2]>,
    /// Whether rows must not be cut.
    pub(in crate::codegen) has_folds: bool,
    /// Per operand, whether it is an iota.
    pub(in crate::codegen) iotas: SmallVec<[bool; 8]>,
    /// The most folds of any pass.
    pub(in crate::codegen) n_folds: usize,
    /// The number of row buffers.
    pub(in crate::codegen) n_kept: usize,
}

/// Most words that are skipped to align the row buffers.
const BUFFER_ALIGN_WORDS: usize = argument::BUFFER_ALIGN / 8;

/// Most scratch words that a thread keeps between launches.
const MAX_CACHED_WORDS: usize = 1 << 17;

/// Runs a part of a launch.
///
/// # Safety
/// As for [`super::NativeProgram::run`], and the geometry has one inner loop.
pub(super) unsafe fn run(
    code: &Code,
    shape: &LaunchShape,
    geometry: &Geometry,
    pointers: Pointers<'_>,
    part: &Part,
    faults: &Faults,
) {
    let (n_inner, first) = if shape.has_folds { (geometry.inner[0], 0) } else { (part.lanes.len(), part.lanes.start) };
    if part.outer.is_empty() || (n_inner == 0 && !shape.has_folds) {
        return;
    }
    let n_accesses = geometry.operands.len() + geometry.outputs.len();
    if geometry.rows.is_empty() && !shape.has_folds && n_accesses <= MAX_FIXED && shape.gathers.is_empty() {
        // SAFETY: passed on from the caller.
        return unsafe { run_one_row(code, shape, geometry, pointers, n_inner, first) };
    }
    let n_kept = shape.n_kept * n_inner * argument::BUFFER_BYTES / 8;
    let n_blocks = shape.n_folds * n_inner.div_ceil(FOLD_BLOCK).max(1) * argument::BLOCK_BYTES / 8;
    with_scratch(n_kept + n_blocks + BUFFER_ALIGN_WORDS, |scratch| {
        let (dims, end) = (argument::gather(n_accesses, 0), argument::gather(n_accesses, shape.gathers.len()));
        let n_words = if shape.gathers.is_empty() { end } else { end + argument::FAULT_WORDS };
        let mut buffer: SmallVec<[u64; 48]> = SmallVec::from_elem(0, n_words);
        gathers::write(&shape.gathers, geometry, &mut buffer[dims..end]);
        buffer[argument::INNER] = n_inner as u64;
        buffer[argument::KEPT] = (scratch.as_mut_ptr() as u64).next_multiple_of(argument::BUFFER_ALIGN as u64);
        buffer[argument::BLOCKS] = buffer[argument::KEPT] + 8 * n_kept as u64;
        buffer[argument::FOLD_BLOCKS] = fold_blocks_address();
        let operands = pointers.operands.iter().zip(&shape.iotas);
        let starts = operands.map(|(&pointer, &iota)| if iota { 0 } else { pointer as u64 });
        let starts: SmallVec<[u64; 12]> =
            starts.chain(pointers.outputs.iter().map(|&pointer| pointer as u64)).collect();
        let accesses = || geometry.operands.iter().chain(&geometry.outputs);
        let last = geometry.rows.last().copied().unwrap_or(1);
        let mut row = part.outer.start;
        while row < part.outer.end {
            let run = (last - row % last).min(part.outer.end - row);
            buffer[argument::ROWS] = run as u64;
            for (index, (access, &start)) in accesses().zip(&starts).enumerate() {
                let at = argument::ACCESSES + index * argument::ACCESS_WORDS;
                let stride = access.inner.last().copied().unwrap_or(0) as u64;
                let offset = row_offset(&geometry.rows, access, row).wrapping_add(stride.wrapping_mul(first as u64));
                buffer[at] = start.wrapping_add(offset);
                buffer[at + 1] = access.rows.last().copied().unwrap_or(0) as u64;
                buffer[at + 2] = stride;
            }
            // SAFETY: the buffer describes rows `row..row + run` of the launch, which the caller vouches for. The
            // scratch is as long as the row buffers and block results of one row.
            unsafe { code.call(&mut buffer) };
            gathers::record(&buffer[end..], faults);
            row += run;
        }
    });
}

/// Most accesses of a launch whose argument buffer has a fixed size.
const MAX_FIXED: usize = 8;

/// Runs one row of a kernel without folds, starting at element `first`: the fast path of small calls.
///
/// # Safety
/// As for [`run`], with a geometry without row loops and at most [`MAX_FIXED`] accesses.
unsafe fn run_one_row(
    code: &Code,
    shape: &LaunchShape,
    geometry: &Geometry,
    pointers: Pointers<'_>,
    n_inner: usize,
    first: usize,
) {
    let mut buffer = [0; argument::ACCESSES + MAX_FIXED * argument::ACCESS_WORDS];
    buffer[argument::ROWS] = 1;
    buffer[argument::INNER] = n_inner as u64;
    buffer[argument::FOLD_BLOCKS] = fold_blocks_address();
    let operands = pointers.operands.iter().zip(&shape.iotas);
    let operands = operands.map(|(&pointer, &iota)| if iota { 0 } else { pointer as u64 }).zip(&geometry.operands);
    let outputs = pointers.outputs.iter().map(|&pointer| pointer as u64).zip(&geometry.outputs);
    let mut put = |(buffer, (start, access)): (&mut [u64], (u64, &Access))| {
        let stride = access.inner.last().copied().unwrap_or(0) as u64;
        buffer[0] = start.wrapping_add(access.base as u64).wrapping_add(stride.wrapping_mul(first as u64));
        buffer[2] = stride;
    };
    let (of_operands, of_outputs) =
        buffer[argument::ACCESSES..].split_at_mut(geometry.operands.len() * argument::ACCESS_WORDS);
    of_operands.chunks_exact_mut(argument::ACCESS_WORDS).zip(operands).for_each(&mut put);
    of_outputs.chunks_exact_mut(argument::ACCESS_WORDS).zip(outputs).for_each(&mut put);
    // SAFETY: the buffer describes the only row of the launch, which the caller vouches for. Without folds there are no
    // row buffers and no block results, so no scratch is needed.
    unsafe { code.call(&mut buffer) };
}

/// Calls of code without folds and gathers for pieces of a launch, which differ in where their accesses begin.
pub(super) struct PieceCalls<'a> {
    code: &'a Code,
    words: SmallVec<[u64; 128]>,
}

impl<'a> PieceCalls<'a> {
    /// Calls for pieces with the strides of these loops, if the code has no folds and no gathers.
    pub(super) fn new(code: &'a Code, shape: &LaunchShape, loops: &Geometry) -> Option<PieceCalls<'a>> {
        if shape.has_folds || !shape.gathers.is_empty() {
            return None;
        }
        let accesses = || loops.operands.iter().chain(&loops.outputs);
        let mut words = SmallVec::from_elem(0, argument::gather(accesses().count(), 0));
        words[argument::FOLD_BLOCKS] = fold_blocks_address();
        for (index, access) in accesses().enumerate() {
            let at = argument::ACCESSES + index * argument::ACCESS_WORDS;
            words[at + 1] = access.rows.last().copied().unwrap_or(0) as u64;
            words[at + 2] = access.inner.last().copied().unwrap_or(0) as u64;
        }
        Some(PieceCalls { code, words })
    }

    /// Lets an operand begin at an address, or an iota at a number; outputs follow operands.
    pub(super) fn begin(&mut self, access: usize, at: u64) {
        self.words[argument::ACCESSES + access * argument::ACCESS_WORDS] = at;
    }

    /// Runs a piece.
    ///
    /// # Safety
    /// As for [`super::NativeProgram::run`], of so many rows and lanes from where the accesses begin.
    pub(super) unsafe fn call(&mut self, rows: usize, lanes: usize) {
        (self.words[argument::ROWS], self.words[argument::INNER]) = (rows as u64, lanes as u64);
        // SAFETY: passed on from the caller. Without folds there are no row buffers and no block results.
        unsafe { self.code.call(&mut self.words) };
    }
}

/// Offset of a row's first element from an access's pointer, where the row loops have these sizes.
pub(super) fn row_offset(sizes: &[usize], access: &Access, row: usize) -> u64 {
    (access.base as u64).wrapping_add(offset(sizes, &access.rows, row) as u64)
}

/// Calls `body` with `n` words of scratch, whose content is unspecified.
pub(super) fn with_scratch<R>(n: usize, body: impl FnOnce(&mut [u64]) -> R) -> R {
    thread_local! {
        static SCRATCH: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
    }
    let mut scratch = SCRATCH.take();
    if scratch.len() < n {
        scratch = vec![0; n];
    }
    let result = body(&mut scratch[..n]);
    if scratch.len() <= MAX_CACHED_WORDS {
        SCRATCH.set(scratch);
    }
    result
}
