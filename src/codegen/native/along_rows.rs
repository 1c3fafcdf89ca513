//! A kernel with folds whose vectors run along the rows: folds over an outer dimension.
//!
//! A strip of rows is swept element by element. The partial results of a strip stay in a near cache: there is one per
//! row and [`FOLD_LANES`] elements, and one more in a fold of indices. [`fold::steps`] is the order.

#![allow(unsafe_code, reason = "hands addresses of a launch and of partial results to generated code")]

use super::code::Code;
use super::launch::{LaunchShape, row_offset, with_scratch};
use super::sweeps::{Folded, Partial, Piece, Sweeps, UNROLLED};
use super::{Compile, Manner, argument, gathers};
use crate::codegen::fold::{self, Step};
use crate::codegen::geometry::{Access, Class, Geometry, Lanes, offset};
use crate::codegen::kernel::{FOLD_LANES, Kernel};
use crate::codegen::launch::{Faults, Part, Pointers};
use crate::codegen::vm::VmProgram;
use crate::error::Reason;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::OnceLock;

/// Bytes of the partial results of a strip of rows.
const PARTIAL_BYTES: usize = 32 << 10;
/// A strip has a multiple of so many rows, which are whole lines of elements of any size.
const STRIP: usize = 64;
/// Most rows of a strip.
const MOST_ROWS: usize = 4096;
/// Words of a cache line, the alignment of partial results.
const LINE_WORDS: usize = 8;
/// Elements of a sweep that combines several of each partial result.
const LONG: usize = UNROLLED * FOLD_LANES;

/// A kernel compiled for one set of access classes.
pub(super) struct AlongRows {
    compile: Compile,
    kernel: Kernel,
    classes: SmallVec<[Class; 8]>,
    folds: Vec<Fold>,
    first: Compiled,
    next: OnceLock<Option<Compiled>>,
    /// The first and the next sweep over many elements.
    long: OnceLock<Option<[Compiled; 2]>>,
    finish: Compiled,
    interpreted: OnceLock<VmProgram>,
}

/// A piece of the kernel as code.
struct Compiled {
    piece: Piece,
    code: Code,
    shape: LaunchShape,
}

/// A fold, and the code that combines some of its partial results into others.
struct Fold {
    partials: SmallVec<[Partial; 2]>,
    combine: Compiled,
}

impl Compiled {
    fn new(compile: Compile, piece: Piece) -> Result<Compiled, Reason> {
        let (code, shape) = compile(&piece.kernel, &piece.classes, Manner::USUAL)?;
        Ok(Compiled { piece, code, shape })
    }
}

/// Bytes of a partial result.
fn bytes_of(partial: &Partial) -> usize {
    partial.ty.dtype().size()
}

impl AlongRows {
    /// Compiles a valid `kernel` with `compile` for accesses of these `classes`, operands first.
    ///
    /// # Errors
    /// The reason why no code is made for it.
    pub(super) fn new(compile: Compile, kernel: &Kernel, classes: &[Class]) -> Result<AlongRows, Reason> {
        let Sweeps { folds, sweep, finish } = Sweeps::new(kernel, classes)?;
        let fold = |folded: Folded| {
            Ok(Fold { partials: folded.partials(), combine: Compiled::new(compile, Sweeps::combining(folded))? })
        };
        Ok(AlongRows {
            compile,
            kernel: kernel.clone(),
            classes: classes.into(),
            folds: folds.into_iter().map(fold).collect::<Result<_, Reason>>()?,
            first: Compiled::new(compile, sweep)?,
            next: OnceLock::new(),
            long: OnceLock::new(),
            finish: Compiled::new(compile, finish)?,
            interpreted: OnceLock::new(),
        })
    }

    /// Bytes of machine code and constants.
    pub(super) fn code_bytes(&self) -> usize {
        let folds = self.folds.iter().map(|fold| &fold.combine);
        folds.chain([&self.first, &self.finish]).map(|compiled| compiled.code.n_bytes()).sum()
    }

    fn next(&self) -> Option<&Compiled> {
        let compile = || Compiled::new(self.compile, Sweeps::next(&self.kernel, &self.classes)).ok();
        self.next.get_or_init(compile).as_ref()
    }

    /// The sweeps over many elements, for a loop in which these are evenly apart.
    fn long(&self, geometry: &Geometry) -> Option<&[Compiled; 2]> {
        let compile = || {
            let [first, next] = Sweeps::unrolled(&self.kernel, &self.classes)?;
            Some([Compiled::new(self.compile, first).ok()?, Compiled::new(self.compile, next).ok()?])
        };
        let is_long = geometry.inner.len() == 1 && geometry.n_inner() >= LONG;
        if is_long { self.long.get_or_init(compile).as_ref() } else { None }
    }

    /// Runs a part of a launch.
    ///
    /// # Safety
    /// As for [`super::NativeProgram::run`].
    pub(super) unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part, faults: &Faults) {
        let next = self.next();
        let (Some(next), false) = (next, gathers::has_empty(geometry)) else {
            let compile = || {
                VmProgram::compile(&self.kernel, Lanes::Rows, &self.classes).expect("the interpreter takes all kernels")
            };
            // SAFETY: passed on from the caller.
            return unsafe { self.interpreted.get_or_init(compile).run(geometry, pointers, part, faults) };
        };
        let n_inner = geometry.n_inner();
        let bytes: usize = self.folds.iter().flat_map(|fold| &fold.partials).map(bytes_of).sum();
        let near = PARTIAL_BYTES / (bytes * n_inner.clamp(1, FOLD_LANES)).max(1);
        let width = near.clamp(STRIP, MOST_ROWS).min(part.lanes.len()).next_multiple_of(STRIP);
        let levels = fold::levels(n_inner);
        let n_partials = levels * FOLD_LANES * width;
        with_scratch(n_partials * bytes / 8 + LINE_WORDS, |scratch| {
            let skipped = scratch.as_ptr().align_offset(8 * LINE_WORDS).min(LINE_WORDS);
            let start = scratch[skipped..].as_mut_ptr();
            let partials = Partials { folds: &self.folds, width, n: n_partials, start };
            let calls = |compiled, level| Calls::new(compiled, &partials, level, geometry, pointers);
            let mut sweeps = SweepCalls {
                first: calls(&self.first, 0),
                next: calls(next, 0),
                long: self.long(geometry).map(|long| long.each_ref().map(|compiled| calls(compiled, 0))),
            };
            let mut finish = calls(&self.finish, levels - 1);
            for outer in part.outer.clone() {
                for start in part.lanes.clone().step_by(width) {
                    let lanes = start..part.lanes.end.min(start + width);
                    sweeps.all().chain([&mut finish]).for_each(|calls| calls.move_to(outer, &lanes));
                    partials.start_levels(n_inner);
                    fold::steps(n_inner, |step| match step {
                        // SAFETY: passed on from the caller; the strip belongs to the part.
                        Step::Elements(block) => unsafe { sweeps.run(block) },
                        Step::Halve { level, half, pairs } => partials.halve(level, half, pairs),
                        Step::Carry { level, lane } => partials.carry(level, lane),
                    });
                    // SAFETY: passed on from the caller.
                    unsafe { finish.call(0..1) };
                }
            }
            sweeps.all().chain([&mut finish]).for_each(|calls| calls.report(faults));
        });
    }
}

/// The partial results of a strip of rows in scratch memory: of each fold, of each level, [`FOLD_LANES`] per row.
struct Partials<'a> {
    folds: &'a [Fold],
    /// The rows from one partial result to the next.
    width: usize,
    /// The partial results of each kind that a fold has.
    n: usize,
    start: *mut u64,
}

impl Partials<'_> {
    /// The partial results of all folds, each with its place for the first level and lane.
    fn all(&self) -> impl Iterator<Item = (&Partial, *mut u8)> {
        let mut at = self.start.cast::<u8>();
        self.folds.iter().flat_map(|fold| &fold.partials).map(move |partial| {
            let place = at;
            at = at.wrapping_add(self.n * bytes_of(partial));
            (partial, place)
        })
    }

    /// The bytes from the first partial result of a kind to one of a level and a lane of the order.
    fn offset(&self, partial: &Partial, level: usize, lane: usize) -> usize {
        (level * FOLD_LANES + lane) * self.width * bytes_of(partial)
    }

    /// Sets the partial results that no sweep writes first to the identity: those of later levels, or those of a fold
    /// over nothing.
    fn start_levels(&self, n_inner: usize) {
        (1..fold::levels(n_inner)).for_each(|level| self.set_identity(level));
        if n_inner == 0 {
            self.set_identity(0);
        }
    }

    fn set_identity(&self, level: usize) {
        let n = FOLD_LANES * self.width;
        for (partial, place) in self.all() {
            let (to, bits) = (place.wrapping_add(self.offset(partial, level, 0)), partial.identity);
            // SAFETY: every level has so many partial results in scratch memory, which is aligned.
            unsafe {
                match bytes_of(partial) {
                    1 => std::slice::from_raw_parts_mut(to, n).fill(bits as u8),
                    4 => std::slice::from_raw_parts_mut(to.cast::<u32>(), n).fill(bits as u32),
                    _ => std::slice::from_raw_parts_mut(to.cast::<u64>(), n).fill(bits),
                }
            }
        }
    }

    /// Combines partial results of a level, from `half` on, into the first ones.
    fn halve(&self, level: usize, half: usize, pairs: usize) {
        self.combine((level, 0), (level, half), pairs);
    }

    /// Combines the result of a level into a partial result of the next one, and restarts that level where a later
    /// block may write fewer of its partial results.
    fn carry(&self, level: usize, lane: usize) {
        self.combine((level + 1, lane), (level, 0), 1);
        if level > 0 {
            self.set_identity(level);
        }
    }

    /// Combines some partial results of each fold, of all rows, into as many others. They are given by level and lane.
    fn combine(&self, to: (usize, usize), from: (usize, usize), count: usize) {
        let mut all = self.all();
        for fold in self.folds {
            let own: SmallVec<[_; 2]> = all.by_ref().take(fold.partials.len()).collect();
            let of = |(level, lane): (usize, usize)| {
                let address = move |(partial, place): &(&Partial, *mut u8)| {
                    (place.wrapping_add(self.offset(partial, level, lane)) as u64, bytes_of(partial) as u64)
                };
                own.iter().map(address)
            };
            let mut words: SmallVec<[u64; 32]> = SmallVec::from_elem(0, argument::gather(3 * own.len(), 0));
            words[argument::ROWS] = 1;
            words[argument::INNER] = (count * self.width) as u64;
            for (access, (address, stride)) in of(to).chain(of(from)).chain(of(to)).enumerate() {
                let at = argument::ACCESSES + access * argument::ACCESS_WORDS;
                (words[at], words[at + 2]) = (address, stride);
            }
            // SAFETY: both are so many partial results in scratch memory, and they do not overlap.
            unsafe { fold.combine.code.call(&mut words) };
        }
    }
}

/// The sweeps of a launch.
struct SweepCalls<'a> {
    first: Calls<'a>,
    next: Calls<'a>,
    long: Option<[Calls<'a>; 2]>,
}

impl<'a> SweepCalls<'a> {
    fn all(&mut self) -> impl Iterator<Item = &mut Calls<'a>> {
        [&mut self.first, &mut self.next].into_iter().chain(self.long.iter_mut().flatten())
    }

    /// Combines the elements of a block into their partial results.
    ///
    /// # Safety
    /// As for [`Calls::call`].
    unsafe fn run(&mut self, block: Range<usize>) {
        let mut at = block.start;
        if let Some([first, next]) = &mut self.long {
            while block.end - at >= LONG {
                let calls = if at == block.start { &mut *first } else { &mut *next };
                // SAFETY: passed on from the caller; the sweep goes ahead to as many more elements.
                unsafe { calls.call(at..at + FOLD_LANES) };
                at += LONG;
            }
        }
        for from in (at..block.end).step_by(FOLD_LANES) {
            let calls = if from == block.start { &mut self.first } else { &mut self.next };
            // SAFETY: passed on from the caller.
            unsafe { calls.call(from..block.end.min(from + FOLD_LANES)) };
        }
    }
}

/// Calls of a piece's code in a launch. The elements of a fold are its rows, and the rows of a strip are its lanes.
struct Calls<'a> {
    compiled: &'a Compiled,
    geometry: &'a Geometry,
    lines: SmallVec<[Line<'a>; 12]>,
    words: SmallVec<[u64; 64]>,
}

/// An access of a piece.
struct Line<'a> {
    /// How the whole kernel accesses it; nothing for partial results.
    access: Option<&'a Access>,
    pointer: u64,
    /// Where the strip's first row and element are.
    start: u64,
    /// From one element to the next in the last inner loop.
    element_stride: u64,
    lane_stride: u64,
}

impl<'a> Calls<'a> {
    fn new(
        compiled: &'a Compiled,
        partials: &Partials<'_>,
        level: usize,
        geometry: &'a Geometry,
        pointers: Pointers<'_>,
    ) -> Calls<'a> {
        let Compiled { piece, shape, .. } = compiled;
        let n_written = piece.kernel.outputs.len() - piece.outputs.len();
        let own = |(partial, place): (&Partial, *mut u8)| {
            let start = place.wrapping_add(partials.offset(partial, level, 0)) as u64;
            let lane_stride = bytes_of(partial) as u64;
            let element_stride = partials.width as u64 * lane_stride;
            Line { access: None, pointer: start, start, element_stride, lane_stride }
        };
        let line = |access: &'a Access, pointer: u64, ahead: usize| {
            let element_stride = access.inner.last().copied().unwrap_or(0) as u64;
            let pointer = pointer.wrapping_add(element_stride.wrapping_mul(ahead as u64));
            let lane_stride = geometry.lane_stride(access) as u64;
            Line { access: Some(access), pointer, start: 0, element_stride, lane_stride }
        };
        let n_partials = partials.all().count();
        let operands = piece.operands.iter().enumerate().map(|(nth, place)| {
            let pointer = if shape.iotas[n_partials + nth] { 0 } else { pointers.operands[place.slot] as u64 };
            line(&geometry.operands[place.slot], pointer, place.ahead)
        });
        let outputs = piece.outputs.iter();
        let outputs =
            outputs.map(|place| line(&geometry.outputs[place.slot], pointers.outputs[place.slot] as u64, place.ahead));
        let folded = || partials.all().map(own);
        let lines: SmallVec<[Line<'a>; 12]> =
            folded().chain(operands).chain(folded().take(n_written)).chain(outputs).collect();
        let (dims, end) = (argument::gather(lines.len(), 0), argument::gather(lines.len(), shape.gathers.len()));
        let mut words = SmallVec::from_elem(0, end + argument::FAULT_WORDS);
        let gathered = shape.gathers.iter().map(|&slot| piece.operands[slot - n_partials].slot);
        gathers::write(&gathered.collect::<SmallVec<[usize; 2]>>(), geometry, &mut words[dims..end]);
        for (nth, line) in lines.iter().enumerate() {
            let at = argument::ACCESSES + nth * argument::ACCESS_WORDS;
            (words[at + 1], words[at + 2]) = (line.element_stride, line.lane_stride);
        }
        Calls { compiled, geometry, lines, words }
    }

    /// Moves to some rows of the last row loop at a position of the outer ones.
    fn move_to(&mut self, outer: usize, lanes: &Range<usize>) {
        let outer_loops = &self.geometry.rows[..self.geometry.rows.len() - 1];
        for line in &mut self.lines {
            if let Some(access) = line.access {
                let offset = row_offset(outer_loops, access, outer);
                let offset = offset.wrapping_add((lanes.start as u64).wrapping_mul(line.lane_stride));
                line.start = line.pointer.wrapping_add(offset);
            }
        }
        self.words[argument::INNER] = lanes.len() as u64;
    }

    /// Runs some elements, which are at most [`FOLD_LANES`] of one block.
    ///
    /// # Safety
    /// Those elements of the strip's rows, and those that the piece reads ahead of them, belong to the launch. Nothing
    /// else uses its outputs and the partial results.
    unsafe fn call(&mut self, elements: Range<usize>) {
        let sizes = &self.geometry.inner;
        let last = sizes.last().copied().unwrap_or(1).max(1);
        let mut at = elements.start;
        while at < elements.end {
            let run = (last - at % last).min(elements.end - at);
            self.words[argument::ROWS] = run as u64;
            for (nth, line) in self.lines.iter().enumerate() {
                let offset = match line.access {
                    None => ((at % FOLD_LANES) as u64).wrapping_mul(line.element_stride),
                    Some(access) => element_offset(sizes, access, at),
                };
                self.words[argument::ACCESSES + nth * argument::ACCESS_WORDS] = line.start.wrapping_add(offset);
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

/// The offset of an element from the first one of its row.
fn element_offset(sizes: &[usize], access: &Access, element: usize) -> u64 {
    match access.inner[..] {
        // Most folds have one loop, which takes no divisions.
        [stride] => element.wrapping_mul(stride) as u64,
        _ => offset(sizes, &access.inner, element) as u64,
    }
}
