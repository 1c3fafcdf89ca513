"""Fourier transforms of opfuse beside SciPy and PyTorch: `scripts/fourier.sh` runs it.

    python3 fourier.py WORKER [SECONDS]

prints a table in Markdown. WORKER is the executable of `benches/fourier.rs`. Rows run in turns; the best of several rounds counts.
"""

import subprocess
import sys

import numpy as np
import scipy.fft
import torch

from timing import best

ROWS = ["fft 1x1048576", "fft 1000x1024", "fft-0 1024x1024", "fft2 1024x1024", "fft 1000x1000", "fft 100x10007",
        "rfft 1x1048576", "rfft 1000x1024", "rfft-0 1024x1024", "rfft2 1024x1024", "rfft 1000x1001",
        "irfft 1x1048576", "irfft 1000x1024", "irfft-0 1024x1024"]
ROUNDS = 3


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


def main():
    worker, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1
    print("| row | dtype | threads | opfuse, us | torch, us | scipy, us | best of others / opfuse |")
    print("|---|---|---|---|---|---|---|")
    for row in ROWS:
        name, sizes = row.split()
        rows, columns = map(int, sizes.split("x"))
        for dtype in ("f32", "f64"):
            x = operand(name, rows, columns, np.float32 if dtype == "f32" else np.float64)
            for threads in (1, 2):
                torch.set_num_threads(threads)
                calls = [of_torch(name, x, rows, columns), of_scipy(name, x, rows, columns, threads)]
                found = [float("inf")] * 3
                for _ in range(ROUNDS):
                    words = [worker, row, dtype, str(threads), str(max(1, round(seconds)))]
                    own = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
                    times = [own] + [best(call, seconds) for call in calls]
                    found = [min(pair) for pair in zip(found, times)]
                own, *others = found
                print(f"| {row} | {dtype} | {threads} | {own:.0f} | {others[0]:.0f} | {others[1]:.0f} | "
                      f"{min(others) / own:.2f} |", flush=True)


main()
