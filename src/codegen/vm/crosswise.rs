//! Operand staging for folds over several inner loops, of which the last jumps and the one before is contiguous: the
//! sum of all elements of a transposed matrix.
//!
//! The order of a fold is logical, so every element of such an operand would be in another cache line, and lines would
//! be evicted before their next element is asked for. So a stretch of elements is transposed into contiguous memory
//! first, and each line is read once and whole. The other operands of the stretch are copied, too. Then there is one
//! inner loop.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use crate::codegen::geometry::offset;
use crate::codegen::kernel::{FOLD_BLOCK, Kernel, Kind, Level, Source};
use crate::codegen::native::transpose::transpose;
use crate::codegen::{Access, Geometry, Lanes, Pointers};
use crate::device::{Device, Storage};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// Fewest neighbours of the contiguous loop that a stretch should hold: four-byte elements of a cache line.
const LEAST_RUNS: usize = 16;
/// Elements of a stretch, unless runs are long.
const STRETCH: usize = 8 * FOLD_BLOCK;
/// Most bytes of a stretch of one operand.
const MOST_BYTES: usize = 64 << 20;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// How an operand of a kernel takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Its elements of this many bytes are copied.
    Copied(usize),
    /// It is the same for all inner elements, or not read.
    Still,
    /// It is computed.
    Iota,
}

/// What a kernel needs for staging, if it can be staged.
#[derive(Debug)]
pub(super) struct Crosswise {
    parts: SmallVec<[Part; 4]>,
}

/// A stretch of one row's elements in contiguous memory.
pub(super) struct Stretch {
    pub(super) geometry: Geometry,
    pub(super) operands: SmallVec<[*const u8; 8]>,
    /// The copies, which `operands` points to.
    _copies: SmallVec<[Storage; 2]>,
}

impl Crosswise {
    /// For a kernel with folds along the inner loops and results per row.
    pub(super) fn of(kernel: &Kernel, lanes: Lanes) -> Option<Crosswise> {
        let is_row = |slot: usize| kernel.inst(kernel.outputs[slot].value).level == Level::Row;
        let has_gathers = kernel.insts.iter().any(|inst| matches!(inst.kind, Kind::Gather(_)));
        if lanes != Lanes::Inner || !kernel.has_folds() || has_gathers || !(0..kernel.outputs.len()).all(is_row) {
            return None;
        }
        let is_full = |slot: usize| {
            let mut loads = kernel.insts.iter().filter(|inst| inst.kind == Kind::Load(slot as u16));
            loads.any(|inst| inst.level == Level::Full)
        };
        let part = |slot: usize| match kernel.operands[slot].source {
            _ if !is_full(slot) => Part::Still,
            Source::Memory => Part::Copied(kernel.operands[slot].dtype.size()),
            Source::Iota => Part::Iota,
        };
        Some(Crosswise { parts: (0..kernel.operands.len()).map(part).collect() })
    }

    /// The elements of a stretch of a row, whole blocks of the fold, if staging pays for these loops.
    pub(super) fn stretch(&self, geometry: &Geometry) -> Option<usize> {
        let [.., runs, length] = geometry.inner[..] else { return None };
        let is_iota = |part: &Part| *part == Part::Iota;
        let row_major = |access: &Access| {
            let mut expected = 1;
            geometry.inner.iter().zip(&access.inner).rev().all(|(&size, &stride)| {
                let fits = stride == expected;
                expected *= size;
                fits
            })
        };
        let mut iotas = self.parts.iter().zip(&geometry.operands).filter(|(part, _)| is_iota(part));
        let is_written_once = |access: &Access| access.inner.iter().all(|&stride| stride == 0);
        let jumps = self.parts.iter().zip(&geometry.operands).any(|(&part, access)| is_crosswise(part, access));
        let fits = |part: &Part| match part {
            Part::Copied(bytes) => length.saturating_mul(LEAST_RUNS * bytes) <= MOST_BYTES,
            Part::Still | Part::Iota => true,
        };
        let pays = jumps
            && runs >= LEAST_RUNS
            && length >= LEAST_RUNS
            && self.parts.iter().all(fits)
            && iotas.all(|(_, access)| row_major(access) || is_written_once(access))
            && geometry.outputs.iter().all(is_written_once);
        pays.then(|| STRETCH.max(LEAST_RUNS * length).next_multiple_of(FOLD_BLOCK))
    }

    /// Copies the elements `elements` of a row. `None` if they are too many, or if there is no memory.
    ///
    /// # Safety
    /// As for [`VmProgram::run`](super::VmProgram::run).
    pub(super) unsafe fn copied(
        &self,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        row: usize,
        elements: Range<usize>,
    ) -> Option<Stretch> {
        let mut flat = geometry.clone();
        let mut operands: SmallVec<[*const u8; 8]> = pointers.operands.into();
        let mut copies = SmallVec::new();
        flat.inner = smallvec![geometry.n_inner()];
        for access in flat.operands.iter_mut().chain(&mut flat.outputs) {
            // Of what is not copied, only row-major iotas move.
            access.inner = smallvec![access.inner.last().copied().unwrap_or(0)];
        }
        for (slot, part) in self.parts.iter().enumerate() {
            match *part {
                Part::Still => flat.operands[slot].inner = smallvec![0],
                Part::Iota => {}
                Part::Copied(bytes) => {
                    let n_bytes = elements.len() * bytes;
                    if n_bytes > 2 * MOST_BYTES {
                        return None;
                    }
                    let copy = Storage::new(Device::CPU, n_bytes).ok()?;
                    let access = &geometry.operands[slot];
                    let first = offset(&geometry.rows, &access.rows, row).wrapping_add(access.base as usize);
                    let from = operands[slot].wrapping_add(first);
                    // SAFETY: the caller vouches for the operand's elements, and the copy has room for these.
                    unsafe { copy_elements(geometry, *part, access, from, elements.clone(), copy.ptr()) };
                    operands[slot] = copy.ptr().cast_const().wrapping_sub(elements.start * bytes);
                    let rows = SmallVec::from_elem(0, geometry.rows.len());
                    flat.operands[slot] = Access { rows, inner: smallvec![bytes], base: 0, gather: None };
                    copies.push(copy);
                }
            }
        }
        Some(Stretch { geometry: flat, operands, _copies: copies })
    }
}

/// Whether an operand jumps along the last inner loop, and is contiguous along the one before.
fn is_crosswise(part: Part, access: &Access) -> bool {
    let (Part::Copied(bytes), [.., run, last]) = (part, &access.inner[..]) else { return false };
    (*last as isize).unsigned_abs() > LINE_BYTES && *run == bytes
}

/// Copies some inner elements of a row, whose first is at `from`.
///
/// # Safety
/// They are alive, and so are those starting at `to`, which nothing else uses.
unsafe fn copy_elements(
    geometry: &Geometry,
    part: Part,
    access: &Access,
    from: *const u8,
    elements: Range<usize>,
    to: *mut u8,
) {
    let Part::Copied(bytes) = part else { return };
    let [.., runs, length] = geometry.inner[..] else { return };
    let stride = access.inner.last().copied().unwrap_or(0);
    let mut at = elements.start;
    while at < elements.end {
        let here = from.wrapping_add(offset(&geometry.inner, &access.inner, at));
        let to = to.wrapping_add((at - elements.start) * bytes);
        let left = elements.end - at;
        let whole = (runs - at / length % runs).min(left / length);
        let at_start = at.is_multiple_of(length) && whole > 0;
        // SAFETY: passed on from the caller: these are whole lines, or a part of one.
        unsafe {
            if at_start && is_crosswise(part, access) {
                transpose(here, stride, to, length, bytes, whole, length);
                at += whole * length;
            } else {
                let n = (length - at % length).min(left);
                transpose(here, stride, to, n, bytes, 1, n);
                at += n;
            }
        }
    }
}
