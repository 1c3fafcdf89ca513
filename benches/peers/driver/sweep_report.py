"""The page of the sweep: how fast opfuse is beside PyTorch, as a distribution, and each case that is slow.

A ratio is PyTorch's time by opfuse's. A cell is a case with a number of threads; it is slow if one of its two ratios,
eager and compiled, is under `SLOW`.
"""

import math
from datetime import date

from cases.reasons import UNKNOWN, reason_of

TORCH, EAGER, COMPILED = "torch-eager", "sweep-eager", "sweep-compile"
OURS = (EAGER, COMPILED)
SLOW, VERY_SLOW = 0.8, 0.5
NAMES = {
    "": "contiguous",
    "t": "transposed",
    "s": "every second column",
    "w": "a window of wider rows",
    "b": "broadcast",
    "cl": "channels last",
}


def ratio(cell, peer):
    """PyTorch's time by opfuse's; none if one of them has none."""
    ours, theirs = cell.get(peer, {}).get("best"), cell.get(TORCH, {}).get("best")
    return theirs / ours if ours and theirs and "differs" not in cell[peer] else None


def least(cell):
    """The worse of its ratios."""
    return min((found for peer in OURS if (found := ratio(cell, peer))), default=None)


def line(key, cell):
    """A cell in the output of a run."""
    theirs = cell.get(TORCH, {})
    if "best" not in theirs:
        return f"{key}: no reference, {theirs.get('error')}"
    shown = ", ".join(f"{peer.removeprefix('sweep-')} {figure(cell, peer)}" for peer in OURS)
    return f"{key}: torch {time(theirs['best'])}, {shown}"


def figure(cell, peer):
    if found := ratio(cell, peer):
        return f"{found:.2f}"
    return cell[peer].get("error") or cell[peer].get("differs")


def time(seconds):
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def page(state, n_cases):
    cells = {key: cell for key, cell in state["cells"].items() if "best" in cell.get(TORCH, {})}
    measured = {key: cell for key, cell in cells.items() if least(cell)}
    head = {"date": date.today(), "torch": state["versions"].get(TORCH, "PyTorch"), "n": len(measured)}
    sections = [HEAD.format(**head, n_cases=n_cases)]
    if measured:
        sections.append(distribution(measured))
        sections.append(slow_cells(measured))
    sections.append(failures(cells))
    return "\n".join(section for section in sections if section)


HEAD = """# Operators beside PyTorch's

Made by `scripts/sweep.sh` on {date}: {n} cells of {n_cases} cases, against {torch}.

A cell is a call of one operator with one or two threads, forward or with a backward pass (`grad:`). Both libraries call
operators by name, on the same elements, and results are compared. *Ratio* is PyTorch's eager time by opfuse's, so less
than 1 is slower. Times are the least of all samples, taken in turns. *Spread* is the greatest median of a chunk by the
least sample, of the worker in which it is greatest.

PyTorch is called from Python, which takes about a microsecond of each call. opfuse is called from Rust. So *latency*
flatters opfuse. `benches/peers/src/sweep/text.rs` explains how calls are written.
"""


def distribution(measured):
    rows = ["## Distribution\n", TABLE_HEAD, row("all", measured.values())]
    for title, key in (
        ("threads", lambda name, cell: name.rsplit("/", 1)[1]),
        ("size", lambda name, cell: cell["size"]),
        ("pass", lambda name, cell: "with backward" if name.startswith("grad:") else "forward"),
        ("dtype", lambda name, cell: cell["dtype"]),
        ("layout", lambda name, cell: NAMES.get(cell["layout"], cell["layout"])),
        ("family", lambda name, cell: cell["family"]),
    ):
        groups = {}
        for name, cell in measured.items():
            groups.setdefault(key(name, cell), []).append(cell)
        rows += [row(f"{title}: {group}", groups[group]) for group in sorted(groups)]
    return "\n".join(rows) + "\n"


TABLE_HEAD = """| | cells | eager, mean | compiled, mean | under 0.8 | under 0.5 | least |
|---|---|---|---|---|---|---|"""


def row(title, cells):
    cells = list(cells)
    worst = sorted(least(cell) for cell in cells)
    shares = [share(sum(found < limit for found in worst), len(cells)) for limit in (SLOW, VERY_SLOW)]
    means = [mean([found for cell in cells if (found := ratio(cell, peer))]) for peer in OURS]
    return f"| {title} | {len(cells)} | {' | '.join(means + shares)} | {worst[0]:.2f} |"


def mean(ratios):
    """The geometric mean."""
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}" if ratios else ""


def share(count, total):
    return f"{count} ({100 * count / total:.0f} %)"


def slow_cells(measured):
    slow = {key: cell for key, cell in measured.items() if least(cell) < SLOW}
    if not slow:
        return "No cell is slow.\n"
    groups = {}
    for key, cell in slow.items():
        groups.setdefault(operator(key), []).append((least(cell), key, cell))
    n_known = sum(reason_of(key) != UNKNOWN for key, cell in slow.items())
    known = f"Operators are sorted by their slowest cell. {n_known} of {len(slow)} cells have a reason.\n"
    lines = ["## Cells under 0.8\n", known, SLOW_HEAD]
    for name in sorted(groups, key=lambda name: min(found for found, _, _ in groups[name])):
        for found, key, cell in sorted(groups[name], key=lambda entry: entry[0]):
            lines.append(slow_row(key, cell))
    return "\n".join(lines) + "\n"


SLOW_HEAD = """| call | thr | PyTorch | eager | compiled | spread | reason |
|---|---|---|---|---|---|---|"""


def slow_row(key, cell):
    text, threads = key.rsplit("/", 1)
    ratios = [f"{found:.2f}" if (found := ratio(cell, peer)) else "–" for peer in OURS]
    spread = max(cell[peer].get("spread", 1.0) for peer in (TORCH, *OURS) if peer in cell)
    best, why = time(cell[TORCH]["best"]), reason_of(key)
    return f"| `{short(text)}` | {threads} | {best} | {' | '.join(ratios)} | {spread:.2f} | {why} |"


def short(text):
    return text.replace("aten::", "")


def operator(key):
    return key.removeprefix("grad:").split("(", 1)[0]


def failures(cells):
    """What PyTorch computes and opfuse does not, or not to the same sum."""
    lines = []
    for key, cell in sorted(cells.items()):
        for peer in OURS:
            found = cell.get(peer, {})
            if what := found.get("error") or found.get("differs"):
                lines.append(f"| `{short(key)}` | {peer.removeprefix('sweep-')} | {what.replace('|', ' ')[:110]} |")
    if not lines:
        return ""
    head = "## Cells without a figure\n\nPyTorch computes these. opfuse refuses, or results add up to something else.\n"
    return "\n".join([head, "| call | | why |", "|---|---|---|", *lines]) + "\n"
