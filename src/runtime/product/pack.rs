//! Packing: copies parts of operands to memory that tiles read contiguously.

#![allow(unsafe_code, reason = "operands are raw pointers, and so is the memory of a thread that they are packed to")]

use super::gather::Gathered;
use super::tile::{Kernels, Multiply, Panels, Segments};
use std::cell::Cell;

/// Steps that are gathered to a panel before the same steps are to the next. Neighbours lie in the same pages.
const STEPS: usize = 16;

/// The unit of a thread's memory for packed operands: a vector and a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct CacheLine {
    _bytes: [u8; 64],
}

/// A thread's memory for packed operands. It is kept, because blocks have a largest size.
pub(super) struct Scratch;

thread_local! {
    static LINES: Cell<Vec<CacheLine>> = const { Cell::new(Vec::new()) };
}

impl Scratch {
    /// Calls `work` with memory for some elements, whose values are arbitrary.
    pub(super) fn with<T: Multiply>(elements: usize, work: impl FnOnce(*mut T)) {
        if elements == 0 {
            return work(std::ptr::dangling_mut());
        }
        // A nested call of `with` allocates its own.
        let mut lines = LINES.take();
        let needed = (elements * size_of::<T>()).div_ceil(size_of::<CacheLine>());
        if lines.len() < needed {
            lines = vec![CacheLine { _bytes: [0; 64] }; needed];
        }
        work(lines.as_mut_ptr().cast());
        LINES.set(lines);
    }
}

/// Packs columns of a right operand, or rows of a left one as columns. The last vector is padded with zeros.
///
/// # Safety
/// The processor has the level of `kernels`. `b` is valid for the panels' steps and so many columns at the strides, and
/// the panels have room for whole vectors of them.
pub(super) unsafe fn pack<T: Multiply>(
    kernels: &Kernels<T>,
    b: *const T,
    [row, column]: [usize; 2],
    columns: usize,
    panels: &Panels<T>,
) {
    if column == 1 {
        // SAFETY: passed on from the caller.
        return unsafe { (kernels.copy)(b, row, columns, panels) };
    }
    let lanes = kernels.lanes;
    for first in (0..columns).step_by(lanes) {
        let (from, to) = (b.wrapping_add(first * column), panels.column(first));
        let here = lanes.min(columns - first);
        let transposed = if row == 1 && here == lanes { panels.k / kernels.deep * kernels.deep } else { 0 };
        // SAFETY: passed on from the caller, for the steps that are transposed and for the others.
        unsafe {
            (kernels.transpose)(from, column, to, panels.width, transposed);
            for step in transposed..panels.k {
                let to = to.add(step * panels.width);
                for lane in 0..lanes {
                    *to.add(lane) = if lane < here { *from.wrapping_add(step * row + lane * column) } else { T::ZERO };
                }
            }
        }
    }
}

/// Gathers columns of windows to panels. Lanes after the last column get arbitrary elements.
///
/// # Safety
/// The processor has the level of `kernels`. `b` is valid for the first steps and columns of `gathered`, as many as the
/// panels have, except that panels have room for one step more.
pub(super) unsafe fn gather<T: Multiply>(
    kernels: &Kernels<T>,
    b: *const T,
    gathered: Gathered<'_>,
    columns: usize,
    panels: &Panels<T>,
) {
    let Gathered { table, step, column } = gathered;
    let steps = &table.steps[step..][..panels.k - 1];
    for (nth, steps) in steps.chunks(STEPS).enumerate() {
        for first in (0..columns).step_by(panels.width) {
            let here = panels.width.min(columns - first);
            let segments = Segments { all: table.segments(column + first, here), stride: table.stride };
            let to = panels.column(first).wrapping_add(nth * STEPS * panels.width);
            // Columns of segments count from the first one of the table.
            let to = to.wrapping_sub(column + first);
            // SAFETY: passed on from the caller. A vector that starts in the panel ends before its room does.
            unsafe { (kernels.gather)(b, steps, &segments, to, panels.width) };
        }
    }
}
