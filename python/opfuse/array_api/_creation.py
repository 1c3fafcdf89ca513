"""Arrays of numbers, and what the namespace can do."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import opfuse
from opfuse import Device, DType, Tensor, bool, complex64, float32, float64, int64, ops
from opfuse.array_api._dtypes import COMPLEX, FLOATS, INTEGERS, Number, isdtype, number

__all__ = [
    "__array_namespace_info__", "arange", "asarray", "empty", "empty_like", "eye", "full", "full_like", "linspace",
    "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]


class __array_namespace_info__:  # noqa: N801  (a name of the standard)
    """What the namespace can do."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        return Device("cpu")

    def devices(self) -> list[Device]:
        return [Device("cpu")]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        return {"real floating": float32, "complex floating": complex64, "integral": int64, "indexing": int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        every = (bool, *INTEGERS, *FLOATS, *COMPLEX)
        return {str(dtype): dtype for dtype in every if kind is None or isdtype(dtype, kind)}


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: builtins.bool | None = None) -> Tensor:
    """An array of numbers, sequences, or an array of another library."""
    return opfuse.asarray(obj, dtype=dtype, device=device, copy=copy)


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """The numbers from `start` up to `stop`."""
    start, stop = (0, start) if stop is None else (start, stop)
    if (stop - start > 0) != (step > 0) and stop != start or stop == start:
        kind = dtype or (float32 if builtins.any(isinstance(n, float) for n in (start, stop, step)) else int64)
        return ops.empty([0], dtype=kind)
    return ops.arange(start, stop, step, dtype=dtype, device=device)


def _made(name: str) -> Callable[..., Tensor]:
    operator = getattr(ops, name)

    def make(shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> Tensor:
        shape = [shape] if isinstance(shape, int) else list(shape)
        return operator(shape, dtype=dtype, device=device)

    make.__name__, make.__doc__ = name, f"`{name}` of a shape."
    return make


def _made_like(name: str) -> Callable[..., Tensor]:
    operator = getattr(ops, name)

    def make(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
        return operator(x, dtype=dtype, device=device)

    make.__name__, make.__doc__ = name, f"`{name}`: the shape is that of an array."
    return make


empty, zeros, ones = _made("empty"), _made("zeros"), _made("ones")
empty_like, zeros_like, ones_like = _made_like("empty_like"), _made_like("zeros_like"), _made_like("ones_like")


def _kind_of(number: Number) -> DType:
    kinds = ((builtins.bool, bool), (int, int64), (float, float32), (complex, complex64))
    return next(dtype for kind, dtype in kinds if isinstance(number, kind))


def full(shape: int | Sequence[int], fill_value: Number, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of one number."""
    shape = [shape] if isinstance(shape, int) else list(shape)
    dtype = dtype or _kind_of(fill_value)
    if isinstance(fill_value, complex):
        return number(fill_value, dtype).expand(shape).clone()
    return ops.full(shape, fill_value, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Number, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of one number, with the shape of another."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Tensor:
    """Ones on the diagonal `k`, and zeros."""
    n_cols = n_rows if n_cols is None else n_cols
    # All diagonals beyond the corners are alike, and a number of Python may be beyond int64.
    k = builtins.max(-n_rows, builtins.min(k, n_cols))
    rows, columns = ops.arange(n_rows), ops.arange(n_cols)
    return (columns == (rows + k).unsqueeze(1)).to(dtype or float32)


def linspace(
    start: float, stop: float, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: builtins.bool = True
) -> Tensor:
    """`num` numbers at equal distances."""
    dtype = dtype or float32
    if endpoint:
        return ops.linspace(start, stop, num, dtype=float64).to(dtype)
    return ops.linspace(start, stop, num + 1, dtype=float64)[:num].to(dtype)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid."""
    return list(ops.meshgrid(list(arrays), indexing=indexing)) if arrays else []


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangle of matrices."""
    return ops.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangle of matrices."""
    return ops.triu(x, k)
