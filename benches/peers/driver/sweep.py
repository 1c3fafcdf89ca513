"""Measures single operators against PyTorch, and writes `docs/benchmarks/sweep.md`.

A case (`cases`) is set up in three workers: opfuse eagerly, opfuse compiled, and PyTorch eagerly. Then they run a chunk
after the other, in rounds whose order is reversed each time. A figure is the least of all samples, since whatever
disturbs makes it larger; its spread is the ratio of the chunks' medians. What first calls return is added up, and where
sums differ, something else was computed, so no times are kept.

`scripts/sweep.sh` builds the programs and calls this with what it was given.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import sweep_report
from cases import all_cases, coverage
from workers import HERE, Failed, Worker

TORCH, EAGER, COMPILED = "torch-eager", "sweep-eager", "sweep-compile"
PEERS = (EAGER, COMPILED, TORCH)
LONG = 0.1  # seconds of a call; longer ones get fewer samples
EVERY = 5.0  # seconds from which figures are saved
MORE = 3  # rounds of cases that are slow


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one size, one layout, f32: some 400 cases, 4 minutes")
    parser.add_argument("--only", type=re.compile, help="cases whose text this regular expression finds")
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--budget", type=float, default=0.03, help="seconds per chunk")
    parser.add_argument("--missing", action="store_true", help="leave out cases that have figures already")
    parser.add_argument("--slow", type=float, help="only cases that are kept with a ratio under this one")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so many")
    parser.add_argument("--look", action="store_true", help="print, and keep nothing")
    parser.add_argument("--report", action="store_true", help="only write the page again")
    parser.add_argument("--list", action="store_true", help="only print the cases")
    parser.add_argument("--coverage", action="store_true", help="only print operators that are in no case")
    parser.add_argument("--python", default=os.environ.get("PEERS_PYTHON", "python3"), help="with torch and numpy")
    parser.add_argument("--target", type=Path, required=True, help="folder of what is built, and of what is kept")
    parser.add_argument("--docs", type=Path, required=True, help="folder of the page")
    return parser.parse_args()


def main():
    options, cases = arguments(), all_cases()
    chosen = [case for case in cases if case.is_quick or not options.quick]
    chosen = [case for case in chosen if not options.only or options.only.search(case.text)]
    if options.list:
        print("\n".join(case.text for case in chosen))
        return
    program = options.target / "release" / "opfuse-peers"
    if options.coverage:
        sys.exit(report_coverage(program))
    path = options.target / "peers" / "sweep.json"
    state = json.loads(path.read_text()) if path.exists() else {"cells": {}, "versions": {}}
    known = {case.text for case in cases}
    state["cells"] = {key: cell for key, cell in state["cells"].items() if key.rsplit("/", 1)[0] in known}
    if not options.report:
        run(options, chosen, program, state, path)
    if not options.look:
        page = options.docs / "sweep.md"
        page.write_text(sweep_report.page(state, len(cases)))
        print(f"written: {page}")


def run(options, chosen, program, state, path):
    begin = saved = time.monotonic()
    logs = path.parent / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for threads in options.threads:
        workers = start(program, options.python, threads, logs)
        for number, case in enumerate(chosen, start=1):
            key = f"{case.text}/{threads}"
            kept = state["cells"].get(key)
            if options.missing and is_done(kept) or options.slow and not is_slow(kept, options.slow):
                continue
            if time.monotonic() - begin > options.seconds:
                break
            cell = measure(case, workers, options)
            print(f"{number}/{len(chosen)} {sweep_report.line(key, cell)}", flush=True)
            if not options.look:
                state["cells"][key] = cell
                state["versions"] |= {worker.peer: worker.version for worker in workers if worker.version}
                if time.monotonic() - saved > EVERY:
                    saved = keep(path, state)
        for worker in workers:
            worker.stop()
    if not options.look:
        keep(path, state)


def start(program, python, threads, logs):
    commands = {TORCH: [python, str(HERE / "python" / "sweep_peer.py")]}
    workers = [Worker(peer, threads, commands.get(peer, [str(program)]), logs) for peer in PEERS]
    for worker in workers:
        try:
            worker.start()
        except Failed as failure:
            sys.exit(f"{worker.peer} does not start: {failure}")
    return workers


def is_done(cell):
    """Whether there is nothing to find out: every worker has figures, or PyTorch refuses."""
    if cell is None or "error" in cell.get(TORCH, {}):
        return cell is not None
    return all("best" in cell.get(peer, {}) and "differs" not in cell[peer] for peer in PEERS)


def is_slow(cell, limit):
    ratios = [sweep_report.ratio(cell, peer) for peer in (EAGER, COMPILED)] if cell else []
    return any(ratio is not None and ratio < limit for ratio in ratios)


def measure(case, workers, options):
    """The figures of a case: those of its description, and those of each worker or its error."""
    cell = {"family": case.family, "size": case.size, "dtype": case.dtype, "layout": case.layout}
    ready = []
    for worker in sorted(workers, key=lambda worker: worker.peer != TORCH):
        try:
            ready.append(Turns(worker, worker.ask(f"setup {case.text}")))
        except Failed as failure:
            cell[worker.peer] = {"error": str(failure)}
            if worker.peer == TORCH:
                return cell  # nothing to compare with
    for turn in range(options.rounds + MORE):
        # Whatever disturbs makes a time longer, so what seems slow is looked at again.
        if turn >= options.rounds and not is_slow(cell, sweep_report.SLOW):
            break
        for turns in ready[:: -1 if turn % 2 else 1]:
            if turn == 0 or turns.first["est_s"] < LONG:
                turns.run(options.budget)
        cell |= {turns.worker.peer: turns.figures() for turns in ready}
        mark_wrong(case, cell)
    return cell


class Turns:
    """A worker that has set a case up, and what it took."""

    def __init__(self, worker, first):
        self.worker, self.first, self.samples, self.medians, self.error = worker, first, [], [], None

    def run(self, budget):
        if self.error:
            return
        try:
            times = self.worker.ask(f"run {budget} 1000")["t"]
        except Failed as failure:
            self.error = str(failure)
            return
        self.samples.append(min(times))
        self.medians.append(statistics.median(times))

    def figures(self):
        if self.error:
            return {"error": self.error}
        return {
            "best": float(f"{min(self.samples):.4g}"),
            "spread": round(max(self.medians) / min(self.samples), 2),
            "first": float(f"{self.first['first_s']:.3g}"),
            "check": self.first["check"],
        }


def mark_wrong(case, cell):
    """Where results add up to something else, the call was not the same."""
    expected = cell[TORCH].get("check")
    if expected is None or not math.isfinite(expected) or not coverage.is_compared(case):
        return
    for peer in (EAGER, COMPILED):
        found = cell[peer].get("check", expected)
        if found is None or abs(found - expected) > tolerance(case) * max(abs(expected), 1e-3):
            cell[peer]["differs"] = f"adds up to {found}, not {expected}"


def tolerance(case):
    return 5e-2 if "bf16" in case.text or "f16" in case.text else 5e-3


def report_coverage(program):
    schemas = subprocess.run([program, "--peer", "sweep-schemas"], capture_output=True, text=True, check=True)
    missing, stale = coverage.missing(schemas.stdout.splitlines(), all_cases())
    for what, names in (("in no case and not excluded", missing), ("excluded, but not there or in a case", stale)):
        for name in names:
            print(f"{name} is {what}")
    return 1 if missing or stale else 0


def keep(path, state):
    """Saves the state whole or not at all, whatever happens meanwhile; returns when it did."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(state, indent=0))
    draft.replace(path)
    return time.monotonic()


if __name__ == "__main__":
    main()
