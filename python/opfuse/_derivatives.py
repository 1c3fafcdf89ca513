"""Derivatives of functions: gradients, Jacobians, and their products with vectors. They compose with each other."""

from __future__ import annotations

import functools

from opfuse._opfuse import Tensor, _jacobian, _jvp, _value_and_grad, _vjp

TYPE_CHECKING = False  # As in `typing`, whose import takes as long as the rest of this package's Python.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    _Function = Callable[..., Any]


def _numbers(op: str, argnums: int | Sequence[int], args: tuple[Any, ...]) -> tuple[int, ...]:
    """The positions of the arguments that are differentiated by."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for number in numbers:
        if not -len(args) <= number < len(args):
            raise ValueError(f"{op}: argnums has {number}, but there are {len(args)} positional arguments")
    return numbers


def _of_some(
    function: _Function, numbers: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[Sequence[Any]], Any]:
    """The function of the arguments at these positions; the others stay."""

    def of_some(some: Sequence[Any]) -> Any:
        given = list(args)
        for number, argument in zip(numbers, some, strict=True):
            given[number] = argument
        return function(*given, **kwargs)

    return of_some


def value_and_grad(function: _Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> _Function:
    """A function that returns the result of `function`, a number, and its gradients by the arguments `argnums`.

    The arguments may be structures of tensors; gradients have the same structure. With `has_aux` the function returns a
    pair, whose second part is passed on.
    """

    @functools.wraps(function)
    def with_gradients(*args: Any, **kwargs: Any) -> Any:
        numbers = _numbers("grad", argnums, args)
        call = _of_some(function, numbers, args, kwargs)

        def number_first(some: Sequence[Any]) -> tuple[Any, Any]:
            result = call(some)
            value, aux = result if has_aux else (result, None)
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ValueError("grad: the function must return a tensor of one element; sum the result first")
            return value, aux

        chosen = tuple(args[number] for number in numbers)
        (value, aux), gradients = _value_and_grad(number_first, chosen, [args, kwargs])
        gradients = gradients[0] if isinstance(argnums, int) else gradients
        return ((value, aux) if has_aux else value), gradients

    return with_gradients


def grad(function: _Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> _Function:
    """A function that returns the gradients of `function` by the arguments `argnums`. See `value_and_grad`."""
    both = value_and_grad(function, argnums, has_aux=has_aux)

    @functools.wraps(function)
    def gradients(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradients


def vjp(function: _Function, *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """What the function returns, and a function from gradients of that to gradients of the arguments, a tuple."""
    value, pullback = _vjp(lambda some: function(*some), primals, [])
    return value, pullback


def jvp(function: _Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """What the function returns, and the derivative of that along the tangents, one for each argument."""
    if len(primals) != len(tangents):
        raise ValueError(f"jvp: there are {len(tangents)} tangents for {len(primals)} arguments")
    value, along = _jvp(lambda some: function(*some), tuple(primals), [], tuple(tangents))
    return value, along


def _matrix(kind: str, function: _Function, argnums: int) -> _Function:
    @functools.wraps(function)
    def matrix(*args: Any, **kwargs: Any) -> Tensor:
        (number,) = _numbers(kind, argnums, args)
        call = _of_some(function, [number], args, kwargs)

        def of_tensor(x: Tensor) -> Tensor:
            result = call([x])
            if not isinstance(result, Tensor):
                raise ValueError(f"{kind}: the function must return a tensor, and it returned {type(result).__name__}")
            return result

        if not isinstance(args[number], Tensor):
            raise ValueError(f"{kind}: argument {number} is {type(args[number]).__name__}, and must be a tensor")
        return _jacobian(kind, of_tensor, args[number], [args, kwargs])

    return matrix


def jacrev(function: _Function, argnums: int = 0) -> _Function:
    """A function that returns the Jacobian of `function` by one argument, a tensor; rows are backward passes."""
    return _matrix("jacrev", function, argnums)


def jacfwd(function: _Function, argnums: int = 0) -> _Function:
    """As `jacrev`, by columns: derivatives along each element of the argument."""
    return _matrix("jacfwd", function, argnums)


def hessian(function: _Function, argnums: int = 0) -> _Function:
    """A function that returns the second derivatives of `function`, a number, by one argument, a tensor."""
    return _matrix("hessian", function, argnums)
