"""Products of matrices and vectors."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence

from opfuse import Tensor, ops
from opfuse.array_api._dtypes import operands

__all__ = ["matmul", "tensordot", "vecdot"]


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of matrices."""
    if x1.ndim == 0 or x2.ndim == 0:
        raise ValueError("matmul: arrays of no dims are no matrices")
    return ops.matmul(*operands(x1, x2))


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over axes of both."""
    x1, x2 = operands(x1, x2)
    if isinstance(axes, int):
        ours, theirs = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        ours, theirs = [at % x1.ndim for at in axes[0]], [at % x2.ndim for at in axes[1]]
    if len(ours) != len(theirs) or builtins.any(
        x1.shape[one] != x2.shape[other] for one, other in zip(ours, theirs, strict=True)
    ):
        raise ValueError(f"tensordot: axes {axes} of shapes {x1.shape} and {x2.shape} do not fit")
    free, other_free = [at for at in range(x1.ndim) if at not in ours], [at for at in range(x2.ndim) if at not in theirs]
    count = math.prod(x1.shape[at] for at in ours)
    shape, other_shape = [x1.shape[at] for at in free], [x2.shape[at] for at in other_free]
    left = x1.permute([*free, *ours]).reshape([math.prod(shape), count])
    right = x2.permute([*theirs, *other_free]).reshape([count, math.prod(other_shape)])
    return ops.mm(left, right).reshape([*shape, *other_shape])


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of products along an axis, of conjugates on the left."""
    if not -builtins.min(x1.ndim, x2.ndim) <= axis <= -1:
        raise IndexError(f"vecdot: axis {axis} is out of range; it counts from the end")
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: sizes {x1.shape[axis]} and {x2.shape[axis]} of axis {axis} differ")
    x1, x2 = operands(x1, x2)
    return ops.sum(ops.conj(x1) * x2, [axis]).to(x1.dtype)


def __dir__() -> list[str]:
    return [name for name in globals() if not name.startswith("_") or name.startswith("__array")]
