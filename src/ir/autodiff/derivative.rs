//! What the derivative column of a row may say, and what its formulas are given.

use super::expr::{Builder, Expr};
use crate::ir::attr::Attr;
use smallvec::SmallVec;

/// The derivative of an op.
#[derive(Clone, Copy)]
pub enum Derivative {
    /// No gradient flows: the result is no function of real numbers.
    None,
    /// The gradient is zero everywhere.
    Zero,
    /// A formula over operands, result and gradient in the dtype that the op computes in; masks stay bools.
    Pointwise(Formula),
    /// A formula over operands, result and gradient as they are.
    Formula(Formula),
    /// That of the ops it decomposes into.
    Parts,
}

/// Builds the gradients of a call. They may have any sizes that the operand's broadcast to, and any dtype: sums over
/// what was broadcast and the conversion to the operand's dtype come behind.
pub type Formula = for<'g, 'a> fn(&Backward<'g, 'a>) -> Gradients<'g>;

/// One gradient per operand; `None`, or an end too early, where none flows.
pub type Gradients<'g> = SmallVec<[Option<Expr<'g>>; 4]>;

/// What a formula starts from.
pub struct Backward<'g, 'a> {
    /// The operands.
    pub args: SmallVec<[Expr<'g>; 4]>,
    /// The other arguments of the call.
    pub attrs: &'a [Attr],
    /// The result.
    pub result: Expr<'g>,
    /// The gradient of the result, which has its sizes.
    pub grad: Expr<'g>,
    /// Which operands need a gradient. Others may be given one; it is dropped.
    pub needs: &'a [bool],
}

impl<'g> Backward<'g, '_> {
    /// The graph that grows.
    pub fn builder(&self) -> &'g Builder {
        self.grad.builder()
    }
}
