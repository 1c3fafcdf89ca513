//! The loop-level form of one fused group: what all code tiers implement.
//!
//! A kernel runs over *rows* (independent, in any order, on any thread) and, inside a row, over the *inner* elements
//! that its folds combine. A register is either `full` (one value per row and inner element) or `row` (one value per
//! row). Registers are in SSA form, operands before users. Sizes and strides are not part of a kernel: it is the
//! same for every shape, and [`super::geometry::Geometry`] says how it is run on one.
//!
//! A kernel without folds has only full registers (literals aside); rows and inner elements are then one space.
//!
//! **Order of a fold.** It depends on the length alone. Up to [`FOLD_BLOCK`] elements, element `i` is combined into
//! partial result `i mod` [`FOLD_LANES`], each starting from the identity. Then the upper half of the partial results
//! is combined into the lower half until one is left. A longer sequence is cut into blocks of `FOLD_BLOCK`, and the
//! sequence of their results is folded the same way. [`super::interp`] is this definition as code.

use crate::error::{Error, Result};
use crate::ir::scalar::{Func, Lit, Prim, Reg, Ty};
use crate::ir::{Combine, DType};
use smallvec::SmallVec;
use std::fmt;

/// Partial results of a fold.
pub const FOLD_LANES: usize = 32;
/// Elements that are folded before the next level starts.
pub const FOLD_BLOCK: usize = 8192;

/// Whether a register has one value per element or one per row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// One value per row.
    Row,
    /// One value per row and inner element.
    Full,
}

/// Where a load finds its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Memory, by strides.
    Memory,
    /// No memory: the value at a position is the operand's base plus position times strides, an i64.
    Iota,
}

/// Something a kernel reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Element type in memory; i64 for an iota.
    pub dtype: DType,
    /// Where the elements are.
    pub source: Source,
}

/// Something a kernel writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Output {
    /// Element type in memory. The value has its computation type and was rounded before.
    pub dtype: DType,
    /// The register that is written.
    pub value: Reg,
}

impl Operand {
    /// The bytes from an element to the next one of a dense row; an iota has units.
    pub(super) fn unit(&self) -> usize {
        if self.source == Source::Iota { 1 } else { self.dtype.size() }
    }
}

/// What an instruction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The element of an operand at this position, widened to its computation type.
    Load(u16),
    /// The element of an operand at this position and, along its gathered dimension, at the index in the argument
    /// (i64). An index outside the dimension is an error of the launch.
    Gather(u16),
    /// A literal.
    Lit(Lit),
    /// A primitive.
    Prim(Prim),
    /// A function that is itself a body of prims.
    Func(Func),
    /// The inner elements of a full register combined into a row value. The two index folds take the value and its
    /// index.
    Fold(Combine),
}

/// One instruction; it defines the register of its position.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Inst {
    /// What it does.
    pub kind: Kind,
    /// Its operands.
    pub args: SmallVec<[Reg; 3]>,
    /// The type of its result.
    pub ty: Ty,
    /// Whether its result is per row.
    pub level: Level,
}

/// One fused group at loop level.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Kernel {
    /// What it reads.
    pub operands: Vec<Operand>,
    /// Its instructions.
    pub insts: Vec<Inst>,
    /// What it writes; a row value is written once per row.
    pub outputs: Vec<Output>,
}

impl Inst {
    /// Roughly how many instructions of a processor it takes.
    pub(super) fn weight(&self) -> usize {
        match self.kind {
            Kind::Func(_) => 16,
            Kind::Load(_) | Kind::Gather(_) | Kind::Lit(_) | Kind::Prim(_) | Kind::Fold(_) => 1,
        }
    }
}

impl Kernel {
    /// Whether it combines inner elements.
    pub fn has_folds(&self) -> bool {
        self.insts.iter().any(|inst| matches!(inst.kind, Kind::Fold(_)))
    }

    /// Whether it loads elements at an index that it computes.
    pub(super) fn has_gathers(&self) -> bool {
        self.insts.iter().any(|inst| matches!(inst.kind, Kind::Gather(_)))
    }

    /// Whether a fold is one of indices, as argmax.
    pub(super) fn folds_indices(&self) -> bool {
        self.insts.iter().any(|inst| matches!(inst.kind, Kind::Fold(combine) if combine.is_index()))
    }

    /// Whether rows are folded in one pass, and every output is a value per row.
    pub(super) fn folds_once(&self) -> bool {
        self.passes().into_iter().max() == Some(1)
            && self.outputs.iter().all(|output| self.inst(output.value).level == Level::Row)
    }

    /// The instructions that a value needs, operands first and its own last. Those that are known are left out, and so
    /// is what only they need.
    pub(super) fn needed_by(&self, root: Reg, is_known: impl Fn(Reg) -> bool) -> Vec<Reg> {
        let mut is_needed = vec![false; root.index() + 1];
        is_needed[root.index()] = true;
        let mut needed = Vec::new();
        for reg in (0..=root.index()).rev().map(Reg::new) {
            if is_needed[reg.index()] && !is_known(reg) {
                self.inst(reg).args.iter().for_each(|arg| is_needed[arg.index()] = true);
                needed.push(reg);
            }
        }
        needed.reverse();
        needed
    }

    /// A primitive that is computed one element at a time, which no tier makes machine code for, if there is one.
    pub(super) fn prim_by_element(&self) -> Option<Prim> {
        self.insts.iter().find_map(|inst| match inst.kind {
            Kind::Prim(prim) if prim.is_by_element() && self.literal_divisor(inst).is_none() => Some(prim),
            Kind::Prim(_) | Kind::Load(_) | Kind::Gather(_) | Kind::Lit(_) | Kind::Func(_) | Kind::Fold(_) => None,
        })
    }

    /// The literal that an instruction divides integers by, if machine code makes a product of the division
    /// ([`super::literal_divisors`]). Its estimates of 64-bit quotients are close enough for divisors up to 2^31.
    pub(super) fn literal_divisor(&self, inst: &Inst) -> Option<i64> {
        let (Kind::Prim(Prim::Quot | Prim::Rem), &[_, by]) = (inst.kind, &inst.args[..]) else { return None };
        let Kind::Lit(literal) = self.inst(by).kind else { return None };
        let value = match inst.ty {
            Ty::I32 => i64::from(literal.as_i32()),
            Ty::I64 => literal.as_i64(),
            Ty::Bool | Ty::F32 | Ty::F64 => return None,
        };
        (2..=1 << 31).contains(&value.unsigned_abs()).then_some(value)
    }

    /// The operands that are read at indices, in order.
    pub(crate) fn gathered(&self) -> SmallVec<[usize; 2]> {
        let slot = |inst: &Inst| match inst.kind {
            Kind::Gather(slot) => Some(slot as usize),
            Kind::Load(_) | Kind::Lit(_) | Kind::Prim(_) | Kind::Func(_) | Kind::Fold(_) => None,
        };
        let mut slots: SmallVec<[usize; 2]> = self.insts.iter().filter_map(slot).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// The operands that are read at indices, each with the operand that its indices are loaded from. None if an index
    /// is computed or used otherwise, or if such an operand is.
    pub(super) fn gathers_by_loads(&self) -> Option<SmallVec<[(usize, usize); 2]>> {
        let mut gathers: SmallVec<[(usize, usize); 2]> = SmallVec::new();
        let mut indices: SmallVec<[Reg; 2]> = SmallVec::new();
        for inst in &self.insts {
            let Kind::Gather(slot) = inst.kind else { continue };
            let Kind::Load(index) = self.inst(inst.args[0]).kind else { return None };
            let (slot, index) = (usize::from(slot), usize::from(index));
            let operand = &self.operands[index];
            if operand.source != Source::Memory || operand.dtype != DType::I64 {
                return None;
            }
            gathers.push((slot, index));
            indices.push(inst.args[0]);
        }
        let is_read_once = |slot: usize| {
            let reads = |inst: &&Inst| inst.kind == Kind::Load(slot as u16) || inst.kind == Kind::Gather(slot as u16);
            self.insts.iter().filter(reads).count() == 1
        };
        let is_value =
            |inst: &Inst| !matches!(inst.kind, Kind::Gather(_)) && inst.args.iter().any(|arg| indices.contains(arg));
        let is_plain = gathers.iter().all(|&(slot, index)| is_read_once(slot) && is_read_once(index))
            && !self.outputs.iter().any(|output| indices.contains(&output.value))
            && !self.insts.iter().any(is_value);
        is_plain.then_some(gathers)
    }

    /// Element types of all operands, then of all outputs.
    pub fn dtypes(&self) -> impl Iterator<Item = DType> {
        self.operands.iter().map(|operand| operand.dtype).chain(self.outputs.iter().map(|output| output.dtype))
    }

    /// The instruction that defines a register.
    pub fn inst(&self, reg: Reg) -> &Inst {
        &self.insts[reg.index()]
    }

    /// The type of a prim on some values.
    ///
    /// # Panics
    /// If the prim does not take their types.
    pub(super) fn result(&self, prim: Prim, args: &[Reg]) -> Ty {
        let tys: SmallVec<[Ty; 3]> = args.iter().map(|&reg| self.inst(reg).ty).collect();
        prim.result(&tys).expect("prims are written for values of the right types")
    }

    /// Per instruction, the pass over the row's elements in which a full value can first be computed, or before which
    /// a row value is known. A fold in pass `p` is known before pass `p + 1`.
    pub fn passes(&self) -> Vec<usize> {
        let mut passes: Vec<usize> = Vec::with_capacity(self.insts.len());
        for inst in &self.insts {
            let ready = inst.args.iter().map(|reg| passes[reg.index()]).max().unwrap_or(0);
            passes.push(if matches!(inst.kind, Kind::Fold(_)) { ready + 1 } else { ready });
        }
        passes
    }

    /// Whether any instruction is a func, i.e. costs far more than its memory traffic.
    pub fn has_funcs(&self) -> bool {
        self.insts.iter().any(|inst| matches!(inst.kind, Kind::Func(_)))
    }

    /// Checks the invariants of the form: operands precede users, types and levels fit, indices exist.
    pub fn verify(&self) -> Result<()> {
        let folds = self.has_folds();
        for (index, inst) in self.insts.iter().enumerate() {
            let bad = |why: &str| Err(Error::invalid("kernel", format!("r{index} = {inst}: {why}")));
            if inst.args.iter().any(|reg| reg.index() >= index) {
                return bad("an operand does not precede its user");
            }
            let tys: SmallVec<[Ty; 3]> = inst.args.iter().map(|&reg| self.inst(reg).ty).collect();
            let widest = inst.args.iter().map(|&reg| self.inst(reg).level).max();
            let operand = |operand: u16| self.operands.get(operand as usize).map(|operand| operand.dtype.compute());
            let (ty, level) = match inst.kind {
                Kind::Load(slot) => (operand(slot).filter(|_| tys.is_empty()), inst.level),
                Kind::Gather(slot) => (operand(slot).filter(|_| tys[..] == [Ty::I64]), inst.level),
                Kind::Lit(lit) => (tys.is_empty().then_some(lit.ty), Level::Row),
                Kind::Prim(prim) => (prim.result(&tys), widest.unwrap_or(Level::Row)),
                Kind::Func(func) => {
                    (tys.first().copied().filter(|_| tys.len() == func.arity()), widest.unwrap_or(Level::Row))
                }
                Kind::Fold(combine) => (fold_type(combine, &tys), Level::Row),
            };
            if ty != Some(inst.ty) {
                return bad("operand or result types do not fit");
            }
            if level != inst.level
                || (!folds && level == Level::Row && !matches!(inst.kind, Kind::Lit(_)) && !inst.args.is_empty())
            {
                return bad("the level does not follow from the operands");
            }
        }
        match self.outputs.iter().find(|output| output.value.index() >= self.insts.len()) {
            Some(output) => Err(Error::invalid("kernel", format!("output {} is not defined", output.value))),
            None => Ok(()),
        }
    }
}

/// The type of a fold's result.
pub fn fold_type(combine: Combine, args: &[Ty]) -> Option<Ty> {
    match (combine, args) {
        (Combine::Sum | Combine::Prod | Combine::Max | Combine::Min, &[ty]) if ty != Ty::Bool => Some(ty),
        (Combine::Any | Combine::All, [Ty::Bool]) => Some(Ty::Bool),
        (Combine::ArgMax | Combine::ArgMin, &[ty, Ty::I64]) if ty != Ty::Bool => Some(Ty::I64),
        (
            Combine::Sum
            | Combine::Prod
            | Combine::Max
            | Combine::Min
            | Combine::Any
            | Combine::All
            | Combine::ArgMax
            | Combine::ArgMin,
            _,
        ) => None,
    }
}

/// The name of a fold in text forms.
pub const fn combine_name(combine: Combine) -> &'static str {
    match combine {
        Combine::Sum => "fold_sum",
        Combine::Prod => "fold_prod",
        Combine::Max => "fold_max",
        Combine::Min => "fold_min",
        Combine::Any => "fold_any",
        Combine::All => "fold_all",
        Combine::ArgMax => "fold_argmax",
        Combine::ArgMin => "fold_argmin",
    }
}

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Load(slot) => write!(f, "load in{slot}")?,
            Kind::Gather(slot) => write!(f, "gather in{slot} at")?,
            Kind::Lit(lit) => write!(f, "{lit}")?,
            Kind::Prim(prim) => f.write_str(prim.name())?,
            Kind::Func(func) => f.write_str(func.name())?,
            Kind::Fold(combine) => f.write_str(combine_name(combine))?,
        }
        for (index, arg) in self.args.iter().enumerate() {
            write!(f, "{} {arg}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kernel {{")?;
        for (slot, operand) in self.operands.iter().enumerate() {
            match operand.source {
                Source::Memory => writeln!(f, "  in{slot}: {}", operand.dtype)?,
                Source::Iota => writeln!(f, "  in{slot}: iota")?,
            }
        }
        for (index, inst) in self.insts.iter().enumerate() {
            let level = if inst.level == Level::Row { " per row" } else { "" };
            writeln!(f, "  r{index}: {}{level} = {inst}", inst.ty)?;
        }
        for (slot, output) in self.outputs.iter().enumerate() {
            writeln!(f, "  out{slot}: {} = {}", output.dtype, output.value)?;
        }
        writeln!(f, "}}")
    }
}
