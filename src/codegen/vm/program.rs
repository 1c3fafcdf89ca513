//! A compiled kernel of this tier, and how it is run.

#![allow(unsafe_code, reason = "a launch hands over raw pointers")]

use super::build::{Keep, build};
use super::copying::Copying;
use super::crosswise::Crosswise;
use super::direct::{Direct, PreparedRow};
use super::gathered::{Gatherable, Gathered, gatherable};
use super::interpreter::Interpreter;
use super::isa::Isa;
use super::merged::Merged;
use super::narrow::Narrow;
use super::nodes::Nodes;
use super::picking::Picking;
use super::plan::{Fold, Plan};
use super::routine::BLOCK;
use crate::codegen::fold::FoldValue;
use crate::codegen::kernel::{Kernel, Level};
use crate::codegen::{Class, FOLD_BLOCK, FOLD_LANES, Faults, Geometry, Lanes, Part, Pointers};
use crate::error::{Reason, TierLimit};
use smallvec::SmallVec;
use std::ops::Range;

/// Scratch bytes that the tiles of one list should fit: they share the first-level cache with operands.
const TILE_BUDGET: usize = 20 << 10;
/// Scratch bytes that partial results per lane should fit: part of a second-level cache. Longer contiguous reads of the
/// rows matter more than fewer partial results.
const PARTIAL_BUDGET: usize = 512 << 10;
/// The largest row buffers per thread; beyond it, values are recomputed.
const BUFFER_LIMIT: usize = 32 << 20;
/// Most lanes of a tile.
const MAX_TILE: usize = 4096;
/// The same for what comes from memory, and without folds: the hardware prefetcher fetches about this much of a stream
/// while a tile is computed.
const MAX_STREAM_TILE: usize = 512;

/// Bytes of several operands of a row that stay in a second-level cache.
const MOST_CACHED: usize = 1 << 20;

/// Rows of the patches that strided memory is walked in. Their lines stay in the caches, even if they map to few sets,
/// until all rows that share them are done.
const PATCH_ROWS: usize = 32;
/// Lanes of these patches.
const PATCH_COLUMNS: usize = 128;

/// A kernel compiled for this tier. It is immutable, and the same for all shapes of its classes.
#[derive(Debug)]
pub struct VmProgram {
    lanes: Lanes,
    n_outputs: usize,
    /// The plan that keeps expensive values in row buffers.
    kept: Plan,
    /// The plan that recomputes them, if it differs.
    recomputing: Option<Plan>,
    /// The routine of the plan, if it has only one.
    direct: Option<Direct>,
    /// The copy that the kernel is.
    copying: Option<Copying>,
    /// The copy of elements at indices that the kernel is.
    picking: Option<Picking>,
    /// The steps of the kernel, if it computes in whole numbers of one or two bytes.
    narrow: Option<Narrow>,
    splits: bool,
    /// Whether memory is strided along the lanes, so that neighbouring rows share cache lines.
    is_strided: bool,
    /// Operands that may be gathered first.
    gatherable: Gatherable,
    /// How operands that jump along the last of several inner loops are staged.
    crosswise: Option<Crosswise>,
}

// Programs are shared between threads.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<VmProgram>();
};

impl VmProgram {
    /// Compiles a verified kernel, for [`Geometry::classes`]. This tier takes every kernel.
    pub fn compile(kernel: &Kernel, lanes: Lanes, classes: &[Class]) -> Result<VmProgram, Reason> {
        VmProgram::compile_for(Isa::best(), kernel, lanes, classes)
    }

    /// Compiles for an instruction set, which this processor must have.
    pub fn compile_for(isa: Isa, kernel: &Kernel, lanes: Lanes, classes: &[Class]) -> Result<VmProgram, Reason> {
        if !isa.is_available() {
            return Err(TierLimit::MissingIsa { isa: format!("{isa:?}").into() }.into());
        }
        debug_assert!(kernel.verify().is_ok(), "kernels are verified before they are compiled");
        let nodes = Nodes::new(isa, kernel, lanes, classes);
        let kept = build(isa, &nodes, Keep::Expensive);
        let recomputing = (!kept.buffers.is_empty()).then(|| build(isa, &nodes, Keep::Nothing));
        let has_row_outputs = kernel.outputs.iter().all(|output| kernel.inst(output.value).level == Level::Row);
        let n_sweeps = kept.passes.iter().filter(|pass| !pass.tile.is_empty()).count();
        let splits = lanes == Lanes::Inner && kernel.has_folds() && has_row_outputs && n_sweeps == 1;
        let splits = splits && !kept.passes[0].folds.is_empty();
        let is_strided = classes.contains(&Class::Strided);
        let direct = Direct::of(&kept).filter(|_| lanes == Lanes::Inner && !is_strided);
        let (n_outputs, gatherable) = (kernel.outputs.len(), gatherable(kernel, lanes, classes));
        let crosswise = Crosswise::of(kernel, lanes).filter(|_| is_strided);
        let copying = Copying::of(isa, kernel, lanes);
        let picking = Picking::of(kernel, lanes);
        let narrow = Narrow::of(isa, kernel, lanes);
        Ok(VmProgram {
            lanes,
            n_outputs,
            kept,
            recomputing,
            direct,
            copying,
            picking,
            narrow,
            splits,
            is_strided,
            gatherable,
            crosswise,
        })
    }

    /// The launch with everything but the pointers precomputed, if it is one routine over one row of few elements.
    pub fn ready(&self, geometry: &Geometry) -> Option<PreparedRow> {
        let direct = self.direct.as_ref().filter(|_| geometry.rows.is_empty())?;
        let &[n] = &geometry.inner[..] else { return None };
        (1..=MAX_STREAM_TILE).contains(&n).then(|| direct.ready(&self.kept, geometry, n))
    }

    /// Whether the blocks of one row may be folded separately: [`VmProgram::fold_blocks`], then
    /// [`VmProgram::finish_row`].
    pub fn splits(&self) -> bool {
        self.splits
    }

    /// The number of folds, each of which has a value per block.
    pub fn n_folds(&self) -> usize {
        self.kept.folds.len()
    }

    /// The number of blocks of a row.
    pub fn n_blocks(geometry: &Geometry) -> usize {
        geometry.n_inner().div_ceil(FOLD_BLOCK).max(1)
    }

    /// Runs one part of a launch.
    ///
    /// # Safety
    /// - `geometry` fits the kernel: its lanes and classes are those the program was compiled for, and it has an access
    ///   per operand and output with a stride per loop.
    /// - Every access at every position of the part (for a gathered operand, at every legal index) is inside live
    ///   memory of its pointer, aligned to its dtype, and initialized if it is an operand.
    /// - Until this returns, nothing else accesses the output elements of the part or writes operand elements, and
    ///   outputs do not overlap each other. If the kernel has no folds and gathers, an output may be in the place of
    ///   operands of its dtype with its strides, unless another output is such an operand unchanged. Otherwise outputs
    ///   overlap no operand.
    pub unsafe fn run(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part, faults: &Faults) {
        debug_assert_eq!((geometry.lanes, geometry.outputs.len()), (self.lanes, self.n_outputs));
        // SAFETY: passed on from the caller.
        if self.copying.as_ref().is_some_and(|copying| unsafe { copying.run(geometry, pointers, part) }) {
            return;
        }
        // SAFETY: passed on from the caller.
        if self.picking.as_ref().is_some_and(|picking| unsafe { picking.run(geometry, pointers, part, faults) }) {
            return;
        }
        // SAFETY: passed on from the caller.
        if self.narrow.as_ref().is_some_and(|narrow| unsafe { narrow.run(geometry, pointers, part) }) {
            return;
        }
        if let Some(direct) = &self.direct {
            // SAFETY: passed on from the caller.
            return unsafe { direct.run(&self.kept, geometry, pointers, part, MAX_STREAM_TILE) };
        }
        if part.outer.is_empty() {
            return;
        }
        if !self.gatherable.is_empty() {
            // SAFETY: passed on from the caller.
            if let Some(packed) = unsafe { Gathered::new(&self.gatherable, geometry, pointers, part) } {
                let pointers = Pointers { operands: packed.operands(), outputs: pointers.outputs };
                // SAFETY: passed on from the caller; copies have the elements of their operands, and outlive the run.
                return unsafe { self.run_part(packed.geometry(), pointers, part, faults) };
            }
        }
        if let Some((crosswise, stretch)) = self.crosswise(geometry) {
            // SAFETY: passed on from the caller.
            return unsafe { self.run_crosswise(crosswise, stretch, geometry, pointers, part, faults) };
        }
        // SAFETY: passed on from the caller.
        unsafe { self.run_part(geometry, pointers, part, faults) }
    }

    /// How the operands of a launch are staged, and the elements of a stretch.
    fn crosswise(&self, geometry: &Geometry) -> Option<(&Crosswise, usize)> {
        let crosswise = self.crosswise.as_ref()?;
        Some((crosswise, crosswise.stretch(geometry)?))
    }

    /// Runs whole rows on copies of stretches of their operands, or of the rows if they are walked several times.
    ///
    /// # Safety
    /// As for [`VmProgram::run`].
    unsafe fn run_crosswise(
        &self,
        crosswise: &Crosswise,
        stretch: usize,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        part: &Part,
        faults: &Faults,
    ) {
        for row in part.outer.clone() {
            let own = Part { outer: row..row + 1, lanes: part.lanes.clone() };
            if self.splits {
                let n_blocks = VmProgram::n_blocks(geometry);
                let mut values = vec![FoldValue { bits: 0, index: 0 }; n_blocks * self.n_folds()];
                let per_stretch = stretch / FOLD_BLOCK;
                for (nth, values) in values.chunks_mut(per_stretch * self.n_folds()).enumerate() {
                    let first = nth * per_stretch;
                    let blocks = first..(first + per_stretch).min(n_blocks);
                    // SAFETY: passed on from the caller.
                    unsafe { self.fold_blocks(geometry, pointers, row, blocks, faults, values) };
                }
                // SAFETY: passed on from the caller.
                unsafe { self.finish_row(geometry, pointers, row, faults, &values) };
                continue;
            }
            // SAFETY: passed on from the caller; the copies have the elements of their operands, and outlive the run.
            unsafe {
                match crosswise.copied(geometry, pointers, row, 0..geometry.n_inner()) {
                    Some(copy) => {
                        let pointers = Pointers { operands: &copy.operands, outputs: pointers.outputs };
                        self.run_part(&copy.geometry, pointers, &own, faults);
                    }
                    None => self.run_part(geometry, pointers, &own, faults),
                }
            }
        }
    }

    /// # Safety
    /// As for [`VmProgram::run`].
    unsafe fn run_part(&self, geometry: &Geometry, pointers: Pointers<'_>, part: &Part, faults: &Faults) {
        let longest = match self.lanes {
            Lanes::Inner => geometry.inner.last().copied().unwrap_or(1),
            Lanes::Rows => geometry.rows.last().copied().unwrap_or(1),
        };
        let (plan, tile) = self.choose(geometry, longest.min(part.lanes.len()));
        let merged = Merged::of(plan, geometry, part).filter(|_| part.lanes.len() <= tile);
        let mut interpreter = Interpreter::new(plan, geometry, pointers, faults, tile, merged);
        match self.lanes {
            Lanes::Inner => {
                let elements = if plan.folds.is_empty() { part.lanes.clone() } else { 0..geometry.n_inner() };
                let (rows, columns) = if self.is_strided && plan.folds.is_empty() {
                    (PATCH_ROWS, PATCH_COLUMNS)
                } else {
                    (usize::MAX, usize::MAX)
                };
                for (rows, columns) in patches(part.outer.clone(), elements, rows, columns) {
                    for row in rows {
                        interpreter.set_row(row, 0);
                        // SAFETY: passed on from the caller; the row belongs to the part.
                        unsafe { interpreter.run_row(1, columns.clone()) };
                    }
                }
            }
            Lanes::Rows => {
                for outer in part.outer.clone() {
                    for lane in part.lanes.clone().step_by(tile) {
                        interpreter.set_row(outer, lane);
                        let lanes = tile.min(part.lanes.end - lane);
                        // SAFETY: as above.
                        unsafe { interpreter.run_row(lanes, 0..geometry.n_inner()) };
                    }
                }
            }
        }
        interpreter.finish();
    }

    /// Folds some blocks of one row. Other threads may fold others. Sets `values[(block - blocks.start) * n_folds +
    /// fold]`.
    ///
    /// # Panics
    /// If the program does not split, or `values` has another length.
    ///
    /// # Safety
    /// As for [`VmProgram::run`]; outputs are not touched.
    pub unsafe fn fold_blocks(
        &self,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        row: usize,
        blocks: Range<usize>,
        faults: &Faults,
        values: &mut [FoldValue],
    ) {
        assert!(self.splits && values.len() == blocks.len() * self.n_folds(), "values are one per block and fold");
        let elements = blocks.start * FOLD_BLOCK..(blocks.end * FOLD_BLOCK).min(geometry.n_inner());
        if let Some((crosswise, _)) = self.crosswise(geometry)
            // SAFETY: passed on from the caller.
            && let Some(copy) = unsafe { crosswise.copied(geometry, pointers, row, elements.clone()) }
        {
            let pointers = Pointers { operands: &copy.operands, outputs: pointers.outputs };
            // SAFETY: passed on from the caller; the copies have these elements, and outlive the fold.
            return unsafe { self.fold_elements(&copy.geometry, pointers, row, elements, faults, values) };
        }
        // SAFETY: passed on from the caller.
        unsafe { self.fold_elements(geometry, pointers, row, elements, faults, values) }
    }

    /// # Safety
    /// As for [`VmProgram::fold_blocks`].
    unsafe fn fold_elements(
        &self,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        row: usize,
        elements: Range<usize>,
        faults: &Faults,
        values: &mut [FoldValue],
    ) {
        let (plan, tile) = self.choose(geometry, geometry.inner.last().copied().unwrap_or(1));
        let mut interpreter = Interpreter::new(plan, geometry, pointers, faults, tile, None);
        interpreter.set_row(row, 0);
        // SAFETY: passed on from the caller; these elements belong to the row.
        unsafe { interpreter.fold_stretch(elements, values) };
        interpreter.finish();
    }

    /// Computes a row's outputs from the values of all its blocks.
    ///
    /// # Panics
    /// If the program does not split.
    ///
    /// # Safety
    /// As for [`VmProgram::run`].
    pub unsafe fn finish_row(
        &self,
        geometry: &Geometry,
        pointers: Pointers<'_>,
        row: usize,
        faults: &Faults,
        values: &[FoldValue],
    ) {
        assert!(self.splits, "only programs that split are finished by row");
        let (plan, tile) = self.choose(geometry, BLOCK);
        let mut interpreter = Interpreter::new(plan, geometry, pointers, faults, tile, None);
        interpreter.set_row(row, 0);
        // SAFETY: passed on from the caller.
        unsafe { interpreter.finish_folds(values) };
        interpreter.finish();
    }

    /// The plan and the tile size for a launch whose vector loop has `lanes` lanes.
    fn choose(&self, geometry: &Geometry, lanes: usize) -> (&Plan, usize) {
        let n_inner = geometry.n_inner();
        let buffered: usize = self.kept.buffers.entities().sum::<usize>() * n_inner;
        let limit = if self.lanes == Lanes::Rows { BUFFER_LIMIT / BLOCK } else { BUFFER_LIMIT };
        let plan = self.recomputing.as_ref().filter(|_| buffered > limit).unwrap_or(&self.kept);
        let mut tile = TILE_BUDGET / plan.tile_bytes.max(4);
        if self.lanes == Lanes::Rows {
            let partials: usize = plan.folds.entities().map(Fold::bytes).sum::<usize>() * n_inner.clamp(1, FOLD_LANES);
            let buffers = plan.buffers.entities().sum::<usize>() * n_inner;
            tile = tile.min(PARTIAL_BUDGET / (partials + buffers).max(1));
        }
        // Powers of two keep tiles aligned with the blocks of a fold.
        let streams = || {
            let strides = geometry.operands.iter().map(|access| geometry.lane_stride(access) as isize);
            let moving: SmallVec<[usize; 8]> = strides.map(isize::unsigned_abs).filter(|&stride| stride > 0).collect();
            moving.len() > 1 && moving.iter().sum::<usize>().saturating_mul(n_inner) > MOST_CACHED
        };
        let is_stream = plan.folds.is_empty() || self.lanes == Lanes::Inner && streams();
        let most = if is_stream { MAX_STREAM_TILE } else { MAX_TILE };
        let tile = 1 << tile.clamp(BLOCK, most).ilog2();
        (plan, lanes.clamp(1, tile).next_multiple_of(BLOCK))
    }
}

/// Cuts rows and columns into patches. The patches of the same rows are consecutive.
fn patches(
    rows: Range<usize>,
    columns: Range<usize>,
    n_rows: usize,
    n_columns: usize,
) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let cut = |range: Range<usize>, size: usize| {
        let end = range.end;
        // An empty range is one empty piece: a fold over nothing has a value.
        let starts = range.clone().step_by(size).chain(range.is_empty().then_some(range.start));
        starts.map(move |start| start..end.min(start.saturating_add(size)))
    };
    cut(rows, n_rows).flat_map(move |rows| cut(columns.clone(), n_columns).map(move |columns| (rows.clone(), columns)))
}

#[cfg(test)]
mod tests {
    use super::super::plan::Line;
    use super::super::scratch::Scratch;
    use super::*;
    use crate::codegen::Access;
    use crate::codegen::kernel::{Inst, Kind, Operand, Output, Source};
    use crate::ir::DType;
    use crate::ir::scalar::{Func, Prim, Reg, Ty};

    const SUBNORMAL: u32 = 1;

    /// `tanh(a) * b * c`, its `tanh`, and more, of three operands whose tiles are filled in three ways.
    fn kernel() -> Kernel {
        let inst = |kind, args: &[usize]| Inst {
            kind,
            args: args.iter().map(|&arg| Reg::new(arg)).collect(),
            ty: Ty::F32,
            level: Level::Full,
        };
        let operand = |dtype| Operand { dtype, source: Source::Memory };
        Kernel {
            operands: vec![operand(DType::F32), operand(DType::F32), operand(DType::F16)],
            insts: vec![
                inst(Kind::Load(0), &[]),
                inst(Kind::Load(1), &[]),
                inst(Kind::Load(2), &[]),
                inst(Kind::Func(Func::Tanh), &[0]),
                inst(Kind::Prim(Prim::Mul), &[3, 1]),
                inst(Kind::Prim(Prim::Mul), &[4, 2]),
                inst(Kind::Func(Func::Tanh), &[5]),
                inst(Kind::Prim(Prim::Mul), &[6, 3]),
                inst(Kind::Func(Func::Tanh), &[7]),
            ],
            outputs: vec![Output { dtype: DType::F32, value: Reg::new(8) }],
        }
    }

    /// Leftovers of an earlier launch in scratch memory are not computed with: they would become subnormal.
    #[test]
    fn what_follows_a_tile_is_like_its_last_element() {
        let kernel = kernel();
        for (n, isa) in [1, 4, 15, 63, 64, 70].into_iter().flat_map(|n| Isa::ALL.map(|isa| (n, isa))) {
            let (a, b, c) = (vec![0.5f32; n], vec![0.25f32; 2 * n], vec![0x3c00u16; n]);
            let mut out = vec![0.0f32; n];
            let access = |stride| Access { inner: [stride].into_iter().collect(), ..Access::default() };
            let geometry = Geometry {
                rows: Default::default(),
                inner: [n].into_iter().collect(),
                operands: vec![access(4), access(8), access(2)],
                outputs: vec![access(4)],
                lanes: Lanes::Inner,
            };
            let classes = geometry.classes(&kernel);
            let Ok(program) = VmProgram::compile_for(isa, &kernel, Lanes::Inner, &classes) else { continue };
            let mut scratch = Scratch::take();
            scratch.reserve(64 << 10);
            let word = u64::from(SUBNORMAL) << 32 | u64::from(SUBNORMAL);
            scratch.memory.fill(Line([word; 8]));
            scratch.keep();
            let operands = [a.as_ptr().cast(), b.as_ptr().cast(), c.as_ptr().cast()];
            let outputs = [out.as_mut_ptr().cast()];
            let (pointers, faults) = (Pointers { operands: &operands, outputs: &outputs }, Faults::new());
            // SAFETY: all hold `n` elements, so far apart as the geometry says.
            unsafe { program.run(&geometry, pointers, &Part { outer: 0..1, lanes: 0..n }, &faults) };
            let scratch = Scratch::take();
            let blocks = program.kept.block_bytes.next_multiple_of(Line::BYTES) / size_of::<u64>();
            let tiles = program.kept.tile_bytes * n.next_multiple_of(BLOCK) / size_of::<u64>();
            let words = scratch.memory.iter().flat_map(|line| line.0).skip(blocks).take(tiles);
            let found =
                words.flat_map(|word| [word as u32, (word >> 32) as u32]).filter(|&bits| bits == SUBNORMAL).count();
            assert_eq!(found, 0, "{isa:?}, {n} elements, in {tiles} words of tiles");
            assert!(tiles > 0 && out.iter().all(|&value| value == out[0] && value > 0.0), "{isa:?}: {out:?}");
        }
    }
}
