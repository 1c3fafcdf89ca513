//! Operands that jump along the vector loop and are the same in every row: a column of a matrix beside rows, say.
//!
//! Lane by lane they would be gathered again in each row. So their elements are copied into a line once per part of a
//! launch, and the code is that of the same kernel with these operands contiguous; it is compiled on first use.

#![allow(unsafe_code, reason = "copies elements of a launch from raw addresses")]

use super::Compile;
use super::code::Code;
use super::launch::{self, Shape};
use crate::codegen::geometry::{Access, Class, Geometry};
use crate::codegen::kernel::Kernel;
use crate::codegen::launch::{Part, Pointers};
use crate::error::Reason;
use smallvec::{SmallVec, smallvec};

/// The operands of a launch that are copied into lines, first to last.
pub(in crate::codegen) fn still(kernel: &Kernel, geometry: &Geometry) -> SmallVec<[usize; 4]> {
    let is_still = |slot: &usize| {
        let (operand, access) = (&kernel.operands[*slot], &geometry.operands[*slot]);
        let strided = geometry.class(access, operand.dtype.size()) == Class::Strided;
        strided && geometry.is_line_of_all_rows(operand, access)
    };
    (0..kernel.operands.len()).filter(is_still).collect()
}

/// A kernel compiled for lines in place of some operands.
pub(super) struct Lined {
    code: Code,
    shape: Shape,
    /// Per operand that is copied, its number and the bytes of an element.
    copied: SmallVec<[(usize, usize); 4]>,
}

impl Lined {
    /// Compiles `kernel` for lines in place of the operands in `still`; the others move as `classes` says.
    pub(super) fn compile(
        compile: Compile,
        kernel: &Kernel,
        classes: &[Class],
        still: &[usize],
    ) -> Result<Lined, Reason> {
        let mut classes: SmallVec<[Class; 8]> = classes.into();
        still.iter().for_each(|&slot| classes[slot] = Class::Contiguous);
        let (code, shape) = compile(kernel, &classes)?;
        let copied = still.iter().map(|&slot| (slot, kernel.operands[slot].dtype.size())).collect();
        Ok(Lined { code, shape, copied })
    }

    /// Whether these operands are what it was compiled for.
    pub(super) fn is_for(&self, still: &[usize]) -> bool {
        self.copied.iter().map(|&(slot, _)| slot).eq(still.iter().copied())
    }

    /// Runs a part of a launch.
    ///
    /// # Safety
    /// As [`super::Program::run`].
    pub(super) unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part) {
        let mut of_lines = geometry.clone();
        let mut operands: SmallVec<[*const u8; 8]> = pointers.operands.into();
        // Only the lanes of the part may be read; words keep every element aligned.
        let lanes = part.lanes.clone();
        let mut lines: SmallVec<[Vec<u64>; 4]> =
            self.copied.iter().map(|&(_, bytes)| vec![0; (lanes.end * bytes).div_ceil(8)]).collect();
        for (&(slot, bytes), line) in self.copied.iter().zip(&mut lines) {
            let access = &geometry.operands[slot];
            let from = operands[slot].wrapping_offset(access.base as isize);
            // SAFETY: the caller vouches for the operand's elements in these lanes, the same in every row; the line has
            // room for as many.
            unsafe { gather(from, geometry.lane_stride(access), line.as_mut_ptr().cast(), bytes, lanes.clone()) };
            operands[slot] = line.as_ptr().cast();
            let rows = SmallVec::from_elem(0, geometry.rows.len());
            of_lines.operands[slot] = Access { rows, inner: smallvec![bytes], base: 0, gather: None };
        }
        let pointers = Pointers { operands: &operands, outputs: pointers.outputs };
        // SAFETY: the part is the caller's, the lines hold the elements of its lanes.
        unsafe { launch::run(&self.code, &self.shape, &of_lines, pointers, part) };
    }
}

/// Copies elements that lie `stride` bytes apart to the same lanes of a line.
///
/// # Safety
/// Every element of `lanes` is alive, and `to` has room up to the last.
unsafe fn gather(from: *const u8, stride: usize, to: *mut u8, bytes: usize, lanes: std::ops::Range<usize>) {
    // SAFETY: passed on from the caller; the cases make every copy one machine move.
    unsafe {
        match bytes {
            1 => gather_as::<u8>(from, stride, to, lanes),
            2 => gather_as::<u16>(from, stride, to.cast(), lanes),
            4 => gather_as::<u32>(from, stride, to.cast(), lanes),
            _ => gather_as::<u64>(from, stride, to.cast(), lanes),
        }
    }
}

/// # Safety
/// As [`gather`], of elements of type `T`.
unsafe fn gather_as<T: Copy>(from: *const u8, stride: usize, to: *mut T, lanes: std::ops::Range<usize>) {
    for lane in lanes {
        // SAFETY: an element of the operand and one of the line, which the caller vouches for; a stride may be a wrapped
        // negative one.
        unsafe { to.add(lane).write(from.wrapping_add(lane.wrapping_mul(stride)).cast::<T>().read_unaligned()) };
    }
}
