//! What follows from singular values: pseudoinverses, least squares, ranks, condition numbers.

use super::lu::factored;
use super::operands::{batch, is_of_vectors, mh, mt, need_matrices, need_same, need_square, shape, sizes, together};
use super::solving::inverse_of;
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::shape::broadcast;
use crate::ir::{Attrs, DType, Op, Scalar};
use crate::ops::arguments::int;
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::ops::matrix_norms::by_order;
use crate::tensor::handle::Tensor;

static LSTSQ: Composite = Composite::new(
    "linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution, Tensor \
     residuals, Tensor rank, Tensor singular_values)",
);
static PINV: Composite = Composite::new(
    "linalg_pinv.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor",
);
static MATRIX_RANK: Composite = Composite::new(
    "linalg_matrix_rank.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> \
     Tensor",
);
static COND: Composite = Composite::new("linalg_cond(Tensor self, Scalar? p=None) -> Tensor");

/// Least squares, pseudoinverses, ranks, condition numbers. f32 and f64, complex64 and complex128.
impl Tensor {
    /// The `X` for which `|A X - B|` is least, where `A` is this tensor; among several, the least. Singular values of
    /// at most `rcond` times the greatest count as 0; the default is the distance from 1 to the next number, times the
    /// greater size of `A`. Also returns the sums of squares of `A X - B` (only from other drivers of
    /// `aten::linalg_lstsq`, and empty here), the ranks (i64), and the singular values (likewise).
    ///
    /// # Errors
    /// If the shapes do not fit, if the dtypes differ, or if a matrix has infinities or NaNs.
    #[track_caller]
    pub fn linalg_lstsq(&self, b: &Tensor, rcond: impl Into<Option<f64>>) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
        LSTSQ.call((self, b, rcond.into(), None::<&str>))
    }

    /// The pseudoinverse of each matrix. Singular values of at most `rtol` times the greatest count as 0; the default
    /// is as for [`Tensor::linalg_lstsq`].
    ///
    /// # Errors
    /// If there are fewer than two dims, or if a matrix has infinities or NaNs.
    #[track_caller]
    pub fn linalg_pinv(&self, rtol: impl Into<Option<f64>>) -> Result<Tensor> {
        PINV.call((self, None::<f64>, rtol.into(), false))
    }

    /// The number (i64) of singular values above `rtol` times the greatest; the default is as for
    /// [`Tensor::linalg_lstsq`].
    ///
    /// # Errors
    /// Same as [`Tensor::linalg_pinv`].
    #[track_caller]
    pub fn linalg_matrix_rank(&self, rtol: impl Into<Option<f64>>) -> Result<Tensor> {
        MATRIX_RANK.call((self, None::<f64>, rtol.into(), false))
    }

    /// The condition number of each matrix by the norm of order `p`: the greatest singular value over the least for
    /// `None`, and else the norm of the matrix times that of its inverse.
    ///
    /// # Errors
    /// If the matrices are not square and the norm is another than 2 and -2.
    #[track_caller]
    pub fn linalg_cond(&self, p: impl Into<Option<Scalar>>) -> Result<Tensor> {
        COND.call((self, p.into()))
    }
}

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&LSTSQ, lstsq)?
        .composite(&PINV, |a: &Tensor, atol: Option<f64>, rtol: Option<f64>, hermitian: bool| {
            pinv(a, &Tolerance::numbers("linalg.pinv", a, atol, rtol)?, hermitian)
        })?
        .def_kernel(
            "linalg_pinv.atol_rtol_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) \
             -> Tensor",
            |a: &Tensor, atol: Option<&Tensor>, rtol: Option<&Tensor>, hermitian: bool| {
                pinv(a, &Tolerance::tensors("linalg.pinv", a, atol, rtol)?, hermitian)
            },
        )?
        .def_kernel(
            "linalg_pinv(Tensor self, float rcond, bool hermitian=False) -> Tensor",
            |a: &Tensor, rcond: f64, hermitian: bool| {
                pinv(a, &Tolerance::numbers("linalg.pinv", a, Some(0.0), Some(rcond))?, hermitian)
            },
        )?
        .def_kernel(
            "linalg_pinv.rcond_tensor(Tensor self, Tensor rcond, bool hermitian=False) -> Tensor",
            |a: &Tensor, rcond: &Tensor, hermitian: bool| {
                pinv(a, &Tolerance::tensors("linalg.pinv", a, None, Some(rcond))?, hermitian)
            },
        )?
        .def_kernel("pinverse(Tensor self, float rcond=1e-15) -> Tensor", |a: &Tensor, rcond: f64| {
            pinv(a, &Tolerance::numbers("pinverse", a, Some(0.0), Some(rcond))?, false)
        })?
        .composite(&MATRIX_RANK, |a: &Tensor, atol: Option<f64>, rtol: Option<f64>, hermitian: bool| {
            rank(a, &Tolerance::numbers("linalg.matrix_rank", a, atol, rtol)?, hermitian)
        })?
        .def_kernel(
            "linalg_matrix_rank.atol_rtol_tensor(Tensor input, *, Tensor? atol=None, Tensor? rtol=None, bool \
             hermitian=False) -> Tensor",
            |a: &Tensor, atol: Option<&Tensor>, rtol: Option<&Tensor>, hermitian: bool| {
                rank(a, &Tolerance::tensors("linalg.matrix_rank", a, atol, rtol)?, hermitian)
            },
        )?
        .def_kernel(
            "linalg_matrix_rank(Tensor self, float tol, bool hermitian=False) -> Tensor",
            |a: &Tensor, tol: f64, hermitian: bool| {
                rank(a, &Tolerance::numbers("linalg.matrix_rank", a, Some(tol), Some(0.0))?, hermitian)
            },
        )?
        .def_kernel(
            "linalg_matrix_rank.tol_tensor(Tensor input, Tensor tol, bool hermitian=False) -> Tensor",
            |a: &Tensor, tol: &Tensor, hermitian: bool| {
                let zero = number(a, 0.0)?;
                rank(a, &Tolerance::tensors("linalg.matrix_rank", a, Some(tol), Some(&zero))?, hermitian)
            },
        )?
        .composite(&COND, |a: &Tensor, p: Option<Scalar>| conditioned(a, p.map_or(Ok(2.0), |p| Ok(p.as_f64()))))?
        .def_kernel("linalg_cond.p_str(Tensor self, str p) -> Tensor", |a: &Tensor, p: &str| conditioned(a, Err(p)))?;
    Ok(())
}

/// Up to which size singular values count as 0: one absolute and one relative number per matrix.
struct Tolerance {
    op: &'static str,
    absolute: Tensor,
    relative: Tensor,
}

/// A real number in the precision and on the device of `like`.
fn number(like: &Tensor, value: f64) -> Result<Tensor> {
    full_on(like.device(), &[], value.into(), Some(like.dtype().part()))
}

/// The default of a relative tolerance.
fn default_tolerance(a: &Tensor) -> f64 {
    let epsilon = if a.dtype().part() == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    let [rows, columns] = shape(a);
    epsilon * rows.max(columns) as f64
}

impl Tolerance {
    fn numbers(op: &'static str, a: &Tensor, absolute: Option<f64>, relative: Option<f64>) -> Result<Tolerance> {
        need_matrices(op, a)?;
        let absolute = absolute.unwrap_or(0.0);
        let relative = relative.unwrap_or(if absolute > 0.0 { 0.0 } else { default_tolerance(a) });
        Ok(Tolerance { op, absolute: number(a, absolute)?, relative: number(a, relative)? })
    }

    fn tensors(
        op: &'static str,
        a: &Tensor,
        absolute: Option<&Tensor>,
        relative: Option<&Tensor>,
    ) -> Result<Tolerance> {
        need_matrices(op, a)?;
        let given = |x: Option<&Tensor>| x.map_or_else(|| number(a, 0.0), |x| x.detach()?.to_dtype(a.dtype().part()));
        let (absolute_or_0, default) = (given(absolute)?, default_tolerance(a));
        let relative = match (relative, absolute) {
            (Some(relative), _) => given(Some(relative))?,
            (None, Some(_)) => absolute_or_0.gt(0)?.where_(0.0, number(a, default)?)?,
            (None, None) => number(a, default)?,
        };
        Ok(Tolerance { op, absolute: absolute_or_0, relative })
    }

    /// The greatest of both for each matrix, in a last dim of size 1, given the greatest singular values there.
    fn bound(&self, greatest: &Tensor) -> Result<Tensor> {
        let [absolute, relative] = [self.absolute.unsqueeze(-1)?, self.relative.unsqueeze(-1)?];
        absolute.maximum(&relative.mul(greatest)?)
    }
}

/// The symmetric or Hermitian matrices with these lower triangles.
fn symmetric(a: &Tensor) -> Result<Tensor> {
    a.tril(0)?.add(&mh(&a.tril(-1)?)?)
}

fn pinv(a: &Tensor, tolerance: &Tolerance, hermitian: bool) -> Result<Tensor> {
    let a = if hermitian {
        need_square(tolerance.op, a)?;
        // The value is that of the lower triangle. The gradient is that of any matrix, as PyTorch's.
        a.add(&symmetric(a)?.sub(a)?.detach()?)?
    } else {
        a.clone()
    };
    let common = broadcast(tolerance.op, batch(&a), tolerance.absolute.sizes())?;
    let common = broadcast(tolerance.op, &common, tolerance.relative.sizes())?;
    let a = a.expand(&sizes(&common, &shape(&a))[..])?;
    let per_matrix = |x: &Tensor| x.unsqueeze(-1)?.unsqueeze(-1)?.expand(&sizes(&common, &[1, 1])[..]);
    let (absolute, relative) = (per_matrix(&tolerance.absolute)?, per_matrix(&tolerance.relative)?);
    mt(&call(Op::Pseudoinverse, &[&a, &absolute, &relative], &Attrs::new())?)
}

fn rank(a: &Tensor, tolerance: &Tolerance, hermitian: bool) -> Result<Tensor> {
    let a = a.detach()?;
    let values = if hermitian {
        need_square(tolerance.op, &a)?;
        a.linalg_eigvalsh()?.abs()?
    } else {
        a.linalg_svdvals()?
    };
    counted(&values, tolerance)
}

/// How many values are above the tolerance.
fn counted(values: &Tensor, tolerance: &Tolerance) -> Result<Tensor> {
    if values.sizes().last() == Some(&0) {
        return full_on(values.device(), &values.sizes()[..values.dim() - 1], 0.into(), Some(DType::I64));
    }
    let bound = tolerance.bound(&values.amax(-1, true)?)?;
    values.gt(&bound)?.sum(-1, false)
}

fn lstsq(a: &Tensor, b: &Tensor, rcond: Option<f64>, driver: Option<&str>) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
    let op = "linalg.lstsq";
    need_matrices(op, a)?;
    need_same(op, ["input", "other"], a, b)?;
    if b.dim() == 0 {
        return Err(Error::shape(op, "other must have at least 1 dimension", "pass a vector or a matrix"));
    }
    let driver = driver.unwrap_or("gelsy");
    if !["gels", "gelsy", "gelsd", "gelss"].contains(&driver) {
        let what = format!("parameter `driver` should be one of (gels, gelsy, gelsd, gelss), but it is {driver}");
        return Err(Error::argument(op, what));
    }
    let of_vectors = is_of_vectors(a, b);
    let right = if of_vectors { b.unsqueeze(-1)? } else { b.clone() };
    let [rows, columns] = shape(a);
    if right.dim() < 2 || shape(&right)[0] != rows {
        let what =
            format!("input.size(-2) should match other.size(-2), but shapes are {:?} and {:?}", a.sizes(), b.sizes());
        return Err(Error::shape(op, what, "both must have as many rows"));
    }
    let (a, right) = together(op, a, &right)?;
    let tolerance = Tolerance::numbers(op, &a, Some(0.0), Some(rcond.unwrap_or(default_tolerance(&a))))?;
    let solution = pinv(&a, &tolerance, false)?.matmul(&right)?;
    let nothing = |dtype: DType| full_on(a.device(), &[0], 0.into(), Some(dtype));
    let is_spectral = matches!(driver, "gelsd" | "gelss");
    let values = if driver == "gels" { None } else { Some(a.detach()?.linalg_svdvals()?) };
    let rank = match &values {
        Some(values) => counted(values, &tolerance)?,
        None => nothing(DType::I64)?,
    };
    let residuals = match rows > columns && driver != "gelsy" {
        true => a.matmul(&solution)?.sub(&right)?.abs()?.square()?.sum(-2, false)?,
        false => nothing(a.dtype().part())?,
    };
    let solution = if of_vectors { solution.squeeze(-1)? } else { solution };
    let values = values.filter(|_| is_spectral).map_or_else(|| nothing(a.dtype().part()), Ok)?;
    Ok((solution, residuals, rank, values))
}

/// The condition number by a norm of this order: a number or a word.
fn conditioned(a: &Tensor, p: Result<f64, &str>) -> Result<Tensor> {
    let op = "linalg.cond";
    need_matrices(op, a)?;
    if a.numel() == 0 {
        return full_on(a.device(), batch(a), 0.into(), Some(a.dtype().part()));
    }
    let last = int(shape(a)[0].min(shape(a)[1])) - 1;
    if let Ok(p @ (2.0 | -2.0)) = p {
        let values = a.linalg_svdvals()?;
        let (first, last) = (values.select(-1, 0)?, values.select(-1, last)?);
        return if p > 0.0 { first.div(&last) } else { last.div(&first) };
    }
    need_square(op, a)?;
    let norm = |x: &Tensor| by_order(op, x, p);
    let (_, _, zero_pivot) = factored(op, &a.detach()?, false)?;
    let number = norm(a)?.mul(&norm(&inverse_of(a, false)?)?)?;
    zero_pivot.gt(0)?.where_(f64::INFINITY, &number)
}
