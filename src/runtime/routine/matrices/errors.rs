//! What a matrix without a result is told.

use crate::error::Error;
use crate::ir::MatrixWork;
use opfuse_linalg::Failure;

/// Why there is no result.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trouble {
    /// The matrix has none.
    Failed(Failure),
    /// The library panicked.
    Panicked,
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Failed(failure)
    }
}

/// The error for a matrix of a batch, if there is a batch.
pub(super) fn error(work: MatrixWork, trouble: Trouble, matrix: Option<usize>) -> Error {
    let (what, hint) = match trouble {
        Trouble::Failed(Failure::NotPositive(order)) => (
            format!(
                "The factorization could not be completed because the input is not positive-definite (the leading \
                 minor of order {order} is not positive-definite)"
            ),
            "pass a symmetric matrix with positive eigenvalues; a small multiple of the identity may be added",
        ),
        Trouble::Failed(Failure::ZeroPivot(pivot)) => match work {
            MatrixWork::Inverse => (
                format!(
                    "The diagonal element {pivot} is zero, the inversion could not be completed because the input \
                     matrix is singular"
                ),
                "linalg_pinv has an inverse for every matrix",
            ),
            MatrixWork::Lu => (
                format!("U[{pivot},{pivot}] is zero and using it on lu_solve would result in a division by zero"),
                "linalg_lu and linalg_lu_factor_ex factor every matrix",
            ),
            _solutions => (
                "The solver failed because the input matrix is singular".to_string(),
                "linalg_lstsq has a solution for every matrix",
            ),
        },
        Trouble::Failed(Failure::NotFinite) => (
            "The algorithm failed to converge because the input matrix contained non-finite values".to_string(),
            "look for infinities and NaNs with isfinite",
        ),
        Trouble::Failed(Failure::NoConvergence) => (
            "The algorithm failed to converge because the input matrix is ill-conditioned".to_string(),
            "scale it, or compute in f64",
        ),
        Trouble::Panicked => {
            ("The algorithm failed".to_string(), "please report it, with the matrix: this is a bug in opfuse")
        }
    };
    let place = matrix.map_or_else(String::new, |matrix| format!("(Batch element {matrix}): "));
    Error::LinearAlgebra { op: work.name().into(), what: format!("{place}{what}"), hint: hint.into() }
}
