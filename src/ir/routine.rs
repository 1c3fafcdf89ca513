//! Routines: procedures on whole arrays that are not a loop over independent elements.
//!
//! They are scans, sorts, writes by index, random words, products of windows, factorizations of matrices, and Fourier
//! transforms. A routine is never fused: it is a step of its own. Eager calls and compiled graphs run the same code, so
//! their bits agree. Its operands are those of the row, but a graph first converts the one that [`Routine::converted`]
//! names. Results are dense and row-major.
//!
//! This file only names the routines. `src/runtime/routine` computes them, and `infer/routines.rs` types them. Work on
//! matrices and Fourier transforms have files of their own in `infer`.

/// What a routine does.
#[derive(Debug, Clone, Copy)]
pub enum Routine {
    /// An inclusive scan along a dim.
    Scan(Scan),
    /// `y[i] = factor[i] * y[i - 1] + term[i]` along a dim, or from the end if `reverse` holds.
    Recurrence,
    /// The indices that sort the elements along a dim. The sort is stable.
    Argsort,
    /// The indices of the greatest or least elements along a dim, in the order of a stable sort.
    First,
    /// A copy of operand 0 with the elements of operand 2 written along a dim to the indices in operand 1.
    Scatter(Write),
    /// Index tensors, one per dim, as one index into the flattened dims. Indices are checked. Negative ones count from
    /// the end if `wrap` holds.
    FlatIndex,
    /// Random words for the key in operand 0; see [`super::philox`].
    Bits,
    /// Products of matrices and windows; see [`super::window_product`].
    WindowProduct,
    /// Work on each matrix of a batch.
    Matrix(MatrixWork),
    /// A discrete Fourier transform of every line along a dim.
    Fourier(Fourier),
}

/// What a Fourier transform maps. Complex numbers are pairs in the last dim, real part first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fourier {
    /// Complex numbers to complex numbers.
    Complex,
    /// Real numbers to complex numbers.
    FromReal,
    /// The first half of what real numbers are mapped to, back to real numbers.
    ToReal,
}

/// What is computed of each matrix. A result that has several parts holds them one after another in its last dim; see
/// [`super::packed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatrixWork {
    /// The transposed triangular factor of a positive definite matrix.
    Cholesky,
    /// The transposed solution of a triangular system.
    SolveTriangular,
    /// The transposed solution of a square system.
    Solve,
    /// The transposed inverse.
    Inverse,
    /// The determinant.
    Determinant,
    /// The sign of the determinant, and the logarithm of its magnitude.
    LogDeterminant,
    /// The derivatives of the determinant by each element.
    Cofactors,
    /// Packed: the transposed triangular factors in one matrix, and the pivots, counted from 1.
    Lu,
    /// The order of rows that pivots lead to.
    Permutation,
    /// Packed: the transposed factors.
    Qr,
    /// Packed: eigenvalues and transposed eigenvectors of a symmetric matrix.
    Eigen,
    /// The eigenvalues of a symmetric matrix.
    Eigenvalues,
    /// Packed: eigenvalues and transposed eigenvectors of any square matrix, as pairs.
    GeneralEigen,
    /// The eigenvalues of any square matrix, as pairs.
    GeneralEigenvalues,
    /// Packed: transposed left singular vectors, singular values, and transposed right singular vectors.
    Singular,
    /// The singular values.
    SingularValues,
    /// The transposed pseudoinverse.
    Pseudoinverse,
    /// The transposed exponential.
    Exponential,
}

/// What a scan accumulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scan {
    /// The sum so far.
    Sum,
    /// The product so far.
    Prod,
    /// The index of the greatest so far, the last of equal ones. A NaN is greater than any number.
    ArgMax,
    /// The index of the least so far, the last of equal ones. A NaN is less than any number.
    ArgMin,
}

/// How a write combines a new value with the one that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    /// Replaces it. Of several writes to one place, the last in row-major order stays.
    Overwrite,
    /// Adds to it.
    Add,
    /// As the argument `reduce` says. The value that was there takes part if `include_self` holds.
    Reduce,
}

impl MatrixWork {
    /// The operator that users know it by.
    pub const fn name(self) -> &'static str {
        match self {
            MatrixWork::Cholesky => "linalg.cholesky",
            MatrixWork::SolveTriangular => "linalg.solve_triangular",
            MatrixWork::Solve => "linalg.solve",
            MatrixWork::Inverse => "linalg.inv",
            MatrixWork::Determinant | MatrixWork::Cofactors => "linalg.det",
            MatrixWork::LogDeterminant => "linalg.slogdet",
            MatrixWork::Lu => "linalg.lu_factor",
            MatrixWork::Permutation => "lu_unpack",
            MatrixWork::Qr => "linalg.qr",
            MatrixWork::Eigen => "linalg.eigh",
            MatrixWork::Eigenvalues => "linalg.eigvalsh",
            MatrixWork::GeneralEigen => "linalg.eig",
            MatrixWork::GeneralEigenvalues => "linalg.eigvals",
            MatrixWork::Singular => "linalg.svd",
            MatrixWork::SingularValues => "linalg.svdvals",
            MatrixWork::Pseudoinverse => "linalg.pinv",
            MatrixWork::Exponential => "linalg.matrix_exp",
        }
    }

    /// Whether there are matrices that it is an error for.
    pub const fn may_fail(self) -> bool {
        match self {
            MatrixWork::Cholesky
            | MatrixWork::Solve
            | MatrixWork::Inverse
            | MatrixWork::Cofactors
            | MatrixWork::Lu
            | MatrixWork::Permutation
            | MatrixWork::Eigen
            | MatrixWork::Eigenvalues
            | MatrixWork::GeneralEigen
            | MatrixWork::GeneralEigenvalues
            | MatrixWork::Singular
            | MatrixWork::SingularValues
            | MatrixWork::Pseudoinverse => true,
            MatrixWork::SolveTriangular
            | MatrixWork::Determinant
            | MatrixWork::LogDeterminant
            | MatrixWork::Qr
            | MatrixWork::Exponential => false,
        }
    }
}

impl Routine {
    /// The operand that is converted to the dtype of the result first.
    pub const fn converted(&self) -> Option<usize> {
        match self {
            Routine::Scan(Scan::Sum | Scan::Prod) => Some(0),
            Routine::Scan(Scan::ArgMax | Scan::ArgMin)
            | Routine::Recurrence
            | Routine::Argsort
            | Routine::First
            | Routine::Scatter(_)
            | Routine::FlatIndex
            | Routine::Bits
            | Routine::WindowProduct
            | Routine::Matrix(_)
            | Routine::Fourier(_) => None,
        }
    }
}
