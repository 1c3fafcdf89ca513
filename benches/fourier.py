"""Fourier transforms of opfuse beside SciPy and PyTorch: `scripts/fourier.sh` runs it.

    python3 fourier.py WORKER [SECONDS]

prints a table in Markdown. WORKER is the executable of `benches/fourier.rs`. Rows run in turns; the best of several rounds counts.
"""

import numpy as np
import scipy.fft
import torch

from timing import compare

ROWS = ["fft 1x1048576", "fft 1000x1024", "fft-0 1024x1024", "fft2 1024x1024", "fft 1000x1000", "fft 100x10007",
        "rfft 1x1048576", "rfft 1000x1024", "rfft-0 1024x1024", "rfft2 1024x1024", "rfft 1000x1001",
        "irfft 1x1048576", "irfft 1000x1024", "irfft-0 1024x1024", "irfft 1000x1001"]


def operand(name, rows, columns, dtype):
    if name.startswith("rfft"):
        return np.sin(np.arange(rows * columns) * 0.7).reshape(rows, columns).astype(dtype)
    if name == "irfft":
        columns = columns // 2 + 1
    if name == "irfft-0":
        rows = rows // 2 + 1
    parts = np.sin(np.arange(rows * columns * 2) * 0.7).reshape(rows, columns, 2)
    return (parts[..., 0] + 1j * parts[..., 1]).astype(np.complex64 if dtype == np.float32 else np.complex128)


def of_scipy(name, x, rows, columns, threads):
    base, _, along = name.partition("-")
    function = getattr(scipy.fft, base)
    if base.endswith("2"):
        return lambda: function(x, workers=threads)
    axis = 0 if along else 1
    count = rows if along else columns
    return lambda: function(x, n=count, axis=axis, workers=threads)


def of_torch(name, x, rows, columns):
    base, _, along = name.partition("-")
    x, function = torch.from_numpy(x), getattr(torch.fft, base)
    if base.endswith("2"):
        return lambda: function(x)
    dim = 0 if along else 1
    count = rows if along else columns
    return lambda: function(x, n=count, dim=dim)


def calls_of(name, sizes, dtype):
    x = operand(name, *sizes, np.dtype(dtype))

    def calls(threads):
        torch.set_num_threads(threads)
        return [of_torch(name, x, *sizes), of_scipy(name, x, *sizes, threads)]

    return calls


compare(ROWS, "scipy", calls_of)
