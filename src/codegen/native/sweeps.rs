//! A kernel with folds as two without: a sweep over the elements of its rows, and what finishes the rows.
//!
//! With vectors along the rows, every lane has its own partial results. Those are memory, so the sweep is a kernel
//! without folds: it reads a partial result, combines an element with it, and writes it back. The kernel that finishes
//! the rows reads the results of the folds from memory.

use crate::codegen::fold;
use crate::codegen::fold_prims::{self, WritePrims};
use crate::codegen::geometry::Class;
use crate::codegen::kernel::{FOLD_LANES, Inst, Kernel, Kind, Level, Operand, Output, Source};
use crate::error::{Reason, TierLimit};
use crate::ir::Combine;
use crate::ir::scalar::{Lit, Prim, Reg, Ty};
use smallvec::{SmallVec, smallvec};

/// The kernels of one with folds.
#[derive(Debug)]
pub(in crate::codegen) struct Sweeps {
    /// The folds, in the order of their partial results.
    pub(in crate::codegen) folds: Vec<Folded>,
    /// Writes partial results that have one element each, and the outputs per element.
    pub(in crate::codegen) sweep: Piece,
    /// Reads the results of the folds, and writes the outputs per row.
    pub(in crate::codegen) finish: Piece,
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

/// An operand or output of the whole kernel, some elements ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) struct Place {
    pub(in crate::codegen) slot: usize,
    pub(in crate::codegen) ahead: usize,
}

/// Elements of one partial result that a long sweep combines before it writes the partial result back.
pub(in crate::codegen) const UNROLLED: usize = 4;
/// Longer kernels wait for arithmetic, and not for partial results.
const SHORT_CHAIN: usize = 16;

impl Sweeps {
    /// Cuts a valid `kernel` with folds whose accesses have these `classes` along the rows.
    ///
    /// # Errors
    /// If one sweep is not enough.
    pub(in crate::codegen) fn new(kernel: &Kernel, classes: &[Class]) -> Result<Sweeps, Reason> {
        let passes = kernel.passes();
        let sweeps_again = |output: &Output| {
            let value = output.value.index();
            kernel.insts[value].level == Level::Full && passes[value] > 0
        };
        let is_single = passes.iter().all(|&pass| pass <= 1) && !kernel.outputs.iter().any(sweeps_again);
        if !is_single {
            return Err(TierLimit::VectorsAlongRows.into());
        }
        Ok(Sweeps {
            folds: folds(kernel).map(|fold| fold.folded).collect(),
            sweep: sweep(kernel, classes, Start::Identity, 1),
            finish: finish(kernel, classes),
        })
    }

    /// The sweep over later elements of a kernel that [`Sweeps::new`] takes: it adds one to each partial result.
    pub(in crate::codegen) fn next(kernel: &Kernel, classes: &[Class]) -> Piece {
        sweep(kernel, classes, Start::Partial, 1)
    }

    /// The first and the next sweep of those that combine [`UNROLLED`] elements of each partial result, if they are
    /// worth having.
    pub(in crate::codegen) fn unrolled(kernel: &Kernel, classes: &[Class]) -> Option<[Piece; 2]> {
        let sweep = |start| sweep(kernel, classes, start, UNROLLED);
        (kernel.insts.len() <= SHORT_CHAIN).then(|| [Start::Identity, Start::Partial].map(sweep))
    }

    /// The kernel that combines second partial results of a fold into the first ones.
    pub(in crate::codegen) fn combining(fold: Folded) -> Piece {
        let none = Kernel::default();
        let mut copier = Copier::new(&none, [fold, fold].into_iter());
        let n = fold.partials().len();
        let acc: Partials = (0..n).map(Reg::new).collect();
        let more: Partials = (n..2 * n).map(Reg::new).collect();
        let combined = copier.combined(fold, &acc, &more, Ties::ByIndex);
        copier.write(fold, &combined);
        copier.piece(Vec::new(), &[])
    }
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

/// The kernel that combines `count` elements of each partial result, in order.
fn sweep(kernel: &Kernel, classes: &[Class], start: Start, count: usize) -> Piece {
    let mut copier = Copier::new(kernel, folds(kernel).map(|fold| fold.folded));
    let mut partials: Vec<Partials> = copier.partials.clone();
    let mut written = Vec::new();
    for nth in 0..count {
        copier.go_ahead(nth * FOLD_LANES);
        for (partial, fold) in partials.iter_mut().zip(folds(kernel)) {
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
        for (slot, output) in outputs(kernel, Level::Full) {
            let value = copier.copy(output.value);
            written.push((Place { slot, ahead: copier.ahead }, Output { dtype: output.dtype, value }));
        }
    }
    for (partial, fold) in partials.iter().zip(folds(kernel)) {
        copier.write(fold.folded, partial);
    }
    copier.piece(written, classes)
}

/// The kernel that computes the outputs per row from the results of the folds.
fn finish(kernel: &Kernel, classes: &[Class]) -> Piece {
    let mut copier = Copier::new(kernel, folds(kernel).map(|fold| fold.folded));
    for (nth, fold) in folds(kernel).enumerate() {
        copier.copies[fold.result.index()] = copier.partials[nth].last().copied();
    }
    let mut output = |(slot, output): (usize, &Output)| {
        (Place { slot, ahead: 0 }, Output { dtype: output.dtype, value: copier.copy(output.value) })
    };
    let written = outputs(kernel, Level::Row).map(&mut output).collect();
    copier.piece(written, classes)
}

/// Copies instructions into a kernel without folds, whose first operands and registers are the partial results of each
/// fold.
struct Copier<'a> {
    kernel: &'a Kernel,
    made: Kernel,
    partials: Vec<Partials>,
    /// The copy of each instruction.
    copies: Vec<Option<Reg>>,
    operands: Vec<Place>,
    /// How many elements ahead of the first one the copies are.
    ahead: usize,
}

impl<'a> Copier<'a> {
    fn new(kernel: &'a Kernel, folds: impl Iterator<Item = Folded>) -> Copier<'a> {
        let mut made = Kernel::default();
        let mut load = |partial: Partial| {
            let slot = made.operands.len();
            made.operands.push(Operand { dtype: partial.ty.dtype(), source: Source::Memory });
            made.insts.push(full(Kind::Load(slot as u16), SmallVec::new(), partial.ty));
            Reg::new(slot)
        };
        let partials = folds.map(|fold| fold.partials().into_iter().map(&mut load).collect()).collect();
        let copies = vec![None; kernel.insts.len()];
        Copier { kernel, made, partials, copies, operands: Vec::new(), ahead: 0 }
    }

    /// From here on, copies are those of later elements.
    fn go_ahead(&mut self, elements: usize) {
        self.ahead = elements;
        self.copies.fill(None);
    }

    /// The copy of an instruction and of all that it needs.
    fn copy(&mut self, root: Reg) -> Reg {
        for reg in self.kernel.needed_by(root, |reg| self.copies[reg.index()].is_some()) {
            self.copies[reg.index()] = Some(self.copy_one(reg));
        }
        self.copied(root)
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
            Kind::Fold(_) => unreachable!("folds do not follow each other in one sweep"),
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
        let place = Place { slot: slot as usize, ahead: self.ahead };
        let n_partials = self.made.operands.len() - self.operands.len();
        let known = self.operands.iter().position(|&known| known == place);
        let at = known.unwrap_or_else(|| {
            self.operands.push(place);
            self.made.operands.push(self.kernel.operands[place.slot]);
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
        let n_operands = self.kernel.operands.len();
        let classes = (std::iter::repeat_n(Class::Contiguous, n_read))
            .chain(self.operands.iter().map(|place| classes[place.slot]))
            .chain(std::iter::repeat_n(Class::Contiguous, n_written))
            .chain(outputs.iter().map(|place| classes[n_operands + place.slot]))
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
