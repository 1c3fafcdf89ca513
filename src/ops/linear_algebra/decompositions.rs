//! QR factorizations, eigenvalues of symmetric and Hermitian matrices, singular values, exponentials.

use super::operands::{batch, identity, mh, mt, need_matrices, need_square, part, real, shape, sizes, vector};
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::{Error, Result};
use crate::ir::attrs::{QrFactors, SvdFactors};
use crate::ir::packed::Packed;
use crate::ir::{Attrs, Op};
use crate::ops::arguments::widened;
use crate::ops::composite::Composite;
use crate::ops::factories::full_on;
use crate::tensor::handle::Tensor;

static QR: Composite = Composite::new("linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)");
static EIGH: Composite =
    Composite::new("linalg_eigh(Tensor self, str UPLO=\"L\") -> (Tensor eigenvalues, Tensor eigenvectors)");
static EIGVALSH: Composite = Composite::new("linalg_eigvalsh(Tensor self, str UPLO=\"L\") -> Tensor");
static SVD: Composite = Composite::new(
    "linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)",
);
static SVDVALS: Composite = Composite::new("linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor");
static MATRIX_POWER: Composite = Composite::new("matrix_power(Tensor self, int n) -> Tensor");
static MATRIX_EXP: Composite = Composite::new("matrix_exp(Tensor self) -> Tensor");

/// Orthogonal factorizations, and exponentials. f32 and f64, complex64 and complex128.
impl Tensor {
    /// `A = Q R` with orthonormal columns and an upper triangle: as many columns of `Q` as the lesser size of `A`. The
    /// other modes of PyTorch, complete and `R` alone, are arguments of `aten::linalg_qr`. The diagonal of a complex
    /// `R` is real.
    ///
    /// # Errors
    /// If there are fewer than two dims.
    #[track_caller]
    pub fn linalg_qr(&self) -> Result<(Tensor, Tensor)> {
        QR.call((self, "reduced"))
    }

    /// The eigenvalues of symmetric or Hermitian matrices in ascending order, and eigenvectors as columns. Only the
    /// lower triangle is read. The signs of eigenvectors are arbitrary, and the directions of complex ones. Gradients
    /// of eigenvectors exist where eigenvalues differ.
    ///
    /// # Errors
    /// If the matrices are not square, or if one has infinities or NaNs: the error names its place in the batch.
    #[track_caller]
    pub fn linalg_eigh(&self) -> Result<(Tensor, Tensor)> {
        EIGH.call((self, "L"))
    }

    /// The eigenvalues alone. See [`Tensor::linalg_eigh`].
    ///
    /// # Errors
    /// Same as [`Tensor::linalg_eigh`].
    #[track_caller]
    pub fn linalg_eigvalsh(&self) -> Result<Tensor> {
        EIGVALSH.call((self, "L"))
    }

    /// `A = U S Vᴴ`: singular vectors, the singular values in descending order, and `Vᴴ`. If `full`, `U` and `V` are
    /// square; else they have as many columns as there are singular values. Signs of the vectors are arbitrary.
    /// Gradients of vectors exist where singular values differ.
    ///
    /// ```
    /// # use opfuse::{Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let a = Tensor::try_from([[0.0f64, 2.0], [3.0, 0.0]])?;
    /// let (u, s, vt) = a.linalg_svd(false)?;
    /// assert_eq!(s.round()?.to_vec::<f64>()?, [3.0, 2.0]);
    /// let again = u.mul(&s)?.matmul(&vt)?;
    /// assert!((&again - &a)?.abs()?.amax((), false)?.item::<f64>()? < 1e-12);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there are fewer than two dims, or if a matrix has infinities or NaNs: the error names its place in the batch.
    #[track_caller]
    pub fn linalg_svd(&self, full: bool) -> Result<(Tensor, Tensor, Tensor)> {
        SVD.call((self, full, None::<&str>))
    }

    /// The singular values in descending order.
    ///
    /// # Errors
    /// Same as [`Tensor::linalg_svd`].
    #[track_caller]
    pub fn linalg_svdvals(&self) -> Result<Tensor> {
        SVDVALS.call((self, None::<&str>))
    }

    /// The exponential of each matrix: the sum of `Aᵏ / k!`. 16-bit floats are computed in f32 and rounded once.
    ///
    /// # Errors
    /// If the matrices are not square.
    #[track_caller]
    pub fn matrix_exp(&self) -> Result<Tensor> {
        MATRIX_EXP.call((self,))
    }

    /// The product of `n` factors that are this matrix, or its inverse if `n` is negative. A power of 0 is the
    /// identity.
    ///
    /// # Errors
    /// If the matrices are not square, or if `n` is negative and one is singular.
    #[track_caller]
    pub fn matrix_power(&self, n: i64) -> Result<Tensor> {
        MATRIX_POWER.call((self, n))
    }
}

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&QR, |a: &Tensor, mode: &str| qr("linalg.qr", a, mode))?
        .composite(&EIGH, |a: &Tensor, triangle: &str| {
            let op = "linalg.eigh";
            need_square(op, a)?;
            let layout = Packed::eigen(shape(a)[0]);
            let packed = call(Op::Eigen, &[&lower(op, a, triangle)?], &Attrs::new())?;
            Ok((vector(&packed, layout.part(0))?, mt(&part(&packed, layout.part(1))?)?))
        })?
        .composite(&EIGVALSH, |a: &Tensor, triangle: &str| {
            let op = "linalg.eigvalsh";
            need_square(op, a)?;
            real(&call(Op::Eigenvalues, &[&lower(op, a, triangle)?], &Attrs::new())?)
        })?
        .composite(&SVD, |a: &Tensor, full: bool, driver: Option<&str>| {
            need_no_driver("linalg.svd", driver)?;
            svd("linalg.svd", a, full)
        })?
        .composite(&SVDVALS, |a: &Tensor, driver: Option<&str>| {
            need_no_driver("linalg.svdvals", driver)?;
            need_matrices("linalg.svdvals", a)?;
            real(&call(Op::SingularValues, &[a], &Attrs::new())?)
        })?
        .def_kernel(
            "svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)",
            |a: &Tensor, some: bool, with_vectors: bool| {
                if !with_vectors {
                    // PyTorch returns zeros for the vectors.
                    let [rows, columns] = shape_of("svd", a)?;
                    let square = |order: usize| {
                        full_on(a.device(), &sizes(batch(a), &[order, order]), 0.into(), Some(a.dtype()))
                    };
                    return Ok((square(rows)?, a.linalg_svdvals()?, square(columns)?));
                }
                let (u, s, vt) = svd("svd", a, !some)?;
                Ok((u, s, mh(&vt)?))
            },
        )?
        .composite(&MATRIX_POWER, matrix_power)?
        .composite(&MATRIX_EXP, |a: &Tensor| exponential("linalg.matrix_exp", a))?
        .def_kernel("linalg_matrix_exp(Tensor self) -> Tensor", |a: &Tensor| a.matrix_exp())?;
    Ok(())
}

fn shape_of(op: &str, a: &Tensor) -> Result<[usize; 2]> {
    need_matrices(op, a)?;
    Ok(shape(a))
}

fn qr(op: &str, a: &Tensor, mode: &str) -> Result<(Tensor, Tensor)> {
    let [rows, columns] = shape_of(op, a)?;
    let complete = match mode {
        "reduced" | "r" => false,
        "complete" => true,
        other => {
            let what = format!(
                "qr received unrecognized mode '{other}' but expected one of 'reduced' (default), 'r', or 'complete'"
            );
            return Err(Error::argument(op, what));
        }
    };
    let layout = Packed::qr(rows, columns, complete);
    let packed = call(Op::QrFactors, &[a], &Attrs::from(QrFactors { complete, pairs: false }))?;
    let r = mt(&part(&packed, layout.part(1))?)?;
    if mode == "r" {
        return Ok((full_on(a.device(), &[0], 0.into(), Some(a.dtype()))?, r));
    }
    Ok((mt(&part(&packed, layout.part(0))?)?, r))
}

/// A view whose lower triangle is the one that is read.
fn lower(op: &str, a: &Tensor, triangle: &str) -> Result<Tensor> {
    match triangle {
        "L" | "l" => Ok(a.clone()),
        "U" | "u" => mh(a),
        other => Err(Error::argument(op, format!("Expected UPLO argument to be 'L' or 'U', but got {other}"))),
    }
}

fn need_no_driver(op: &str, driver: Option<&str>) -> Result<()> {
    match driver {
        None => Ok(()),
        Some(driver) => {
            let what = format!(
                "keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend, but it is {driver}"
            );
            Err(Error::argument(op, what))
        }
    }
}

fn svd(op: &str, a: &Tensor, full: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let [rows, columns] = shape_of(op, a)?;
    let layout = Packed::svd(rows, columns, full);
    let packed = call(Op::Svd, &[a], &Attrs::from(SvdFactors { full, pairs: false }))?;
    let u = mt(&part(&packed, layout.part(0))?)?;
    Ok((u, vector(&packed, layout.part(1))?, part(&packed, layout.part(2))?))
}

/// 16-bit floats are computed in f32 and rounded once.
fn exponential(op: &str, a: &Tensor) -> Result<Tensor> {
    let wide = widened(a)?;
    need_square(op, &wide)?;
    mt(&call(Op::MatrixExponential, &[&wide], &Attrs::new())?)?.to_dtype(a.dtype())
}

/// Products by repeated squaring. A power of 0 is the identity, and powers below 0 are those of the inverse.
fn matrix_power(x: &Tensor, n: i64) -> Result<Tensor> {
    let op = "matrix_power";
    let columns = match x.sizes() {
        &[.., rows, columns] if rows == columns => columns,
        other => return Err(Error::shape(op, format!("shape {other:?}"), "square matrices are needed")),
    };
    if n < 0 {
        return matrix_power(&x.linalg_inv()?, n.checked_neg().unwrap_or(i64::MAX));
    }
    let (mut square, mut product, mut left) = (x.clone(), None::<Tensor>, n);
    while left > 0 {
        if left % 2 == 1 {
            product = Some(product.map_or_else(|| Ok(square.clone()), |product| product.matmul(&square))?);
        }
        left /= 2;
        if left > 0 {
            square = square.matmul(&square)?;
        }
    }
    if n == 1 {
        return x.copy();
    }
    product.map_or_else(|| identity(x, batch(x), columns)?.copy(), Ok)
}
