"""Linear algebra of opfuse beside NumPy and PyTorch: `scripts/linalg.sh` runs it.

    python3 linalg.py WORKER [SECONDS]

prints a table in Markdown. WORKER is the executable of `benches/linalg.rs`. Rows run in turns; the best of several rounds counts.
"""

import numpy as np
import torch

from timing import compare

ROWS = ["cholesky 5000x4", "solve 5000x4", "inv 5000x4", "det 5000x4", "cholesky 500x64", "solve 500x64", "inv 500x64",
        "qr 100x64", "svd 1x512", "svdvals 1x512", "eigh 1x512", "qr 1x512", "cholesky 1x1000", "solve 1x1000"]


def numbers(count):
    state, out = 1, np.empty(count)
    for at in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out[at] = (state >> 11) / 2**52 - 1
    return out


def matrices(count, order, dtype):
    x = numbers(count * order * order).reshape(count, order, order)
    return (x @ x.transpose(0, 2, 1) / order + np.eye(order)).astype(dtype)


def of_numpy(name, a, b):
    functions = {"cholesky": np.linalg.cholesky, "inv": np.linalg.inv, "det": np.linalg.det, "eigh": np.linalg.eigh,
                 "qr": np.linalg.qr, "svd": lambda a: np.linalg.svd(a, full_matrices=False),
                 "svdvals": lambda a: np.linalg.svd(a, compute_uv=False)}
    return lambda: np.linalg.solve(a, b) if name == "solve" else functions[name](a)


def of_torch(name, a, b):
    a, b = torch.from_numpy(a), torch.from_numpy(b)
    if name == "solve":
        return lambda: torch.linalg.solve(a, b)
    if name == "svd":
        return lambda: torch.linalg.svd(a, full_matrices=False)
    function = getattr(torch.linalg, name)
    return lambda: function(a)


def calls_of(name, sizes, dtype):
    count, order = sizes
    a = matrices(count, order, dtype)
    b = numbers(count * order).reshape(count, order, 1).astype(dtype)

    def calls(threads):
        torch.set_num_threads(threads)
        return [of_torch(name, a, b), of_numpy(name, a, b)]

    return calls


compare(ROWS, "numpy", calls_of)
