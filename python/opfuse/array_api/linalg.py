"""The extension `linalg` of the array API standard: factorizations, solutions, spectra and norms.

Matrices are in the last two dims, and all dims before them count them. The floating dtypes are accepted, real and
complex, as the standard asks; the products accept all that it calls numeric.
"""

from __future__ import annotations

import builtins
from typing import NamedTuple

from opfuse import DType, Tensor, ops
from opfuse.array_api._dtypes import COMPLEX, FLOATS, operands, part_of
from opfuse.array_api._products import matmul, tensordot, vecdot
from opfuse.array_api._reductions import sum
from opfuse.array_api._shapes import Axes, listed, matrix_transpose

__all__ = [
    "EighResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh",
    "inv", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet",
    "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]

Tolerance = float | Tensor | None


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """An orthogonal and an upper triangular factor."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Left singular vectors as columns, singular values in descending order, and right singular vectors as rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _floats(name: str, *arrays: Tensor) -> None:
    for x in arrays:
        if x.dtype not in FLOATS + COMPLEX:
            raise TypeError(f"{name}: expected an array of floating-point or complex numbers but got {x.dtype}")


def cholesky(x: Tensor, /, *, upper: builtins.bool = False) -> Tensor:
    """The triangular factor of symmetric or Hermitian positive definite matrices."""
    _floats("cholesky", x)
    return ops.linalg_cholesky(x, upper=upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along an axis, which counts from the end."""
    least = builtins.min(x1.ndim, x2.ndim)
    if not -least <= axis <= -1:
        raise IndexError(f"cross: axis {axis} is out of range for {least} dims; it counts from the end")
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError(f"cross: expected 3 elements along axis {axis} but got {x1.shape} and {x2.shape}")
    x1, x2 = ops.broadcast_tensors(list(operands(x1, x2)))
    return ops.linalg_cross(x1, x2, dim=axis)


def det(x: Tensor, /) -> Tensor:
    """The determinants."""
    _floats("det", x)
    return ops.linalg_det(x)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Views of the diagonals, as the last dim."""
    return ops.diagonal(x, offset, -2, -1)


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices; the lower triangles are read."""
    _floats("eigh", x)
    return EighResult(*ops.linalg_eigh(x))


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of symmetric or Hermitian matrices in ascending order."""
    _floats("eigvalsh", x)
    return ops.linalg_eigvalsh(x)


def inv(x: Tensor, /) -> Tensor:
    """The inverses."""
    _floats("inv", x)
    return ops.linalg_inv(x)


def matrix_norm(
    x: Tensor, /, *, keepdims: builtins.bool = False, ord: int | float | str | None = "fro"
) -> Tensor:
    """Norms of matrices: "fro", "nuc", or the orders 1, 2, inf and their negatives."""
    _floats("matrix_norm", x)
    return ops.linalg_matrix_norm(x, "fro" if ord is None else ord, [-2, -1], keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Products of each square matrix with itself; negative powers are those of the inverse."""
    _floats("matrix_power", x)
    return ops.linalg_matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: Tolerance = None) -> Tensor:
    """How many singular values are above `rtol` times the largest one."""
    _floats("matrix_rank", x)
    return ops.linalg_matrix_rank(x, atol=_absent(rtol, x), rtol=rtol)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products of each element of one vector with each of another."""
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer: expected two vectors but got shapes {x1.shape} and {x2.shape}")
    x1, x2 = operands(x1, x2)
    return x1.reshape([-1, 1]) * x2.reshape([1, -1])


def pinv(x: Tensor, /, *, rtol: Tolerance = None) -> Tensor:
    """The pseudoinverses of Moore and Penrose; singular values up to `rtol` times the largest one count as zero."""
    _floats("pinv", x)
    return ops.linalg_pinv(x, atol=_absent(rtol, x), rtol=rtol)


def _absent(rtol: Tolerance, x: Tensor) -> Tensor | None:
    """The absolute tolerance beside a relative one: both are tensors or neither is."""
    return ops.zeros([], dtype=part_of(x.dtype)) if isinstance(rtol, Tensor) else None


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """An orthogonal and a triangular factor; `mode` is "reduced" or "complete"."""
    _floats("qr", x)
    if mode not in ("reduced", "complete"):
        raise ValueError(f'qr: mode is "reduced" or "complete", but it was {mode!r}')
    return QRResult(*ops.linalg_qr(x, mode))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The signs of determinants, and the logarithms of their absolute values."""
    _floats("slogdet", x)
    return SlogdetResult(*ops.linalg_slogdet(x))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solutions of `x1 @ x = x2`. `x2` is one vector if it has one dim, and else a stack of matrices."""
    _floats("solve", x1, x2)
    x1, x2 = operands(x1, x2)
    if x2.ndim == 1:
        return solve(x1, x2.reshape([-1, 1])).squeeze(-1)
    # The operator takes a right side of one dim less for a stack of vectors.
    while x2.ndim < x1.ndim:
        x2 = x2.unsqueeze(0)
    return ops.linalg_solve(x1, x2)


def svd(x: Tensor, /, *, full_matrices: builtins.bool = True) -> SVDResult:
    """Singular vectors and values."""
    _floats("svd", x)
    return SVDResult(*ops.linalg_svd(x, full_matrices))


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values in descending order."""
    _floats("svdvals", x)
    return ops.linalg_svdvals(x)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sums of diagonals."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(
    x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False, ord: int | float = 2
) -> Tensor:
    """Norms of the vectors along axes, or of all elements. Without any axis, each element is a vector."""
    _floats("vector_norm", x)
    if axis == ():
        return (x != 0).to(part_of(x.dtype)) if ord == 0 else x.abs()
    return ops.linalg_vector_norm(x, ord, listed(axis), keepdims)


def __dir__() -> list[str]:
    return __all__
