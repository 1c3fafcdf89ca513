//! Matrices of real or complex numbers, for formulas that hold for both.
//!
//! A complex matrix is two real ones. The gradient of a complex number is the slope in the real part plus `i` times
//! that in the imaginary part. So the gradient of a function that has a complex derivative is multiplied by the
//! conjugate of that derivative, and the adjoint takes the place of the transpose.

use super::expr::Expr;
use crate::ir::attr::Attrs;
use crate::ir::attrs::*;
use crate::ir::op::Op;
use crate::ir::packed::Packed;
use crate::ir::shape::numel;
use std::ops::{Add, Neg, Sub};

/// A batch of matrices: tensors of three dims.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'g> {
    /// The numbers, or their real parts.
    pub re: Expr<'g>,
    /// The imaginary parts of complex numbers.
    pub im: Option<Expr<'g>>,
}

impl<'g> Matrix<'g> {
    /// The matrices in the last two dims, or in those before the last if that one has the parts of complex numbers.
    pub(super) fn of(x: Expr<'g>, pairs: bool) -> Matrix<'g> {
        Matrix::split(x, pairs).map(batch)
    }

    /// One number per matrix.
    pub(super) fn of_numbers(x: Expr<'g>, pairs: bool) -> Matrix<'g> {
        Matrix::split(x, pairs).map(|x| x.reshape(&[numel(&x.sizes()), 1, 1]))
    }

    /// A part of a packed value.
    pub(super) fn of_packed(packed: Expr<'g>, layout: &Packed, index: usize, pairs: bool) -> Matrix<'g> {
        Matrix::split(packed, pairs).map(|packed| {
            let part = layout.part(index);
            let sizes = packed.sizes();
            let matrices = numel(&sizes[..sizes.len() - 1]);
            let end = part.start + part.rows * part.columns;
            slice(packed, -1, part.start, end).reshape(&[matrices, part.rows, part.columns])
        })
    }

    fn split(x: Expr<'g>, pairs: bool) -> Matrix<'g> {
        let part = |index: i64| x.call(Op::Select, &[], Select { dim: -1, index }.into());
        if pairs { Matrix { re: part(0), im: Some(part(1)) } } else { Matrix { re: x, im: None } }
    }

    /// The numbers as a tensor of these sizes.
    pub(super) fn reshape(self, sizes: &[usize]) -> Expr<'g> {
        self.joined().reshape(sizes)
    }

    /// Complex numbers as pairs in a new last dim.
    fn joined(self) -> Expr<'g> {
        let Some(im) = self.im else { return self.re };
        let last = self.re.rank();
        let dim = Along { dim: last as i64 };
        self.re.unsqueeze(last).call(Op::Cat, &[im.unsqueeze(last)], dim.into())
    }

    /// The result of a row whose last argument says whether numbers are pairs.
    pub(super) fn call<A: Into<Attrs>>(self, op: Op, rest: &[Matrix<'g>], attrs: A) -> Expr<'g> {
        let rest: Vec<Expr<'g>> = rest.iter().map(|x| x.joined()).collect();
        self.joined().call(op, &rest, attrs.into())
    }

    pub(super) fn is_complex(self) -> bool {
        self.im.is_some()
    }

    /// Does the same to both parts.
    pub(super) fn map(self, function: impl Fn(Expr<'g>) -> Expr<'g>) -> Matrix<'g> {
        Matrix { re: function(self.re), im: self.im.map(&function) }
    }

    /// Combines parts with parts.
    fn zip(self, other: Matrix<'g>, function: impl Fn(Expr<'g>, Expr<'g>) -> Expr<'g>) -> Matrix<'g> {
        let im = match (self.im, other.im) {
            (Some(im), Some(other)) => Some(function(im, other)),
            (Some(im), None) => Some(function(im, im.zeros())),
            (None, Some(other)) => Some(function(other.zeros(), other)),
            (None, None) => None,
        };
        Matrix { re: function(self.re, other.re), im }
    }

    pub(super) fn conj(self) -> Matrix<'g> {
        Matrix { im: self.im.map(|im| -im), ..self }
    }

    pub(super) fn transposed(self) -> Matrix<'g> {
        self.map(Expr::transposed)
    }

    /// Conjugated and transposed.
    pub(super) fn adjoint(self) -> Matrix<'g> {
        self.conj().transposed()
    }

    /// The matrix product.
    pub(super) fn matmul(self, other: Matrix<'g>) -> Matrix<'g> {
        self.product(other, Expr::matmul)
    }

    /// The product of elements, which are broadcast.
    pub(super) fn times(self, other: Matrix<'g>) -> Matrix<'g> {
        self.product(other, |x, y| x * y)
    }

    fn product(self, other: Matrix<'g>, real: impl Fn(Expr<'g>, Expr<'g>) -> Expr<'g>) -> Matrix<'g> {
        match (self.im, other.im) {
            (None, _) => other.map(|part| real(self.re, part)),
            (_, None) => self.map(|part| real(part, other.re)),
            (Some(im), Some(other_im)) => Matrix {
                re: real(self.re, other.re) - real(im, other_im),
                im: Some(real(self.re, other_im) + real(im, other.re)),
            },
        }
    }

    /// Each element times a real number of another tensor, which is broadcast.
    pub(super) fn scaled(self, by: Expr<'g>) -> Matrix<'g> {
        self.map(|x| x * by)
    }

    pub(super) fn tril(self, diagonal: i64) -> Matrix<'g> {
        self.map(|x| tril(x, diagonal))
    }

    pub(super) fn triu(self, diagonal: i64) -> Matrix<'g> {
        self.map(|x| triu(x, diagonal))
    }

    /// The Hermitian matrix with this lower triangle, of whose diagonal only the real parts are read.
    pub(super) fn mirrored(self) -> Matrix<'g> {
        Matrix {
            re: tril(self.re, 0) + triu(self.re.transposed(), 1),
            im: self.im.map(|im| tril(im, -1) - triu(im.transposed(), 1)),
        }
    }

    pub(super) fn slice(self, dim: i64, start: usize, end: usize) -> Matrix<'g> {
        self.map(|x| slice(x, dim, start, end))
    }

    /// Both, one after the other along a dim.
    pub(super) fn cat(self, other: Matrix<'g>, dim: i64) -> Matrix<'g> {
        self.zip(other, |x, y| x.call(Op::Cat, &[y], Along { dim }.into()))
    }
}

/// The matrices of a batch as a tensor of three dims.
fn batch<'g>(x: Expr<'g>) -> Expr<'g> {
    match &x.sizes()[..] {
        [batch @ .., rows, columns] => x.reshape(&[numel(batch), *rows, *columns]),
        _ => x,
    }
}

fn tril<'g>(x: Expr<'g>, diagonal: i64) -> Expr<'g> {
    x.call(Op::Tril, &[], Triangle { diagonal }.into())
}

fn triu<'g>(x: Expr<'g>, diagonal: i64) -> Expr<'g> {
    x.call(Op::Triu, &[], Triangle { diagonal }.into())
}

fn slice<'g>(x: Expr<'g>, dim: i64, start: usize, end: usize) -> Expr<'g> {
    let attrs = Slice { dim, start: Some(start as i64), end: Some(end as i64), step: 1 };
    x.call(Op::Slice, &[], attrs.into())
}

impl<'g> Add for Matrix<'g> {
    type Output = Matrix<'g>;
    fn add(self, other: Matrix<'g>) -> Matrix<'g> {
        self.zip(other, |x, y| x + y)
    }
}

impl<'g> Sub for Matrix<'g> {
    type Output = Matrix<'g>;
    fn sub(self, other: Matrix<'g>) -> Matrix<'g> {
        self.zip(other, |x, y| x - y)
    }
}

impl<'g> Neg for Matrix<'g> {
    type Output = Matrix<'g>;
    fn neg(self) -> Matrix<'g> {
        self.map(|x| -x)
    }
}
