"""Tensors with eager calls like PyTorch's, and a compiler that fuses functions of them.

>>> import opfuse
>>> x = opfuse.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> softmax = opfuse.compile(lambda x: (x - x.amax(1, True)).exp() / (x - x.amax(1, True)).exp().sum(1, True))
>>> softmax(x).shape
(2, 2)

Every operator is a function here and a method of `Tensor`, under its name in ATen. Nothing else needs to be installed:
NumPy and PyTorch are used where they are, by `opfuse.asarray`, `Tensor.numpy` and `opfuse.torch`.
"""

from opfuse import _opfuse
from opfuse._functional import autocast, compile, enable_grad, fast_numerics, grad, no_grad, value_and_grad, vmap
from opfuse._opfuse import *  # noqa: F403  (classes, exceptions, dtypes)
from opfuse._opfuse import __version__

# Operators come after everything else: what the package itself defines keeps its meaning.
_own = set(globals())
globals().update(
    {name: value for name, value in vars(_opfuse.ops).items() if not name.startswith("_") and name not in _own}
)
newaxis = None
del _own

__all__ = [name for name in globals() if not name.startswith("_")]
