//! Gradients of solutions, inverses, determinants and functions of matrices.
//!
//! `X̄` is the gradient of `X`. Formulas are those of M. Giles, An extended collection of matrix derivative results for
//! forward and reverse mode automatic differentiation (2008), unless another source is named. Rows that return a
//! transposed result are called as they are, so some formulas read transposed too.
//!
//! A batch of any rank is one dim here.

use super::derivative::{Backward, Gradients};
use super::expr::Expr;
use crate::ir::attr::Attrs;
use crate::ir::attrs::*;
use crate::ir::op::Op;
use crate::ir::shape::numel;
use smallvec::smallvec;

/// The matrices of a batch as a tensor of three dims.
pub(super) fn batch<'g>(x: Expr<'g>) -> Expr<'g> {
    match &x.sizes()[..] {
        [batch @ .., rows, columns] => x.reshape(&[numel(batch), *rows, *columns]),
        _ => x,
    }
}

/// One number per matrix, as a tensor of three dims.
fn numbers<'g>(x: Expr<'g>) -> Expr<'g> {
    x.reshape(&[numel(&x.sizes()), 1, 1])
}

pub(super) fn tril<'g>(x: Expr<'g>, diagonal: i64) -> Expr<'g> {
    x.call(Op::Tril, &[], Triangle { diagonal }.into())
}

pub(super) fn triu<'g>(x: Expr<'g>, diagonal: i64) -> Expr<'g> {
    x.call(Op::Triu, &[], Triangle { diagonal }.into())
}

/// `(A⁻¹ B)ᵀ` for a triangular `A`.
pub(super) fn triangular<'g>(a: Expr<'g>, b: Expr<'g>, upper: bool, unitriangular: bool) -> Expr<'g> {
    a.call(Op::SolveTriangular, &[b], SolveTriangular { upper, unitriangular }.into())
}

/// Of `Lᵀ` for `A = L Lᵀ`, or of `Uᵀ` for `A = Uᵀ U`. With `P` the lower triangle of `Lᵀ L̄` and half of its diagonal,
/// it is the symmetric part of `L⁻ᵀ P L⁻¹` (I. Murray, Differentiation of the Cholesky decomposition, 2016, eq. 9).
pub fn cholesky<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let CholeskyFactor { upper, .. } = CholeskyFactor::read(call.attrs);
    let [result, grad] = [call.result, call.grad].map(batch);
    let [l, grad] = if upper { [result, grad] } else { [result.transposed(), grad.transposed()] };
    let product = tril(l.transposed().matmul(grad), 0);
    let symmetric = (product + triu(product.transposed(), 1)) * 0.5;
    let half = triangular(l.transposed(), symmetric, true, false);
    let whole = triangular(l.transposed(), half, true, false);
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// Of `Xᵀ` for `A X = B` with a triangular `A`: `B̄ = A⁻ᵀ X̄`, and `Ā` is the triangle of `-B̄ Xᵀ`.
pub fn solve_triangular<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let SolveTriangular { upper, unitriangular } = SolveTriangular::read(call.attrs);
    let [a, grad] = [call.args[0], call.grad].map(batch);
    let right = triangular(a.transposed(), grad.transposed(), !upper, unitriangular).transposed();
    let left = -right.matmul(batch(call.result));
    let from = i64::from(unitriangular);
    let left = if upper { triu(left, from) } else { tril(left, -from) };
    smallvec![Some(left.reshape(&call.args[0].sizes())), Some(right.reshape(&call.args[1].sizes()))]
}

/// Of `Xᵀ` for `A X = B`: `B̄ = A⁻ᵀ X̄` and `Ā = -B̄ Xᵀ`.
pub fn solve<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [a, grad] = [call.args[0], call.grad].map(batch);
    let right = a.transposed().call(Op::Solve, &[grad.transposed()], unchecked()).transposed();
    let left = -right.matmul(batch(call.result));
    smallvec![Some(left.reshape(&call.args[0].sizes())), Some(right.reshape(&call.args[1].sizes()))]
}

/// Of `Y = A⁻ᵀ`: `Ā = -Y Ȳᵀ Y`.
pub fn inverse<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [y, grad] = [call.result, call.grad].map(batch);
    smallvec![Some((-y.matmul(grad.transposed()).matmul(y)).reshape(&call.args[0].sizes()))]
}

/// Of the determinant: its cofactors.
pub fn determinant<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let cofactors = batch(call.args[0]).call(Op::Cofactors, &[], Attrs::new());
    smallvec![Some((numbers(call.grad) * cofactors).reshape(&call.args[0].sizes()))]
}

/// Of the cofactors `C = det(A) Y` with `Y = A⁻ᵀ`: `Ā = det(A) (<C̄, Y> Y - Y C̄ᵀ Y)`. A singular matrix has none.
pub fn cofactors<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [a, grad] = [call.args[0], call.grad].map(batch);
    let det = numbers(a.call(Op::Determinant, &[], Attrs::new()));
    let y = a.call(Op::Inverse, &[], unchecked());
    let along = numbers((grad * y).sum(&[1, 2], false)) * y;
    smallvec![Some((det * (along - y.matmul(grad.transposed()).matmul(y))).reshape(&call.args[0].sizes()))]
}

/// Of the sign and the logarithm of the determinant: `A⁻ᵀ` times the gradient of the latter.
pub fn log_determinant<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let grad = call.grad.call(Op::Select, &[], Select { dim: -1, index: 1 }.into());
    let inverse = batch(call.args[0]).call(Op::Inverse, &[], unchecked());
    smallvec![Some((numbers(grad) * inverse).reshape(&call.args[0].sizes()))]
}

/// Of `Eᵀ` for `E = exp(A)`: the upper right block of `exp([[Aᵀ, Ē], [0, Aᵀ]])` (R. Mathias, A chain rule for matrix
/// functions and applications, 1996, theorem 2.1).
pub fn exponential<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [a, grad] = [call.args[0], call.grad].map(|x| batch(x).transposed());
    let order = a.sizes()[2] as i64;
    let cat = |first: Expr<'g>, second: Expr<'g>, dim: i64| first.call(Op::Cat, &[second], Along { dim }.into());
    let block = cat(cat(a, grad, 2), cat(a.zeros(), a, 2), 1);
    // Transposed, so it is the lower left one.
    let whole = block.call(Op::MatrixExponential, &[], Attrs::new());
    let part = |x: Expr<'g>, dim: i64, start: i64| {
        let attrs = Slice { dim, start: Some(start), end: Some(start + order), step: 1 };
        x.call(Op::Slice, &[], attrs.into())
    };
    let corner = part(part(whole, 1, order), 2, 0).transposed();
    smallvec![Some(corner.reshape(&call.args[0].sizes()))]
}

/// Of `R = Pᵀ` for the pseudoinverse `P`, with `K = R̄ P`: `Ā = -Kᵀ R + (I - A P) K R + R Rᵀ (R̄ - K A)` (G. Golub and
/// V. Pereyra, The differentiation of pseudo-inverses, 1973, eq. 4.12, where the rank is constant).
pub fn pseudoinverse<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [a, r, grad] = [call.args[0], call.result, call.grad].map(batch);
    let p = r.transposed();
    let k = grad.matmul(p);
    let kr = k.matmul(r);
    let first = kr - k.transposed().matmul(r) - a.matmul(p.matmul(kr));
    let whole = first + r.matmul(p.matmul(grad - k.matmul(a)));
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// The argument of a solution that is not checked: the forward pass has checked it, if that was asked.
fn unchecked() -> Attrs {
    Checked { check: false }.into()
}
