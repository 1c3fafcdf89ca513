//! How the code of a stage is called for the strips of a launch.

#![allow(unsafe_code, reason = "hands addresses of a launch and of partial results to generated code")]

use super::along_rows::{AlongRows, Compiled, LONG, StageCode};
use super::launch::row_offset;
use super::strip::{Partials, Strip};
use super::sweeps::{Partial, Piece, Place};
use super::{argument, gathers};
use crate::codegen::fold::{self, Step};
use crate::codegen::geometry::{Access, Geometry, offset};
use crate::codegen::kernel::{FOLD_BLOCK, FOLD_LANES};
use crate::codegen::launch::{Faults, Pointers};
use smallvec::SmallVec;
use std::ops::Range;

/// The calls of a stage in a launch.
pub(super) struct StageCalls<'a> {
    strip: &'a Strip<'a>,
    partials: Partials<'a>,
    sweeps: SweepCalls<'a>,
    finish: Option<Calls<'a>>,
}

impl<'a> StageCalls<'a> {
    pub(super) fn new(
        program: &'a AlongRows,
        (nth, stage): (usize, &'a StageCode),
        strip: &'a Strip<'a>,
        geometry: &'a Geometry,
        pointers: Pointers<'_>,
    ) -> StageCalls<'a> {
        let n_inner = geometry.n_inner();
        let partials = Partials::new(&stage.folds, strip, n_inner);
        let calls = |compiled, role| Calls::new(compiled, role, strip, &partials, geometry, pointers);
        let sweep = |compiled| calls(compiled, Role::Sweep);
        let long = program.long(nth, geometry).filter(|_| !stage.folds.is_empty());
        // Most blocks begin and end with a long sweep, if there is one.
        let rest = n_inner % FOLD_BLOCK;
        let starts_short = long.is_none() || (1..LONG).contains(&rest);
        let ends_short = n_inner > FOLD_LANES && (long.is_none() || !rest.is_multiple_of(LONG));
        let next = if ends_short && !stage.folds.is_empty() { program.next(nth) } else { None };
        let sweeps = SweepCalls {
            first: starts_short.then(|| sweep(&stage.first)),
            next: next.map(sweep),
            long: long.map(|long| long.each_ref().map(sweep)),
        };
        let level = fold::levels(n_inner) - 1;
        let finish = stage.finish.as_ref().map(|finish| calls(finish, Role::Finish { level }));
        StageCalls { strip, partials, sweeps, finish }
    }

    /// Runs a strip: some outer positions, and rows of the last row loop.
    ///
    /// # Safety
    /// The strip belongs to the launch, and nothing else uses its outputs and its memory.
    pub(super) unsafe fn run(&mut self, n_inner: usize, outer: &Range<usize>, lanes: &Range<usize>) {
        self.sweeps.all_mut().chain(&mut self.finish).for_each(|calls| calls.move_to(outer, lanes));
        let Some(finish) = &mut self.finish else {
            // SAFETY: passed on from the caller.
            return unsafe { self.sweeps.run_without_folds(n_inner, outer.len()) };
        };
        self.partials.start_levels(n_inner);
        // Merged columns have all outer positions in one call.
        let apart = if self.strip.merged.is_some() { 1 } else { outer.len() };
        fold::steps(n_inner, |step| match step {
            // SAFETY: passed on from the caller.
            Step::Elements(block) => (0..apart).for_each(|nth| unsafe { self.sweeps.run(block.clone(), nth) }),
            Step::Halve { level, half, pairs } => self.partials.halve(level, half, pairs),
            Step::Carry { level, lane } => self.partials.carry(level, lane),
        });
        // SAFETY: passed on from the caller.
        unsafe { finish.call(0..1, 0) };
        for place in &finish.compiled.piece.outputs {
            if let Place::Value(nth) = *place {
                self.strip.repeat(nth, outer.len(), n_inner);
            }
        }
    }

    /// Records what went wrong in the calls.
    pub(super) fn report(&self, faults: &Faults) {
        self.sweeps.all().chain(&self.finish).for_each(|calls| calls.report(faults));
    }
}

/// The sweeps of a launch. Those that no element needs are missing.
struct SweepCalls<'a> {
    first: Option<Calls<'a>>,
    next: Option<Calls<'a>>,
    long: Option<[Calls<'a>; 2]>,
}

impl<'a> SweepCalls<'a> {
    fn all(&self) -> impl Iterator<Item = &Calls<'a>> {
        self.first.iter().chain(&self.next).chain(self.long.iter().flatten())
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Calls<'a>> {
        self.first.iter_mut().chain(&mut self.next).chain(self.long.iter_mut().flatten())
    }

    /// Combines the elements of a block into their partial results, at an outer position of the strip.
    ///
    /// # Safety
    /// As for [`Calls::call`].
    unsafe fn run(&mut self, block: Range<usize>, nth: usize) {
        let mut at = block.start;
        if let Some([first, next]) = &mut self.long {
            while block.end - at >= LONG {
                let calls = if at == block.start { &mut *first } else { &mut *next };
                // SAFETY: passed on from the caller; the sweep goes ahead to as many more elements.
                unsafe { calls.call(at..at + FOLD_LANES, nth) };
                at += LONG;
            }
        }
        for from in (at..block.end).step_by(FOLD_LANES) {
            let calls = if from == block.start { &mut self.first } else { &mut self.next };
            let calls = calls.as_mut().expect("there are the sweeps that the elements need");
            // SAFETY: passed on from the caller.
            unsafe { calls.call(from..block.end.min(from + FOLD_LANES), nth) };
        }
    }

    /// Computes all elements of a stage without folds, at so many outer positions.
    ///
    /// # Safety
    /// As for [`Calls::call`].
    unsafe fn run_without_folds(&mut self, n_inner: usize, n_outer: usize) {
        let Some(calls) = &mut self.first else { return };
        let (step, n_outer) = if calls.columns.is_some() { (FOLD_LANES, 1) } else { (n_inner.max(1), n_outer) };
        for nth in 0..n_outer {
            for from in (0..n_inner).step_by(step) {
                // SAFETY: passed on from the caller.
                unsafe { calls.call(from..n_inner.min(from + step), nth) };
            }
        }
    }
}

/// What a piece does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Sweep,
    /// The results of the folds are those of a level.
    Finish {
        level: usize,
    },
}

/// Calls of a piece's code in a launch. The elements of a fold are its rows, and the rows of a strip are its lanes.
/// What finishes a fold has the outer positions of the strip as rows. So do sweeps whose columns are merged with
/// elements: both are their lanes then.
struct Calls<'a> {
    compiled: &'a Compiled,
    role: Role,
    geometry: &'a Geometry,
    lines: SmallVec<[Line<'a>; 5]>,
    /// The columns that are merged with elements.
    columns: Option<usize>,
    words: SmallVec<[u64; 32]>,
}

/// An access of a piece.
struct Line<'a> {
    /// How the whole kernel accesses it; nothing for the memory of a strip, whose elements repeat after [`FOLD_LANES`].
    access: Option<&'a Access>,
    pointer: u64,
    /// Where the strip's first row and element are.
    start: u64,
    /// From one element to the next in the last inner loop.
    element_stride: u64,
    lane_stride: u64,
    /// From one outer position to the next.
    outer_stride: u64,
}

impl<'a> Line<'a> {
    /// Memory of a strip, with so many rows per element.
    fn of_strip(start: *mut u8, width: usize, bytes: usize) -> Line<'a> {
        let (start, lane_stride, element_stride) = (start as u64, bytes as u64, (width * bytes) as u64);
        let outer_stride = FOLD_LANES as u64 * element_stride;
        Line { access: None, pointer: start, start, element_stride, lane_stride, outer_stride }
    }

    /// An access of the whole kernel, some elements ahead.
    fn of_access(access: &'a Access, pointer: u64, ahead: usize, geometry: &Geometry) -> Line<'a> {
        let element_stride = access.inner.last().copied().unwrap_or(0) as u64;
        let pointer = pointer.wrapping_add(element_stride.wrapping_mul(ahead as u64));
        let outer_stride = access.rows.iter().rev().nth(1).copied().unwrap_or(0) as u64;
        let lane_stride = geometry.lane_stride(access) as u64;
        Line { access: Some(access), pointer, start: 0, element_stride, lane_stride, outer_stride }
    }

    /// A value that a stage keeps: that of a row is the same for all elements.
    fn of_value(strip: &Strip<'_>, nth: usize) -> Line<'a> {
        let (start, bytes) = strip.value(nth);
        let line = Line::of_strip(start, strip.shape.width, bytes);
        match strip.merged {
            Some(_) => line,
            None => Line { element_stride: 0, outer_stride: line.element_stride, ..line },
        }
    }
}

impl<'a> Calls<'a> {
    fn new(
        compiled: &'a Compiled,
        role: Role,
        strip: &Strip<'_>,
        partials: &Partials<'_>,
        geometry: &'a Geometry,
        pointers: Pointers<'_>,
    ) -> Calls<'a> {
        let Compiled { piece, shape, .. } = compiled;
        let level = if let Role::Finish { level } = role { level } else { 0 };
        let own = |(partial, place): (&Partial, *mut u8)| {
            let start = place.wrapping_add(partials.offset(partial, level, 0));
            Line::of_strip(start, strip.shape.width, partial.bytes())
        };
        let n_partials = partials.all().count();
        let operand = |(nth, place): (usize, &Place)| match *place {
            Place::Value(value) => Line::of_value(strip, value),
            Place::Access { slot, ahead } => match strip.copied(slot).filter(|_| role == Role::Sweep) {
                Some((start, bytes)) => Line::of_strip(start, strip.shape.width, bytes),
                None => {
                    let pointer = if shape.iotas[n_partials + nth] { 0 } else { pointers.operands[slot] as u64 };
                    Line::of_access(&geometry.operands[slot], pointer, ahead, geometry)
                }
            },
        };
        let output = |place: &Place| match *place {
            Place::Value(value) => Line::of_value(strip, value),
            Place::Access { slot, ahead } => {
                Line::of_access(&geometry.outputs[slot], pointers.outputs[slot] as u64, ahead, geometry)
            }
        };
        let n_written = piece.kernel.outputs.len() - piece.outputs.len();
        let operands = piece.operands.iter().enumerate().map(operand);
        let written = partials.all().map(own).take(n_written);
        let lines: SmallVec<[Line<'a>; 5]> =
            partials.all().map(own).chain(operands).chain(written).chain(piece.outputs.iter().map(output)).collect();
        let mut words = words(piece, n_partials, &shape.gathers, geometry, lines.len());
        let has_outer_rows = strip.merged.is_some() || role != Role::Sweep;
        for (nth, line) in lines.iter().enumerate() {
            let at = argument::ACCESSES + nth * argument::ACCESS_WORDS;
            words[at + 1] = if has_outer_rows { line.outer_stride } else { line.element_stride };
            words[at + 2] = line.lane_stride;
        }
        Calls { compiled, role, geometry, lines, columns: strip.columns(), words }
    }

    /// Moves to some rows of the last row loop at positions of the outer ones: one, or several of the last outer loop.
    fn move_to(&mut self, outer: &Range<usize>, lanes: &Range<usize>) {
        let outer_loops = &self.geometry.rows[..self.geometry.rows.len() - 1];
        for line in &mut self.lines {
            if let Some(access) = line.access {
                let offset = row_offset(outer_loops, access, outer.start);
                let offset = offset.wrapping_add((lanes.start as u64).wrapping_mul(line.lane_stride));
                line.start = line.pointer.wrapping_add(offset);
            }
        }
        (self.words[argument::ROWS], self.words[argument::INNER]) = (outer.len() as u64, lanes.len() as u64);
    }

    /// Runs some elements, which are at most [`FOLD_LANES`] of one block if the memory of the strip has several. Rows
    /// that are elements are those of an outer position of the strip.
    ///
    /// # Safety
    /// Those elements of the strip's rows, and those that the piece reads ahead of them, belong to the launch. Nothing
    /// else uses its outputs and the memory of the strip.
    unsafe fn call(&mut self, elements: Range<usize>, nth_outer: usize) {
        let sizes = &self.geometry.inner;
        let last = sizes.last().copied().unwrap_or(1).max(1);
        let mut at = elements.start;
        while at < elements.end {
            let run = (last - at % last).min(elements.end - at);
            match (self.role, self.columns) {
                (Role::Sweep, Some(columns)) => self.words[argument::INNER] = (run * columns) as u64,
                (Role::Sweep, None) => self.words[argument::ROWS] = run as u64,
                (Role::Finish { .. }, _) => {}
            }
            for (nth, line) in self.lines.iter().enumerate() {
                let outer = line.outer_stride.wrapping_mul(nth_outer as u64);
                let offset = match line.access {
                    None => ((at % FOLD_LANES) as u64).wrapping_mul(line.element_stride),
                    Some(access) => element_offset(sizes, access, at),
                };
                let start = line.start.wrapping_add(outer).wrapping_add(offset);
                self.words[argument::ACCESSES + nth * argument::ACCESS_WORDS] = start;
            }
            // SAFETY: passed on from the caller: the words describe these elements of the strip's rows.
            unsafe { self.compiled.code.call(&mut self.words) };
            at += run;
        }
    }

    /// Records what went wrong in the calls.
    fn report(&self, faults: &Faults) {
        gathers::record(&self.words[argument::gather(self.lines.len(), self.compiled.shape.gathers.len())..], faults);
    }
}

/// The argument buffer of a piece with so many accesses, in which the sizes of gathered operands are written.
fn words(
    piece: &Piece,
    n_partials: usize,
    gathered: &[usize],
    geometry: &Geometry,
    n_accesses: usize,
) -> SmallVec<[u64; 32]> {
    let (dims, end) = (argument::gather(n_accesses, 0), argument::gather(n_accesses, gathered.len()));
    let mut words = SmallVec::from_elem(0, end + argument::FAULT_WORDS);
    let slot = |&operand: &usize| match piece.operands[operand - n_partials] {
        Place::Access { slot, .. } => slot,
        Place::Value(_) => unreachable!("no stage gathers what another one keeps"),
    };
    gathers::write(&gathered.iter().map(slot).collect::<SmallVec<[usize; 2]>>(), geometry, &mut words[dims..end]);
    words
}

/// The offset of an element from the first one of its row.
fn element_offset(sizes: &[usize], access: &Access, element: usize) -> u64 {
    match access.inner[..] {
        // Most folds have one loop, which takes no divisions.
        [stride] => element.wrapping_mul(stride) as u64,
        _ => offset(sizes, &access.inner, element) as u64,
    }
}
