"""Functions of each element."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from opfuse import Tensor, ops
from opfuse.array_api._dtypes import COMPLEX, FLOATS, INTEGERS, Number, iinfo, operands

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign",
    "cos", "cosh", "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot",
    "imag", "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter",
    "not_equal", "positive", "pow", "real", "reciprocal", "remainder", "round", "sign", "signbit", "sin", "sinh",
    "sqrt", "square", "subtract", "tan", "tanh", "trunc",
]


def _unary(name: str) -> Callable[[Tensor], Tensor]:
    operator = getattr(ops, name)

    def function(x: Tensor, /) -> Tensor:
        return operator(x)

    function.__name__, function.__doc__ = name, f"`{name}` of each element."
    return function


def _rounded(name: str) -> Callable[[Tensor], Tensor]:
    operator = getattr(ops, name)

    def function(x: Tensor, /) -> Tensor:
        return operator(x) if x.dtype in FLOATS else x.clone()

    function.__name__, function.__doc__ = name, f"`{name}` of each element; integers stay."
    return function


acos, acosh, asin, asinh, atan, atanh = map(_unary, ("acos", "acosh", "asin", "asinh", "atan", "atanh"))
cos, cosh, sin, sinh, tan, tanh = map(_unary, ("cos", "cosh", "sin", "sinh", "tan", "tanh"))
exp, expm1, log, log1p, log2, log10 = map(_unary, ("exp", "expm1", "log", "log1p", "log2", "log10"))
abs, negative, positive = _unary("abs"), _unary("neg"), _unary("clone")
square, sqrt, reciprocal, signbit = map(_unary, ("square", "sqrt", "reciprocal", "signbit"))
isfinite, isinf, isnan = map(_unary, ("isfinite", "isinf", "isnan"))
logical_not, bitwise_invert = _unary("logical_not"), _unary("bitwise_not")
ceil, floor, trunc, round = map(_rounded, ("ceil", "floor", "trunc", "round"))


def sign(x: Tensor, /) -> Tensor:
    """The sign of each element, which is a direction if that is complex; NaN stays."""
    if x.dtype in COMPLEX:
        return ops.sgn(x)
    found = ops.sign(x)
    return ops.where(ops.isnan(x), x, found) if x.dtype in FLOATS else found


def real(x: Tensor, /) -> Tensor:
    """The real parts, as a view."""
    return ops.real(x)


def imag(x: Tensor, /) -> Tensor:
    """The imaginary parts of complex elements, as a view."""
    return ops.imag(x)


def conj(x: Tensor, /) -> Tensor:
    """The conjugates; a real element is its own."""
    return ops.conj(x)


def _binary(name: str) -> Callable[[Any, Any], Tensor]:
    operator = getattr(ops, name)

    def function(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
        return operator(*operands(x1, x2))

    function.__name__, function.__doc__ = name, f"`{name}` of the elements of two arrays."
    return function


add, subtract, multiply, divide = map(_binary, ("add", "sub", "mul", "div"))
floor_divide, remainder, pow = map(_binary, ("floor_divide", "remainder", "pow"))
atan2, copysign, hypot, logaddexp = map(_binary, ("atan2", "copysign", "hypot", "logaddexp"))
maximum, minimum = _binary("maximum"), _binary("minimum")
equal, not_equal, less, less_equal, greater, greater_equal = map(_binary, ("eq", "ne", "lt", "le", "gt", "ge"))
logical_and, logical_or, logical_xor = map(_binary, ("logical_and", "logical_or", "logical_xor"))
bitwise_and, bitwise_or, bitwise_xor = map(_binary, ("bitwise_and", "bitwise_or", "bitwise_xor"))
bitwise_left_shift, bitwise_right_shift = map(_binary, ("bitwise_left_shift", "bitwise_right_shift"))


def nextafter(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """The next number from each of `x1` towards `x2`."""
    return ops.nextafter(*operands(x1, x2))


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """The elements, at least `min` and at most `max`."""

    def limit(given: Any) -> Any:
        return given.to(x.dtype) if isinstance(given, Tensor) else given

    for bound, function in ((min, ops.maximum), (max, ops.minimum)):
        if isinstance(bound, Tensor):
            x = function(x, limit(bound))
        elif bound is not None:
            if x.dtype in INTEGERS:
                limits = iinfo(x)
                bound = builtins.min(builtins.max(bound, limits.min), limits.max)
            x = function(x, ops.full([], bound, dtype=x.dtype))
    return x.clone()
