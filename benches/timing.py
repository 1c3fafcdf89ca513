"""How long calls take, for the scripts of this folder."""

import subprocess
import sys
import time


def best(call, seconds):
    """The least microseconds of calls that go on for so long, after three that warm up."""
    for _ in range(3):
        call()
    begin, found = time.perf_counter(), float("inf")
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - start)
    return found * 1e6


def compare(rows, other, calls_of):
    """Prints a table in Markdown of opfuse beside torch and another library, by the rows `name NUMBERxNUMBER`.

    The command line has the executable of opfuse's worker, and seconds per measurement. `calls_of(name, sizes, dtype)`
    gives a function of the number of threads, which gives the calls of torch and of the other library. They run in
    turns; the best of several rounds counts.
    """
    rounds = 3
    worker, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(f"| row | dtype | threads | opfuse, us | torch, us | {other}, us | best of others / opfuse |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        name, sizes = row.split()
        sizes = tuple(map(int, sizes.split("x")))
        for dtype in ("f32", "f64"):
            calls = calls_of(name, sizes, "float" + dtype[1:])
            for threads in (1, 2):
                found = [float("inf")] * 3
                others = calls(threads)
                for _ in range(rounds):
                    words = [worker, row, dtype, str(threads), str(max(1, round(seconds)))]
                    own = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
                    times = [own] + [best(call, seconds) for call in others]
                    found = [min(pair) for pair in zip(found, times)]
                own, *times = found
                print(f"| {row} | {dtype} | {threads} | {own:.0f} | {times[0]:.0f} | {times[1]:.0f} | "
                      f"{min(times) / own:.2f} |", flush=True)
