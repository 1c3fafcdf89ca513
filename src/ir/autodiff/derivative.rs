//! The values of the derivative column, and the arguments of its formulas.

use super::expr::{Builder, Expr};
use crate::ir::attr::Attr;
use smallvec::SmallVec;

/// The derivative of an op.
#[derive(Clone, Copy)]
pub enum Derivative {
    /// Not differentiable.
    None,
    /// The gradient is zero everywhere.
    Zero,
    /// A formula over operands, result and gradient in the dtype of the computation. Masks stay bools.
    Pointwise(Formula),
    /// A formula over operands, result and gradient in their own dtypes.
    Formula(Formula),
    /// The derivative of the op's decomposition.
    Parts,
}

/// Builds the gradients of a call. They may have any dtype, and any sizes that the operand broadcasts to. The caller
/// then sums over broadcast dims and converts to the operand's dtype.
pub type Formula = for<'g, 'a> fn(&Backward<'g, 'a>) -> Gradients<'g>;

/// One gradient per operand. `None` or a missing entry means that none flows.
pub type Gradients<'g> = SmallVec<[Option<Expr<'g>>; 4]>;

/// The arguments of a formula.
pub struct Backward<'g, 'a> {
    /// The operands.
    pub args: SmallVec<[Expr<'g>; 4]>,
    /// The other arguments of the call.
    pub attrs: &'a [Attr],
    /// The result.
    pub result: Expr<'g>,
    /// The gradient of the result, which has its sizes.
    pub grad: Expr<'g>,
    /// Which operands need a gradient. Gradients of others are dropped.
    pub needs: &'a [bool],
}

impl<'g> Backward<'g, '_> {
    /// The builder of the gradient graph.
    pub fn builder(&self) -> &'g Builder {
        self.grad.builder()
    }
}
