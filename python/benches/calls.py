"""What a call from Python costs, and what an import of the package takes.

    python calls.py [--repeats 40]

Calls of opfuse, NumPy and PyTorch take turns in one process, on one thread and f32 of 64 elements; libraries that are
not installed are left out. Imports are processes of their own, which take turns too; the time is that from inside, so
that the interpreter's own start is not in it. Every time is the least of all turns, and *spread* is the median by the
least. `fused` is `relu((x + y) * y)`: one compiled function in opfuse, three calls elsewhere. It prints both tables
as Markdown.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time
import timeit
from typing import Any

os.environ.setdefault("OPFUSE_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

LIBRARIES = [name for name in ("opfuse", "numpy", "torch") if importlib.util.find_spec(name)]
N = 64
CALLS = 2_000


STATEMENTS = ["add(x, y)", "x + y", "x + 1.5", "sqrt(x)", "x.sum()", "x[3:9]", "x.reshape(8, 8)", "fused(x, y)"]


def names_of(name: str) -> dict[str, Any]:
    """What the statements name, in one library."""
    library = __import__(name)
    if name == "torch":
        library.set_num_threads(1)
    relu = (lambda a: library.maximum(a, 0)) if name == "numpy" else library.relu

    def several(a: Any, b: Any) -> Any:
        return relu((a + b) * b)

    fused = library.compile(several) if name == "opfuse" else several
    x, y = (library.arange(N, dtype=library.float32) for _ in range(2))
    return {"x": x, "y": y, "add": library.add, "sqrt": library.sqrt, "fused": fused}


def timed_calls(repeats: int) -> dict[str, dict[str, list[float]]]:
    """Microseconds of each statement, by statement and library."""
    names = {library: names_of(library) for library in LIBRARIES}
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(repeats):
        for statement in STATEMENTS:
            for library in LIBRARIES:
                seconds = timeit.timeit(statement, number=CALLS, globals=names[library])
                found.setdefault(f"`{statement}`", {}).setdefault(library, []).append(1e6 * seconds / CALLS)
    return found


def timed_imports(repeats: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of an import, by library."""
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        for library in LIBRARIES:
            code = f"import time; t = time.perf_counter(); import {library}; print(time.perf_counter() - t)"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            found.setdefault(library, []).append(1e3 * float(done.stdout))
    return {"import": found}


def table(found: dict[str, dict[str, list[float]]], unit: str) -> str:
    lines = ["| | " + " | ".join(LIBRARIES) + " | spread |", "|---|" + "---|" * (len(LIBRARIES) + 1)]
    for call, by_library in found.items():
        least = [f"{min(times):.2f} {unit}" for times in by_library.values()]
        spread = max(statistics.median(times) / min(times) for times in by_library.values())
        lines.append(f"| {call} | {' | '.join(least)} | {spread:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=40, help="turns of calls; imports take a quarter of them")
    options = parser.parse_args()
    start = time.monotonic()
    print(table(timed_imports(max(options.repeats // 4, 1)), "ms"), end="\n\n")
    print(table(timed_calls(options.repeats), "µs"))
    print(f"\n{time.monotonic() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
