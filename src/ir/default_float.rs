//! Calls whose meaning depends on the default dtype.
//!
//! Inference knows no default but [`DType::DEFAULT_FLOAT`], and graphs are pure. Where a thread has another default, a
//! call is made explicit before anything records or runs it: integer operands are converted, and an absent dtype is
//! filled in.

use super::attr::{Attr, Attrs};
use super::attrs::{Arange, Attributes, DivMode, Full};
use super::dtype::DType;
use super::op::Op;
use super::row::{Meaning, Rule};
use super::types::TensorType;
use smallvec::SmallVec;

/// A call that does not depend on the default dtype.
pub(crate) struct Explicit {
    /// Which operands are converted to the default dtype first.
    pub(crate) converted: SmallVec<[bool; 4]>,
    /// The other arguments.
    pub(crate) attrs: Attrs,
}

/// The explicit form of a call on operands of these types. `None` if the call does not depend on the default.
pub(crate) fn explicit(op: Op, args: &[&TensorType], attrs: &[Attr], default: DType) -> Option<Explicit> {
    let mask = match op.row().meaning {
        Meaning::Fill => {
            let full = Full::read(attrs);
            let depends = full.dtype.is_none() && full.fill_value.dtype().is_float();
            return depends.then(|| of_attrs(Full { dtype: Some(default), ..full }));
        }
        Meaning::Range => {
            let range = Arange::read(attrs);
            let is_float = [range.start, range.end, range.step].iter().any(|value| value.dtype().is_float());
            let depends = range.dtype.is_none() && is_float;
            return depends.then(|| of_attrs(Arange { dtype: Some(default), ..range }));
        }
        Meaning::Body(rule, _) => {
            if !needs_default(rule, op, args, attrs) {
                return None;
            }
            rule.mask()
        }
        Meaning::Decompose(_) if op == Op::Logsumexp && !args.iter().any(|arg| arg.dtype.is_float()) => None,
        Meaning::Decompose(_)
        | Meaning::Fold(_)
        | Meaning::View(_)
        | Meaning::Window(_)
        | Meaning::Product
        | Meaning::Gather(_)
        | Meaning::Concat
        | Meaning::Overlay
        | Meaning::Routine(_) => return None,
    };
    let is_operand = |index: usize| Some(index) != mask;
    // A choice among numbers alone has no tensor to take its dtype from.
    let numbers = args.iter().enumerate().all(|(index, arg)| !is_operand(index) || arg.number);
    let converted = args.iter().enumerate().map(|(index, arg)| is_operand(index) && (numbers || !arg.number)).collect();
    Some(Explicit { converted, attrs: attrs.into() })
}

fn of_attrs(attrs: impl Into<Attrs>) -> Explicit {
    Explicit { converted: SmallVec::new(), attrs: attrs.into() }
}

/// Whether a pointwise call computes in the default float although no tensor is floating.
fn needs_default(rule: Rule, op: Op, args: &[&TensorType], attrs: &[Attr]) -> bool {
    let promoted = || args.iter().enumerate().filter(|(index, _)| Some(*index) != rule.mask()).map(|(_, arg)| arg);
    let is_whole = promoted().any(|arg| !arg.number) && !promoted().any(|arg| !arg.number && arg.dtype.is_float());
    let has_float_number = || {
        promoted().any(|arg| arg.number && arg.dtype.is_float())
            || rule == Rule::PromoteNumbers
                && attrs.iter().filter_map(Attr::scalar).any(|scalar| scalar.dtype().is_float())
    };
    match rule {
        Rule::PromoteFloat => is_whole,
        Rule::Division => {
            let is_rounded = op == Op::DivMode && DivMode::read(attrs).rounding_mode.is_some();
            is_whole && (!is_rounded || has_float_number())
        }
        Rule::Promote
        | Rule::Factor
        | Rule::PromoteNumbers
        | Rule::PromoteNum
        | Rule::PromoteCounting
        | Rule::FloatOnly
        | Rule::Compare => is_whole && has_float_number(),
        Rule::Where => has_float_number() && !promoted().any(|arg| !arg.number && arg.dtype.is_float()),
        Rule::Integral | Rule::Whole | Rule::Predicate | Rule::Masked | Rule::Cast | Rule::Destination => false,
    }
}
