//! Systems of equations, inverses and determinants.

use super::lu::{factored, solve_factored};
use super::operands::{batch, is_of_vectors, mt, need_matrices, need_same, need_square, real, shape, together};
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{Checked, SolveTriangular};
use crate::ir::{Attrs, Op};
use crate::ops::arguments::{int, int_list};
use crate::ops::composite::Composite;
use crate::tensor::handle::Tensor;

static SOLVE_TRIANGULAR: Composite = Composite::new(
    "linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor",
);
static SOLVE_EX: Composite = Composite::new(
    "linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)",
);
static SOLVE: Composite = Composite::new("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor");
static INV_EX: Composite =
    Composite::new("linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)");
static INV: Composite = Composite::new("linalg_inv(Tensor A) -> Tensor");
static DET: Composite = Composite::new("linalg_det(Tensor A) -> Tensor");
static SLOGDET: Composite = Composite::new("linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)");
static LOGDET: Composite = Composite::new("logdet(Tensor self) -> Tensor");
static TENSORINV: Composite = Composite::new("linalg_tensorinv(Tensor self, int ind=2) -> Tensor");
static TENSORSOLVE: Composite =
    Composite::new("linalg_tensorsolve(Tensor self, Tensor other, int[]? dims=None) -> Tensor");

/// Systems of equations, inverses and determinants. f32 and f64, complex64 and complex128.
impl Tensor {
    /// The solution `X` of `A X = B`, where `A` is this tensor, and only its lower triangle is read, or the upper one
    /// if `upper`. A zero on the diagonal gives infinities or NaNs. Batches are broadcast.
    ///
    /// # Errors
    /// If `A` is not square, if the rows of `B` are not as many, or if the dtypes differ.
    #[track_caller]
    pub fn linalg_solve_triangular(&self, b: &Tensor, upper: bool) -> Result<Tensor> {
        SOLVE_TRIANGULAR.call((self, b, upper, true, false))
    }

    /// The solution `X` of `A X = B`, where `A` is this tensor. `B` is a vector, a batch of vectors with the batch of
    /// `A`, or a batch of matrices; batches of matrices are broadcast.
    ///
    /// ```
    /// # use opfuse::{Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let a = Tensor::try_from([[2.0f64, 0.0], [1.0, 4.0]])?;
    /// let b = Tensor::try_from([2.0f64, 9.0])?;
    /// assert_eq!(a.linalg_solve(&b)?.to_vec::<f64>()?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If `A` is not square, if the shapes do not fit, if the dtypes differ, or if a matrix is singular: the error
    /// names its place in the batch.
    #[track_caller]
    pub fn linalg_solve(&self, b: &Tensor) -> Result<Tensor> {
        SOLVE.call((self, b, true))
    }

    /// The same as [`Tensor::linalg_solve`], and for each matrix the place (i32) of its first zero pivot, counted from
    /// 1, or 0. Where there is one, the solution has infinities and NaNs.
    ///
    /// # Errors
    /// As for [`Tensor::linalg_solve`], except for singular matrices.
    #[track_caller]
    pub fn linalg_solve_ex(&self, b: &Tensor) -> Result<(Tensor, Tensor)> {
        SOLVE_EX.call((self, b, true, false))
    }

    /// The inverse of each matrix. To multiply by it, [`Tensor::linalg_solve`] is faster and more exact.
    ///
    /// # Errors
    /// If the matrices are not square, or if one is singular: the error names its place in the batch.
    #[track_caller]
    pub fn linalg_inv(&self) -> Result<Tensor> {
        INV.call((self,))
    }

    /// The inverse of each matrix, and the place (i32) of its first zero pivot, counted from 1, or 0.
    ///
    /// # Errors
    /// If the matrices are not square.
    #[track_caller]
    pub fn linalg_inv_ex(&self) -> Result<(Tensor, Tensor)> {
        INV_EX.call((self, false))
    }

    /// The determinant of each matrix. It has a gradient where a matrix is singular, too.
    ///
    /// # Errors
    /// If the matrices are not square.
    #[track_caller]
    pub fn linalg_det(&self) -> Result<Tensor> {
        DET.call((self,))
    }

    /// The sign of the determinant of each matrix (0 if it is singular), and the logarithm of its magnitude. The sign
    /// of a complex number is the one of magnitude 1 with its direction.
    ///
    /// # Errors
    /// If the matrices are not square.
    #[track_caller]
    pub fn linalg_slogdet(&self) -> Result<(Tensor, Tensor)> {
        SLOGDET.call((self,))
    }

    /// The logarithm of the determinant of each matrix: NaN if that is negative, and the principal one if it is
    /// complex.
    ///
    /// # Errors
    /// If the matrices are not square.
    #[track_caller]
    pub fn logdet(&self) -> Result<Tensor> {
        LOGDET.call((self,))
    }

    /// The inverse of [`Tensor::tensordot`] over the dims from `ind` on: the first `ind` dims have as many elements as
    /// the others.
    ///
    /// # Errors
    /// If they have not, if `ind` is not positive, or if the matrix is singular.
    #[track_caller]
    pub fn linalg_tensorinv(&self, ind: usize) -> Result<Tensor> {
        TENSORINV.call((self, int(ind)))
    }

    /// The solution `X` of `tensordot(A, X) = B`, where `A` is this tensor. Its last dims are those of `X`.
    ///
    /// # Errors
    /// If the shapes do not fit, or if the matrix is singular.
    #[track_caller]
    pub fn linalg_tensorsolve(&self, b: &Tensor) -> Result<Tensor> {
        TENSORSOLVE.call((self, b, None::<&[i64]>))
    }
}

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&SOLVE_TRIANGULAR, |a: &Tensor, b: &Tensor, upper: bool, left: bool, unit: bool| {
            solve_triangular("linalg.solve_triangular", a, b, upper, left, unit)
        })?
        .def_kernel(
            "triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) \
             -> (Tensor solution, Tensor cloned_coefficient)",
            |b: &Tensor, a: &Tensor, upper: bool, transpose: bool, unit: bool| {
                let op = "triangular_solve";
                need_square(op, a)?;
                let turned = if transpose { mt(a)? } else { a.clone() };
                Ok((solve_triangular(op, &turned, b, upper != transpose, true, unit)?, a.copy()?))
            },
        )?
        .composite(&SOLVE_EX, |a: &Tensor, b: &Tensor, left: bool, check: bool| {
            let op = "linalg.solve_ex";
            check_system(op, a, b, left)?;
            let (lu, pivots, info) = factored(op, a, check)?;
            Ok((with_matrices(a, b, |b| solve_factored(op, &lu, &pivots, b, left, false))?, info))
        })?
        .composite(&SOLVE, |a: &Tensor, b: &Tensor, left: bool| solve("linalg.solve", a, b, left))?
        .composite(&INV_EX, |a: &Tensor, check: bool| {
            let op = "linalg.inv_ex";
            need_square(op, a)?;
            let (_, _, info) = factored(op, &a.detach()?, false)?;
            Ok((inverse_of(a, check)?, info))
        })?
        .composite(&INV, |a: &Tensor| {
            need_square("linalg.inv", a)?;
            inverse_of(a, true)
        })?
        .def_kernel("inverse(Tensor self) -> Tensor", |a: &Tensor| a.linalg_inv())?
        .composite(&DET, |a: &Tensor| determinant("linalg.det", a))?
        .def_kernel("det(Tensor self) -> Tensor", |a: &Tensor| a.linalg_det())?
        .composite(&SLOGDET, |a: &Tensor| log_determinant("linalg.slogdet", a))?
        .def_kernel("slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)", |a: &Tensor| a.linalg_slogdet())?
        .composite(&LOGDET, |a: &Tensor| {
            let (sign, log) = log_determinant("logdet", a)?;
            if a.is_complex() {
                return sign.log()?.add(&log);
            }
            sign.lt(0)?.where_(f64::NAN, &log)
        })?
        .composite(&TENSORINV, tensorinv)?
        .composite(&TENSORSOLVE, tensorsolve)?;
    Ok(())
}

fn solve_triangular(op: &str, a: &Tensor, b: &Tensor, upper: bool, left: bool, unit: bool) -> Result<Tensor> {
    need_square(op, a)?;
    need_matrices(op, b)?;
    need_same(op, ["A", "B"], a, b)?;
    fits(op, a, b, left)?;
    let (a, b) = together(op, a, b)?;
    let solve = |a: &Tensor, b: &Tensor, upper: bool| {
        call(Op::SolveTriangular, &[a, b], &Attrs::from(SolveTriangular { upper, unitriangular: unit, pairs: false }))
    };
    // `X A = B` is `Aᵀ Xᵀ = Bᵀ`, and the row returns a transposed solution.
    if left { mt(&solve(&a, &b, upper)?) } else { solve(&mt(&a)?, &mt(&b)?, !upper) }
}

/// Rejects a right side of other sizes.
fn fits(op: &str, a: &Tensor, b: &Tensor, left: bool) -> Result<()> {
    let ([order, _], [rows, columns]) = (shape(a), shape(b));
    if order == if left { rows } else { columns } {
        return Ok(());
    }
    let equation = if left { "AX = B" } else { "XA = B" };
    let what = format!(
        "Incompatible shapes of A and B for the equation {equation} ({order}x{order} and {rows}x{columns}); shapes are \
         {:?} and {:?}",
        a.sizes(),
        b.sizes()
    );
    Err(Error::shape(op, what, "the sizes must agree"))
}

fn check_system(op: &str, a: &Tensor, b: &Tensor, left: bool) -> Result<()> {
    need_square(op, a)?;
    need_same(op, ["A", "B"], a, b)?;
    if is_of_vectors(a, b) {
        if !left {
            let what = "Vector broadcasting of the left hand side is not supported for left=False. In this case \
                        linalg.solve is equivalent to B / A.squeeze(-1)";
            return Err(Error::argument(op, what));
        }
        return fits(op, a, &b.unsqueeze(-1)?, left);
    }
    need_matrices(op, b)?;
    fits(op, a, b, left)
}

/// Calls `solve` with a right side of matrices, and returns vectors if that was vectors.
fn with_matrices(a: &Tensor, b: &Tensor, solve: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if is_of_vectors(a, b) { solve(&b.unsqueeze(-1)?)?.squeeze(-1) } else { solve(b) }
}

fn solve(op: &str, a: &Tensor, b: &Tensor, left: bool) -> Result<Tensor> {
    check_system(op, a, b, left)?;
    with_matrices(a, b, |b| {
        let (a, b) = together(op, a, b)?;
        let solve =
            |a: &Tensor, b: &Tensor| call(Op::Solve, &[a, b], &Attrs::from(Checked { check: true, pairs: false }));
        if left { mt(&solve(&a, &b)?) } else { solve(&mt(&a)?, &mt(&b)?) }
    })
}

/// The inverses of square matrices.
pub(super) fn inverse_of(a: &Tensor, check: bool) -> Result<Tensor> {
    mt(&call(Op::Inverse, &[a], &Attrs::from(Checked { check, pairs: false }))?)
}

fn determinant(op: &str, a: &Tensor) -> Result<Tensor> {
    need_square(op, a)?;
    call(Op::Determinant, &[a], &Attrs::new())
}

fn log_determinant(op: &str, a: &Tensor) -> Result<(Tensor, Tensor)> {
    need_square(op, a)?;
    let pair = call(Op::LogDeterminant, &[a], &Attrs::new())?;
    let one = |index: i64| match batch(a) {
        [] => pair.select(-1, index),
        _ => pair.select(-1, index)?.contiguous(),
    };
    Ok((one(0)?, real(&one(1)?)?))
}

fn tensorinv(a: &Tensor, ind: i64) -> Result<Tensor> {
    let op = "linalg.tensorinv";
    let Some(ind) = usize::try_from(ind).ok().filter(|&ind| ind > 0 && ind <= a.dim()) else {
        let what = format!("Expected a strictly positive integer for 'ind', at most {}, but got {ind}", a.dim());
        return Err(Error::argument(op, what));
    };
    let (rows, columns) = a.sizes().split_at(ind);
    let [order, other] = [rows, columns].map(|sizes| sizes.iter().product::<usize>());
    if order != other {
        let what = format!(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {other} \
             != {order}"
        );
        return Err(Error::shape(op, what, "choose another ind"));
    }
    let inverse = a.reshape([int(order), int(order)])?.linalg_inv()?;
    inverse.reshape(&int_list(&[columns, rows].concat())[..])
}

fn tensorsolve(a: &Tensor, b: &Tensor, dims: Option<&[i64]>) -> Result<Tensor> {
    let op = "linalg.tensorsolve";
    let last: Vec<i64> =
        (0..dims.map_or(0, <[i64]>::len)).map(|dim| int(dim) - int(dims.map_or(0, <[i64]>::len))).collect();
    let a = match dims {
        Some(dims) => a.movedim(dims, &last[..])?,
        None => a.clone(),
    };
    let solved = a.sizes().get(b.dim()..).unwrap_or_default().to_vec();
    let [order, rows] = [solved.iter().product::<usize>(), b.numel()];
    if order != rows || a.numel() != order * rows {
        let what =
            format!("Expected self to be a square matrix over {:?}, but its shape is {:?}", b.sizes(), a.sizes());
        return Err(Error::shape(op, what, "the dims of other come first, and the others have as many elements"));
    }
    let solution = a.reshape([int(rows), int(order)])?.linalg_solve(&b.reshape([-1])?)?;
    solution.reshape(&int_list(&solved)[..])
}
