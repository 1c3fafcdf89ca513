//! A kernel with folds as kernels without: sweeps over the elements of its rows, and what finishes the rows.
//!
//! With vectors along the rows, every lane has its own partial results. Those are memory, so a sweep is a kernel
//! without folds: it reads a partial result, combines an element with it, and writes it back. The kernel that finishes
//! the rows reads the results of the folds from memory.
//!
//! Folds that follow others need another sweep, in another stage. A stage keeps the values per row that later ones
//! read: a softmax its maximum in the first, and the sum in the second. The third has no folds and writes the elements.

use crate::codegen::fold;
use crate::codegen::fold_prims::{self, WritePrims};
use crate::codegen::geometry::Class;
use crate::codegen::kernel::{FOLD_LANES, Inst, Kernel, Kind, Level, Operand, Output, Source};
use crate::ir::Combine;
use crate::ir::scalar::{Lit, Prim, Reg, Ty};
use smallvec::{SmallVec, smallvec};

/// The kernels of one with folds.
#[derive(Debug)]
pub(in crate::codegen) struct Sweeps<'a> {
    kernel: &'a Kernel,
    /// The classes of its accesses, operands first.
    classes: &'a [Class],
    passes: Vec<usize>,
    /// What stages keep for later ones.
    values: Vec<Reg>,
}

/// A sweep over all elements, and what finishes its folds.
#[derive(Debug)]
pub(in crate::codegen) struct Stage {
    /// The folds, in the order of their partial results.
    pub(in crate::codegen) folds: Vec<Folded>,
    /// Writes partial results that have one element each, and the outputs per element.
    pub(in crate::codegen) sweep: Piece,
    /// Reads the results of the folds, and writes the values and the outputs per row. A stage without folds has none.
    pub(in crate::codegen) finish: Option<Piece>,
}

/// A fold, and the type of the values that it combines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) struct Folded {
    pub(in crate::codegen) combine: Combine,
    pub(in crate::codegen) ty: Ty,
}

/// A partial result of a fold: its type, and the bits that it starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) struct Partial {
    pub(in crate::codegen) ty: Ty,
    pub(in crate::codegen) identity: u64,
}

impl Folded {
    /// What it keeps: a value, and after it the index of that value in a fold of indices. The last one is its result.
    pub(in crate::codegen) fn partials(self) -> SmallVec<[Partial; 2]> {
        let mut partials = smallvec![Partial { ty: self.ty, identity: fold::identity(self.combine, self.ty) }];
        if self.combine.is_index() {
            partials.push(Partial { ty: Ty::I64, identity: i64::MAX as u64 });
        }
        partials
    }
}

impl Partial {
    /// The bytes of one.
    pub(in crate::codegen) fn bytes(&self) -> usize {
        self.ty.dtype().size()
    }
}

/// A kernel without folds. Its first operands are the partial results of each fold.
#[derive(Debug, Default)]
pub(in crate::codegen) struct Piece {
    pub(in crate::codegen) kernel: Kernel,
    /// The classes of its accesses, operands first.
    pub(in crate::codegen) classes: Vec<Class>,
    /// Its other operands.
    pub(in crate::codegen) operands: Vec<Place>,
    /// Its outputs, after the partial results that a sweep writes.
    pub(in crate::codegen) outputs: Vec<Place>,
}

/// What an operand or output of a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) enum Place {
    /// That of the whole kernel, some elements ahead.
    Access { slot: usize, ahead: usize },
    /// A value per row that a stage keeps for later ones.
    Value(usize),
}

/// Elements of one partial result that a long sweep combines before it writes the partial result back.
pub(in crate::codegen) const UNROLLED: usize = 4;
/// Longer kernels wait for arithmetic, and not for partial results.
const SHORT_CHAIN: usize = 16;

impl<'a> Sweeps<'a> {
    /// Cuts a valid `kernel` with folds whose accesses have these `classes` along the rows.
    pub(in crate::codegen) fn new(kernel: &'a Kernel, classes: &'a [Class]) -> Sweeps<'a> {
        let passes = kernel.passes();
        let values = values(kernel, &passes);
        Sweeps { kernel, classes, passes, values }
    }

    /// All stages.
    pub(in crate::codegen) fn stages(&self) -> impl Iterator<Item = Stage> {
        let folds = folds(self.kernel).map(|fold| self.passes[fold.result.index()]);
        let written = outputs(self.kernel, Level::Full).map(|(_, output)| self.passes[output.value.index()] + 1);
        (0..folds.chain(written).max().unwrap_or(1)).map(|stage| Stage {
            folds: self.folds(stage).map(|fold| fold.folded).collect(),
            sweep: self.sweep(stage, Start::Identity, 1),
            finish: self.finish(stage),
        })
    }

    /// The types of the values that stages keep.
    pub(in crate::codegen) fn values(&self) -> impl Iterator<Item = Ty> {
        self.values.iter().map(|&value| self.kernel.inst(value).ty)
    }

    /// The sweep of a stage over later elements: it adds one to each partial result.
    pub(in crate::codegen) fn next(&self, stage: usize) -> Piece {
        self.sweep(stage, Start::Partial, 1)
    }

    /// The first and the next sweep of those that combine [`UNROLLED`] elements of each partial result, if they are
    /// worth having.
    pub(in crate::codegen) fn unrolled(&self, stage: usize) -> Option<[Piece; 2]> {
        let sweep = |start| self.sweep(stage, start, UNROLLED);
        let is_short = self.kernel.insts.len() <= SHORT_CHAIN && self.folds(stage).next().is_some();
        is_short.then(|| [Start::Identity, Start::Partial].map(sweep))
    }

    /// The kernel that combines second partial results of a fold into the first ones.
    pub(in crate::codegen) fn combining(fold: Folded) -> Piece {
        let none = Kernel::default();
        let mut copier = Copier::new(&none, &[], &[], [fold, fold].into_iter());
        let n = fold.partials().len();
        let acc: Partials = (0..n).map(Reg::new).collect();
        let more: Partials = (n..2 * n).map(Reg::new).collect();
        let combined = copier.combined(fold, &acc, &more, Ties::ByIndex);
        copier.write(fold, &combined);
        copier.piece(Vec::new(), &[])
    }

    /// The folds of a stage.
    fn folds(&self, stage: usize) -> impl Iterator<Item = Fold<'_>> {
        folds(self.kernel).filter(move |fold| self.passes[fold.result.index()] == stage + 1)
    }

    fn copier(&self, stage: usize) -> Copier<'_> {
        let mut copier =
            Copier::new(self.kernel, &self.passes, &self.values, self.folds(stage).map(|fold| fold.folded));
        copier.stage = stage;
        copier
    }

    /// The kernel that combines `count` elements of each partial result, in order.
    fn sweep(&self, stage: usize, start: Start, count: usize) -> Piece {
        let mut copier = self.copier(stage);
        let mut partials: Vec<Partials> = copier.partials.clone();
        let mut written = Vec::new();
        for nth in 0..count {
            copier.go_ahead(nth * FOLD_LANES);
            for (partial, fold) in partials.iter_mut().zip(self.folds(stage)) {
                let values: Partials = fold.args.iter().map(|&arg| copier.copy(arg)).collect();
                let is_first = nth == 0 && start == Start::Identity;
                *partial = match is_first {
                    // The first element beats what a fold of indices starts from, whatever it is.
                    true if fold.folded.combine.is_index() => values,
                    true => {
                        let identity = copier.identity(fold.folded);
                        copier.combined(fold.folded, &identity, &values, Ties::First)
                    }
                    false => copier.combined(fold.folded, partial, &values, Ties::First),
                };
            }
            for (slot, output) in outputs(self.kernel, Level::Full) {
                if self.passes[output.value.index()] == stage {
                    let value = copier.copy(output.value);
                    let place = Place::Access { slot, ahead: copier.ahead };
                    written.push((place, Output { dtype: output.dtype, value }));
                }
            }
        }
        for (partial, fold) in partials.iter().zip(self.folds(stage)) {
            copier.write(fold.folded, partial);
        }
        copier.piece(written, self.classes)
    }

    /// The kernel that computes what a stage keeps, and the outputs per row, from the results of the folds.
    fn finish(&self, stage: usize) -> Option<Piece> {
        let mut copier = self.copier(stage);
        for (nth, fold) in self.folds(stage).enumerate() {
            copier.copies[fold.result.index()] = copier.partials[nth].last().copied();
        }
        copier.partials.first()?;
        let values = self.values.iter().enumerate().map(|(nth, &value)| {
            let dtype = self.kernel.inst(value).ty.dtype();
            (Place::Value(nth), Output { dtype, value })
        });
        let rows = outputs(self.kernel, Level::Row).map(|(slot, &output)| (Place::Access { slot, ahead: 0 }, output));
        // What needs no fold is written with the first ones.
        let is_own = |(_, output): &(Place, Output)| self.passes[output.value.index()].max(1) == stage + 1;
        let written: Vec<(Place, Output)> = values.chain(rows).filter(is_own).collect();
        let copied = |(place, output): (Place, Output)| {
            (place, Output { dtype: output.dtype, value: copier.copy(output.value) })
        };
        let written = written.into_iter().map(copied).collect();
        Some(copier.piece(written, self.classes))
    }
}

/// The values per row that a kernel reads after the stage that folds them: those of elements, and those of rows that
/// need folds of a later stage.
fn values(kernel: &Kernel, passes: &[usize]) -> Vec<Reg> {
    let mut is_value = vec![false; kernel.insts.len()];
    for (inst, &pass) in kernel.insts.iter().zip(passes) {
        let is_swept = inst.level == Level::Full || matches!(inst.kind, Kind::Fold(_));
        for arg in &inst.args {
            let (level, ready) = (kernel.inst(*arg).level, passes[arg.index()]);
            is_value[arg.index()] |= level == Level::Row && ready > 0 && (is_swept || ready < pass);
        }
    }
    (0..is_value.len()).filter(|&index| is_value[index]).map(Reg::new).collect()
}

/// For each operand of a kernel, whether sweeps read it.
pub(in crate::codegen) fn swept_operands(kernel: &Kernel) -> SmallVec<[bool; 8]> {
    let passes = kernel.passes();
    let mut is_swept: Vec<bool> = kernel.insts.iter().map(|inst| inst.level == Level::Full).collect();
    for (index, inst) in kernel.insts.iter().enumerate().rev() {
        // Earlier stages keep what needs a fold.
        if matches!(inst.kind, Kind::Fold(_)) || is_swept[index] && (inst.level == Level::Full || passes[index] == 0) {
            inst.args.iter().for_each(|arg| is_swept[arg.index()] = true);
        }
    }
    let reads =
        |inst: &Inst, slot: usize| matches!(inst.kind, Kind::Load(at) | Kind::Gather(at) if at as usize == slot);
    let swept = |slot: usize| kernel.insts.iter().zip(&is_swept).any(|(inst, &is_swept)| is_swept && reads(inst, slot));
    (0..kernel.operands.len()).map(swept).collect()
}

/// The registers of the partial results of a fold.
type Partials = SmallVec<[Reg; 2]>;

/// A fold of a kernel.
struct Fold<'a> {
    folded: Folded,
    /// The register of its result.
    result: Reg,
    /// The registers that it combines: a value, and its index in a fold of indices.
    args: &'a [Reg],
}

/// The folds of a kernel.
fn folds(kernel: &Kernel) -> impl Iterator<Item = Fold<'_>> {
    kernel.insts.iter().enumerate().filter_map(|(index, inst)| match inst.kind {
        Kind::Fold(combine) => {
            let folded = Folded { combine, ty: kernel.inst(inst.args[0]).ty };
            Some(Fold { folded, result: Reg::new(index), args: &inst.args })
        }
        Kind::Load(_) | Kind::Gather(_) | Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) => None,
    })
}

/// The outputs of a level, with their numbers.
fn outputs(kernel: &Kernel, level: Level) -> impl Iterator<Item = (usize, &Output)> {
    kernel.outputs.iter().enumerate().filter(move |(_, output)| kernel.inst(output.value).level == level)
}

/// What a sweep combines its first element with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// The identity of the fold.
    Identity,
    /// A partial result in memory.
    Partial,
}

/// Which of two equal values a fold of indices keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ties {
    /// That of the partial result: elements arrive in the order of their indices.
    First,
    /// That with the lower index.
    ByIndex,
}

/// Copies instructions into a kernel without folds, whose first operands and registers are the partial results of each
/// fold of a stage.
struct Copier<'a> {
    kernel: &'a Kernel,
    passes: &'a [usize],
    /// What stages keep for later ones.
    values: &'a [Reg],
    stage: usize,
    made: Kernel,
    partials: Vec<Partials>,
    /// The copy of each instruction.
    copies: Vec<Option<Reg>>,
    operands: Vec<Place>,
    /// How many elements ahead of the first one the copies are.
    ahead: usize,
}

impl<'a> Copier<'a> {
    fn new(
        kernel: &'a Kernel,
        passes: &'a [usize],
        values: &'a [Reg],
        folds: impl Iterator<Item = Folded>,
    ) -> Copier<'a> {
        let mut made = Kernel::default();
        let mut load = |partial: Partial| {
            let slot = made.operands.len();
            made.operands.push(Operand { dtype: partial.ty.dtype(), source: Source::Memory });
            made.insts.push(full(Kind::Load(slot as u16), SmallVec::new(), partial.ty));
            Reg::new(slot)
        };
        let partials = folds.map(|fold| fold.partials().into_iter().map(&mut load).collect()).collect();
        let copies = vec![None; kernel.insts.len()];
        Copier { kernel, passes, values, stage: 0, made, partials, copies, operands: Vec::new(), ahead: 0 }
    }

    /// From here on, copies are those of later elements.
    fn go_ahead(&mut self, elements: usize) {
        self.ahead = elements;
        self.copies.fill(None);
    }

    /// The copy of an instruction and of all that it needs.
    fn copy(&mut self, root: Reg) -> Reg {
        self.read_values(root);
        for reg in self.kernel.needed_by(root, |reg| self.copies[reg.index()].is_some()) {
            self.copies[reg.index()] = Some(self.copy_one(reg));
        }
        self.copied(root)
    }

    /// Reads what earlier stages kept for a value.
    fn read_values(&mut self, root: Reg) {
        let is_kept = |reg: Reg| self.kernel.inst(reg).level == Level::Row && self.is_earlier(reg);
        let kept = |reg: Reg| self.values.iter().position(|&value| value == reg).filter(|_| is_kept(reg));
        let is_known = |reg: Reg| self.copies[reg.index()].is_some();
        let mut is_needed = vec![false; root.index() + 1];
        is_needed[root.index()] = true;
        let mut read = Vec::new();
        for reg in (0..=root.index()).rev().map(Reg::new) {
            if !is_needed[reg.index()] || is_known(reg) {
                continue;
            }
            match kept(reg) {
                Some(nth) => read.push((reg, nth)),
                None => self.kernel.inst(reg).args.iter().for_each(|arg| is_needed[arg.index()] = true),
            }
        }
        for (reg, nth) in read {
            let slot = self.operand(Place::Value(nth));
            let ty = self.kernel.inst(reg).ty;
            self.copies[reg.index()] = Some(self.push(full(Kind::Load(slot), SmallVec::new(), ty)));
        }
    }

    /// Whether an earlier stage computes a value.
    fn is_earlier(&self, reg: Reg) -> bool {
        (1..=self.stage).contains(&self.passes[reg.index()])
    }

    fn copied(&self, reg: Reg) -> Reg {
        self.copies[reg.index()].expect("operands precede their users")
    }

    fn copy_one(&mut self, reg: Reg) -> Reg {
        let inst = self.kernel.inst(reg);
        let args: SmallVec<[Reg; 3]> = inst.args.iter().map(|&arg| self.copied(arg)).collect();
        let (ty, kind) = (inst.ty, inst.kind);
        let kind = match kind {
            Kind::Load(slot) => Kind::Load(self.slot(slot)),
            Kind::Gather(slot) => Kind::Gather(self.slot(slot)),
            Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) => kind,
            Kind::Fold(_) => unreachable!("a stage reads the results of earlier folds, and starts with its own"),
        };
        let widest = args.iter().map(|&arg| self.made.inst(arg).level).max();
        let level = match kind {
            Kind::Load(_) | Kind::Gather(_) => Level::Full,
            Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) | Kind::Fold(_) => widest.unwrap_or(Level::Row),
        };
        self.push(Inst { kind, args, ty, level })
    }

    /// The operand of the made kernel for an operand of the whole one.
    fn slot(&mut self, slot: u16) -> u16 {
        self.operand(Place::Access { slot: slot as usize, ahead: self.ahead })
    }

    /// The operand of the made kernel for this place.
    fn operand(&mut self, place: Place) -> u16 {
        let n_partials = self.made.operands.len() - self.operands.len();
        let known = self.operands.iter().position(|&known| known == place);
        let at = known.unwrap_or_else(|| {
            self.operands.push(place);
            self.made.operands.push(match place {
                Place::Access { slot, .. } => self.kernel.operands[slot],
                Place::Value(nth) => {
                    let dtype = self.kernel.inst(self.values[nth]).ty.dtype();
                    Operand { dtype, source: Source::Memory }
                }
            });
            self.operands.len() - 1
        });
        (n_partials + at) as u16
    }

    fn lit(&mut self, lit: Lit) -> Reg {
        self.push(Inst { kind: Kind::Lit(lit), args: SmallVec::new(), ty: lit.ty, level: Level::Row })
    }

    fn push(&mut self, inst: Inst) -> Reg {
        self.made.insts.push(inst);
        Reg::new(self.made.insts.len() - 1)
    }

    /// What the partial results of a fold start from.
    fn identity(&mut self, fold: Folded) -> Partials {
        let lit = |partial: Partial| self.lit(Lit { ty: partial.ty, bits: partial.identity });
        fold.partials().into_iter().map(lit).collect()
    }

    /// Partial results with a value in them.
    fn combined(&mut self, fold: Folded, acc: &[Reg], values: &[Reg], ties: Ties) -> Partials {
        let (&[best, best_index], &[value, index]) = (acc, values) else {
            return smallvec![fold_prims::combined(self, fold.combine, acc[0], values[0])];
        };
        let wins = match ties {
            Ties::First => fold_prims::wins(self, fold.combine, best, value),
            Ties::ByIndex => fold_prims::wins_by_index(self, fold.combine, [best, best_index], [value, index]),
        };
        [(value, best), (index, best_index)].map(|(new, old)| self.prim(Prim::Select, &[wins, new, old])).into()
    }

    /// Writes the partial results of a fold, after those of the folds before it.
    fn write(&mut self, fold: Folded, values: &[Reg]) {
        let output = |(partial, &value): (Partial, &Reg)| Output { dtype: partial.ty.dtype(), value };
        self.made.outputs.extend(fold.partials().into_iter().zip(values).map(output));
    }

    /// The kernel, which writes these outputs after the partial results.
    fn piece(mut self, written: Vec<(Place, Output)>, classes: &[Class]) -> Piece {
        let (n_read, n_written) = (self.made.operands.len() - self.operands.len(), self.made.outputs.len());
        let (outputs, written): (Vec<Place>, Vec<Output>) = written.into_iter().unzip();
        self.made.outputs.extend(written);
        let class = |place: &Place, before: usize| match *place {
            Place::Access { slot, .. } => classes[before + slot],
            Place::Value(_) => Class::Contiguous,
        };
        let classes = (std::iter::repeat_n(Class::Contiguous, n_read))
            .chain(self.operands.iter().map(|place| class(place, 0)))
            .chain(std::iter::repeat_n(Class::Contiguous, n_written))
            .chain(outputs.iter().map(|place| class(place, self.kernel.operands.len())))
            .collect();
        Piece { kernel: self.made, classes, operands: self.operands, outputs }
    }
}

impl WritePrims for Copier<'_> {
    fn prim(&mut self, prim: Prim, args: &[Reg]) -> Reg {
        let ty = self.made.result(prim, args);
        self.push(full(Kind::Prim(prim), args.into(), ty))
    }

    fn is_float(&self, value: Reg) -> bool {
        self.made.inst(value).ty.is_float()
    }
}

fn full(kind: Kind, args: SmallVec<[Reg; 3]>, ty: Ty) -> Inst {
    Inst { kind, args, ty, level: Level::Full }
}
