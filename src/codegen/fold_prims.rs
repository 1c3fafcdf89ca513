//! Folds as prims: how two values of a kernel become one.
//!
//! [`super::fold`] is the same on values. What unrolls short folds and what sweeps along rows both write these prims.

use crate::ir::Combine;
use crate::ir::scalar::{Prim, Reg};

/// What writes prims.
pub(super) trait WritePrims {
    /// Writes a prim, whose type follows from its operands.
    fn prim(&mut self, prim: Prim, args: &[Reg]) -> Reg;
    /// Whether a value is a float.
    fn is_float(&self, value: Reg) -> bool;
}

/// Two partial results of a fold of values as one, as [`super::fold::FoldOp::combine`] says.
pub(super) fn combined(writer: &mut impl WritePrims, combine: Combine, acc: Reg, x: Reg) -> Reg {
    let prim = match combine {
        Combine::Sum => Prim::Add,
        Combine::Prod => Prim::Mul,
        Combine::Max => Prim::Max,
        Combine::Min => Prim::Min,
        Combine::Any => Prim::Or,
        Combine::All => Prim::And,
        Combine::ArgMax | Combine::ArgMin => unreachable!("an index fold combines pairs"),
    };
    let either = writer.prim(prim, &[acc, x]);
    if !(writer.is_float(acc) && matches!(combine, Combine::Max | Combine::Min)) {
        return either;
    }
    let is_nan = writer.prim(Prim::Ne, &[acc, acc]);
    writer.prim(Prim::Select, &[is_nan, acc, either])
}

/// Whether a value takes the place of the best one in a fold of indices, as [`super::fold::IndexFold::wins`] says of a
/// value with a higher index: a NaN beats all else, and the first of equal values stays.
pub(super) fn wins(writer: &mut impl WritePrims, combine: Combine, best: Reg, value: Reg) -> Reg {
    let pair = if combine == Combine::ArgMax { [best, value] } else { [value, best] };
    let is_better = writer.prim(Prim::Lt, &pair);
    if !writer.is_float(value) {
        return is_better;
    }
    let is_first_nan = are_nans(writer, value, Prim::Eq, best);
    writer.prim(Prim::Or, &[is_better, is_first_nan])
}

/// The same where the index of the value may be the lower one: then the value wins a tie.
pub(super) fn wins_by_index(
    writer: &mut impl WritePrims,
    combine: Combine,
    [best, best_index]: [Reg; 2],
    [value, index]: [Reg; 2],
) -> Reg {
    let is_better = wins(writer, combine, best, value);
    let is_lower = writer.prim(Prim::Lt, &[index, best_index]);
    let mut is_tie = writer.prim(Prim::Eq, &[value, best]);
    if writer.is_float(value) {
        let both = are_nans(writer, value, Prim::Ne, best);
        is_tie = writer.prim(Prim::Or, &[is_tie, both]);
    }
    let is_earlier = writer.prim(Prim::And, &[is_tie, is_lower]);
    writer.prim(Prim::Or, &[is_better, is_earlier])
}

/// Whether a value is a NaN, and the best one is too ([`Prim::Ne`]) or is not ([`Prim::Eq`]).
fn are_nans(writer: &mut impl WritePrims, value: Reg, of_best: Prim, best: Reg) -> Reg {
    let is_nan = writer.prim(Prim::Ne, &[value, value]);
    let of_best = writer.prim(of_best, &[best, best]);
    writer.prim(Prim::And, &[is_nan, of_best])
}
