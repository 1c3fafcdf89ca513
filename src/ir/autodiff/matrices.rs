//! Gradients of solutions, inverses, determinants and functions of matrices.
//!
//! `X̄` is the gradient of `X`, and `X*` its conjugate, which is `X` itself for real numbers. Formulas are those of M.
//! Giles, An extended collection of matrix derivative results for forward and reverse mode automatic differentiation
//! (2008), unless another source is named, with adjoints for transposes. Rows that return a transposed result are
//! called as they are, so some formulas read transposed too.
//!
//! A batch of any rank is one dim here.

use super::derivative::{Backward, Gradients};
use super::expr::Expr;
use super::matrix::Matrix;
use crate::ir::attrs::*;
use crate::ir::infer::matrices::of_pairs;
use crate::ir::op::Op;
use smallvec::smallvec;

/// The first operand, the result and its gradient as matrices.
fn operands<'g>(call: &Backward<'g, '_>, pairs: bool) -> [Matrix<'g>; 3] {
    [call.args[0], call.result, call.grad].map(|x| Matrix::of(x, pairs))
}

/// `(A⁻¹ B)ᵀ` for a triangular `A`.
pub(super) fn triangular<'g>(a: Matrix<'g>, b: Matrix<'g>, upper: bool, unitriangular: bool) -> Matrix<'g> {
    let pairs = a.is_complex();
    Matrix::of(a.call(Op::SolveTriangular, &[b], SolveTriangular { upper, unitriangular, pairs }), pairs)
}

/// `(A⁻¹ B)ᵀ`. The forward pass has checked `A`, if that was asked.
pub(super) fn solution<'g>(a: Matrix<'g>, b: Matrix<'g>) -> Matrix<'g> {
    let pairs = a.is_complex();
    Matrix::of(a.call(Op::Solve, &[b], Checked { check: false, pairs }), pairs)
}

/// `A⁻ᵀ`.
fn inverted<'g>(a: Matrix<'g>) -> Matrix<'g> {
    let pairs = a.is_complex();
    Matrix::of(a.call(Op::Inverse, &[], Checked { check: false, pairs }), pairs)
}

/// Of `Lᵀ` for `A = L Lᴴ`, or of `Uᵀ` for `A = Uᴴ U`. With `P` the lower triangle of `Lᴴ L̄` and half of its diagonal,
/// it is the Hermitian part of `L⁻ᴴ P L⁻¹` (I. Murray, Differentiation of the Cholesky decomposition, 2016, eq. 9).
pub fn cholesky<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let CholeskyFactor { upper, pairs, .. } = CholeskyFactor::read(call.attrs);
    let [_, result, grad] = operands(call, pairs);
    // `Uᵀ` is the factor `L` of `A*`.
    let [l, grad] = if upper { [result, grad] } else { [result.transposed(), grad.transposed()] };
    let hermitian = l.adjoint().matmul(grad).mirrored().map(|x| x * 0.5);
    // `(L⁻ᴴ H)ᵀ`, and then `(L⁻ᴴ (L⁻ᴴ H)ᴴ)ᵀ`, whose transpose is itself conjugated.
    let half = triangular(l.adjoint(), hermitian, true, false);
    let whole = triangular(l.adjoint(), half.conj(), true, false).conj();
    let whole = if upper { whole.conj() } else { whole };
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// Of `Xᵀ` for `A X = B` with a triangular `A`: `B̄ = A⁻ᴴ X̄`, and `Ā` is the triangle of `-B̄ Xᴴ`.
pub fn solve_triangular<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let SolveTriangular { upper, unitriangular, pairs } = SolveTriangular::read(call.attrs);
    let [a, result, grad] = operands(call, pairs);
    let right = triangular(a.adjoint(), grad.transposed(), !upper, unitriangular).transposed();
    let left = -right.matmul(result.conj());
    let from = i64::from(unitriangular);
    let left = if upper { left.triu(from) } else { left.tril(-from) };
    smallvec![Some(left.reshape(&call.args[0].sizes())), Some(right.reshape(&call.args[1].sizes()))]
}

/// Of `Xᵀ` for `A X = B`: `B̄ = A⁻ᴴ X̄` and `Ā = -B̄ Xᴴ`.
pub fn solve<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [a, result, grad] = operands(call, Checked::read(call.attrs).pairs);
    let right = solution(a.adjoint(), grad.transposed()).transposed();
    let left = -right.matmul(result.conj());
    smallvec![Some(left.reshape(&call.args[0].sizes())), Some(right.reshape(&call.args[1].sizes()))]
}

/// Of `Y = A⁻ᵀ`: `Ā = -Y* Ȳᵀ Y*`.
pub fn inverse<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [_, y, grad] = operands(call, Checked::read(call.attrs).pairs);
    let y = y.conj();
    smallvec![Some((-y.matmul(grad.transposed()).matmul(y)).reshape(&call.args[0].sizes()))]
}

/// Of the determinant: its cofactors, conjugated.
pub fn determinant<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let OfPairs { pairs } = OfPairs::read(call.attrs);
    let cofactors = Matrix::of(call.args[0].call(Op::Cofactors, &[], OfPairs { pairs }.into()), pairs);
    let grad = Matrix::of_numbers(call.grad, pairs);
    smallvec![Some(grad.times(cofactors.conj()).reshape(&call.args[0].sizes()))]
}

/// Of the cofactors `C = det(A) Y` with `Y = A⁻ᵀ`: `Ā = det(A)* (<C̄, Y> Y* - Y* C̄ᵀ Y*)`. A singular matrix has none.
pub fn cofactors<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let OfPairs { pairs } = OfPairs::read(call.attrs);
    let [a, _, grad] = operands(call, pairs);
    let det = Matrix::of_numbers(call.args[0].call(Op::Determinant, &[], OfPairs { pairs }.into()), pairs).conj();
    let y = inverted(a).conj();
    let along = grad.times(y).map(|x| x.sum(&[1, 2], true)).times(y);
    let whole = det.times(along - y.matmul(grad.transposed()).matmul(y));
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// Of the sign and the logarithm of the determinant: `A⁻ᴴ` times the gradient of the latter. For complex numbers, the
/// part of the gradient of the sign that turns it is the imaginary part of that.
pub fn log_determinant<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let OfPairs { pairs } = OfPairs::read(call.attrs);
    let select = |x: Expr<'g>, index: i64| {
        let dim = if pairs { -2 } else { -1 };
        Matrix::of_numbers(x.call(Op::Select, &[], Select { dim, index }.into()), pairs)
    };
    let turned = pairs.then(|| select(call.grad, 0).times(select(call.result, 0).conj()).im).flatten();
    let grad = Matrix { re: select(call.grad, 1).re, im: turned };
    let whole = grad.times(inverted(Matrix::of(call.args[0], pairs)).conj());
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// Of `Eᵀ` for `E = exp(A)`: the upper right block of `exp([[Aᴴ, Ē], [0, Aᴴ]])` (R. Mathias, A chain rule for matrix
/// functions and applications, 1996, theorem 2.1).
pub fn exponential<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let OfPairs { pairs } = OfPairs::read(call.attrs);
    let [a, _, grad] = operands(call, pairs);
    let (a, grad) = (a.adjoint(), grad.transposed());
    let order = a.re.sizes()[2];
    let block = a.cat(grad, 2).cat(a.map(Expr::zeros).cat(a, 2), 1);
    // Transposed, so it is the lower left one.
    let whole = Matrix::of(block.call(Op::MatrixExponential, &[], OfPairs { pairs }), pairs);
    let corner = whole.slice(1, order, 2 * order).slice(2, 0, order).transposed();
    smallvec![Some(corner.reshape(&call.args[0].sizes()))]
}

/// Of `Pᵀ` for the pseudoinverse `P`, with `R = Pᴴ` and `K = P̄ᴴ P`: `Ā = -Kᴴ R + (I - A P) K R + R Rᴴ (P̄ᴴ - K A)`
/// (G. Golub and V. Pereyra, The differentiation of pseudo-inverses, 1973, eq. 4.12, where the rank is constant).
pub fn pseudoinverse<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [a, r, grad] = operands(call, of_pairs(Op::Pseudoinverse, call.attrs));
    let (r, grad) = (r.conj(), grad.conj());
    let p = r.adjoint();
    let k = grad.matmul(p);
    let kr = k.matmul(r);
    let first = kr - k.adjoint().matmul(r) - a.matmul(p.matmul(kr));
    let whole = first + r.matmul(p.matmul(grad - k.matmul(a)));
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}
