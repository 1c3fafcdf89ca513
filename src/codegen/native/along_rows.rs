//! A kernel with folds whose vectors run along the rows: folds over an outer dimension.
//!
//! A [`strip`](super::strip) of rows is swept element by element, once per stage, by calls of [`strip_calls`]. Few
//! columns are merged with the elements: see [`merged_rows`](super::merged_rows).
//!
//! [`strip_calls`]: super::strip_calls

#![allow(unsafe_code, reason = "hands addresses of a launch and of partial results to generated code")]

use super::code::Code;
use super::launch::{LaunchShape, with_scratch};
use super::merged_rows::Merged;
use super::strip::{Shape, Strip};
use super::strip_calls::StageCalls;
use super::sweeps::{Folded, Partial, Piece, Stage, Sweeps, UNROLLED, swept_operands};
use super::{Compile, Manner, gathers};
use crate::codegen::geometry::{CACHE_LINE, Class, Geometry, Lanes};
use crate::codegen::kernel::{FOLD_LANES, Kernel};
use crate::codegen::launch::{Faults, Part, Pointers};
use crate::codegen::vm::VmProgram;
use crate::error::Reason;
use crate::ir::scalar::Ty;
use smallvec::SmallVec;
use std::sync::OnceLock;

/// Elements of a sweep that combines several of each partial result.
pub(super) const LONG: usize = UNROLLED * FOLD_LANES;

/// A kernel compiled for one set of access classes.
pub(super) struct AlongRows {
    compile: Compile,
    kernel: Kernel,
    classes: SmallVec<[Class; 8]>,
    stages: Vec<StageCode>,
    /// The types of what stages keep for later ones.
    values: SmallVec<[Ty; 4]>,
    /// The operands that sweeps read.
    swept: SmallVec<[bool; 8]>,
    interpreted: OnceLock<VmProgram>,
}

/// The code of a stage.
pub(super) struct StageCode {
    pub(super) folds: Vec<Fold>,
    pub(super) first: Compiled,
    /// The sweep over later elements; a stage without folds has none.
    next: OnceLock<Option<Compiled>>,
    /// The first and the next sweep over many elements.
    long: OnceLock<Option<[Compiled; 2]>>,
    pub(super) finish: Option<Compiled>,
}

/// A piece of the kernel as code.
pub(super) struct Compiled {
    pub(super) piece: Piece,
    pub(super) code: Code,
    pub(super) shape: LaunchShape,
}

/// A fold, and the code that combines some of its partial results into others.
pub(super) struct Fold {
    pub(super) partials: SmallVec<[Partial; 2]>,
    pub(super) combine: Compiled,
}

impl Compiled {
    fn new(compile: Compile, piece: Piece) -> Result<Compiled, Reason> {
        let (code, shape) = compile(&piece.kernel, &piece.classes, Manner::USUAL)?;
        Ok(Compiled { piece, code, shape })
    }
}

impl StageCode {
    fn new(compile: Compile, stage: Stage) -> Result<StageCode, Reason> {
        let fold = |folded: Folded| {
            Ok(Fold { partials: folded.partials(), combine: Compiled::new(compile, Sweeps::combining(folded))? })
        };
        Ok(StageCode {
            folds: stage.folds.into_iter().map(fold).collect::<Result<_, Reason>>()?,
            first: Compiled::new(compile, stage.sweep)?,
            next: OnceLock::new(),
            long: OnceLock::new(),
            finish: stage.finish.map(|finish| Compiled::new(compile, finish)).transpose()?,
        })
    }

    /// Bytes of the partial results of a row and lane.
    fn partial_bytes(&self) -> usize {
        self.folds.iter().flat_map(|fold| &fold.partials).map(|partial| partial.bytes()).sum()
    }
}

impl AlongRows {
    /// Compiles a valid `kernel` with `compile` for accesses of these `classes`, operands first.
    ///
    /// # Errors
    /// The reason why no code is made for it.
    pub(super) fn new(compile: Compile, kernel: &Kernel, classes: &[Class]) -> Result<AlongRows, Reason> {
        let sweeps = Sweeps::new(kernel, classes);
        let stages = sweeps.stages().map(|stage| StageCode::new(compile, stage)).collect::<Result<_, Reason>>()?;
        let values = sweeps.values().collect();
        let (swept, kernel, classes) = (swept_operands(kernel), kernel.clone(), classes.into());
        Ok(AlongRows { compile, kernel, classes, stages, values, swept, interpreted: OnceLock::new() })
    }

    /// Bytes of machine code and constants.
    pub(super) fn code_bytes(&self) -> usize {
        let of = |stage: &StageCode| {
            let combines = stage.folds.iter().map(|fold| fold.combine.code.n_bytes()).sum::<usize>();
            let finish = stage.finish.as_ref().map_or(0, |finish| finish.code.n_bytes());
            combines + stage.first.code.n_bytes() + finish
        };
        self.stages.iter().map(of).sum()
    }

    /// The sweep of a stage over later elements.
    pub(super) fn next(&self, stage: usize) -> Option<&Compiled> {
        let sweeps = || Sweeps::new(&self.kernel, &self.classes);
        self.stages[stage].next.get_or_init(|| Compiled::new(self.compile, sweeps().next(stage)).ok()).as_ref()
    }

    /// The sweeps of a stage over many elements, for a loop in which these are evenly apart.
    pub(super) fn long(&self, stage: usize, geometry: &Geometry) -> Option<&[Compiled; 2]> {
        let compile = || {
            let [first, next] = Sweeps::new(&self.kernel, &self.classes).unrolled(stage)?;
            Some([Compiled::new(self.compile, first).ok()?, Compiled::new(self.compile, next).ok()?])
        };
        let is_long = geometry.inner.len() == 1 && geometry.n_inner() >= LONG;
        if is_long { self.stages[stage].long.get_or_init(compile).as_ref() } else { None }
    }

    /// Runs a part of a launch.
    ///
    /// # Safety
    /// As for [`super::NativeProgram::run`].
    pub(super) unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part, faults: &Faults) {
        let has_next = |stage: usize| self.stages[stage].folds.is_empty() || self.next(stage).is_some();
        if gathers::has_empty(geometry) || !(0..self.stages.len()).all(has_next) {
            let compile = || {
                VmProgram::compile(&self.kernel, Lanes::Rows, &self.classes).expect("the interpreter takes all kernels")
            };
            // SAFETY: passed on from the caller.
            return unsafe { self.interpreted.get_or_init(compile).run(geometry, pointers, part, faults) };
        }
        let n_inner = geometry.n_inner();
        let merged = Merged::of(&self.kernel, &self.swept, geometry).filter(|merged| part.lanes == (0..merged.columns));
        let bytes = self.stages.iter().map(StageCode::partial_bytes).max().unwrap_or(0);
        let shape = Shape::new(&self.kernel, geometry, part, merged.as_ref(), (self.stages.len(), bytes));
        let n_words = shape.words(&self.values, merged.as_ref());
        with_scratch(n_words + CACHE_LINE / 8, |scratch| {
            let skipped = scratch.as_ptr().align_offset(CACHE_LINE).min(CACHE_LINE / 8);
            let start = scratch[skipped..].as_mut_ptr().cast::<u8>();
            let strip = Strip { shape, values: &self.values, merged: merged.as_ref(), start };
            let calls = |(nth, stage)| StageCalls::new(self, (nth, stage), &strip, geometry, pointers);
            let mut stages: SmallVec<[StageCalls<'_>; 1]> = self.stages.iter().enumerate().map(calls).collect();
            let last = geometry.rows.iter().rev().nth(1).copied().unwrap_or(1);
            let mut at = part.outer.start;
            while at < part.outer.end {
                let outer = at..part.outer.end.min(at + shape.rows).min(at + last - at % last);
                at = outer.end;
                for start in part.lanes.clone().step_by(shape.width) {
                    let lanes = start..part.lanes.end.min(start + shape.width);
                    // SAFETY: passed on from the caller; the strip belongs to the part.
                    unsafe {
                        strip.copy(geometry, pointers, &outer);
                        stages.iter_mut().for_each(|stage| stage.run(n_inner, &outer, &lanes));
                    }
                }
            }
            stages.iter().for_each(|stage| stage.report(faults));
        });
    }
}
