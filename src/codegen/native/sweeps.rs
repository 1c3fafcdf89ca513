//! A kernel with folds as two without: a sweep over the elements of its rows, and what finishes the rows.
//!
//! With vectors along the rows, every lane has its own partial results. Those are memory, so the sweep is a kernel
//! without folds: it reads a partial result, combines an element with it, and writes it back. The kernel that finishes
//! the rows reads the results of the folds from memory.

use crate::codegen::fold;
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

/// A fold, and the type of its partial results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) struct Folded {
    pub(in crate::codegen) combine: Combine,
    pub(in crate::codegen) ty: Ty,
}

/// A kernel without folds. Its first operands are a partial result per fold.
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
    /// If one sweep is not enough, or a fold is one of indices.
    pub(in crate::codegen) fn new(kernel: &Kernel, classes: &[Class]) -> Result<Sweeps, Reason> {
        let passes = kernel.passes();
        let is_index = |inst: &Inst| matches!(inst.kind, Kind::Fold(Combine::ArgMax | Combine::ArgMin));
        let sweeps_again = |output: &Output| {
            let value = output.value.index();
            kernel.insts[value].level == Level::Full && passes[value] > 0
        };
        let is_single = passes.iter().all(|&pass| pass <= 1) && !kernel.outputs.iter().any(sweeps_again);
        if !is_single || kernel.insts.iter().any(is_index) {
            return Err(TierLimit::VectorsAlongRows.into());
        }
        Ok(Sweeps {
            folds: folds(kernel).map(|(_, fold, _)| fold).collect(),
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

    /// The kernel that combines a second partial result of a fold into a first one.
    pub(in crate::codegen) fn combining(fold: Folded) -> Piece {
        let none = Kernel::default();
        let mut copier = Copier::new(&none, [fold, fold].into_iter(), &[]);
        let value = copier.combined(fold, Reg::new(0), Reg::new(1));
        copier.made.outputs.push(Output { dtype: fold.ty.dtype(), value });
        copier.piece(Vec::new(), &[])
    }
}

/// The folds of a kernel, each with its register and its operand.
fn folds(kernel: &Kernel) -> impl Iterator<Item = (Reg, Folded, Reg)> {
    kernel.insts.iter().enumerate().filter_map(|(index, inst)| match inst.kind {
        Kind::Fold(combine) => Some((Reg::new(index), Folded { combine, ty: inst.ty }, inst.args[0])),
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

/// The kernel that combines `count` elements of each partial result, in order.
fn sweep(kernel: &Kernel, classes: &[Class], start: Start, count: usize) -> Piece {
    let mut copier = Copier::new(kernel, folds(kernel).map(|(_, fold, _)| fold), &[]);
    let mut partials: Vec<Reg> = folds(kernel)
        .enumerate()
        .map(|(nth, (_, fold, _))| match start {
            Start::Identity => copier.lit(Lit { ty: fold.ty, bits: fold::identity(fold.combine, fold.ty) }),
            Start::Partial => Reg::new(nth),
        })
        .collect();
    let mut written = Vec::new();
    for nth in 0..count {
        copier.go_ahead(nth * FOLD_LANES);
        for (partial, (_, fold, value)) in partials.iter_mut().zip(folds(kernel)) {
            let value = copier.copy(value);
            *partial = copier.combined(fold, *partial, value);
        }
        for (slot, output) in outputs(kernel, Level::Full) {
            let value = copier.copy(output.value);
            written.push((Place { slot, ahead: copier.ahead }, Output { dtype: output.dtype, value }));
        }
    }
    let partials = partials.into_iter().zip(folds(kernel));
    copier.made.outputs = partials.map(|(value, (_, fold, _))| Output { dtype: fold.ty.dtype(), value }).collect();
    copier.piece(written, classes)
}

/// The kernel that computes the outputs per row from the results of the folds.
fn finish(kernel: &Kernel, classes: &[Class]) -> Piece {
    let known: Vec<Reg> = folds(kernel).map(|(reg, ..)| reg).collect();
    let mut copier = Copier::new(kernel, folds(kernel).map(|(_, fold, _)| fold), &known);
    let mut output = |(slot, output): (usize, &Output)| {
        (Place { slot, ahead: 0 }, Output { dtype: output.dtype, value: copier.copy(output.value) })
    };
    let written = outputs(kernel, Level::Row).map(&mut output).collect();
    copier.piece(written, classes)
}

/// Copies instructions into a kernel without folds, whose first operands and registers are a value per fold.
struct Copier<'a> {
    kernel: &'a Kernel,
    made: Kernel,
    /// The copy of each instruction.
    copies: Vec<Option<Reg>>,
    operands: Vec<Place>,
    /// How many elements ahead of the first one the copies are.
    ahead: usize,
}

impl<'a> Copier<'a> {
    /// The values of the folds in `known` are the first operands.
    fn new(kernel: &'a Kernel, folds: impl Iterator<Item = Folded>, known: &[Reg]) -> Copier<'a> {
        let memory = |dtype| Operand { dtype, source: Source::Memory };
        let mut made = Kernel::default();
        let mut copies = vec![None; kernel.insts.len()];
        for (nth, fold) in folds.enumerate() {
            made.operands.push(memory(fold.ty.dtype()));
            made.insts.push(full(Kind::Load(nth as u16), SmallVec::new(), fold.ty));
        }
        for (nth, reg) in known.iter().enumerate() {
            copies[reg.index()] = Some(Reg::new(nth));
        }
        Copier { kernel, made, copies, operands: Vec::new(), ahead: 0 }
    }

    /// From here on, copies are those of later elements.
    fn go_ahead(&mut self, elements: usize) {
        self.ahead = elements;
        self.copies.fill(None);
    }

    /// The copy of an instruction and of all that it needs.
    fn copy(&mut self, root: Reg) -> Reg {
        let mut needed = vec![false; root.index() + 1];
        needed[root.index()] = true;
        for index in (0..=root.index()).rev() {
            if needed[index] && self.copies[index].is_none() {
                self.kernel.insts[index].args.iter().for_each(|arg| needed[arg.index()] = true);
            }
        }
        for (index, is_needed) in needed.into_iter().enumerate() {
            if is_needed && self.copies[index].is_none() {
                self.copies[index] = Some(self.copy_one(index));
            }
        }
        self.copied(root)
    }

    fn copied(&self, reg: Reg) -> Reg {
        self.copies[reg.index()].expect("operands precede their users")
    }

    fn copy_one(&mut self, index: usize) -> Reg {
        let inst = &self.kernel.insts[index];
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
        let n_folds = self.made.operands.len() - self.operands.len();
        let known = self.operands.iter().position(|&known| known == place);
        let at = known.unwrap_or_else(|| {
            self.operands.push(place);
            self.made.operands.push(self.kernel.operands[place.slot]);
            self.operands.len() - 1
        });
        (n_folds + at) as u16
    }

    fn lit(&mut self, lit: Lit) -> Reg {
        self.push(Inst { kind: Kind::Lit(lit), args: SmallVec::new(), ty: lit.ty, level: Level::Row })
    }

    fn push(&mut self, inst: Inst) -> Reg {
        self.made.insts.push(inst);
        Reg::new(self.made.insts.len() - 1)
    }

    /// A partial result with a value in it, as [`crate::codegen::fold::FoldOp::combine`] says.
    fn combined(&mut self, fold: Folded, acc: Reg, value: Reg) -> Reg {
        let ty = fold.ty;
        let prim = match fold.combine {
            Combine::Sum => Prim::Add,
            Combine::Prod => Prim::Mul,
            Combine::Max => Prim::Max,
            Combine::Min => Prim::Min,
            Combine::Any => Prim::Or,
            Combine::All => Prim::And,
            Combine::ArgMax | Combine::ArgMin => unreachable!("folds of indices are declined"),
        };
        let either = self.push(full(Kind::Prim(prim), smallvec![acc, value], ty));
        if !(ty.is_float() && matches!(fold.combine, Combine::Max | Combine::Min)) {
            return either;
        }
        let is_nan = self.push(full(Kind::Prim(Prim::Ne), smallvec![acc, acc], Ty::Bool));
        self.push(full(Kind::Prim(Prim::Select), smallvec![is_nan, acc, either], ty))
    }

    /// The kernel, which writes these outputs after the partial results.
    fn piece(mut self, written: Vec<(Place, Output)>, classes: &[Class]) -> Piece {
        let (n_folds, n_partials) = (self.made.operands.len() - self.operands.len(), self.made.outputs.len());
        let (outputs, written): (Vec<Place>, Vec<Output>) = written.into_iter().unzip();
        self.made.outputs.extend(written);
        let n_operands = self.kernel.operands.len();
        let classes = (std::iter::repeat_n(Class::Contiguous, n_folds))
            .chain(self.operands.iter().map(|place| classes[place.slot]))
            .chain(std::iter::repeat_n(Class::Contiguous, n_partials))
            .chain(outputs.iter().map(|place| classes[n_operands + place.slot]))
            .collect();
        Piece { kernel: self.made, classes, operands: self.operands, outputs }
    }
}

fn full(kind: Kind, args: SmallVec<[Reg; 3]>, ty: Ty) -> Inst {
    Inst { kind, args, ty, level: Level::Full }
}
