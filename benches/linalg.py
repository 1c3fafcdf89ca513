"""Linear algebra of opfuse beside NumPy and PyTorch: `scripts/linalg.sh` runs it.

    python3 linalg.py WORKER [SECONDS]

prints a table in Markdown. WORKER is the executable of `benches/linalg.rs`. Rows run in turns; the best of several rounds counts.
"""

import subprocess
import sys

import numpy as np
import torch

from timing import best

ROWS = ["cholesky 5000x4", "solve 5000x4", "inv 5000x4", "det 5000x4", "cholesky 500x64", "solve 500x64", "inv 500x64",
        "qr 100x64", "svd 1x512", "svdvals 1x512", "eigh 1x512", "qr 1x512", "cholesky 1x1000", "solve 1x1000"]
ROUNDS = 3


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


def main():
    worker, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1
    print("| row | dtype | threads | opfuse, us | torch, us | numpy, us | best of others / opfuse |")
    print("|---|---|---|---|---|---|---|")
    for row in ROWS:
        name, sizes = row.split()
        count, order = map(int, sizes.split("x"))
        for dtype in ("f32", "f64"):
            a = matrices(count, order, np.float32 if dtype == "f32" else np.float64)
            b = numbers(count * order).reshape(count, order, 1).astype(a.dtype)
            for threads in (1, 2):
                torch.set_num_threads(threads)
                calls = [of_torch(name, a, b), of_numpy(name, a, b)]
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
