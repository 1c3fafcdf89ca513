"""Functions of functions: compile, grad, vmap; and what holds while a `with` statement runs."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from opfuse._opfuse import Compiled, DType, Tensor, _flatten, _gradients, _Setting, _unflatten, _vmap

_Function = TypeVar("_Function", bound=Callable[..., Any])


@overload
def compile(function: Callable[..., Any], /, **options: Any) -> Compiled: ...


@overload
def compile(function: None = None, /, **options: Any) -> Callable[[Callable[..., Any]], Compiled]: ...


def compile(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compiles a function of tensors: it is captured at its first call, fused, and run as few kernels.

    Arguments and results may be tensors in tuples, lists and dicts. Plain values among the arguments are part of the
    program: another value is captured again. The bits are those of the function itself.

    As a decorator it takes options or none: `@opfuse.compile`, `@opfuse.compile(breaks="error")`.

    Options:
        breaks: what happens where the function reads a value: "allow" (it runs in segments), "eager" or "error".
        stance: "default", "eager", "deferred", or "fail_on_recompile".
        numerics: "strict" for the bits of eager calls, "fast" for faster products.
        capacity: how many programs are kept.
    """
    if function is None:
        return lambda function: compile(function, **options)
    compiled = Compiled(function, **options)
    return compiled


def _named(module: str, name: str) -> Any:
    """What a module defines under that qualified name. Compiled functions are pickled as a call of this."""
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


class _Within:
    """A setting that holds in a `with` statement, or in a function that it decorates."""

    def __init__(self, kind: str, value: object = None) -> None:
        self._kind, self._value = kind, value
        self._entered: list[_Setting] = []

    def __enter__(self) -> None:
        setting = _Setting(self._kind, self._value)
        setting.enter()
        self._entered.append(setting)

    def __exit__(self, *raised: object) -> None:
        self._entered.pop().leave()

    def __call__(self, function: _Function) -> _Function:
        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with type(self)._again(self):
                return function(*args, **kwargs)

        return within  # type: ignore[return-value]

    def _again(self) -> _Within:
        return _Within(self._kind, self._value)


def no_grad() -> _Within:
    """No gradients are recorded: `with opfuse.no_grad():`, or as a decorator `@opfuse.no_grad()`."""
    return _Within("grad", False)


def enable_grad() -> _Within:
    """Gradients are recorded, inside `no_grad` too."""
    return _Within("grad", True)


def autocast(dtype: DType | str | None = "bfloat16", *, enabled: bool = True) -> _Within:
    """Matrix products and their kin compute in a smaller dtype."""
    return _Within("autocast", dtype if enabled else None)


def fast_numerics() -> _Within:
    """Products may use another order of sums than eager calls."""
    return _Within("numerics", True)


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the result of `function`, a number, and its gradients by the arguments `argnums`.

    The arguments may be structures of tensors; gradients have the same structure. With `has_aux` the function returns a
    pair, whose second part is passed on.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(function)
    def with_gradients(*args: Any, **kwargs: Any) -> Any:
        for number in numbers:
            if not -len(args) <= number < len(args):
                raise ValueError(f"grad: argnums has {number}, but there are {len(args)} positional arguments")
        tensors, structure = _flatten(tuple(args[number] for number in numbers))
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        given = list(args)
        for number, argument in zip(numbers, _unflatten(leaves, structure), strict=True):
            given[number] = argument
        with enable_grad():
            result = function(*given, **kwargs)
            value, aux = result if has_aux else (result, None)
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ValueError("grad: the function must return a tensor of one element; sum the result first")
            found = _gradients([value], leaves, [], False, False, True)
        filled = [leaf.detach().zeros_like() if one is None else one for leaf, one in zip(leaves, found, strict=True)]
        gradients = _unflatten(filled, structure)
        gradients = gradients[0] if isinstance(argnums, int) else gradients
        return ((value.detach(), aux) if has_aux else value.detach()), gradients

    return with_gradients


def grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the gradients of `function` by the arguments `argnums`. See `value_and_grad`."""
    both = value_and_grad(function, argnums, has_aux=has_aux)

    @functools.wraps(function)
    def gradients(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradients


def vmap(
    function: Callable[..., Any],
    in_dims: int | Sequence[int | None] | None = 0,
    out_dims: int | Sequence[int | None] = 0,
    randomness: str = "error",
) -> Callable[..., Any]:
    """A function that applies `function` to all slices of its arguments at once.

    `in_dims` says which dim of each positional argument is mapped, `None` for none; one number stands for all.
    `out_dims` says where the mapped dim of each result is.
    """

    @functools.wraps(function)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        per_argument = [in_dims] * len(args) if in_dims is None or isinstance(in_dims, int) else list(in_dims)
        if len(per_argument) != len(args):
            raise ValueError(f"vmap: in_dims has {len(per_argument)} entries for {len(args)} arguments")
        dims = [dim for dim, argument in zip(per_argument, args, strict=True) for _ in _flatten(argument)[0]]
        dims += [0 for _ in _flatten(kwargs)[0]]
        out = None if out_dims == 0 else [out_dims] if isinstance(out_dims, int) else list(out_dims)
        return _vmap(function, dims, out, randomness, args, kwargs)

    return mapped
