"""Tensors with eager calls like PyTorch's, and a compiler that fuses functions of them.

>>> import opfuse
>>> x = opfuse.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> softmax = opfuse.compile(lambda x: (x - x.amax(1, True)).exp() / (x - x.amax(1, True)).exp().sum(1, True))
>>> softmax(x).shape
(2, 2)

Every operator is a function here and a method of `Tensor`, under its name in ATen. Nothing else needs to be installed:
NumPy and PyTorch are used where they are, by `opfuse.asarray`, `Tensor.numpy` and `opfuse.torch`.
"""

from opfuse import _opfuse, autograd
from opfuse._derivatives import grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp
from opfuse._functional import (
    autocast,
    compile,
    enable_grad,
    fast_numerics,
    inference_mode,
    is_floating_point,
    is_tensor,
    no_grad,
    norm,
    numel,
    set_grad_enabled,
    unique,
    vmap,
)
from opfuse._opfuse import *  # noqa: F403  (classes, exceptions, dtypes)
from opfuse._opfuse import __version__, asarray, float16, float64, int16, int64

# Names that PyTorch and NumPy have, too.
as_tensor = from_numpy = asarray
half, double, short, long = float16, float64, int16, int64
inf, nan = float("inf"), float("nan")
pi, e = 3.141592653589793, 2.718281828459045
newaxis = None

# Operators come after everything else: what the package itself defines keeps its meaning.
_own = set(globals())
globals().update(
    {name: value for name, value in vars(_opfuse.ops).items() if not name.startswith("_") and name not in _own}
)
del _own

# Methods that are no operators of their own.
Tensor.norm, Tensor.unique = norm, unique  # noqa: F405
Tensor.where = lambda self, condition, other: _opfuse.ops.where(condition, self, other)  # noqa: F405


def __getattr__(name: str) -> object:
    """Functions of dtypes are those of the array API, whose module is loaded when one is asked for."""
    if name in ("can_cast", "finfo", "iinfo", "isdtype", "result_type"):
        from opfuse import array_api

        return getattr(array_api, name)
    raise AttributeError(f"module 'opfuse' has no attribute {name!r}")


__all__ = [name for name in globals() if not name.startswith("_")]
