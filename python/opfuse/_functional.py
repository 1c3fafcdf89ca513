"""Functions of functions: compile and vmap; and what holds while a `with` statement runs."""

from __future__ import annotations

import functools
import importlib

from opfuse._opfuse import Compiled, DType, Tensor, _flatten, _Setting, _vmap
from opfuse._opfuse import ops as _ops

TYPE_CHECKING = False  # As in `typing`, whose import takes as long as the rest of this package's Python.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])


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
        watch: whether each call looks at what else the function reads: attributes of arguments and of what it refers
            to, variables of enclosing functions, globals of its module. If a number or a tensor there is another one,
            the function is captured again. Without it, what the first call saw stays.
    """
    if function is None:
        return lambda function: compile(function, **options)
    if not callable(function):
        raise TypeError(f"compile: an object of type {type(function).__name__} is no function of tensors")
    return Compiled(function, **options)


def _named(module: str, name: str) -> Any:
    """What a module defines under that qualified name. Compiled functions are pickled as a call of this."""
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


class _Within:
    """A setting that holds in a `with` statement, or in a function that it decorates."""

    def __init__(self, kind: str, value: object = None) -> None:
        self._setting = _Setting(kind, value)

    def __enter__(self) -> None:
        self._setting.enter()

    def __exit__(self, *raised: object) -> None:
        self._setting.leave()

    def __call__(self, function: _Function) -> _Function:
        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return within  # type: ignore[return-value]


class _EmptyDefault:
    """Makes empty dicts like a `defaultdict`. Two are equal if their dicts would be."""

    def __init__(self, kind: type, factory: Any) -> None:
        self._parts = (kind, factory)

    def __call__(self) -> Any:
        kind, factory = self._parts
        return kind(factory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _EmptyDefault) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)


def is_tensor(value: object) -> bool:
    """Whether it is an `opfuse.Tensor`."""
    return isinstance(value, Tensor)


def is_floating_point(tensor: Tensor) -> bool:
    """Whether the elements are floating-point numbers."""
    return tensor.is_floating_point()


def numel(tensor: Tensor) -> int:
    """The number of elements."""
    return tensor.numel()


def norm(
    tensor: Tensor,
    p: float | str = "fro",
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    """The p-norm of all elements, or along dims; "fro" is the norm for p = 2."""
    if isinstance(p, str) and p != "fro":
        raise ValueError(f"norm: p is {p!r}; use a number or 'fro', or linalg_matrix_norm")
    dims = [dim] if isinstance(dim, int) else [] if dim is None else list(dim)
    found: Tensor = _ops.linalg_vector_norm(tensor, 2 if isinstance(p, str) else p, dims or None, keepdim, dtype=dtype)
    return found


def unique(
    tensor: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements, or the distinct slices along a dim, in ascending order.

    With `return_inverse` and `return_counts` also where each element went, and how often each occurs: a tuple then.
    """
    if dim is None:
        found = _ops._unique2(tensor, sorted, return_inverse, return_counts)
    else:
        found = _ops.unique_dim(tensor, dim, sorted, return_inverse, return_counts)
    wanted = [found[0], *([found[1]] if return_inverse else []), *([found[2]] if return_counts else [])]
    return tuple(wanted) if len(wanted) > 1 else wanted[0]


def no_grad() -> _Within:
    """No gradients are recorded: `with opfuse.no_grad():`, or as a decorator `@opfuse.no_grad()`."""
    return _Within("grad", False)


def enable_grad() -> _Within:
    """Gradients are recorded, inside `no_grad` too."""
    return _Within("grad", True)


def autocast(dtype: DType | str | None = "bfloat16", *, enabled: bool = True) -> _Within:
    """Matrix products and their kin compute in a smaller dtype."""
    return _Within("autocast", dtype if enabled else None)


def inference_mode() -> _Within:
    """Like `no_grad`; and tensors made inside can never be recorded, which makes calls cheaper."""
    return _Within("inference")


def set_grad_enabled(mode: bool) -> _Within:
    """Gradients are recorded, or not: `with opfuse.set_grad_enabled(is_training):`."""
    return _Within("grad", bool(mode))


def fast_numerics() -> _Within:
    """Products may use another order of sums than eager calls."""
    return _Within("numerics", True)


def vmap(
    function: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error"
) -> Callable[..., Any]:
    """A function that applies `function` to all slices of its arguments at once.

    `in_dims` says which dim of each positional argument is mapped, `None` for none; one number stands for all. For a
    structure it may be a structure of numbers. `out_dims` says where the mapped dim of each result is.
    """

    @functools.wraps(function)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        per_argument = [in_dims] * len(args) if in_dims is None or isinstance(in_dims, int) else list(in_dims)
        if len(per_argument) != len(args):
            raise ValueError(f"vmap: in_dims has {len(per_argument)} entries for {len(args)} arguments")
        dims = [one for dim, argument in zip(per_argument, args, strict=True) for one in _dims(dim, argument)]
        dims += _dims(0, kwargs)
        out = None if out_dims == 0 else _leaves(out_dims)
        return _vmap(function, dims, out, randomness, args, kwargs)

    return mapped


def _dims(dims: Any, argument: Any) -> list[int | None]:
    """The mapped dim of each tensor of an argument."""
    if dims is None or isinstance(dims, int):
        return [dims] * len(_flatten(argument)[0])
    if isinstance(dims, dict) and isinstance(argument, dict) and dims.keys() == argument.keys():
        return [one for name, part in argument.items() for one in _dims(dims[name], part)]
    if isinstance(dims, (list, tuple)) and isinstance(argument, (list, tuple)) and len(dims) == len(argument):
        return [one for dim, part in zip(dims, argument, strict=True) for one in _dims(dim, part)]
    raise ValueError(f"vmap: in_dims has {dims!r} for an argument of another structure")


def _leaves(dims: Any) -> list[int | None]:
    if isinstance(dims, dict):
        dims = list(dims.values())
    return [one for dim in dims for one in _leaves(dim)] if isinstance(dims, (list, tuple)) else [dims]
