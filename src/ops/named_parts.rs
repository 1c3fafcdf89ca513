//! Methods that move, join and reduce, under ATen's names.
//!
//! The files of their subjects define the operators.

use crate::ir::Scalar;
use crate::ops::arguments::tensor_list;
use crate::ops::dims::Dims;
use crate::ops::named::{dims_of, named_functions, named_methods, some};
use crate::tensor::handle::Tensor;

/// Transposed and reordered dims.
impl Tensor {
    named_methods! {
        /// The last two dims swapped, as a view: the transpose of each matrix.
        ///
        /// # Errors
        /// If there are fewer than two dims.
        mt(self) -> Tensor, "mT" (self);

        /// The conjugate transpose of each matrix of the last two dims. For real numbers it is a view, [`Tensor::mt`].
        ///
        /// # Errors
        /// If there are fewer than two dims.
        mh(self) -> Tensor, "mH" (self);

        /// Another name of [`Tensor::mh`].
        ///
        /// # Errors
        /// If there are fewer than two dims.
        adjoint(self) -> Tensor, "adjoint" (self);

        /// Another name of [`Tensor::mh`], for a matrix.
        ///
        /// # Errors
        /// If there are fewer than two dims.
        matrix_h(self) -> Tensor, "matrix_H" (self);

        /// All dims in reversed order, as a view: `.T` of NumPy.
        ///
        /// # Errors
        /// If a kernel from outside fails.
        numpy_t(self) -> Tensor, "numpy_T" (self);

        /// All elements as one line, in row-major order. It is a view where that is possible.
        ///
        /// # Errors
        /// If there is not enough memory.
        ravel(self) -> Tensor, "ravel" (self);

        /// Another name of [`Tensor::movedim`] with one dim.
        ///
        /// # Errors
        /// Same as [`Tensor::movedim`].
        moveaxis(self, from: i64, to: i64) -> Tensor, "moveaxis.int" (self, from, to);

        /// Another name of [`Tensor::transpose`].
        ///
        /// # Errors
        /// Same as [`Tensor::transpose`].
        swapdims(self, dim0: i64, dim1: i64) -> Tensor, "swapdims" (self, dim0, dim1);

        /// Another name of [`Tensor::diagonal`], of the last two dims as they are named here.
        ///
        /// # Errors
        /// Same as [`Tensor::diagonal`].
        linalg_diagonal(self, offset: i64, dim1: i64, dim2: i64) -> Tensor, "linalg_diagonal"
            (self, offset, dim1, dim2);

        /// Reorders the channels of `(N, C, …)` so that those of the groups take turns. Sizes and dtype are kept.
        ///
        /// # Errors
        /// If there are fewer than 3 dims, or if the channels do not divide evenly into the groups.
        channel_shuffle(self, groups: i64) -> Tensor, "channel_shuffle" (self, groups);

        /// Writes parts of `source` along `dim` to the places in `index` and combines those that meet, with `reduce` as
        /// in [`Tensor::scatter_reduce`]. The elements of this tensor count too if `include_self` is set.
        ///
        /// # Errors
        /// If the index is no line with one place for each part of the source. Also same as
        /// [`Tensor::scatter_reduce`].
        index_reduce(self, dim: i64, index: &Tensor, source: &Tensor, reduce: &str, include_self: bool) -> Tensor,
            "index_reduce" (self, dim, index, source, reduce, include_self);

        /// The powers of each element of a line as a row of a matrix: down to 0, or from 0 up. Without `columns` there
        /// are as many as elements.
        ///
        /// # Errors
        /// If the tensor is no line, or if `columns` is negative.
        vander(self, columns: Option<i64>, is_increasing: bool) -> Tensor, "vander" (self, columns, is_increasing);

        /// The powers of each element of the last dim, from 0 up, along a new last dim. See [`Tensor::vander`].
        ///
        /// # Errors
        /// If there are no dims, or if `columns` is negative.
        linalg_vander(self, columns: Option<i64>) -> Tensor, "linalg_vander" (self, columns);

        /// Every choice of `r` elements of a line, a row each, in their order. With replacement an element may be
        /// chosen again.
        ///
        /// # Errors
        /// If the tensor is no line, if `r` is negative, or if there are too many choices.
        combinations(self, r: i64, with_replacement: bool) -> Tensor, "combinations" (self, r, with_replacement);
    }

    named_functions! {
        /// Another name of [`cat`](crate::cat).
        ///
        /// # Errors
        /// Same as [`cat`](crate::cat).
        concat(tensors: &[&Tensor], dim: i64) -> Tensor, "concat" (&tensor_list(tensors)[..], dim);

        /// Another name of [`cat`](crate::cat).
        ///
        /// # Errors
        /// Same as [`cat`](crate::cat).
        concatenate(tensors: &[&Tensor], dim: i64) -> Tensor, "concatenate" (&tensor_list(tensors)[..], dim);

        /// Another name of [`vstack`](crate::vstack).
        ///
        /// # Errors
        /// Same as [`vstack`](crate::vstack).
        row_stack(tensors: &[&Tensor]) -> Tensor, "row_stack" (&tensor_list(tensors)[..]);

        /// The matrices along the diagonal of a matrix of zeros. A number is a matrix of one element, and a line one
        /// row. Dtypes are promoted.
        ///
        /// # Errors
        /// If a tensor has more than 2 dims.
        block_diag(tensors: &[&Tensor]) -> Tensor, "block_diag" (&tensor_list(tensors)[..]);

        /// Every choice of one element per line, a row each. The last line varies fastest.
        ///
        /// # Errors
        /// If a tensor is no line, or if dtypes differ.
        cartesian_prod(tensors: &[&Tensor]) -> Tensor, "cartesian_prod" (&tensor_list(tensors)[..]);
    }
}

/// Found, summed and sorted elements.
impl Tensor {
    named_methods! {
        /// Another name of [`Tensor::nonzero`].
        ///
        /// # Errors
        /// Same as [`Tensor::nonzero`].
        argwhere(self) -> Tensor, "argwhere" (self);

        /// The elements in increasing order along dim 0, as the first result of [`Tensor::sort`].
        ///
        /// # Errors
        /// Same as [`Tensor::sort`].
        msort(self) -> Tensor, "msort" (self);

        /// The least and the greatest elements along a dim, or of all.
        ///
        /// # Errors
        /// If the dim is out of range, or if there are no elements.
        aminmax(self, dim: Option<i64>, keepdim: bool) -> (Tensor, Tensor), "aminmax" (self, dim, keepdim);

        /// [`Tensor::std`] and [`Tensor::mean`] at once. No dims (`()`) means all.
        ///
        /// # Errors
        /// Same as [`Tensor::std`].
        std_mean(self, dims: impl Into<Dims>, correction: impl Into<Scalar>, keepdim: bool) -> (Tensor, Tensor),
            "std_mean.correction" (self, some(&dims.into()), Some(correction.into()), keepdim);

        /// [`Tensor::var`] and [`Tensor::mean`] at once. No dims (`()`) means all.
        ///
        /// # Errors
        /// Same as [`Tensor::var`].
        var_mean(self, dims: impl Into<Dims>, correction: impl Into<Scalar>, keepdim: bool) -> (Tensor, Tensor),
            "var_mean.correction" (self, some(&dims.into()), Some(correction.into()), keepdim);

        /// Sums over the dims that a tensor of these sizes would be expanded along.
        ///
        /// # Errors
        /// If the sizes do not broadcast to those of this tensor.
        sum_to_size(self, sizes: impl Into<Dims>) -> Tensor, "sum_to_size" (self, dims_of(sizes).as_slice());

        /// Equal neighbours among the parts along `dim` as one: the parts, the place of each old part among them, and
        /// how many each stands for. See [`Tensor::unique_consecutive`].
        ///
        /// # Errors
        /// If the dim is out of range.
        unique_dim_consecutive(self, dim: i64) -> (Tensor, Tensor, Tensor), "unique_dim_consecutive"
            (self, dim, true, true);

        /// The integral of samples along `dim`, by the trapezoidal rule. The samples are `dx` apart.
        ///
        /// # Errors
        /// If the dtype is bool, or if the dim is out of range.
        trapezoid(self, dx: impl Into<Scalar>, dim: i64) -> Tensor, "trapezoid.dx" (self, dx.into(), dim);

        /// [`Tensor::trapezoid`] of samples at the places `x`: a line, or one place for each sample.
        ///
        /// # Errors
        /// Same as [`Tensor::trapezoid`]. Also if there is not one place for each sample.
        trapezoid_at(self, x: &Tensor, dim: i64) -> Tensor, "trapezoid.x" (self, x, dim);

        /// Another name of [`Tensor::trapezoid`].
        ///
        /// # Errors
        /// Same as [`Tensor::trapezoid`].
        trapz(self, dx: f64, dim: i64) -> Tensor, "trapz.dx" (self, dx, dim);

        /// Another name of [`Tensor::trapezoid_at`].
        ///
        /// # Errors
        /// Same as [`Tensor::trapezoid_at`].
        trapz_at(self, x: &Tensor, dim: i64) -> Tensor, "trapz.x" (self, x, dim);

        /// The integrals from the first sample to each later one. The dim is one shorter. See [`Tensor::trapezoid`].
        ///
        /// # Errors
        /// Same as [`Tensor::trapezoid`].
        cumulative_trapezoid(self, dx: impl Into<Scalar>, dim: i64) -> Tensor, "cumulative_trapezoid.dx"
            (self, dx.into(), dim);

        /// [`Tensor::cumulative_trapezoid`] of samples at the places `x`. See [`Tensor::trapezoid_at`].
        ///
        /// # Errors
        /// Same as [`Tensor::trapezoid_at`].
        cumulative_trapezoid_at(self, x: &Tensor, dim: i64) -> Tensor, "cumulative_trapezoid.x" (self, x, dim);

        /// The derivatives along each of the dims, of samples that are `spacing` apart. They are central differences,
        /// and at the ends of `edge_order` 1 or 2. Sizes are kept.
        ///
        /// # Errors
        /// If a dim is out of range or has fewer than `edge_order + 1` samples, or if `edge_order` is another number.
        gradient_along(self, spacing: impl Into<Scalar>, dims: impl Into<Dims>, edge_order: i64) -> Vec<Tensor>,
            "gradient.scalararray" (self, spacing.into(), dims_of(dims).as_slice(), edge_order);

        /// The norms of order `p` of the differences along the last dim, to which `eps` is added. Sizes are broadcast.
        ///
        /// # Errors
        /// If the sizes do not broadcast, or if the dtype is not floating.
        pairwise_distance(self, other: &Tensor, p: f64, eps: f64, keepdim: bool) -> Tensor, "pairwise_distance"
            (self, other, p, eps, keepdim);

        /// The norms of order `pow` over all dims but `dim`. They keep size 1. For -1 it is the norm of all elements.
        ///
        /// # Errors
        /// If the dim is out of range, or if the dtype is not floating.
        norm_except_dim(self, pow: i64, dim: i64) -> Tensor, "norm_except_dim" (self, pow, dim);

        /// The root of the sum of squares over dims.
        ///
        /// # Errors
        /// Same as [`Tensor::norm`].
        frobenius_norm(self, dims: impl Into<Dims>, keepdim: bool) -> Tensor, "frobenius_norm.dim"
            (self, dims_of(dims).as_slice(), keepdim);
    }
}
