//! Cholesky factorizations, and what is solved by them.

use super::operands::{batch, first_marked, identity, mh, mt, need_matrices, need_same, need_square, shape, together};
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::CholeskyFactor;
use crate::ir::{Attrs, Op};
use crate::ops::composite::Composite;
use crate::tensor::handle::Tensor;

static CHOLESKY_EX: Composite = Composite::new(
    "linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)",
);
static CHOLESKY: Composite = Composite::new("linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor");
static CHOLESKY_SOLVE: Composite =
    Composite::new("cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor");
static CHOLESKY_INVERSE: Composite = Composite::new("cholesky_inverse(Tensor self, bool upper=False) -> Tensor");

/// Cholesky factorizations.
impl Tensor {
    /// The lower triangle `L` of `A = L Lᴴ`, for positive definite matrices that are symmetric or, with complex
    /// numbers, Hermitian; if `upper`, the upper one of `Uᴴ U`. Only that triangle of `A` is read. f32 and f64,
    /// complex64 and complex128. The gradient is symmetric or Hermitian.
    ///
    /// ```
    /// # use opfuse::{Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let a = Tensor::try_from([[4.0f64, 2.0], [2.0, 10.0]])?;
    /// assert_eq!(a.linalg_cholesky(false)?.to_vec::<f64>()?, [2.0, 0.0, 1.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the matrices are not square, or if one is not positive definite: the error names its place in the batch.
    #[track_caller]
    pub fn linalg_cholesky(&self, upper: bool) -> Result<Tensor> {
        CHOLESKY.call((self, upper))
    }

    /// The same as [`Tensor::linalg_cholesky`], and for each matrix the order (i32) of its first leading minor that is
    /// not positive, or 0. Where there is one, the factor is NaN from there on.
    ///
    /// # Errors
    /// If the matrices are not square.
    #[track_caller]
    pub fn linalg_cholesky_ex(&self, upper: bool) -> Result<(Tensor, Tensor)> {
        CHOLESKY_EX.call((self, upper, false))
    }

    /// The solution `X` of `A X = B`, where `B` is this tensor and `factor` is what [`Tensor::linalg_cholesky`] gives
    /// for `A`.
    ///
    /// # Errors
    /// If the shapes do not fit, or if the dtypes differ.
    #[track_caller]
    pub fn cholesky_solve(&self, factor: &Tensor, upper: bool) -> Result<Tensor> {
        CHOLESKY_SOLVE.call((self, factor, upper))
    }

    /// The inverse of `A`, where this tensor is what [`Tensor::linalg_cholesky`] gives for `A`.
    ///
    /// # Errors
    /// If the matrices are not square.
    #[track_caller]
    pub fn cholesky_inverse(&self, upper: bool) -> Result<Tensor> {
        CHOLESKY_INVERSE.call((self, upper))
    }
}

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&CHOLESKY_EX, |x: &Tensor, upper: bool, check: bool| {
            let factor = factor("linalg.cholesky_ex", x, upper, check)?;
            let info = first_marked(&factor.detach()?.diagonal(0, -2, -1)?.isnan()?)?;
            Ok((factor, info))
        })?
        .composite(&CHOLESKY, |x: &Tensor, upper: bool| factor("linalg.cholesky", x, upper, true))?
        .def_kernel("cholesky(Tensor self, bool upper=False) -> Tensor", |x: &Tensor, upper: bool| {
            factor("cholesky", x, upper, true)
        })?
        .composite(&CHOLESKY_SOLVE, |b: &Tensor, factor: &Tensor, upper: bool| {
            solve("cholesky_solve", factor, b, upper)
        })?
        .composite(&CHOLESKY_INVERSE, |factor: &Tensor, upper: bool| {
            need_square("cholesky_inverse", factor)?;
            solve("cholesky_inverse", factor, &identity(factor, batch(factor), shape(factor)[0])?, upper)
        })?;
    Ok(())
}

fn factor(op: &str, x: &Tensor, upper: bool, check: bool) -> Result<Tensor> {
    need_square(op, x)?;
    mt(&call(Op::CholeskyFactor, &[x], &Attrs::from(CholeskyFactor { upper, check, pairs: false }))?)
}

fn solve(op: &str, factor: &Tensor, b: &Tensor, upper: bool) -> Result<Tensor> {
    need_square(op, factor)?;
    need_matrices(op, b)?;
    need_same(op, ["the right side", "the factor"], b, factor)?;
    if shape(factor)[0] != shape(b)[0] {
        let what = format!("a factor of shape {:?} and a right side of {:?}", factor.sizes(), b.sizes());
        return Err(Error::shape(op, what, "both must have as many rows"));
    }
    let (factor, b) = together(op, factor, b)?;
    let lower = if upper { mh(&factor)? } else { factor };
    let half = lower.linalg_solve_triangular(&b, false)?;
    mh(&lower)?.linalg_solve_triangular(&half, true)
}
