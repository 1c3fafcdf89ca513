//! Gradients of factorizations with several parts, which are packed in one result ([`crate::ir::packed`]).
//!
//! `X̄` is the gradient of `X`. A part that nothing uses has a gradient of zeros.

use super::derivative::{Backward, Gradients};
use super::expr::Expr;
use super::matrices::{batch, triangular, tril, triu};
use crate::error::Error;
use crate::ir::attr::Attrs;
use crate::ir::attrs::*;
use crate::ir::dtype::DType;
use crate::ir::op::Op;
use crate::ir::packed::Packed;
use crate::ir::shape::numel;
use smallvec::smallvec;

/// A part of a packed value, as a tensor of three dims.
fn part<'g>(packed: Expr<'g>, layout: &Packed, index: usize) -> Expr<'g> {
    let part = layout.part(index);
    let sizes = packed.sizes();
    let matrices = numel(&sizes[..sizes.len() - 1]);
    let end = part.start + part.rows * part.columns;
    slice(packed, -1, part.start, end).reshape(&[matrices, part.rows, part.columns])
}

fn slice<'g>(x: Expr<'g>, dim: i64, start: usize, end: usize) -> Expr<'g> {
    let attrs = Slice { dim, start: Some(start as i64), end: Some(end as i64), step: 1 };
    x.call(Op::Slice, &[], attrs.into())
}

fn cat<'g>(first: Expr<'g>, second: Expr<'g>, dim: i64) -> Expr<'g> {
    first.call(Op::Cat, &[second], Along { dim }.into())
}

/// The rows and columns of the operand.
fn shape(call: &Backward<'_, '_>) -> [usize; 2] {
    match call.args[0].sizes()[..] {
        [.., rows, columns] => [rows, columns],
        _ => [0, 0],
    }
}

/// Of `P L U`. For a square matrix it is `P L⁻ᵀ (strictly lower Lᵀ L̄ + upper Ū Uᵀ) U⁻ᵀ`. The part of a wide or tall
/// matrix beyond its square is a solution with one of the triangles, from `A₂ = L U₂` or `A₂ = L₂ U` (M. Giles, 2008,
/// section 2, applied to these products).
pub fn lu<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [rows, columns] = shape(call);
    let (size, layout) = (rows.min(columns), Packed::lu(rows, columns));
    let [factors, grad] = [call.result, call.grad].map(|x| part(x, &layout, 0).transposed());
    let square = |x: Expr<'g>| slice(slice(x, 1, 0, size), 2, 0, size);
    let (f, g) = (square(factors), square(grad));
    let upper = triu(f, 0);
    // `X U⁻ᵀ` and `L⁻ᵀ X`.
    let by_upper = |x: Expr<'g>| triangular(upper, x.transposed(), true, false);
    let by_lower = |x: Expr<'g>| triangular(f.transposed(), x, true, true).transposed();
    // `Lᵀ X` for the unit lower triangle.
    let lt_times = |x: Expr<'g>| x + tril(f, -1).transposed().matmul(x);
    let (mut inner_l, mut inner_u) = (lt_times(tril(g, -1)), triu(g, 0).matmul(upper.transposed()));
    let mut beyond = None;
    if columns > rows {
        let [u2, g2] = [factors, grad].map(|x| slice(x, 2, size, columns));
        inner_l = inner_l - g2.matmul(u2.transposed());
        beyond = Some((by_lower(g2), 2));
    } else if rows > columns {
        let [l2, g2] = [factors, grad].map(|x| slice(x, 1, size, rows));
        inner_u = inner_u - l2.transposed().matmul(g2);
        beyond = Some((by_upper(g2), 1));
    }
    let inner = tril(inner_l, -1) + triu(inner_u, 0);
    let first = by_upper(by_lower(inner));
    let whole = beyond.map_or(first, |(rest, dim)| cat(first, rest, dim));
    // Row `i` of it belongs to row `order[i]` of the operand.
    let pivots = part(call.result, &layout, 1).to(DType::I32);
    let matrices = pivots.sizes()[0];
    let pivots = pivots.reshape(&[matrices, size]);
    let order = pivots.call(Op::LuPermutation, &[], LuPermutation { rows: rows as i64 }.into());
    let back = order.call(Op::Argsort, &[], Argsort { stable: true, dim: 1, descending: false }.into());
    let back = back.unsqueeze(2).expand(&[matrices, rows, columns]);
    let whole = whole.call(Op::Gather, &[back], Gather { dim: 1, sparse_grad: false }.into());
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// Of `Q R`. For a square or tall matrix it is `(Q̄ + Q S) R⁻ᵀ`, where `S` is symmetric with the lower triangle of
/// `R R̄ᵀ - Q̄ᵀ Q`. What a wide matrix has beyond its square, `Q R₂`, adds to the gradient of `Q` (H. Liao et al.,
/// Differentiable programming tensor networks, 2019, eq. 12; K. Roberts and A. Roberts, QR and LQ decomposition matrix
/// backpropagation algorithms, 2020, for wide matrices).
pub fn qr<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [rows, columns] = shape(call);
    let QrFactors { complete } = QrFactors::read(call.attrs);
    if complete && rows > columns {
        let what = "The QR decomposition is not differentiable when mode='complete' and nrows > ncols; use 'reduced'";
        return smallvec![Some(call.builder().make(|_| Err(Error::argument("linalg.qr", what))))];
    }
    let (size, layout) = (rows.min(columns), Packed::qr(rows, columns, complete));
    let [q, r] = [0, 1].map(|index| part(call.result, &layout, index).transposed());
    let [mut q_grad, r_grad] = [0, 1].map(|index| part(call.grad, &layout, index).transposed());
    let of_square = |x: Expr<'g>| if columns > size { slice(x, 2, 0, size) } else { x };
    let mut beyond = None;
    if columns > size {
        let [r2, g2] = [r, r_grad].map(|x| slice(x, 2, size, columns));
        q_grad = q_grad + q.matmul(r2).matmul(g2.transposed());
        beyond = Some(q.matmul(g2));
    }
    let (r, r_grad) = (of_square(r), of_square(r_grad));
    let inner = tril(r.matmul(r_grad.transposed()) - q_grad.transposed().matmul(q), 0);
    let symmetric = inner + triu(inner.transposed(), 1);
    let first = triangular(r, (q_grad + q.matmul(symmetric)).transposed(), true, false);
    let whole = beyond.map_or(first, |rest| cat(first, rest, 2));
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// `numerators / differences`, where a quotient of zeros is 0.
fn quotients<'g>(numerators: Expr<'g>, differences: Expr<'g>) -> Expr<'g> {
    let both = numerators.eq(0.0).logical_and(differences.eq(0.0));
    numerators / both.then(1.0, differences)
}

/// The elements beside the diagonal.
fn beside<'g>(x: Expr<'g>) -> Expr<'g> {
    tril(x, -1) + triu(x, 1)
}

/// Of the eigenvalues `w` and eigenvectors `V` of a symmetric matrix: `V (diag(w̄) + (Vᵀ V̄) / E) Vᵀ` with
/// `E[i, j] = w[j] - w[i]` (M. Giles, 2008, section 3.1).
pub fn eigen<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let layout = Packed::eigen(shape(call)[0]);
    let [w, w_grad] = [call.result, call.grad].map(|x| part(x, &layout, 0));
    let [vt, vt_grad] = [call.result, call.grad].map(|x| part(x, &layout, 1));
    let inner = quotients(beside(vt.matmul(vt_grad.transposed())), w - w.transposed());
    let v = vt.transposed();
    let whole = (v * w_grad + v.matmul(inner)).matmul(vt);
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// Of the eigenvalues alone: `V diag(w̄) Vᵀ`.
pub fn eigenvalues<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let a = batch(call.args[0]);
    let [matrices, order, _] = a.sizes()[..] else { return Gradients::new() };
    let vt = part(a.call(Op::Eigen, &[], Attrs::new()), &Packed::eigen(order), 1);
    let grad = call.grad.reshape(&[matrices, 1, order]);
    smallvec![Some((vt.transposed() * grad).matmul(vt).reshape(&call.args[0].sizes()))]
}

/// Of `U S Vᵀ`, from the thin parts: `U ((K(Uᵀ Ū) / E) S + S (K(Vᵀ V̄) / E) + diag(s̄)) Vᵀ` with `K(X) = X - Xᵀ` and
/// `E[i, j] = s[j]² - s[i]²`, and what leaves the spaces of `U` and `V` (J. Townsend, Differentiating the singular
/// value decomposition, 2016).
pub fn svd<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let [rows, columns] = shape(call);
    let SvdFactors { full } = SvdFactors::read(call.attrs);
    let (size, layout) = (rows.min(columns), Packed::svd(rows, columns, full));
    let thin = |x: Expr<'g>| if x.sizes()[1] > size { slice(x, 1, 0, size) } else { x };
    let [ut, ut_grad] = [call.result, call.grad].map(|x| thin(part(x, &layout, 0)));
    let [s, s_grad] = [call.result, call.grad].map(|x| part(x, &layout, 1));
    let [vt, vt_grad] = [call.result, call.grad].map(|x| thin(part(x, &layout, 2)));
    let (u, v) = (ut.transposed(), vt.transposed());
    let (u_grad, column) = (ut_grad.transposed(), s.transposed());
    let squares = s * s;
    let differences = squares - squares.transposed();
    let skew = |x: Expr<'g>| x - x.transposed();
    let of_u = quotients(skew(ut.matmul(u_grad)), differences) * s;
    let of_v = column * quotients(skew(vt.matmul(vt_grad.transposed())), differences);
    let mut left = u.matmul(of_u + of_v) + u * s_grad;
    if rows > size {
        let scaled = quotients(u_grad, s.expand(&u_grad.sizes()));
        left = left + scaled - u.matmul(ut.matmul(scaled));
    }
    let mut whole = left.matmul(vt);
    if columns > size {
        let scaled = quotients(vt_grad, column.expand(&vt_grad.sizes()));
        whole = whole + u.matmul(scaled - scaled.matmul(v).matmul(vt));
    }
    smallvec![Some(whole.reshape(&call.args[0].sizes()))]
}

/// Of the singular values alone: `U diag(s̄) Vᵀ`.
pub fn singular_values<'g>(call: &Backward<'g, '_>) -> Gradients<'g> {
    let a = batch(call.args[0]);
    let [matrices, rows, columns] = a.sizes()[..] else { return Gradients::new() };
    let layout = Packed::svd(rows, columns, false);
    let factors = a.call(Op::Svd, &[], SvdFactors { full: false }.into());
    let (ut, vt) = (part(factors, &layout, 0), part(factors, &layout, 2));
    let grad = call.grad.reshape(&[matrices, 1, rows.min(columns)]);
    smallvec![Some((ut.transposed() * grad).matmul(vt).reshape(&call.args[0].sizes()))]
}
