//! Operands of linear algebra: checks, batches, and the parts of packed results.

use crate::error::{Error, Result};
use crate::ir::packed::Part;
use crate::ir::shape::broadcast;
use crate::ir::{DType, Scalar};
use crate::ops::arguments::int;
use crate::ops::factories::full_on;
use crate::tensor::handle::Tensor;

/// Rejects what is no batch of matrices of f32 or f64, or of complex numbers of these.
pub(super) fn need_matrices(op: &str, x: &Tensor) -> Result<()> {
    if !matches!(x.dtype().part(), DType::F32 | DType::F64) {
        let hint = "convert with to_dtype(DType::F32) first";
        return Err(Error::unsupported(op, x.dtype(), "f32 and f64, and complex numbers of these", hint));
    }
    if x.dim() >= 2 {
        return Ok(());
    }
    let what = format!("The input tensor must have at least 2 dimensions, but its shape is {:?}", x.sizes());
    Err(Error::shape(op, what, "a matrix has two"))
}

/// Rejects what is no batch of square matrices of such numbers.
pub(super) fn need_square(op: &str, x: &Tensor) -> Result<()> {
    need_matrices(op, x)?;
    let [rows, columns] = shape(x);
    if rows == columns {
        return Ok(());
    }
    let what = format!("A must be batches of square matrices, but they are {rows} by {columns} matrices");
    Err(Error::shape(op, what, "pass square matrices"))
}

/// Rejects tensors of several dtypes.
pub(super) fn need_same(op: &str, names: [&str; 2], x: &Tensor, other: &Tensor) -> Result<()> {
    if x.dtype() == other.dtype() {
        return Ok(());
    }
    let hint = format!("Expected {} and {} to have the same dtype; convert one of them", names[0], names[1]);
    Err(Error::dtype(op, other.dtype(), x.dtype().name(), hint))
}

/// The rows and columns of the matrices.
pub(super) fn shape(x: &Tensor) -> [usize; 2] {
    let sizes = x.sizes();
    [sizes[x.dim() - 2], sizes[x.dim() - 1]]
}

/// The sizes before the matrices.
pub(super) fn batch(x: &Tensor) -> &[usize] {
    &x.sizes()[..x.dim() - 2]
}

/// The sizes of a batch and what follows it.
pub(super) fn sizes(batch: &[usize], rest: &[usize]) -> Vec<usize> {
    [batch, rest].concat()
}

/// Rows and columns swapped.
pub(super) fn mt(x: &Tensor) -> Result<Tensor> {
    x.transpose(-2, -1)
}

/// Rows and columns swapped, and complex numbers conjugated.
pub(super) fn mh(x: &Tensor) -> Result<Tensor> {
    if x.is_complex() { mt(x)?.conj() } else { mt(x) }
}

/// Both with the batch that they broadcast to.
pub(super) fn together(op: &str, x: &Tensor, other: &Tensor) -> Result<(Tensor, Tensor)> {
    let common = broadcast(op, batch(x), batch(other))?;
    let expanded = |x: &Tensor| match batch(x) == &common[..] {
        true => Ok(x.clone()),
        false => x.expand(&sizes(&common, &shape(x))[..]),
    };
    Ok((expanded(x)?, expanded(other)?))
}

/// A part of a packed result: its rows and columns.
pub(super) fn part(packed: &Tensor, part: Part) -> Result<Tensor> {
    let Part { start, rows, columns } = part;
    packed.narrow(-1, int(start), rows * columns)?.unflatten(-1, [int(rows), int(columns)])
}

/// A part of a packed result that is a vector of real numbers.
pub(super) fn vector(packed: &Tensor, part: Part) -> Result<Tensor> {
    real(&numbers(packed, part)?)
}

/// A part of a packed result that is a vector.
pub(super) fn numbers(packed: &Tensor, part: Part) -> Result<Tensor> {
    packed.narrow(-1, int(part.start), part.columns)
}

/// Real numbers that a row on complex ones gives as such.
pub(super) fn real(x: &Tensor) -> Result<Tensor> {
    if x.is_complex() { x.real()?.contiguous() } else { Ok(x.clone()) }
}

/// The first place (i32) along the last dim that is marked, counted from 1, or 0.
pub(super) fn first_marked(marks: &Tensor) -> Result<Tensor> {
    if marks.sizes().last() == Some(&0) {
        let sizes = &marks.sizes()[..marks.dim() - 1];
        return full_on(marks.device(), sizes, Scalar::Int(0), Some(DType::I32));
    }
    let marks = marks.to_dtype(DType::I32)?;
    marks.argmax(-1, false)?.add(1)?.to_dtype(DType::I32)?.mul(&marks.amax(-1, false)?)
}

/// Identity matrices of a batch, in the dtype and on the device of `like`.
pub(super) fn identity(like: &Tensor, batch: &[usize], order: usize) -> Result<Tensor> {
    let eye = Tensor::eye(order, like.dtype().part())?.to_dtype(like.dtype())?.to_device(like.device())?;
    eye.expand(&sizes(batch, &[order, order])[..])
}

/// Whether the right side of a system is a batch of vectors, and not of matrices.
pub(super) fn is_of_vectors(a: &Tensor, b: &Tensor) -> bool {
    b.dim() == 1 || (b.dim() + 1 == a.dim() && b.sizes() == &a.sizes()[..a.dim() - 1])
}
