"""Selections, searches, sorting and sets."""

from __future__ import annotations

import builtins
from typing import NamedTuple

from opfuse import Tensor, bool, int64, ops
from opfuse.array_api._dtypes import Number, operands
from opfuse.array_api._reductions import sum
from opfuse.array_api._shapes import Axes

__all__ = [
    "UniqueAll", "UniqueCounts", "UniqueInverse", "argmax", "argmin", "argsort", "count_nonzero", "nonzero",
    "searchsorted", "sort", "take", "take_along_axis", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "where",
]


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The parts at indices of an axis."""
    axis = 0 if axis is None and x.ndim == 1 else axis
    if axis is None:
        raise ValueError("take: an array of several dims needs an axis")
    indices = indices.to(int64)
    return ops.index_select(x, axis, ops.where(indices < 0, indices + x.shape[axis], indices))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements at indices of an axis, line by line."""
    axis = axis % x.ndim
    indices = indices.to(int64)
    shape = [n for at, n in enumerate(_shape_of(x, indices, axis)) if at != axis]

    def whole(tensor: Tensor) -> Tensor:
        return tensor.expand([*shape[:axis], tensor.shape[axis], *shape[axis:]])

    return ops.gather(whole(x), axis, whole(ops.where(indices < 0, indices + x.shape[axis], indices)))


def _shape_of(x: Tensor, y: Tensor, axis: int) -> list[int]:
    pairs = zip(x.shape, y.shape, strict=True)
    return [n if at == axis or m == 1 else m for at, (n, m) in enumerate(pairs)]


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The indices of the largest elements."""
    return _kept(ops.argmax(x, axis, axis is not None and keepdims), x, axis is None and keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The indices of the smallest elements."""
    return _kept(ops.argmin(x, axis, axis is not None and keepdims), x, axis is None and keepdims)


def _kept(found: Tensor, x: Tensor, is_kept: builtins.bool) -> Tensor:
    return found.reshape([1] * x.ndim) if is_kept else found


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """How many elements are not zero."""
    return sum((x != 0).to(int64), axis=axis, keepdims=keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of the elements that are not zero."""
    if x.ndim == 0:
        raise ValueError("nonzero: an array of no dims has no indices")
    return tuple(ops.nonzero(x).unbind(1))


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where the elements of `x2` belong in the sorted `x1`."""
    x1 = x1 if sorter is None else take(x1, sorter)
    x1, x2 = operands(x1, x2)
    low, high = ops.zeros_like(x2, dtype=int64), ops.full_like(x2, x1.shape[0], dtype=int64)
    # A binary search: NaN is larger than all else.
    for _ in range(x1.shape[0].bit_length()):
        is_open = low < high
        middle = (low + high) // 2
        at = ops.take(x1, middle.clamp(0, x1.shape[0] - 1))
        is_before = _before(at, x2) if side == "left" else ~_before(x2, at)
        low = ops.where(is_open & is_before, middle + 1, low)
        high = ops.where(is_open & ~is_before, middle, high)
    return low


def _before(x: Tensor, y: Tensor) -> Tensor:
    return (x < y) | (ops.isnan(y) & ~ops.isnan(x))


def where(condition: Tensor, x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """The elements of `x1` where the condition holds, and else those of `x2`."""
    return ops.where(condition, *operands(x1, x2))


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> Tensor:
    """The indices that sort an array."""
    return ops.sort(x, stable=stable, dim=axis, descending=descending)[1]


def sort(
    x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> Tensor:
    """The elements in order."""
    return ops.sort(x, stable=stable, dim=axis, descending=descending)[0]


class UniqueAll(NamedTuple):
    """Different elements, where they are first, which each element is, and how often each is there."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Different elements, and how often each is there."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Different elements, and which each element is."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different elements in order; every NaN is one of its own."""
    flat = x.reshape(-1)
    n = flat.shape[0]
    if n == 0:
        none = ops.zeros([0], dtype=int64)
        return UniqueAll(flat, none, none.reshape(x.shape), none)
    values, order = ops.sort(flat, stable=True, dim=0, descending=False)
    is_first = ops.cat([ops.ones([1], dtype=bool), values[1:] != values[:-1]], 0)
    starts = ops.nonzero(is_first).reshape(-1)
    counts = ops.cat([starts[1:], ops.full([1], n, dtype=int64)], 0) - starts
    inverse = ops.empty([n], dtype=int64)
    inverse[order] = is_first.to(int64).cumsum(0) - 1
    return UniqueAll(values[starts], order[starts], inverse.reshape(x.shape), counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different elements, and how often each is there."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different elements, and which each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The different elements."""
    return unique_all(x).values
