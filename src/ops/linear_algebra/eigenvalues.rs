//! Eigenvalues of matrices that need not be symmetric. They are complex numbers.

use super::operands::{mt, need_square, numbers, part, shape};
use crate::dispatch::library::Library;
use crate::dispatch::rows::call;
use crate::error::Result;
use crate::ir::packed::Packed;
use crate::ir::{Attrs, Op};
use crate::ops::complex_numbers::of_pairs;
use crate::ops::composite::Composite;
use crate::tensor::handle::Tensor;

static EIG: Composite = Composite::new("linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)");
static EIGVALS: Composite = Composite::new("linalg_eigvals(Tensor self) -> Tensor");

/// Eigenvalues of any square matrices. f32 and f64, complex64 and complex128.
impl Tensor {
    /// The eigenvalues in no particular order, and eigenvectors of length 1 as columns. Both are complex numbers. How a
    /// vector is turned is arbitrary, so gradients are right for functions that do not depend on it. They exist where
    /// eigenvalues differ.
    ///
    /// ```
    /// # fn main() -> opfuse::Result<()> {
    /// use opfuse::Tensor;
    /// let turn = Tensor::try_from([[0.0f64, -1.0], [1.0, 0.0]])?;
    /// let (values, vectors) = turn.linalg_eig()?;
    /// let again = turn.matmul(&vectors)?.sub(&vectors.mul(&values)?)?;
    /// assert!(again.abs()?.amax((), false)?.item::<f64>()? < 1e-12);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the matrices are not square, or if one has infinities or NaNs: the error names its place in the batch.
    #[track_caller]
    pub fn linalg_eig(&self) -> Result<(Tensor, Tensor)> {
        EIG.call((self,))
    }

    /// The eigenvalues alone. See [`Tensor::linalg_eig`].
    ///
    /// # Errors
    /// Same as [`Tensor::linalg_eig`].
    #[track_caller]
    pub fn linalg_eigvals(&self) -> Result<Tensor> {
        EIGVALS.call((self,))
    }
}

pub(super) fn register(library: &mut Library) -> Result<()> {
    library
        .composite(&EIG, |a: &Tensor| {
            need_square("linalg.eig", a)?;
            let layout = Packed::eigen(shape(a)[0]);
            let packed = complex(call(Op::GeneralEigen, &[a], &Attrs::new())?)?;
            Ok((numbers(&packed, layout.part(0))?, mt(&part(&packed, layout.part(1))?)?))
        })?
        .composite(&EIGVALS, |a: &Tensor| {
            need_square("linalg.eigvals", a)?;
            complex(call(Op::GeneralEigenvalues, &[a], &Attrs::new())?)
        })?;
    Ok(())
}

/// The result of a row: of complex numbers already, or of pairs.
fn complex(x: Tensor) -> Result<Tensor> {
    if x.is_complex() { Ok(x) } else { of_pairs(&x) }
}
