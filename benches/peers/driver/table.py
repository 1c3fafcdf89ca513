"""What was measured, as Markdown: rows that fall short first."""

import math
import os
import textwrap
from dataclasses import dataclass
from pathlib import Path

from floor import WORK
from workers import PEERS

COMPILE, EAGER, TORCH = "opfuse-compile", "opfuse-eager", "torch-eager"
COMPILING = [COMPILE, "torch-compile", "jax-jit", "onnxruntime", "numba"]
# Rows that measure nothing but a call, and those of a single op, which no library compiles.
CALLS, ONE_OP = ("W20a", "W20b", "W20c"), ("W20a", "W20b")

HEAD = """# Beside other libraries

Made by `scripts/peers.sh`{when} on {machine}.

Every library computes the rows from the same bits, and their results are checked against each other. All of them are
measured in turns in one run, row by row. A figure is the least median of several chunks. *Spread* is the greatest
median over the least (opfuse, then the peer it is compared with). Outputs are fresh in each call. Libraries are called
as their users call them: one call where there is one.

*Best peer* is the fastest of them. *Floor* is the least time that the row's bytes or its arithmetic take on this
machine. *Of floor* is how many times that the compiled row takes. `benches/peers/driver/floor.py` says what is counted,
and `benches/peers/src/bin/roofline.rs` measures the machine.

{peers}

![opfuse beside other libraries](peers.svg)
"""


@dataclass(frozen=True)
class Compared:
    """One row with one number of threads."""

    row: str
    threads: int
    date: str
    results: dict
    floor: tuple

    def best(self, peer):
        return self.results.get(peer, {}).get("best")

    def memory(self, peer):
        return self.results.get(peer, {}).get("memory")

    @property
    def what(self):
        return WORK[self.row].what

    @property
    def best_peer(self):
        """The fastest library but opfuse, if any has the row."""
        others = [peer for peer in self.results if not peer.startswith("opfuse-") and self.best(peer)]
        return min(others, key=self.best, default=None)

    @property
    def ratio(self):
        """How many times as fast as the best peer the compiled row is."""
        return over(self.best(self.best_peer), self.best(COMPILE))

    @property
    def eager_ratio(self):
        return over(self.best(TORCH), self.best(EAGER))

    @property
    def leanest(self):
        """The library but opfuse that takes least memory, of those whose figure holds inputs and outputs at least."""
        fits = lambda peer: self.memory(peer) and self.memory(peer) * 2**20 > 0.98 * WORK[self.row].bytes
        others = [peer for peer in self.results if not peer.startswith("opfuse-") and fits(peer)]
        return min(others, key=self.memory, default=None)

    @property
    def memory_ratio(self):
        """How many times the memory of the leanest library the compiled row takes, where that is worth counting."""
        return over(self.memory(COMPILE), self.memory(self.leanest)) if WORK[self.row].bytes > 2**20 else None

    @property
    def of_floor(self):
        return over(self.best(COMPILE), self.floor and self.floor[0])

    @property
    def room(self):
        """How many times as fast as the best peer a perfect kernel would be."""
        return over(self.best(self.best_peer), self.floor and self.floor[0])


def over(one, other):
    return one / other if one and other else None


def rows(kept, rooflines):
    """Everything kept, in the order of the rows."""
    order = list(WORK)
    keys = sorted((order.index(key.split("/")[0]), int(key.split("/")[1])) for key in kept)
    compared = []
    for at, threads in keys:
        row = kept[f"{order[at]}/{threads}"]
        floor = rooflines[threads].floor(order[at]) if threads in rooflines else None
        compared.append(Compared(order[at], threads, row["date"], row["peers"], floor))
    return compared


def libraries(others):
    text = f"Libraries: {others or 'no other library'}."
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def markdown(rows, rooflines, versions):
    dates = sorted({row.date for row in rows})
    when = f", {dates[0]}" if len(dates) == 1 else f", {dates[0]} to {dates[-1]}" if dates else ""
    peers = [versions.get(peer) or peer for peer in PEERS if any(peer in row.results for row in rows)]
    others = ", ".join(dict.fromkeys(peer for peer in peers if not peer.startswith("opfuse")))
    whole = [row for row in rows if row.row not in CALLS]
    slower = sorted((row for row in whole if row.ratio and row.ratio < 1), key=lambda row: row.ratio)
    slow = sorted((row for row in rows if row.eager_ratio and row.eager_ratio < 1), key=lambda row: row.eager_ratio)
    ahead = [row for row in whole if row not in slower]
    parts = [
        HEAD.format(when=when, machine=machine(), peers=libraries(others)),
        "## Summary\n",
        *summary(rows, whole),
        "\n## Compiled: rows slower than the best peer\n",
        *compiled_table(slower),
        "\n## Eager: rows slower than PyTorch's eager calls\n",
        *eager_table(slow),
        "\n## Compiled: rows ahead\n",
        *compiled_table(ahead),
        "\n## Eager: rows ahead\n",
        *eager_table([row for row in rows if row.eager_ratio and row not in slow]),
        "\n## Every library\n",
        *every_library(rows),
        "\n## Calls of next to no work\n",
        "Nanoseconds a call: an addition of 1 and of 64 elements (W20a, W20b), and `relu(a*b+c)` of 64 (W20c).\n",
        *calls([row for row in rows if row.row in CALLS]),
        "\n## First calls\n",
        "What the first call takes beyond a later one, with nothing cached: compiling, and first touches of memory",
        "(W21).\n",
        *grid(rows, COMPILING, lambda row, peer: first_call(row.results.get(peer, {}))),
        "\n## Memory\n",
        "MiB that a row's calls have at most, inputs and outputs included, beyond what the process had before. A library that",
        "keeps memory of former rows for itself shows less than it takes; so the *leanest* is the least figure that inputs and",
        "outputs fit in, of rows of more than 1 MiB.\n",
        *lean([row for row in rows if row.memory_ratio]),
        "",
        *grid(rows, PEERS, lambda row, peer: memory(row.results.get(peer, {}))),
        "\n## The machine\n",
        *roofline_table(rooflines),
        *failures(rows),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def machine():
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")]
    model = models[0] if models else "a processor"
    return f"{os.cpu_count()} cores of {model}" + (" with AVX-512" if "avx512f" in info else "")


def summary(rows, whole):
    lines = ["| | threads | geometric mean | rows ahead or even | least | greatest |", "|---|---|---|---|---|---|"]
    kinds = [
        ("compiled against the best peer", whole, lambda row: row.ratio),
        ("a kernel at the floor against the best peer", whole, lambda row: row.room),
        ("eager against torch eager", rows, lambda row: row.eager_ratio),
    ]
    for name, chosen, ratio in kinds:
        for threads in sorted({row.threads for row in rows}):
            ratios = [(ratio(row), row.row) for row in chosen if row.threads == threads and ratio(row)]
            if ratios:
                even = sum(value >= 1 for value, _ in ratios)
                ends = " | ".join(f"{value:.2f} ({row})" for value, row in (min(ratios), max(ratios)))
                mean = geometric_mean([value for value, _ in ratios])
                lines.append(f"| {name} | {threads} | **{mean:.2f}** | {even} of {len(ratios)} | {ends} |")
    return lines


def lean(rows):
    if not rows:
        return ["None."]
    close = sum(row.memory_ratio <= 1.1 for row in rows)
    mean = geometric_mean([row.memory_ratio for row in rows])
    lines = [f"Compiled against the leanest: {mean:.2f} times its memory in the geometric mean, at most 1.10 in {close} of {len(rows)}."]
    over = [row for row in rows if row.memory_ratio > 1.1]
    if over:
        lines += ["", "| row | | thr | compiled | leanest | | times |", "|---|---|---|---|---|---|---|"]
    for row in sorted(over, key=lambda row: -row.memory_ratio):
        cells = [row.row, row.what, row.threads, f"{row.memory(COMPILE):.0f}", row.leanest, f"{row.memory(row.leanest):.0f}"]
        lines.append(f"| {' | '.join(map(str, cells))} | {row.memory_ratio:.2f} |")
    return lines


def compiled_table(rows):
    if not rows:
        return ["None."]
    lines = [
        "| row | | thr | compiled | best peer | | times as fast | floor | bound by | of floor | spread |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        floor, bound = row.floor or (None, "–")
        cells = [
            row.row, row.what, row.threads, time(row.best(COMPILE)), row.best_peer or "–", time(row.best(row.best_peer)),
            ratio(row.ratio), time(floor), bound, times(row.of_floor), spreads(row, COMPILE, row.best_peer),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def eager_table(rows):
    if not rows:
        return ["None."]
    lines = ["| row | | thr | eager | torch eager | times as fast | spread |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = [row.row, row.what, row.threads, time(row.best(EAGER)), time(row.best(TORCH)), ratio(row.eager_ratio)]
        lines.append(f"| {' | '.join(map(str, cells))} | {spreads(row, EAGER, TORCH)} |")
    return lines


def every_library(rows):
    def cell(row, peer):
        best = row.best(peer)
        is_best = best and best == min(row.best(other) for other in row.results if row.best(other))
        return f"**{time(best)}**" if is_best else time(best) if peer not in failed(row) else "failed"

    return grid(rows, PEERS, cell)


def calls(rows):
    peers = [peer for peer in PEERS if any(row.best(peer) for row in rows)]
    titles = " | ".join(f"{row.row}, {row.threads} thr" for row in rows)
    lines = [f"| peer | {titles} |", "|---" * (len(rows) + 1) + "|"]
    for peer in peers:
        cells = [f"{row.best(peer) * 1e9:.0f}" if row.best(peer) else "–" for row in rows]
        lines.append(f"| {peer} | {' | '.join(cells)} |")
    return lines


def grid(rows, peers, cell):
    peers = [peer for peer in peers if any(peer in row.results for row in rows)]
    lines = ["| row | thr | " + " | ".join(peers) + " |", "|---" * (len(peers) + 2) + "|"]
    return lines + [
        f"| {row.row} | {row.threads} | {' | '.join(cell(row, peer) for peer in peers)} |" for row in rows
    ]  # fmt: skip


def first_call(result):
    return time(max(0.0, result["first"] - result["best"])) if "first" in result else "–"


def memory(result):
    return f"{result['memory']:.0f}" if "memory" in result else "–"


def roofline_table(rooflines):
    if not rooflines:
        return ["Not measured: the roofline program needs AVX-512."]
    some = [36_000, 1_000_000, 4_000_000, 24_000_000, 96_000_000, 200_000_000, 480_000_000]
    lines = [
        "| threads | GFLOP/s | 1e9 exp/s | 1e9 sigmoid/s | " + " | ".join(f"GB/s at {size(n)}" for n in some) + " |",
        "|---" * (len(some) + 4) + "|",
    ]
    for threads, found in sorted(rooflines.items()):
        rates = " | ".join(f"{found.bandwidth(n, writes=True) / 1e9:.0f}" for n in some)
        cells = f"{found.fma / 1e9:.0f} | {found.exp / 1e9:.2f} | {found.sigmoid / 1e9:.2f}"
        lines.append(f"| {threads} | {cells} | {rates} |")
    return lines


def failures(rows):
    found = [f"- {row.row}, {row.threads} thr: {peer}: {error}" for row in rows for peer, error in failed(row).items()]
    return ["\n## What failed\n", *found] if found else []


def failed(row):
    return {peer: result["error"] for peer, result in row.results.items() if "error" in result}


def spreads(row, *peers):
    return " ".join(f"{row.results[peer]['spread']:.2f}" for peer in peers if row.best(peer))


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def ratio(value):
    """Times as fast; what is slower stands out."""
    return f"**{value:.2f}**" if value and value < 1 else times(value)


def times(value):
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def time(seconds):
    if not seconds:
        return "–"
    unit, name = (1e-3, "ms") if seconds >= 1e-4 else (1e-6, "us") if seconds >= 1e-6 else (1e-9, "ns")
    return f"{seconds / unit:.3g} {name}" if seconds / unit < 1000 else f"{seconds / unit:.0f} {name}"


def size(n):
    return f"{n // 1_000_000} MB" if n >= 1_000_000 else f"{n // 1000} kB"
