//! Matrix products.
//!
//! `mm` and `bmm` are rows of the op table, which neither broadcast nor promote. [`Tensor::matmul`] reduces operands of
//! any rank to one of them, by views where strides allow. If only one side has batches, they are folded into the rows
//! of a single `mm`.

use crate::dispatch::key::grad_mode::is_grad_enabled;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{Addmm, MmDtype};
use crate::ir::shape::broadcast;
use crate::ir::{Attrs, DType, Op, Scalar};
use crate::ops::composite::Composite;
use crate::ops::reshaping::unsafe_view;
use crate::tensor::handle::Tensor;

static MATMUL: Composite = Composite::new("matmul(Tensor self, Tensor other) -> Tensor");
static LINEAR: Composite = Composite::new("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor");
static DOT: Composite = Composite::new("dot(Tensor self, Tensor tensor) -> Tensor");
static MV: Composite = Composite::new("mv(Tensor self, Tensor vec) -> Tensor");
static OUTER: Composite = Composite::new("outer(Tensor self, Tensor vec2) -> Tensor");

/// Matrix products that are one row of the op table.
impl Tensor {
    /// Matrix product of `(m, k)` and `(k, n)`: `(m, n)`. Both have the same dtype, which the result gets.
    ///
    /// # Errors
    /// If an operand is not 2-dim, if the inner sizes or the dtypes differ, or if the dtype is bool.
    #[track_caller]
    pub fn mm(&self, other: &Tensor) -> Result<Tensor> {
        call(Op::Mm, &[self, other], &[])
    }

    /// Batched matrix product of `(b, m, k)` and `(b, k, n)`: `(b, m, n)`. Nothing is broadcast. Both have the same
    /// dtype, which the result gets.
    ///
    /// # Errors
    /// If an operand is not 3-dim, if batch sizes, inner sizes or dtypes differ, or if the dtype is bool.
    #[track_caller]
    pub fn bmm(&self, other: &Tensor) -> Result<Tensor> {
        call(Op::Bmm, &[self, other], &[])
    }

    /// Like [`Tensor::mm`], with a result of dtype `out_dtype`: the operands' dtype, or [`DType::F32`] for 16-bit
    /// floats. Then the sums in f32 are not rounded.
    ///
    /// # Errors
    /// Same as [`Tensor::mm`]. Also for another `out_dtype`.
    #[track_caller]
    pub fn mm_dtype(&self, other: &Tensor, out_dtype: DType) -> Result<Tensor> {
        call(Op::MmDtype, &[self, other], &Attrs::from(MmDtype { out_dtype: Some(out_dtype) }))
    }

    /// Like [`Tensor::bmm`], with a result of dtype `out_dtype`. See [`Tensor::mm_dtype`].
    ///
    /// # Errors
    /// Same as [`Tensor::bmm`]. Also for another `out_dtype`.
    #[track_caller]
    pub fn bmm_dtype(&self, other: &Tensor, out_dtype: DType) -> Result<Tensor> {
        call(Op::BmmDtype, &[self, other], &Attrs::from(MmDtype { out_dtype: Some(out_dtype) }))
    }

    /// `self + mat1 @ mat2`. `mat1` is `(m, k)`, `mat2` is `(k, n)`, and `self` is broadcast to `(m, n)`. All have the
    /// same dtype, which the result gets.
    ///
    /// # Errors
    /// Same as [`Tensor::mm`]. Also if `self` does not broadcast to the product or has another dtype.
    #[track_caller]
    pub fn addmm(&self, mat1: &Tensor, mat2: &Tensor) -> Result<Tensor> {
        self.addmm_scaled(mat1, mat2, 1, 1)
    }

    /// `beta * self + alpha * (mat1 @ mat2)`. See [`Tensor::addmm`].
    ///
    /// # Errors
    /// Same as [`Tensor::addmm`].
    #[track_caller]
    pub fn addmm_scaled(
        &self,
        mat1: &Tensor,
        mat2: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        call(Op::Addmm, &[self, mat1, mat2], &Attrs::from(Addmm { beta: beta.into(), alpha: alpha.into() }))
    }

    /// `self + batch1 @ batch2`. `batch1` is `(b, m, k)`, `batch2` is `(b, k, n)`, and `self` is broadcast to `(b, m,
    /// n)`. All have the same dtype, which the result gets.
    ///
    /// # Errors
    /// Same as [`Tensor::bmm`]. Also if `self` does not broadcast to the product or has another dtype.
    #[track_caller]
    pub fn baddbmm(&self, batch1: &Tensor, batch2: &Tensor) -> Result<Tensor> {
        self.baddbmm_scaled(batch1, batch2, 1, 1)
    }

    /// `beta * self + alpha * (batch1 @ batch2)`. See [`Tensor::baddbmm`].
    ///
    /// # Errors
    /// Same as [`Tensor::baddbmm`].
    #[track_caller]
    pub fn baddbmm_scaled(
        &self,
        batch1: &Tensor,
        batch2: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        call(Op::Baddbmm, &[self, batch1, batch2], &Attrs::from(Addmm { beta: beta.into(), alpha: alpha.into() }))
    }
}

/// Products made of those rows.
impl Tensor {
    /// Inner product of two 1-dim tensors of the same size: 0-dim. Both have the same dtype, which the result gets.
    ///
    /// # Errors
    /// If an operand is not 1-dim, if the sizes or dtypes differ, or if the dtype is bool.
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Result<Tensor> {
        DOT.call((self, other))
    }

    /// Product of a matrix `(m, k)` and a vector `(k)`: `(m)`. Both have the same dtype, which the result gets.
    ///
    /// # Errors
    /// If ranks, inner sizes or dtypes do not fit, or if the dtype is bool.
    #[track_caller]
    pub fn mv(&self, vector: &Tensor) -> Result<Tensor> {
        MV.call((self, vector))
    }

    /// Outer product of vectors `(n)` and `(m)`: `(n, m)`. Dtypes are promoted.
    ///
    /// # Errors
    /// If an operand is not 1-dim.
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        OUTER.call((self, other))
    }

    /// Matrix product over the last two dims. The dims in front are broadcast. Both have the same dtype, which the
    /// result gets.
    ///
    /// A 1-dim left operand is a row, and a 1-dim right operand is a column. That dim does not appear in the result.
    ///
    /// # Errors
    /// If an operand is 0-dim, if the inner sizes or dtypes differ, if the batches do not broadcast, or if the dtype is
    /// bool.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        MATMUL.call((self, other))
    }

    /// Linear layer: `self @ weight' + bias`. `self` is `(…, in)`, `weight` is `(out, in)`, and `bias` is `(out)`: the
    /// result is `(…, out)`. With a weight of `(in)`, and a bias of `(1)` or `()`, the result is `(…)`. All have the
    /// same dtype, which the result gets.
    ///
    /// # Errors
    /// If the weight has neither 1 nor 2 dims, if sizes or dtypes do not fit, or if the dtype is bool.
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        LINEAR.call((self, weight, bias))
    }
}

// Decompositions of these products.

fn dot(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    if left.dim() != 1 || right.dim() != 1 || left.numel() != right.numel() {
        return Err(mismatch("dot", left, right, "both must be 1-dim and of one size"));
    }
    if left.dtype() == right.dtype() && left.dtype().is_float() {
        return call(Op::Dot, &[left, right], &[]);
    }
    unsafe_view(&left.unsqueeze(0)?.mm(&right.unsqueeze(1)?)?, &[])
}

fn mv(matrix: &Tensor, vector: &Tensor) -> Result<Tensor> {
    if matrix.dim() != 2 || vector.dim() != 1 || matrix.sizes()[1] != vector.numel() {
        return Err(mismatch("mv", matrix, vector, "a (m, k) matrix and a vector of k elements are needed"));
    }
    unsafe_view(&matrix.mm(&vector.unsqueeze(1)?)?, &matrix.sizes()[..1])
}

fn outer(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    if left.dim() != 1 || right.dim() != 1 {
        return Err(mismatch("outer", left, right, "both must be 1-dim"));
    }
    left.unsqueeze(1)?.mul(right)
}

/// `beta * term + alpha * (matrix @ vector)`.
fn addmv(term: &Tensor, matrix: &Tensor, vector: &Tensor, beta: Scalar, alpha: Scalar) -> Result<Tensor> {
    if matrix.dim() != 2 || vector.dim() != 1 || matrix.sizes()[1] != vector.numel() || term.dim() > 1 {
        return Err(mismatch("addmv", matrix, vector, "a (m, k) matrix and a vector of k elements are needed"));
    }
    let column = if term.dim() == 0 { term.clone() } else { term.unsqueeze(1)? };
    unsafe_view(&column.addmm_scaled(matrix, &vector.unsqueeze(1)?, beta, alpha)?, &matrix.sizes()[..1])
}

fn matmul(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let inner = match (left.sizes(), right.sizes()) {
        (&[.., k], &[n] | &[.., n, _]) => (k, n),
        _ => return Err(mismatch("matmul", left, right, "both must have at least one dim; use mul for numbers")),
    };
    if inner.0 != inner.1 {
        let hint = format!("the inner sizes {} and {} must be equal", inner.0, inner.1);
        return Err(mismatch("matmul", left, right, &hint));
    }
    match (left.dim(), right.dim()) {
        (1, 1) => left.dot(right),
        (2, 1) => left.mv(right),
        (1, 2) => unsafe_view(&left.unsqueeze(0)?.mm(right)?, &right.sizes()[1..]),
        (2, 2) => left.mm(right),
        (3.., 1 | 2) if folds(left) || is_recorded(left, right) => fold(left, right),
        (3.., 3..)
            if is_one_matrix(right) && right.dim() <= left.dim() && (folds(left) || is_recorded(left, right)) =>
        {
            let batch: Vec<i64> = (0..right.dim() as i64 - 2).collect();
            fold(left, &right.squeeze(&batch[..])?)
        }
        (1 | 2, 3..) if folds(&right.transpose(-2, -1)?) => {
            // `(a b)' = b' a'`, which has the batches on the left.
            let product = fold(&right.transpose(-2, -1)?, &left.t()?)?;
            if left.dim() == 1 { Ok(product) } else { product.transpose(-2, -1) }
        }
        (_, _) => batched(left, right),
    }
}

fn linear(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (outer, inner) = match *weight.sizes() {
        [inner] => (None, inner),
        [outer, inner] => (Some(outer), inner),
        _ => return Err(mismatch("linear", input, weight, "a (out, in) or (in) weight is needed")),
    };
    if input.sizes().last() != Some(&inner) {
        return Err(mismatch("linear", input, weight, "a (…, in) input and a (out, in) or (in) weight are needed"));
    }
    let weight = weight.t()?;
    let Some(bias) = bias else { return input.matmul(&weight) };
    if bias.dim() > 0 && bias.sizes() != [outer.unwrap_or(1)] {
        return Err(mismatch("linear", bias, &weight, "a (out) bias and a (out, in) weight are needed"));
    }
    if bias.dtype() != weight.dtype() {
        let hint = "convert the bias to the weight's dtype";
        return Err(Error::dtype("linear", bias.dtype(), weight.dtype().name(), hint));
    }
    match outer {
        // Over strided rows too: a sum in a second step would round 16-bit elements twice, and a batch of one, whose
        // rows can always be joined, would have other bits than the same row among others.
        Some(outer) if input.dim() >= 2 => {
            let (rows, inner) = rows_of(input);
            let sum = bias.addmm(&input.reshape(&[rows, inner][..])?, &weight)?;
            unsafe_view(&sum, &[&input.sizes()[..input.dim() - 1], &[outer]].concat())
        }
        Some(_) | None => input.matmul(&weight)?.add(bias),
    }
}

/// Whether all dims except the last can be joined without a copy.
fn folds(left: &Tensor) -> bool {
    let (rows, inner) = rows_of(left);
    left.numel() == 0 || left.array().layout.view(&[rows, inner]).is_some()
}

/// Whether gradients are recorded. If all batches share a matrix, its gradient is then one product, summed without
/// intermediate rounding. Otherwise it would be the sum of one rounded product per batch.
fn is_recorded(left: &Tensor, right: &Tensor) -> bool {
    is_grad_enabled() && (left.requires_grad() || right.requires_grad())
}

/// Whether all batch dims have size 1.
fn is_one_matrix(right: &Tensor) -> bool {
    right.sizes()[..right.dim() - 2].iter().all(|&size| size == 1)
}

/// The product of all sizes except the last, and the last size.
fn rows_of(left: &Tensor) -> (usize, usize) {
    match left.sizes() {
        [outer @ .., inner] => (outer.iter().product(), *inner),
        [] => (1, 1),
    }
}

/// `(…, k) @ (k, n)` or `(…, k) @ (k)` as one matrix product.
fn fold(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let (rows, inner) = rows_of(left);
    let outer = &left.sizes()[..left.dim() - 1];
    let matrix = left.reshape(&[rows, inner][..])?;
    if right.dim() == 1 {
        return unsafe_view(&matrix.mv(right)?, outer);
    }
    unsafe_view(&matrix.mm(right)?, &[outer, &right.sizes()[1..]].concat())
}

/// Expands both sides to the common batch and folds them to 3 dims.
fn batched(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let (left_is_row, right_is_column) = (left.dim() == 1, right.dim() == 1);
    let left = if left_is_row { left.unsqueeze(0)? } else { left.clone() };
    let right = if right_is_column { right.unsqueeze(1)? } else { right.clone() };
    let (left_batch, left_matrix) = left.sizes().split_at(left.dim() - 2);
    let (right_batch, right_matrix) = right.sizes().split_at(right.dim() - 2);
    let batch = broadcast("matmul", left_batch, right_batch)?;
    let n_batches: usize = batch.iter().product();
    let spread = |side: &Tensor, matrix: &[usize]| {
        let expanded = side.expand(&[&batch, matrix].concat()[..])?;
        expanded.reshape(&[&[n_batches], matrix].concat()[..])
    };
    let product = spread(&left, left_matrix)?.bmm(&spread(&right, right_matrix)?)?;
    let mut sizes = batch.to_vec();
    if !left_is_row {
        sizes.push(left_matrix[0]);
    }
    if !right_is_column {
        sizes.push(right_matrix[1]);
    }
    unsafe_view(&product, &sizes)
}

fn mismatch(op: &str, left: &Tensor, right: &Tensor, hint: &str) -> Error {
    Error::shape(op, format!("shapes {:?} and {:?} do not fit", left.sizes(), right.sizes()), hint)
}

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&MATMUL, matmul)?
        .composite(&LINEAR, linear)?
        .composite(&DOT, dot)?
        .composite(&MV, mv)?
        .composite(&OUTER, outer)?
        .def_kernel("addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor", addmv)?;
    Ok(())
}
