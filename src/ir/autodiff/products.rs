//! Gradients of matrix products. Those of `y = a b` are `g bᵀ` and `aᵀ g`.

use super::derivative::{Backward, Gradients};
use super::expr::Expr;
use crate::ir::attrs::{Addmm, Attributes};
use smallvec::smallvec;

/// Of a product, batched or not. If the result is f32 and the operands are 16-bit floats, the gradients are computed in
/// f32 and rounded once.
pub fn matmul<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let dtype = call.args[0].dtype();
    let [a, b] = [call.args[0], call.args[1]].map(|operand| operand.to(call.grad.dtype()));
    let [a, b] = factors(call, a, b).map(|gradient| gradient.to(dtype));
    smallvec![Some(a), Some(b)]
}

/// Of `beta * term + alpha * (a b)`.
pub fn addmm<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let Addmm { beta, alpha } = Addmm::read(call.attrs);
    let [a, b] = factors(call, call.args[1], call.args[2]).map(|gradient| gradient.scaled(alpha));
    smallvec![Some(call.grad.scaled(beta)), Some(a), Some(b)]
}

/// Of an inner product: those of each operand are the other one times the gradient.
pub fn dot<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [a, b] = [call.args[0], call.args[1]].map(|operand| operand.wide());
    let grad = call.grad.wide();
    smallvec![Some(grad * b), Some(grad * a)]
}

/// The gradients of both factors. That of a column-major factor is column-major, too: such a factor is most often a
/// transposed weight, and the gradient of the weight is row-major then. Its sums have the same order either way.
fn factors<'g>(call: &Backward<'g, '_>, a: Expr<'g>, b: Expr<'g>) -> [Expr<'g>; 2] {
    let grad = call.grad;
    let of_a = match a.is_column_major() {
        true => b.matmul(grad.transposed()).transposed(),
        false => grad.matmul(b.transposed()),
    };
    let of_b = match b.is_column_major() {
        true => grad.transposed().matmul(a).transposed(),
        false => a.transposed().matmul(grad),
    };
    [of_a, of_b]
}
