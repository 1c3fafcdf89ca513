//! Operand staging by gathering: operands that are strided along the lanes, and the same for every position of the
//! outer row loops.
//!
//! With lanes along the rows, such an operand would be gathered again for each of these positions. The copy has a
//! contiguous run of lanes per inner element, and stays in a cache. It has the operand's dtype; nothing is widened
//! here.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use crate::codegen::geometry::offset;
use crate::codegen::kernel::{Kernel, Kind, Source};
use crate::codegen::{Access, Class, Geometry, Lanes, Part, Pointers};
use smallvec::SmallVec;

/// Fewest positions of the outer row loops for which a copy pays.
const WORTH_COPYING: usize = 4;
/// Most bytes of a copy: a part of a second-level cache.
const LARGEST: usize = 256 << 10;

/// Operands that may be copied: number, and bytes of an element.
pub(super) type Gatherable = SmallVec<[(usize, usize); 2]>;

/// The operands of a kernel in memory that are strided along lanes, which are along the rows.
pub(super) fn gatherable(kernel: &Kernel, lanes: Lanes, classes: &[Class]) -> Gatherable {
    let is_gathered = |slot: usize| {
        kernel.insts.iter().any(|inst| matches!(inst.kind, Kind::Gather(other) if other as usize == slot))
    };
    let jumps = |&(slot, _): &(usize, usize)| {
        let in_memory = kernel.operands[slot].source == Source::Memory && !is_gathered(slot);
        lanes == Lanes::Rows && in_memory && classes[slot] == Class::Strided
    };
    kernel.operands.iter().map(|operand| operand.dtype.size()).enumerate().filter(jumps).collect()
}

/// A launch on copies of some operands.
pub(super) struct Gathered {
    geometry: Geometry,
    operands: SmallVec<[*const u8; 8]>,
    /// The copies, which `operands` points to.
    _copies: Vec<Vec<u64>>,
}

impl Gathered {
    /// Copies those operands of a part for which it pays, if there are any.
    ///
    /// # Safety
    /// As for [`VmProgram::run`](super::Program::run).
    pub(super) unsafe fn new(
        gatherable: &Gatherable,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        part: &Part,
    ) -> Option<Gathered> {
        let n_lanes = part.lanes.len();
        // Values per row are also read where there are no inner elements.
        if part.outer.len() < WORTH_COPYING || geometry.n_inner() == 0 {
            return None;
        }
        let mut packed: Option<Gathered> = None;
        for &(slot, bytes) in gatherable {
            let access = &geometry.operands[slot];
            let (&stride, outer) = access.rows.split_last().expect("lanes along the rows need a row loop");
            // Loops that the operand does not depend on are not copied.
            let sizes: SmallVec<[usize; 4]> =
                geometry.inner.iter().zip(&access.inner).map(|(&n, &stride)| if stride == 0 { 1 } else { n }).collect();
            let n_lines: usize = sizes.iter().product();
            let line = n_lanes * bytes;
            if outer.iter().any(|&stride| stride != 0) || n_lines.saturating_mul(line) > LARGEST {
                continue;
            }
            let mut copy = vec![0u64; (n_lines * line).div_ceil(8)];
            let to = copy.as_mut_ptr().cast::<u8>();
            let first = pointers.operands[slot]
                .wrapping_add((access.base as usize).wrapping_add(part.lanes.start.wrapping_mul(stride)));
            for index in 0..n_lines {
                let from = first.wrapping_add(offset(&sizes, &access.inner, index));
                // SAFETY: these are the operand's elements at the lanes of the part and an inner element, which the
                // caller vouches for; the copy has room for the lanes of every inner element.
                unsafe { copy_line(from, stride, to.add(index * line), bytes, n_lanes) };
            }
            let packed = packed.get_or_insert_with(|| Gathered {
                geometry: geometry.clone(),
                operands: pointers.operands.into(),
                _copies: Vec::new(),
            });
            let mut access = Access { rows: access.rows.clone(), inner: access.inner.clone(), base: 0, gather: None };
            *access.rows.last_mut().expect("looked at above") = bytes;
            let mut distance = line;
            for (stride, &size) in access.inner.iter_mut().zip(&sizes).rev() {
                *stride = if *stride == 0 { 0 } else { distance };
                distance *= size;
            }
            packed.geometry.operands[slot] = access;
            // Lanes are numbered from the first lane of the launch, not of the part.
            packed.operands[slot] = to.cast_const().wrapping_sub(part.lanes.start * bytes);
            packed._copies.push(copy);
        }
        packed
    }

    /// The loops over the copies.
    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The operands, some of which are copies.
    pub(super) fn operands(&self) -> &[*const u8] {
        &self.operands
    }
}

/// Copies `n` elements, `stride` bytes apart, to contiguous memory.
///
/// # Safety
/// Every element is alive, and the copy has room.
unsafe fn copy_line(from: *const u8, stride: usize, to: *mut u8, bytes: usize, n: usize) {
    for index in 0..n {
        let (from, to) = (from.wrapping_add(index.wrapping_mul(stride)), to.wrapping_add(index * bytes));
        // SAFETY: passed on from the caller; elements are aligned to their size, and so are those of the copy.
        unsafe {
            match bytes {
                1 => to.write(from.read()),
                2 => to.cast::<u16>().write(from.cast::<u16>().read()),
                4 => to.cast::<u32>().write(from.cast::<u32>().read()),
                _ => to.cast::<u64>().write(from.cast::<u64>().read()),
            }
        }
    }
}
