"""Reductions and cumulative sums."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from opfuse import DType, Tensor, bool, int64, ops
from opfuse.array_api._dtypes import COMPLEX, FLOATS
from opfuse.array_api._shapes import Axes, listed

__all__ = [
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var",
]


def _summed_dtype(x: Tensor, dtype: DType | None) -> DType:
    if dtype is not None:
        return dtype
    return x.dtype if x.dtype in FLOATS + COMPLEX else int64


def sum(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """The sum of elements."""
    dtype = _summed_dtype(x, dtype)
    return _folded(ops.sum, x.to(dtype), axis, keepdims).to(dtype)


def prod(x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """The product of elements."""
    x = x.to(_summed_dtype(x, dtype))
    for one in sorted((at % x.ndim for at in _every(x, axis)), reverse=True):
        x = ops.prod(x, one, keepdims).to(x.dtype)
    return x if x.ndim else x.clone()


def _every(x: Tensor, axis: Axes) -> list[int]:
    return list(range(x.ndim)) if axis is None else listed(axis) or []


def _folded(fold: Callable[..., Tensor], x: Tensor, axis: Axes, keepdims: builtins.bool) -> Tensor:
    axes = _every(x, axis)
    # An empty list of dims means all of them to an operator, and none to the standard.
    return fold(x, axes, keepdims) if axes else x.clone()


def max(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """The largest element."""
    return _folded(ops.amax, x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """The smallest element."""
    return _folded(ops.amin, x, axis, keepdims)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """The mean of elements."""
    return _folded(ops.mean, x, axis, keepdims)


def var(
    x: Tensor, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The variance of elements."""
    axes = _every(x, axis)
    count = math.prod(x.shape[at] for at in axes)
    squares = _folded(ops.sum, (x - mean(x, axis=axis, keepdims=True)).square(), axis, keepdims)
    return squares / (count - correction) if count > correction else squares * math.nan


def std(
    x: Tensor, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: builtins.bool = False
) -> Tensor:
    """The standard deviation of elements."""
    return var(x, axis=axis, correction=correction, keepdims=keepdims).sqrt()


def all(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether no element is zero."""
    return _folded(ops.all, x.to(bool), axis, keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether an element is not zero."""
    return _folded(ops.any, x.to(bool), axis, keepdims)


def _cumulative(name: str) -> Callable[..., Tensor]:
    operator = getattr(ops, name)

    def function(
        x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: builtins.bool = False
    ) -> Tensor:
        if axis is None and x.ndim != 1:
            raise ValueError(f"an array of {x.ndim} dims needs an axis")
        axis = (axis or 0) % x.ndim
        dtype = _summed_dtype(x, dtype)
        found = operator(x.to(dtype), axis).to(dtype)
        if not include_initial:
            return found
        shape = [1 if at == axis else n for at, n in enumerate(x.shape)]
        return ops.cat([ops.full(shape, int(name == "cumprod"), dtype=found.dtype), found], axis)

    function.__name__, function.__doc__ = name, f"`{name}` along an axis."
    return function


cumulative_sum, cumulative_prod = _cumulative("cumsum"), _cumulative("cumprod")


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences of neighbours."""
    x = ops.cat([part for part in (prepend, x, append) if part is not None], axis)
    for _ in range(n):
        size = x.shape[axis]
        if size == 0:
            break
        one, other = x.narrow(axis, 1, size - 1), x.narrow(axis, 0, size - 1)
        x = one.ne(other) if x.dtype == bool else one - other
    return x
