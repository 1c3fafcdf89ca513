//! Kernels that only copy elements at indices, such as values by the order that a sort found: no tiles, no conversions.
//!
//! Elements are moved as bytes, so every dtype of a size has the same routine. Machine code gathers four and eight
//! bytes by itself. What is left to the vm are narrow elements, and processors without such instructions.
//! `cargo bench --bench cost_model -- sort cummax` measures it.

#![allow(unsafe_code, reason = "operands and outputs are raw memory")]

use crate::codegen::geometry::{Access, offset};
use crate::codegen::kernel::{Kernel, Kind, Source};
use crate::codegen::launch::Faults;
use crate::codegen::{Geometry, Lanes, Part, Pointers};
use crate::ir::DType;

/// A kernel whose output has the elements of an operand at the indices in another one.
#[derive(Debug)]
pub(super) struct Picking {
    source: usize,
    index: usize,
    pick: unsafe fn(&Row) -> Option<i64>,
}

/// One row of a launch. Steps are bytes.
struct Row {
    source: *const u8,
    /// From one lane to the next, and from one index to the next.
    source_steps: [usize; 2],
    /// The legal indices are those below.
    size: i64,
    index: *const u8,
    index_step: usize,
    to: *mut u8,
    to_step: usize,
    n: usize,
}

impl Picking {
    /// The picking that a kernel is, if it is one.
    pub(super) fn of(kernel: &Kernel, lanes: Lanes) -> Option<Picking> {
        let [output] = &kernel.outputs[..] else { return None };
        let stored = kernel.inst(output.value);
        let (Kind::Gather(source), &[at]) = (stored.kind, &stored.args[..]) else { return None };
        let Kind::Load(index) = kernel.inst(at).kind else { return None };
        let [source, index] = [source, index].map(usize::from);
        let [elements, indices] = [&kernel.operands[source], &kernel.operands[index]];
        let is_read = elements.source == Source::Memory && indices.source == Source::Memory;
        let is_moved = elements.dtype == output.dtype && indices.dtype == DType::I64;
        // Nothing else is computed, nor checked.
        if !is_read || !is_moved || lanes != Lanes::Inner || kernel.insts.len() != 2 {
            return None;
        }
        let pick = match output.dtype.size() {
            1 => pick::<u8>,
            2 => pick::<u16>,
            4 => pick::<u32>,
            8 => pick::<u64>,
            _ => return None,
        };
        Some(Picking { source, index, pick })
    }

    /// Copies one part of a launch, if its rows are such.
    ///
    /// # Safety
    /// As for [`VmProgram::run`](super::VmProgram::run) of the kernel that this was made of.
    pub(super) unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part, faults: &Faults) -> bool {
        let [source, index, output] =
            [&geometry.operands[self.source], &geometry.operands[self.index], &geometry.outputs[0]];
        let Some((size, step)) = source.gather.filter(|_| geometry.inner.len() == 1) else { return false };
        let start = |access: &Access, row: usize| {
            let lane = part.lanes.start.wrapping_mul(geometry.lane_stride(access));
            (access.base as usize).wrapping_add(offset(&geometry.rows, &access.rows, row)).wrapping_add(lane)
        };
        // Positions in all row loops are computed where the last of them begins anew.
        let n_last = geometry.rows.last().copied().unwrap_or(1).max(1);
        let next = |access: &Access| access.rows.last().copied().unwrap_or(0);
        let mut row = part.outer.start;
        while row < part.outer.end {
            let rows = (n_last - row % n_last).min(part.outer.end - row);
            let mut line = Row {
                source: pointers.operands[self.source].wrapping_add(start(source, row)),
                source_steps: [geometry.lane_stride(source), step],
                size: size as i64,
                index: pointers.operands[self.index].wrapping_add(start(index, row)),
                index_step: geometry.lane_stride(index),
                to: pointers.outputs[0].wrapping_add(start(output, row)),
                to_step: geometry.lane_stride(output),
                n: part.lanes.len(),
            };
            for _ in 0..rows {
                // SAFETY: the caller vouches for the elements of the row, at every legal index.
                if let Some(outside) = unsafe { (self.pick)(&line) } {
                    faults.record(outside);
                }
                line.source = line.source.wrapping_add(next(source));
                line.index = line.index.wrapping_add(next(index));
                line.to = line.to.wrapping_add(next(output));
            }
            row += rows;
        }
        true
    }
}

/// Copies the elements of a row. Where an index is out of range, the element is zero, and the last such index is
/// returned.
///
/// # Safety
/// Indices, elements at every legal index, and places of results are alive and aligned, and results overlap no others.
unsafe fn pick<T: Copy + Default>(row: &Row) -> Option<i64> {
    let mut outside = None;
    let [lane_step, step] = row.source_steps;
    for lane in 0..row.n {
        let at = |start: *const u8, step: usize| start.wrapping_add(lane.wrapping_mul(step));
        // SAFETY: the caller vouches for the index.
        let index = unsafe { at(row.index, row.index_step).cast::<i64>().read() };
        let element = if (0..row.size).contains(&index) {
            let place = at(row.source, lane_step).wrapping_add((index as usize).wrapping_mul(step));
            // SAFETY: the index is legal.
            unsafe { place.cast::<T>().read() }
        } else {
            outside = Some(index);
            T::default()
        };
        // SAFETY: the caller vouches for the place of the result.
        unsafe { at(row.to, row.to_step).cast_mut().cast::<T>().write(element) };
    }
    outside
}
