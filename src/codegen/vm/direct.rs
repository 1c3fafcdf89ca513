//! Plans of one routine over memory: most eager calls run this way.
//!
//! A pointwise op on contiguous operands of its compute dtype reads them in place and writes its result in place. So a
//! launch needs no scratch memory and no interpreter. A small launch of one row is a [`PreparedRow`], which has
//! everything precomputed that is the same for all calls.

#![allow(unsafe_code, reason = "operands and outputs are raw memory")]

use super::moves::Reader;
use super::plan::{AccessId, Line, Location, PlaceId, Plan, TileShape, TileStep};
use super::routine::{BLOCK, Call, Routine, TileOperand};
use crate::codegen::geometry::offset;
use crate::codegen::kernel::Level;
use crate::codegen::{Geometry, Part, Pointers};
use std::mem::MaybeUninit;

/// A buffer for a block of the widest elements.
type SplatBlock = [Line; BLOCK * size_of::<u64>() / Line::BYTES];

/// A routine whose operands need no steps before it.
#[derive(Debug)]
pub(super) struct Direct {
    routine: Routine,
    sources: [Source; 3],
    /// The access of the output.
    output: AccessId,
}

/// The source of a routine's operand.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// Memory that the launch walks over.
    Memory(AccessId),
    /// One element of memory, for all lanes.
    Element(Reader, AccessId),
    /// A routine applied to one element of memory, for all lanes: most often a number in another dtype.
    Computed(Reader, AccessId, Routine),
    /// The plan's constants, at a byte offset.
    Constant(usize),
}

impl Source {
    /// Whether both are the same. An access has one kind of source.
    fn is(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Memory(one), Source::Memory(other)) | (Source::Element(_, one), Source::Element(_, other)) => {
                one == other
            }
            (Source::Computed(_, one, routine), Source::Computed(_, other, other_routine)) => {
                one == other && std::ptr::fn_addr_eq(*routine, *other_routine)
            }
            (Source::Constant(one), Source::Constant(other)) => one == other,
            (Source::Memory(_) | Source::Element(..) | Source::Computed(..) | Source::Constant(_), _) => false,
        }
    }

    /// The access that it reads.
    fn access(self) -> Option<AccessId> {
        match self {
            Source::Memory(access) | Source::Element(_, access) | Source::Computed(_, access, _) => Some(access),
            Source::Constant(_) => None,
        }
    }
}

impl Direct {
    /// The only routine of a plan, if it has nothing else.
    pub(super) fn of(plan: &Plan) -> Option<Direct> {
        let [pass] = &plan.passes[..] else { return None };
        let [moves @ .., TileStep::Map { routine, dst, args, shape: TileShape::Tile, .. }] = &pass.tile[..] else {
            return None;
        };
        if !(pass.rows.is_empty() && pass.stores.is_empty() && plan.folds.is_empty() && plan.buffers.is_empty()) {
            return None;
        }
        let mut output = None;
        // The contents of places; a later step may overwrite one.
        let mut sources: Vec<(PlaceId, Source)> = Vec::new();
        let held = |sources: &[(PlaceId, Source)], place: PlaceId| {
            sources.iter().rev().find(|(of, _)| *of == place).map(|&(_, source)| source)
        };
        for step in moves {
            match *step {
                TileStep::InPlace { place, access, level: Level::Full } => {
                    sources.push((place, Source::Memory(access)))
                }
                TileStep::Map { routine, dst, args: [arg, second, third], shape: TileShape::Splat, .. }
                    if arg == second && arg == third =>
                {
                    let Some(Source::Element(reader, access)) = held(&sources, arg) else { return None };
                    sources.push((dst, Source::Computed(reader, access, routine)));
                }
                TileStep::Read { reader, dst, access, level: Level::Full, shape: TileShape::Splat }
                    if !plan.iotas[access] =>
                {
                    sources.push((dst, Source::Element(reader, access)));
                }
                TileStep::Direct { place, access } if place == *dst => output = Some(access),
                _ => return None,
            }
        }
        let source = |&place: &PlaceId| match plan.locations[place].0 {
            Location::Constant(at) => Some(Source::Constant(at)),
            Location::Block(_) | Location::Tile(_) | Location::Moving => held(&sources, place),
        };
        let [a, b, c] = args;
        Some(Direct { routine: *routine, sources: [source(a)?, source(b)?, source(c)?], output: output? })
    }

    /// The launch of one row of `n` elements, with everything but the pointers precomputed.
    pub(super) fn ready(&self, plan: &Plan, geometry: &Geometry, n: usize) -> PreparedRow {
        let base = |access: AccessId| match access.index().checked_sub(geometry.operands.len()) {
            None => geometry.operands[access.index()].base,
            Some(output) => geometry.outputs[output].base,
        };
        let source = |source: Source| (source, source.access().map_or(0, base));
        let size = |source: Source| match source {
            Source::Memory(access) => geometry.lane_stride(&geometry.operands[access.index()]),
            Source::Element(..) | Source::Computed(..) | Source::Constant(_) => 0,
        };
        // The routine has as many operands as there are different sources, or takes one twice.
        let first_like = |index: usize| self.sources.iter().position(|other| other.is(&self.sources[index]));
        let output = self.output.index() - geometry.operands.len();
        PreparedRow {
            routine: self.routine,
            sources: self.sources.map(source),
            same_as: [0, 1, 2].map(|index| first_like(index).expect("it is like itself") as u8),
            sizes: self.sources.map(size),
            output: (output, base(self.output)),
            output_size: geometry.lane_stride(&geometry.outputs[output]),
            n,
            constants: plan.constants.clone(),
        }
    }

    /// Runs one part of a launch, `tile` elements at a time.
    ///
    /// # Safety
    /// As for [`VmProgram::run`](super::Program::run), with the plan that this was made of.
    pub(super) unsafe fn run(
        &self,
        plan: &Plan,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        part: &Part,
        tile: usize,
    ) {
        let mut blocks: [MaybeUninit<SplatBlock>; 3] = [const { MaybeUninit::uninit() }; 3];
        for row in part.outer.clone() {
            let at = |access: AccessId| at(geometry, pointers, access, row, part.lanes.start);
            let mut steps = [0; 3];
            let mut src = [TileOperand { ptr: std::ptr::null_mut(), step: 0 }; 3];
            for (index, (source, block)) in self.sources.iter().zip(&mut blocks).enumerate() {
                let (ptr, step) = source.access().map_or((std::ptr::null_mut(), 0), at);
                // SAFETY: the caller vouches for the operands.
                src[index] = unsafe { place(*source, ptr, &plan.constants, block) };
                steps[index] = if matches!(source, Source::Memory(_)) { step } else { 0 };
            }
            let (dst, dst_step) = at(self.output);
            let mut call = Call { dst, src, n: 0 };
            let mut left = part.lanes.len();
            while left > 0 {
                call.n = left.min(tile);
                // SAFETY: the caller vouches for these elements of every access and for the instructions. Operands that
                // are walked over are contiguous, and blocks and constants hold a whole block.
                unsafe { (self.routine)(&call) };
                left -= call.n;
                call.dst = call.dst.wrapping_add(call.n * dst_step);
                for (place, step) in call.src.iter_mut().zip(steps) {
                    place.ptr = place.ptr.wrapping_add(call.n * step);
                }
            }
        }
    }
}

/// A launch of one row that lacks only its pointers.
#[derive(Debug, Clone)]
pub struct PreparedRow {
    routine: Routine,
    /// With the offset of the first element from the pointer.
    sources: [(Source, i64); 3],
    /// The first operand that is the same as this one.
    same_as: [u8; 3],
    /// Bytes of an element of each operand that is walked over.
    sizes: [usize; 3],
    /// The output, and the offset of its first element from the pointer.
    output: (usize, i64),
    output_size: usize,
    n: usize,
    constants: Vec<Line>,
}

impl PreparedRow {
    /// Runs the launch.
    ///
    /// # Safety
    /// As for [`VmProgram::run`](super::Program::run) of the whole launch.
    #[inline]
    pub unsafe fn run(&self, pointers: Pointers<'_>) {
        let mut blocks: [MaybeUninit<SplatBlock>; 3] = [const { MaybeUninit::uninit() }; 3];
        let dst = pointers.outputs[self.output.0].wrapping_offset(self.output.1 as isize);
        // Filled in place, because copies would read it in wider pieces than it is written in, which stalls.
        let mut call = Call { dst, src: [TileOperand { ptr: std::ptr::null_mut(), step: 0 }; 3], n: self.n };
        for (index, block) in blocks.iter_mut().enumerate() {
            let same_as = self.same_as[index] as usize;
            if same_as < index {
                let TileOperand { ptr, step } = call.src[same_as];
                call.src[index] = TileOperand { ptr, step };
                continue;
            }
            let (source, base) = self.sources[index];
            let ptr = source.access().map_or(std::ptr::null_mut(), |access| {
                pointers.operands[access.index()].wrapping_offset(base as isize).cast_mut()
            });
            // SAFETY: the caller vouches for the operands; a block has room for that many elements of any type.
            call.src[index] = unsafe {
                match source {
                    Source::Memory(_) if self.n < BLOCK => padded_block(ptr, self.n, self.sizes[index], block),
                    Source::Memory(_) | Source::Element(..) | Source::Computed(..) | Source::Constant(_) => {
                        place(source, ptr, &self.constants, block)
                    }
                }
            };
        }
        if self.n >= BLOCK {
            // SAFETY: see `Direct::run`.
            return unsafe { (self.routine)(&call) };
        }
        let mut block = MaybeUninit::uninit();
        // SAFETY: every operand is a whole block now, and so is the result; then as many elements are written as the
        // caller vouches for.
        unsafe {
            let whole = padded_block(dst, 0, self.output_size, &mut block);
            (call.dst, call.n) = (whole.ptr, BLOCK);
            (self.routine)(&call);
            copy_bytes(whole.ptr, dst, self.n * self.output_size);
        }
    }
}

/// A block with `n` elements of `size` bytes from `ptr`, padded with zeros, which are values of every type.
///
/// # Safety
/// The elements exist; they are fewer than a block's, and at most as large as the widest.
#[inline(always)]
unsafe fn padded_block(ptr: *const u8, n: usize, size: usize, block: &mut MaybeUninit<SplatBlock>) -> TileOperand {
    let lines = block.as_mut_ptr().cast::<Line>();
    // SAFETY: a block of one-byte elements is one line, and this block has room for the widest; the elements fit.
    unsafe {
        for line in 0..size * BLOCK / Line::BYTES {
            lines.add(line).write(Line::ZERO);
        }
        copy_bytes(ptr, lines.cast(), n * size);
    }
    TileOperand { ptr: lines.cast(), step: BLOCK }
}

/// Copies a few bytes, most often a single element.
///
/// # Safety
/// As for `copy_nonoverlapping`.
#[inline(always)]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: passed on from the caller; constant lengths are copied without a call.
    unsafe {
        match bytes {
            4 => std::ptr::copy_nonoverlapping(from, to, 4),
            8 => std::ptr::copy_nonoverlapping(from, to, 8),
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

/// The operand of a routine that starts at `ptr`, unless it is a constant. A single element fills `block`.
///
/// # Safety
/// The element has the reader's type.
#[inline(always)]
unsafe fn place(source: Source, ptr: *mut u8, constants: &[Line], block: &mut MaybeUninit<SplatBlock>) -> TileOperand {
    match source {
        Source::Memory(_) => TileOperand { ptr, step: BLOCK },
        Source::Constant(at) => {
            TileOperand { ptr: constants.as_ptr().cast::<u8>().wrapping_add(at).cast_mut(), step: 0 }
        }
        Source::Element(reader, _) => {
            let block = block.as_mut_ptr().cast();
            // SAFETY: the caller vouches for the element; a block has room for that many elements of any type.
            unsafe { reader(block, ptr, 0, BLOCK) };
            TileOperand { ptr: block, step: 0 }
        }
        Source::Computed(reader, _, routine) => {
            let mut elements = MaybeUninit::<SplatBlock>::uninit();
            let src = TileOperand { ptr: elements.as_mut_ptr().cast(), step: 0 };
            let dst = block.write([Line::ZERO; BLOCK * size_of::<u64>() / Line::BYTES]).as_mut_ptr().cast();
            // SAFETY: the caller vouches for the element; blocks have room for that many elements of any type. The
            // routine's only operand is the block of elements.
            unsafe {
                reader(src.ptr, ptr, 0, BLOCK);
                routine(&Call { dst, src: [src; 3], n: BLOCK });
            }
            TileOperand { ptr: dst, step: 0 }
        }
    }
}

/// The address of an access at a lane of a row, and the distance of its lanes.
fn at(geometry: &Geometry, pointers: Pointers<'_>, access: AccessId, row: usize, lane: usize) -> (*mut u8, usize) {
    let access = access.index();
    let (pointer, access) = match access.checked_sub(geometry.operands.len()) {
        None => (pointers.operands[access].cast_mut(), &geometry.operands[access]),
        Some(output) => (pointers.outputs[output], &geometry.outputs[output]),
    };
    let step = geometry.lane_stride(access);
    let row = offset(&geometry.rows, &access.rows, row);
    (pointer.wrapping_add((access.base as usize).wrapping_add(row).wrapping_add(lane.wrapping_mul(step))), step)
}
