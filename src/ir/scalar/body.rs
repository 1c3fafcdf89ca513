//! Bodies: straight lists of scalar instructions.
//!
//! Instruction `i` defines register `ri`. Operands come before users. The text form of a body has one instruction per
//! line. Identical instructions are merged while they are recorded, so a body has no common subexpressions.

use super::func::Func;
use super::prim::{Lit, Prim, Ty};
use crate::error::{Error, Result};
use crate::ir::entity::entity_id;
use smallvec::SmallVec;
use std::fmt;

entity_id! {
    /// The result of an instruction; prints as `r7`.
    pub struct Reg(u32) = "r";
}

/// The operation of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The body's argument of that number.
    Arg(u32),
    /// A literal.
    Lit(Lit),
    /// A primitive.
    Prim(Prim),
    /// A function that is itself a body of prims.
    Func(Func),
}

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Inst {
    /// What it does.
    pub kind: Kind,
    /// Its operands.
    pub args: SmallVec<[Reg; 3]>,
    /// The type of its result.
    pub ty: Ty,
}

/// A straight list of scalar instructions with results.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Body {
    /// The instructions, operands before users.
    pub insts: Vec<Inst>,
    /// The results.
    pub results: SmallVec<[Reg; 2]>,
}

impl Body {
    /// Checks that operands come before users and that every type fits.
    pub fn verify(&self) -> Result<()> {
        for (index, inst) in self.insts.iter().enumerate() {
            let bad = |why: &str| Err(Error::invalid("body", format!("r{index}: {why}")));
            if inst.args.iter().any(|reg| reg.index() >= index) {
                return bad("an operand does not precede its user");
            }
            let tys: SmallVec<[Ty; 3]> = inst.args.iter().map(|reg| self.insts[reg.index()].ty).collect();
            let expected = match inst.kind {
                Kind::Arg(_) => tys.is_empty().then_some(inst.ty),
                Kind::Lit(lit) => tys.is_empty().then_some(lit.ty),
                Kind::Prim(prim) => prim.result(&tys),
                Kind::Func(func) => {
                    (tys.len() == func.arity() && tys.iter().all(|&ty| ty == tys[0] && ty.is_float())).then(|| tys[0])
                }
            };
            if expected != Some(inst.ty) {
                return bad("operand or result types do not fit");
            }
        }
        if self.results.iter().any(|reg| reg.index() >= self.insts.len()) {
            return Err(Error::invalid("body", "a result is not defined"));
        }
        Ok(())
    }

    /// Whether a result depends on the argument of that number.
    pub fn reads(&self, arg: usize) -> bool {
        let mut is_read = vec![false; self.insts.len()];
        self.results.iter().for_each(|reg| is_read[reg.index()] = true);
        (0..self.insts.len()).rev().any(|index| {
            let inst = &self.insts[index];
            if is_read[index] {
                inst.args.iter().for_each(|reg| is_read[reg.index()] = true);
            }
            is_read[index] && inst.kind == Kind::Arg(arg as u32)
        })
    }
}

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Arg(index) => write!(f, "arg {index}")?,
            Kind::Lit(lit) => write!(f, "{lit}")?,
            Kind::Prim(prim) => f.write_str(prim.name())?,
            Kind::Func(func) => f.write_str(func.name())?,
        }
        for (index, arg) in self.args.iter().enumerate() {
            write!(f, "{} {arg}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, inst) in self.insts.iter().enumerate() {
            writeln!(f, "r{index}: {} = {inst}", inst.ty)?;
        }
        write!(f, "return")?;
        for reg in &self.results {
            write!(f, " {reg}")?;
        }
        writeln!(f)
    }
}
