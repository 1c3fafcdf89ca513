"""Views and arrangements."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from opfuse import Tensor, int64, ops
from opfuse.array_api._dtypes import result_type

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "matrix_transpose", "moveaxis",
    "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack",
]

Axes = int | Sequence[int] | None


def listed(axis: Axes) -> list[int] | None:
    return None if axis is None else [axis] if isinstance(axis, int) else list(axis)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Views of arrays with their common shape."""
    return list(ops.broadcast_tensors(list(arrays)))


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """A view of another shape."""
    return x.expand(list(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Arrays one after the other."""
    dtype = result_type(*arrays)
    arrays = [x.to(dtype) for x in arrays]
    if axis is None:
        return ops.cat([x.reshape(-1) for x in arrays], 0)
    return ops.cat(arrays, axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Arrays along a new axis."""
    dtype = result_type(*arrays)
    return ops.stack([x.to(dtype) for x in arrays], axis)


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """A view with a new axis of one."""
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise IndexError(f"expand_dims: axis {axis} is out of range for {x.ndim} dims")
    return x.unsqueeze(axis)


def squeeze(x: Tensor, /, axis: int | Sequence[int]) -> Tensor:
    """A view without axes of one."""
    axes = listed(axis) or []
    for one in axes:
        if not -x.ndim <= one < x.ndim or x.shape[one] != 1:
            raise ValueError(f"squeeze: axis {one} of an array of shape {x.shape} is not of size 1")
    return ops.squeeze(x, axes)


def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    """The elements in the opposite order."""
    return ops.flip(x, list(range(x.ndim)) if axis is None else listed(axis))


def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """A view with axes in another order."""
    return ops.movedim(x, listed(source), listed(destination))


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """A view with axes in another order."""
    return x.permute(list(axes))


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element several times."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    if isinstance(repeats, Tensor):
        repeats = repeats.to(int64).expand([x.shape[axis]])
    return ops.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: Sequence[int], *, copy: builtins.bool | None = None) -> Tensor:
    """The elements in another shape."""
    if copy is False:
        return x.view(list(shape))
    shaped = x.reshape(list(shape))
    return shaped.clone() if copy else shaped


def roll(x: Tensor, /, shift: int | Sequence[int], *, axis: Axes = None) -> Tensor:
    """The elements moved around."""
    if axis is None:
        return ops.roll(x.reshape(-1), [shift], [0]).reshape(x.shape)
    axes, shifts = listed(axis) or [], listed(shift) or []
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    return ops.roll(x, shifts, axes)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """The array several times along its axes."""
    return ops.tile(x, list(repetitions))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Views of the parts along an axis."""
    return tuple(x.unbind(axis))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """A view with the last two axes exchanged."""
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: an array of {x.ndim} dims is no matrix")
    return x.mT
