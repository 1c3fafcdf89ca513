"""Data types: their limits, kinds and promotion."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, NamedTuple

from opfuse import (
    Device,
    DType,
    Tensor,
    bool,
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    ops,
    tensor,
    uint8,
)

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

Number = builtins.bool | int | float | complex

INTEGERS = (int8, int16, int32, int64, uint8)
FLOATS = (float32, float64)
COMPLEX = (complex64, complex128)


class finfo_object(NamedTuple):
    """What `finfo` tells of a dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class iinfo_object(NamedTuple):
    """What `iinfo` tells of a dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def dtype_of(x: Any) -> DType:
    return x.dtype if isinstance(x, Tensor) else DType(x)


def part_of(dtype: DType) -> DType:
    """The dtype of the parts of complex numbers; another dtype itself."""
    return FLOATS[COMPLEX.index(dtype)] if dtype in COMPLEX else dtype


def finfo(type: DType | Tensor, /) -> finfo_object:
    """The limits of a dtype of floating-point numbers, or of the parts of complex ones."""
    dtype = part_of(dtype_of(type))
    if dtype == float32:
        largest = (2 - 2.0**-23) * 2.0**127
        return finfo_object(32, 2.0**-23, largest, -largest, 2.0**-126, float32)
    if dtype == float64:
        largest = (2 - 2.0**-52) * 2.0**1023
        return finfo_object(64, 2.0**-52, largest, -largest, 2.0**-1022, float64)
    raise ValueError(f"finfo: {dtype} is no dtype of floating-point numbers of the standard; iinfo is for integers")


def iinfo(type: DType | Tensor, /) -> iinfo_object:
    """The limits of a dtype of integers."""
    dtype = dtype_of(type)
    if dtype not in INTEGERS:
        raise ValueError(f"iinfo: {dtype} is no dtype of integers; finfo is for floating-point numbers")
    bits = 8 * dtype.itemsize
    if dtype == uint8:
        return iinfo_object(bits, 255, 0, uint8)
    return iinfo_object(bits, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), dtype)


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> builtins.bool:
    """Whether a dtype is of a kind: a dtype, a name such as "integral", or any of a tuple of these."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, DType):
        return dtype == kind
    kinds = {
        "bool": (bool,),
        "signed integer": INTEGERS[:4],
        "unsigned integer": (uint8,),
        "integral": INTEGERS,
        "real floating": FLOATS,
        "complex floating": COMPLEX,
        "numeric": INTEGERS + FLOATS + COMPLEX,
    }
    if kind not in kinds:
        raise ValueError(f"isdtype: there is no kind {kind!r}; use one of {', '.join(kinds)}")
    return dtype in kinds[kind]


def _promoted(one: DType, other: DType) -> DType:
    if one == other:
        return one
    if one == bool or other == bool:
        raise TypeError(f"{one} and {other} have no common dtype; convert one of them with astype")
    if (one in INTEGERS) != (other in INTEGERS):
        raise TypeError(f"{one} and {other} have no common dtype; convert one of them with astype")
    if one not in INTEGERS:
        is_wide = float64 in (part_of(one), part_of(other))
        return (COMPLEX if one in COMPLEX or other in COMPLEX else FLOATS)[is_wide]
    signed = [dtype for dtype in (one, other) if dtype != uint8]
    if len(signed) == 1:
        return int16 if signed[0] == int8 else signed[0]
    return builtins.max(one, other, key=lambda dtype: dtype.itemsize)


def result_type(*arrays_and_dtypes: Tensor | DType | Number) -> DType:
    """The dtype of a result of these arrays, dtypes and numbers."""
    found, numbers = None, []
    for given in arrays_and_dtypes:
        if isinstance(given, (builtins.bool, int, float, complex)):
            numbers.append(given)
        else:
            dtype = dtype_of(given)
            found = dtype if found is None else _promoted(found, dtype)
    if found is None:
        raise ValueError("result_type: give at least one array or dtype")
    for number in numbers:
        if isinstance(number, complex) and found in FLOATS:
            found = COMPLEX[FLOATS.index(found)]
        _check_number(number, found)
    return found


def _check_number(number: Number, dtype: DType) -> None:
    is_fit = (
        isinstance(number, builtins.bool) == (dtype == bool)
        and not (isinstance(number, float) and dtype not in FLOATS + COMPLEX)
        and not (isinstance(number, complex) and dtype not in COMPLEX)
    )
    if not is_fit:
        raise TypeError(f"a Python {type(number).__name__} does not go with an array of {dtype}")


def can_cast(from_: DType | Tensor, to: DType, /) -> builtins.bool:
    """Whether promotion leads from a dtype to another."""
    try:
        return _promoted(dtype_of(from_), to) == to
    except TypeError:
        return False


def astype(x: Tensor, dtype: DType, /, *, copy: builtins.bool = True, device: Any = None) -> Tensor:
    """The elements in another dtype."""
    return x.to(dtype, device=device, copy=copy) if device is not None else x.to(dtype, copy=copy)


def operands(one: Any, other: Any) -> tuple[Tensor, Tensor]:
    """Both operands in their common dtype."""
    dtype = result_type(one, other)
    return tuple(  # type: ignore[return-value]
        x.to(dtype) if isinstance(x, Tensor) else number(x, dtype) for x in (one, other)
    )


def number(value: Number, dtype: DType) -> Tensor:
    """A number as an array of no dims."""
    return tensor(value, dtype=dtype) if isinstance(value, complex) else ops.full([], value, dtype=dtype)
