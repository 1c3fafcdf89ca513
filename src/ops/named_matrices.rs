//! Methods of matrices under ATen's names: products, norms, and older names of the `linalg` functions.
//!
//! `contractions.rs`, `products.rs`, `matrix_norms.rs` and `linear_algebra` define the operators.

use crate::ir::{DType, Scalar};
use crate::ops::arguments::tensor_list;
use crate::ops::dims::Dims;
use crate::ops::named::{named_functions, named_methods, some};
use crate::tensor::handle::Tensor;

const NO_DTYPE: Option<DType> = None;

/// Products.
impl Tensor {
    named_methods! {
        /// `beta * self + alpha * (matrix @ vector)`. The matrix is `(m, k)`, the vector has `k` elements, and this
        /// tensor has `m` or is a number.
        ///
        /// # Errors
        /// If the sizes do not fit, or if dtypes differ.
        addmv(self, matrix: &Tensor, vector: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Tensor,
            "addmv" (self, matrix, vector, beta.into(), alpha.into());

        /// `beta * self + alpha * (the sum of the products of a batch)`. The batches are `(b, n, k)` and `(b, k, m)`,
        /// and this tensor broadcasts to `(n, m)`.
        ///
        /// # Errors
        /// If the sizes do not fit, or if dtypes differ.
        addbmm(self, left: &Tensor, right: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Tensor,
            "addbmm" (self, left, right, beta.into(), alpha.into());

        /// Another name of [`Tensor::dot`]. The elements of a complex tensor are conjugated first.
        ///
        /// # Errors
        /// Same as [`Tensor::dot`].
        vdot(self, other: &Tensor) -> Tensor, "vdot" (self, other);

        /// Another name of [`Tensor::outer`].
        ///
        /// # Errors
        /// Same as [`Tensor::outer`].
        ger(self, other: &Tensor) -> Tensor, "ger" (self, other);

        /// Another name of [`Tensor::matmul`].
        ///
        /// # Errors
        /// Same as [`Tensor::matmul`].
        linalg_matmul(self, other: &Tensor) -> Tensor, "linalg_matmul" (self, other);

        /// The sums of products along `dim`. Sizes are broadcast. The elements of a complex tensor are conjugated
        /// first.
        ///
        /// # Errors
        /// If the sizes do not broadcast, or if the dim is out of range.
        linalg_vecdot(self, other: &Tensor, dim: i64) -> Tensor, "linalg_vecdot" (self, other, dim);

        /// `x W y + bias` for each pair of rows `x` of this tensor `(…, a)` and `y` of `other` `(…, b)`. The weight
        /// `(out, a, b)` has one matrix `W` per output.
        ///
        /// # Errors
        /// If the sizes do not fit, or if dtypes differ.
        bilinear(self, other: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor, "bilinear"
            (self, other, weight, bias);
    }

    named_functions! {
        /// A product of two matrices or more in the order that multiplies fewest numbers. The first and the last may be
        /// lines.
        ///
        /// # Errors
        /// If there are fewer than two tensors, if inner sizes differ, or if dtypes differ.
        linalg_multi_dot(tensors: &[&Tensor]) -> Tensor, "linalg_multi_dot" (&tensor_list(tensors)[..]);

        /// [`Tensor::linalg_multi_dot`], of one matrix too.
        ///
        /// # Errors
        /// If there are no matrices. Otherwise same as [`Tensor::linalg_multi_dot`].
        chain_matmul(matrices: &[&Tensor]) -> Tensor, "chain_matmul" (&tensor_list(matrices)[..]);
    }
}

/// Norms, solutions and decompositions. Dims before the last two are batches.
impl Tensor {
    named_methods! {
        /// The norm of a vector along one dim, of matrices along two, and without an order of all elements along
        /// `dims`. No dims (`()`) means all.
        ///
        /// # Errors
        /// If the dtype is not floating, if a dim is out of range, or if there is an order for more than two dims.
        linalg_norm(self, order: Option<Scalar>, dims: impl Into<Dims>, keepdim: bool) -> Tensor, "linalg_norm"
            (self, order, some(&dims.into()), keepdim, NO_DTYPE);

        /// The norm of the elements along `dims` as one vector. No dims (`()`) means all.
        ///
        /// # Errors
        /// If the dtype is not floating, or if a dim is out of range.
        linalg_vector_norm(self, order: impl Into<Scalar>, dims: impl Into<Dims>, keepdim: bool) -> Tensor,
            "linalg_vector_norm" (self, order.into(), some(&dims.into()), keepdim, NO_DTYPE);

        /// The norm of matrices, of order 1, -1, 2, -2 or an infinity. The dims are those of rows and columns.
        ///
        /// # Errors
        /// If the dtype is not floating, if a dim is out of range, or if the order is another.
        linalg_matrix_norm(self, order: impl Into<Scalar>, dims: [i64; 2], keepdim: bool) -> Tensor,
            "linalg_matrix_norm" (self, order.into(), &dims[..], keepdim, NO_DTYPE);

        /// The norm of matrices by its name: `"fro"`, the root of the sum of squares, or `"nuc"`, the sum of singular
        /// values. See [`Tensor::linalg_matrix_norm`].
        ///
        /// # Errors
        /// If the dtype is not floating, if a dim is out of range, or if the name is another.
        linalg_matrix_norm_of(self, order: &str, dims: [i64; 2], keepdim: bool) -> Tensor,
            "linalg_matrix_norm.str_ord" (self, order, &dims[..], keepdim, NO_DTYPE);

        /// Another name of [`Tensor::matrix_power`].
        ///
        /// # Errors
        /// Same as [`Tensor::matrix_power`].
        linalg_matrix_power(self, n: i64) -> Tensor, "linalg_matrix_power" (self, n);

        /// Another name of [`Tensor::matrix_exp`].
        ///
        /// # Errors
        /// Same as [`Tensor::matrix_exp`].
        linalg_matrix_exp(self) -> Tensor, "linalg_matrix_exp" (self);

        /// Another name of [`Tensor::linalg_det`].
        ///
        /// # Errors
        /// Same as [`Tensor::linalg_det`].
        det(self) -> Tensor, "det" (self);

        /// Another name of [`Tensor::linalg_slogdet`].
        ///
        /// # Errors
        /// Same as [`Tensor::linalg_slogdet`].
        slogdet(self) -> (Tensor, Tensor), "slogdet" (self);

        /// Another name of [`Tensor::linalg_inv`].
        ///
        /// # Errors
        /// Same as [`Tensor::linalg_inv`].
        inverse(self) -> Tensor, "inverse" (self);

        /// The pseudoinverse, where singular values up to `rcond` times the greatest count as 0. See
        /// [`Tensor::linalg_pinv`].
        ///
        /// # Errors
        /// Same as [`Tensor::linalg_pinv`].
        pinverse(self, rcond: f64) -> Tensor, "pinverse" (self, rcond);

        /// Another name of [`Tensor::linalg_cholesky`].
        ///
        /// # Errors
        /// Same as [`Tensor::linalg_cholesky`].
        cholesky(self, upper: bool) -> Tensor, "cholesky" (self, upper);

        /// Solves `A X = self`, where `lu` and `pivots` are the factors of `A`. See [`Tensor::linalg_lu_solve`].
        ///
        /// # Errors
        /// Same as [`Tensor::linalg_lu_solve`].
        lu_solve(self, lu: &Tensor, pivots: &Tensor) -> Tensor, "lu_solve" (self, lu, pivots);

        /// Solves `A X = self` for a triangular `A`, or for its transpose, and returns the solution and a copy of `A`.
        /// With `unitriangular` the diagonal counts as ones. See [`Tensor::linalg_solve_triangular`].
        ///
        /// # Errors
        /// If `A` is not square. Otherwise same as [`Tensor::linalg_solve_triangular`].
        triangular_solve(self, a: &Tensor, upper: bool, transpose: bool, unitriangular: bool) -> (Tensor, Tensor),
            "triangular_solve" (self, a, upper, transpose, unitriangular);

        /// `U`, the singular values `S` and `V`, so that `self = U diag(S) V^H`. With `some` only as many columns as
        /// there are singular values. [`Tensor::linalg_svd`] gives `V^H` instead.
        ///
        /// # Errors
        /// Same as [`Tensor::linalg_svd`].
        svd(self, some: bool) -> (Tensor, Tensor, Tensor), "svd" (self, some, true);
    }
}
