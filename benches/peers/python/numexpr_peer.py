"""numexpr: the rows that are one expression over arrays."""

import worker  # first: it says how many threads there are

import numexpr
import numpy as np
from rows import ROWS

numexpr.set_num_threads(worker.OPTIONS.threads)

# A Python float in an expression would make it double; constants of the right type are named operands.
CONSTANTS = {name: np.float32(value) for name, value in {
    "zero": 0.0, "half": 0.5, "one": 1.0, "two": 2.0, "fifth": 0.2, "cubic": 0.044715, "root": 0.7978845608,
}.items()}  # fmt: skip
RELU = "where({0} > zero, {0}, zero)"
SUM = "(a + b)"
EXPRESSIONS = {
    "ten_ops": f"tanh(a / (one + exp(-{RELU.format('((a * b + c - d) * half)')})) + b) * c",
    "relu_of_fma": RELU.format("(a * b + c)"),
    "bias_gelu": f"half * {SUM} * (one + tanh(root * ({SUM} + cubic * {SUM} * {SUM} * {SUM})))",
    "outer": RELU.format(SUM),
    "transposed_fma": "a * two + b",
    "strided_fma": "a * two + b",
    "five_points": "(a + b + c + d + e) * fifth",
    "sum_of_two": "a + b",
}
VIEWS = {
    "outer": lambda a, b: (a.T, b.T),
    "transposed_fma": lambda x, z: (x.T, z),
    "strided_fma": lambda x, z: (x[:, ::2], z),
    "five_points": lambda x: (x[1:-1, 1:-1], x[:-2, 1:-1], x[2:, 1:-1], x[1:-1, :-2], x[1:-1, 2:]),
}


def make(name):
    row = ROWS[name]
    expression = EXPRESSIONS.get(row.formula)
    if expression is None or row.dtype != "float32":
        return None
    arrays = VIEWS.get(row.formula, lambda *arrays: arrays)(*row.inputs())
    names = dict(zip("abcde", arrays)) | CONSTANTS
    return (lambda: numexpr.evaluate(expression, local_dict=names, global_dict={}, order="C")), worker.check


worker.serve(make, f"numexpr {numexpr.__version__}")
