//! Gradients of factorizations with several parts, which are packed in one result ([`crate::ir::packed`]).
//!
//! `X̄` is the gradient of `X`, and `X*` its conjugate, which is `X` itself for real numbers. A part that nothing uses
//! has a gradient of zeros. Sources give formulas for real numbers, which hold for complex ones with adjoints for
//! transposes.

use super::derivative::{Backward, Gradients};
use super::expr::Expr;
use super::matrices::{solution, triangular};
use super::matrix::Matrix;
use crate::error::Error;
use crate::ir::attrs::*;
use crate::ir::dtype::DType;
use crate::ir::infer::matrices::of_pairs;
use crate::ir::op::Op;
use crate::ir::packed::Packed;
use crate::ir::types::TensorType;
use smallvec::smallvec;

/// The rows and columns of the operand.
fn shape(call: &Backward<'_, '_>, pairs: bool) -> [usize; 2] {
    match (&call.args[0].sizes()[..], pairs) {
        ([.., rows, columns], false) | ([.., rows, columns, _], true) => [*rows, *columns],
        (_, _) => [0, 0],
    }
}

/// A part of the result and its gradient.
fn parts<'g>(call: &Backward<'g, '_>, layout: &Packed, index: usize, pairs: bool) -> [Matrix<'g>; 2] {
    [call.result, call.grad].map(|x| Matrix::of_packed(x, layout, index, pairs))
}

/// Of `P L U`. For a square matrix it is `P L⁻ᴴ (strictly lower Lᴴ L̄ + upper Ū Uᴴ) U⁻ᴴ`. The part of a wide or tall
/// matrix beyond its square is a solution with one of the triangles, from `A₂ = L U₂` or `A₂ = L₂ U` (M. Giles, 2008,
/// section 2, applied to these products).
pub fn lu<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let Checked { pairs, .. } = Checked::read(call.attrs);
    let [rows, columns] = shape(call, pairs);
    let (size, layout) = (rows.min(columns), Packed::lu(rows, columns));
    let [factors, grad] = parts(call, &layout, 0, pairs).map(Matrix::transposed);
    // The factors have complex derivatives, so the formula for real numbers holds for conjugates.
    let factors = factors.conj();
    let square = |x: Matrix<'g>| x.slice(1, 0, size).slice(2, 0, size);
    let (f, g) = (square(factors), square(grad));
    let upper = f.triu(0);
    // `X U⁻ᵀ` and `L⁻ᵀ X`.
    let by_upper = |x: Matrix<'g>| triangular(upper, x.transposed(), true, false);
    let by_lower = |x: Matrix<'g>| triangular(f.transposed(), x, true, true).transposed();
    // `Lᵀ X` for the unit lower triangle.
    let lt_times = |x: Matrix<'g>| x + f.tril(-1).transposed().matmul(x);
    let (mut inner_l, mut inner_u) = (lt_times(g.tril(-1)), g.triu(0).matmul(upper.transposed()));
    let mut beyond = None;
    if columns > rows {
        let [u2, g2] = [factors, grad].map(|x| x.slice(2, size, columns));
        inner_l = inner_l - g2.matmul(u2.transposed());
        beyond = Some((by_lower(g2), 2));
    } else if rows > columns {
        let [l2, g2] = [factors, grad].map(|x| x.slice(1, size, rows));
        inner_u = inner_u - l2.transposed().matmul(g2);
        beyond = Some((by_upper(g2), 1));
    }
    let first = by_upper(by_lower(inner_l.tril(-1) + inner_u.triu(0)));
    let whole = beyond.map_or(first, |(rest, dim)| first.cat(rest, dim));
    // Row `i` of it belongs to row `order[i]` of the operand.
    let pivots = Matrix::of_packed(call.result, &layout, 1, pairs).re.to(DType::I32);
    let matrices = pivots.sizes()[0];
    let pivots = pivots.reshape(&[matrices, size]);
    let order = pivots.call(Op::LuPermutation, &[], LuPermutation { rows: rows as i64 }.into());
    let back = order.call(Op::Argsort, &[], Argsort { stable: true, dim: 1, descending: false }.into());
    let back = back.unsqueeze(2).expand(&[matrices, rows, columns]);
    let whole = whole.map(|x| x.call(Op::Gather, &[back], Gather { dim: 1, sparse_grad: false }.into()));
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// Of `Q R`. For a square or tall matrix it is `(Q̄ + Q S) R⁻ᴴ`, where `S` is Hermitian with the lower triangle of
/// `R R̄ᴴ - Q̄ᴴ Q`. What a wide matrix has beyond its square, `Q R₂`, adds to the gradient of `Q` (H. Liao et al.,
/// Differentiable programming tensor networks, 2019, eq. 12; K. Roberts and A. Roberts, QR and LQ decomposition matrix
/// backpropagation algorithms, 2020, for wide matrices).
pub fn qr<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let QrFactors { complete, pairs } = QrFactors::read(call.attrs);
    let [rows, columns] = shape(call, pairs);
    if complete && rows > columns {
        let what = "The QR decomposition is not differentiable when mode='complete' and nrows > ncols; use 'reduced'";
        return smallvec![Some(call.builder().make(|_| Err(Error::argument("linalg.qr", what))))];
    }
    let (size, layout) = (rows.min(columns), Packed::qr(rows, columns, complete));
    let [q, mut q_grad] = parts(call, &layout, 0, pairs).map(Matrix::transposed);
    let [r, r_grad] = parts(call, &layout, 1, pairs).map(Matrix::transposed);
    let of_square = |x: Matrix<'g>| if columns > size { x.slice(2, 0, size) } else { x };
    let mut beyond = None;
    if columns > size {
        let [r2, g2] = [r, r_grad].map(|x| x.slice(2, size, columns));
        q_grad = q_grad + q.matmul(r2).matmul(g2.adjoint());
        beyond = Some(q.matmul(g2));
    }
    let (r, r_grad) = (of_square(r), of_square(r_grad));
    let hermitian = (r.matmul(r_grad.adjoint()) - q_grad.adjoint().matmul(q)).mirrored();
    // `(R*⁻¹ Xᵀ)ᵀ` is `X R⁻ᴴ`.
    let first = triangular(r.conj(), (q_grad + q.matmul(hermitian)).transposed(), true, false);
    let whole = beyond.map_or(first, |rest| first.cat(rest, 2));
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// `numerators / differences`, where a quotient of zeros is 0.
fn quotients<'g>(numerators: Matrix<'g>, differences: Expr<'g>) -> Matrix<'g> {
    numerators.map(|x| {
        let both = x.eq(0.0).logical_and(differences.eq(0.0));
        x / both.then(1.0, differences)
    })
}

/// The elements beside the diagonal.
fn beside(x: Matrix<'_>) -> Matrix<'_> {
    x.tril(-1) + x.triu(1)
}

/// Of the eigenvalues `w` and eigenvectors `V` of a Hermitian matrix: `V (diag(w̄) + (Vᴴ V̄) / E) Vᴴ` with
/// `E[i, j] = w[j] - w[i]` (M. Giles, 2008, section 3.1).
pub fn eigen<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let OfPairs { pairs } = OfPairs::read(call.attrs);
    let layout = Packed::eigen(shape(call, pairs)[0]);
    let [w, w_grad] = parts(call, &layout, 0, pairs).map(|x| x.re);
    let [v, v_grad] = parts(call, &layout, 1, pairs).map(Matrix::transposed);
    let inner = quotients(beside(v.adjoint().matmul(v_grad)), w - w.transposed());
    let whole = (v.scaled(w_grad) + v.matmul(inner)).matmul(v.adjoint());
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// Of the eigenvalues alone: `V diag(w̄) Vᴴ`.
pub fn eigenvalues<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let OfPairs { pairs } = OfPairs::read(call.attrs);
    let order = shape(call, pairs)[0];
    let packed = call.args[0].call(Op::Eigen, &[], OfPairs { pairs }.into());
    let v = Matrix::of_packed(packed, &Packed::eigen(order), 1, pairs).transposed();
    let grad = row(call.grad, order, pairs).re;
    smallvec![Some(v.scaled(grad).matmul(v.adjoint()).reshape(&call.args[0].sizes()))]
}

/// One row of `size` numbers per matrix.
fn row<'g>(x: Expr<'g>, size: usize, pairs: bool) -> Matrix<'g> {
    Matrix::of_packed(x, &Packed::row(size), 0, pairs)
}

/// Of the eigenvalues `w` and eigenvectors `V` of any square matrix: `V⁻ᴴ (diag(w̄) + X / E*) Vᴴ` with
/// `E[i, j] = w[j] - w[i]` and `X = Vᴴ V̄ - Vᴴ V diag(Re Vᴴ V̄)`, because vectors keep the length 1 (C. Boeddeker et
/// al., On the computation of complex-valued gradients with application to statistically optimum beamforming, 2017,
/// eq. 4.77). It is the gradient of what does not depend on how vectors are turned.
pub fn general_eigen<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let OfPairs { pairs } = OfPairs::read(call.attrs);
    let layout = Packed::eigen(shape(call, pairs)[0]);
    let [w, w_grad] = parts(call, &layout, 0, true);
    let [v, v_grad] = parts(call, &layout, 1, true).map(Matrix::transposed);
    let along = v.adjoint().matmul(v_grad);
    let across = beside(along - v.adjoint().matmul(v).scaled(diagonal(along.re)));
    let differences = (w - w.transposed()).conj();
    // `x / e*` is `x e / |e|²`.
    let inner = match differences.im {
        Some(im) => {
            let size = differences.re * differences.re + im * im;
            quotients(across.times(differences.conj()), size)
        }
        None => quotients(across, differences.re),
    };
    from_eigen(call, v, w_grad.transposed().times(v.adjoint()) + inner.matmul(v.adjoint()), pairs)
}

/// Of the eigenvalues alone: `V⁻ᴴ diag(w̄) Vᴴ`.
pub fn general_eigenvalues<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let OfPairs { pairs } = OfPairs::read(call.attrs);
    let order = shape(call, pairs)[0];
    let packed = call.args[0].call(Op::GeneralEigen, &[], OfPairs { pairs }.into());
    let v = Matrix::of_packed(packed, &Packed::eigen(order), 1, true).transposed();
    let grad = row(call.grad, order, true).transposed();
    from_eigen(call, v, grad.times(v.adjoint()), pairs)
}

/// `V⁻ᴴ X`, or its real part for a real matrix.
fn from_eigen<'g>(call: &Backward<'g, '_>, v: Matrix<'g>, x: Matrix<'g>, pairs: bool) -> Gradients<'g> {
    let whole = solution(v.adjoint(), x).transposed();
    let whole = if pairs { whole } else { Matrix { im: None, ..whole } };
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// The diagonal as one row per matrix.
fn diagonal(x: Expr<'_>) -> Expr<'_> {
    let along = x.call(Op::Diagonal, &[], Diagonal { offset: 0, dim1: 1, dim2: 2 }.into());
    along.unsqueeze(1)
}

/// Of `U S Vᴴ`, from the thin parts: `U ((K(Uᴴ Ū) / E) S + S (K(Vᴴ V̄) / E) + diag(s̄)) Vᴴ` with `K(X) = X - Xᴴ` and
/// `E[i, j] = s[j]² - s[i]²`, and what leaves the spaces of `U` and `V` (J. Townsend, Differentiating the singular
/// value decomposition, 2016). Complex vectors may be turned together. The imaginary part of the diagonal,
/// `(Uᴴ Ū - Vᴴ V̄) / 2S`, is that of turning one of them (Z. Wan and S. Zhang, Automatic differentiation for
/// complex-valued SVD, 2019).
pub fn svd<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let SvdFactors { full, pairs } = SvdFactors::read(call.attrs);
    let [rows, columns] = shape(call, pairs);
    let (size, layout) = (rows.min(columns), Packed::svd(rows, columns, full));
    let thin = |x: Matrix<'g>| if x.re.sizes()[1] > size { x.slice(1, 0, size) } else { x };
    let [u, u_grad] = parts(call, &layout, 0, pairs).map(|x| thin(x).transposed());
    let [s, s_grad] = parts(call, &layout, 1, pairs).map(|x| x.re);
    let [vh, vh_grad] = parts(call, &layout, 2, pairs).map(thin);
    let (uh, v) = (u.adjoint(), vh.adjoint());
    let column = s.transposed();
    let squares = s * s;
    let differences = squares - squares.transposed();
    let skew = |x: Matrix<'g>| x - x.adjoint();
    let (along_u, along_v) = (skew(uh.matmul(u_grad)), skew(vh.matmul(vh_grad.adjoint())));
    // Of a real matrix the diagonal is 0.
    let beside = |x: Matrix<'g>| if pairs { beside(x) } else { x };
    let of_u = quotients(beside(along_u), differences).scaled(s);
    let of_v = quotients(beside(along_v), differences).scaled(column);
    let mut inner = of_u + of_v;
    if let (Some(of_u), Some(of_v), Some(im)) = (along_u.im, along_v.im, inner.im) {
        let turning = diagonal(of_u - of_v);
        let turning = quotients(Matrix { re: turning, im: None }, s * 4.0).re;
        inner = Matrix { re: inner.re, im: Some(im + diagonal_of(turning)) };
    }
    let mut left = u.matmul(inner) + u.scaled(s_grad);
    if rows > size {
        let scaled = quotients(u_grad, s.expand(&u_grad.re.sizes()));
        left = left + scaled - u.matmul(uh.matmul(scaled));
    }
    let mut whole = left.matmul(vh);
    if columns > size {
        let scaled = quotients(vh_grad, column.expand(&vh_grad.re.sizes()));
        whole = whole + u.matmul(scaled - scaled.matmul(v).matmul(vh));
    }
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// Of the singular values alone: `U diag(s̄) Vᴴ`.
pub fn singular_values<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let pairs = of_pairs(Op::SingularValues, call.attrs);
    let [rows, columns] = shape(call, pairs);
    let layout = Packed::svd(rows, columns, false);
    let factors = call.args[0].call(Op::Svd, &[], SvdFactors { full: false, pairs }.into());
    let [ut, vh] = [0, 2].map(|index| Matrix::of_packed(factors, &layout, index, pairs));
    let grad = row(call.grad, rows.min(columns), pairs).re;
    smallvec![Some(ut.transposed().scaled(grad).matmul(vh).reshape(&call.args[0].sizes()))]
}

/// Matrices with these rows as diagonals.
fn diagonal_of(row: Expr<'_>) -> Expr<'_> {
    let TensorType { dtype, sizes, .. } = row.ty();
    let numbers = row.builder().range(0, sizes[2]);
    numbers.unsqueeze(0).eq(numbers.unsqueeze(1)).to(dtype).unsqueeze(0) * row
}
