"""numpy, with erf from scipy. It has no bfloat16 and no gradients."""

import worker  # first: it says how many threads there are

import numpy as np
from formulas import Formulas
from rows import ROWS
from scipy.special import erf


class Numpy(Formulas):
    def relu(self, x):
        return np.maximum(x, 0)

    def sigmoid(self, x):
        return 1 / (1 + np.exp(-x))

    def silu(self, x):
        return x * self.sigmoid(x)

    def gelu(self, x):
        return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    def softmax(self, x):
        exp = np.exp(x - x.max(-1, keepdims=True))
        return exp / exp.sum(-1, keepdims=True)

    def rsqrt(self, x):
        return 1 / np.sqrt(x)

    def layer_norm(self, x, weight, bias):
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred * self.rsqrt(variance + 1e-5) * weight + bias


FORMULAS = Numpy(
    exp=np.exp, log=np.log, sqrt=np.sqrt, erf=erf, tanh=np.tanh,
    minimum=np.minimum, maximum=np.maximum, stored=np.ascontiguousarray,
)  # fmt: skip


def make(name):
    row = ROWS[name]
    formula = getattr(FORMULAS, row.formula, None)
    if formula is None or row.dtype == "bfloat16":
        return None
    inputs = [array.astype(row.dtype, copy=False) for array in row.inputs()]
    return (lambda: formula(*inputs)), worker.check


worker.serve(make, f"numpy {np.__version__}")
