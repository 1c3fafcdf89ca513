"""numba: the rows that its users write as loops; the outer one is parallel where there are threads for it."""

from math import erf, exp, log, sqrt, tanh

import worker  # first: it says how many threads there are

import numba
import numpy as np
from rows import ROWS

PARALLEL = worker.OPTIONS.threads > 1
f32, each = np.float32, numba.prange if PARALLEL else range


def ten_ops(a, b, c, d):
    y = np.empty_like(a)
    for i in each(a.size):
        t = max((a[i] * b[i] + c[i] - d[i]) * f32(0.5), f32(0))
        y[i] = tanh(a[i] / (f32(1) + exp(-t)) + b[i]) * c[i]
    return y


def relu_of_fma(a, b, c):
    y = np.empty_like(a)
    for i in each(a.size):
        y[i] = max(a[i] * b[i] + c[i], f32(0))
    return y


def bias_gelu(x, bias):
    y = np.empty_like(x)
    for i in each(x.shape[0]):
        for j in range(x.shape[1]):
            z = x[i, j] + bias[j]
            y[i, j] = f32(0.5) * z * (f32(1) + tanh(f32(0.7978845608) * (z + f32(0.044715) * z * z * z)))
    return y


def softmax_rows(x):
    y = np.empty_like(x)
    for i in each(x.shape[0]):
        most, total = x[i, 0], f32(0)
        for j in range(x.shape[1]):
            most = max(most, x[i, j])
        for j in range(x.shape[1]):
            y[i, j] = exp(x[i, j] - most)
            total += y[i, j]
        for j in range(x.shape[1]):
            y[i, j] *= f32(1) / total
    return y


def norm_rows(x, weight, bias):
    y, width = np.empty_like(x), f32(x.shape[1])
    for i in each(x.shape[0]):
        total, squares = f32(0), f32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = total / width
        for j in range(x.shape[1]):
            squares += (x[i, j] - mean) * (x[i, j] - mean)
        scale = f32(1) / sqrt(squares / width + f32(1e-5))
        for j in range(x.shape[1]):
            y[i, j] = (x[i, j] - mean) * scale * weight[j] + bias[j]
    return y


def gated_norm(x, gate, weight):
    y, width = np.empty_like(x), f32(x.shape[1])
    for i in each(x.shape[0]):
        squares = f32(0)
        for j in range(x.shape[1]):
            squares += x[i, j] * x[i, j]
        scale = f32(1) / sqrt(squares / width + f32(1e-6))
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * scale * weight[j] * gate[i, j] / (f32(1) + exp(-gate[i, j]))
    return y


def sum_columns(x):
    y = np.empty(x.shape[0], np.float32)
    for i in each(x.shape[0]):
        total = f32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        y[i] = total
    return y


def outer(a, b):
    y = np.empty((b.size, a.size), np.float32)
    for j in each(b.size):
        for i in range(a.size):
            y[j, i] = max(a[i, 0] + b[0, j], f32(0))
    return y


def transposed_fma(x, z):
    y = np.empty_like(z)
    for i in each(z.shape[0]):
        for j in range(z.shape[1]):
            y[i, j] = x[j, i] * f32(2) + z[i, j]
    return y


def strided_fma(x, z):
    y = np.empty_like(z)
    for i in each(z.shape[0]):
        for j in range(z.shape[1]):
            y[i, j] = x[i, 2 * j] * f32(2) + z[i, j]
    return y


def five_points(x):
    y = np.empty((x.shape[0] - 2, x.shape[1] - 2), np.float32)
    for i in each(y.shape[0]):
        for j in range(y.shape[1]):
            near = x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2]
            y[i, j] = (x[i + 1, j + 1] + near) * f32(0.2)
    return y


def black_scholes(spot, strike, time):
    call, put = np.empty_like(spot), np.empty_like(spot)
    for i in each(spot.size):
        spread = sqrt(time[i]) * f32(0.3)
        d1 = (log(spot[i] / strike[i]) + time[i] * f32(0.065)) / spread
        d2 = d1 - spread
        below1 = (erf(d1 * f32(0.70710678)) + f32(1)) * f32(0.5)
        below2 = (erf(d2 * f32(0.70710678)) + f32(1)) * f32(0.5)
        discounted = strike[i] * exp(time[i] * f32(-0.02))
        call[i] = spot[i] * below1 - discounted * below2
        put[i] = call[i] - spot[i] + discounted
    return call, put


def inverse_distances(points):
    y = np.empty(points.shape[0], np.float32)
    for i in each(points.shape[0]):
        total = f32(0)
        for j in range(points.shape[0]):
            x, y_, z = points[i, 0] - points[j, 0], points[i, 1] - points[j, 1], points[i, 2] - points[j, 2]
            total += f32(1) / sqrt(x * x + y_ * y_ + z * z + f32(1e-3))
        y[i] = total
    return y


def sum_of_two(a, b):
    y = np.empty_like(a)
    for i in each(a.size):
        y[i] = a[i] + b[i]
    return y


def make(name):
    row = ROWS[name]
    loops = globals().get(row.formula)
    if loops is None or row.dtype != "float32":
        return None
    inputs = row.inputs()
    function = numba.njit(parallel=PARALLEL, fastmath=True)(loops)
    return (lambda: function(*inputs)), worker.check


# The first function of a process starts the compiler and the threads; that is no row's compile time.
numba.njit(parallel=PARALLEL, fastmath=True)(relu_of_fma)(*[np.ones(8, np.float32)] * 3)
worker.serve(make, f"numba {numba.__version__}")
