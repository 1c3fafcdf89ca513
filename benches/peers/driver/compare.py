"""Measures peers in turns, row by row, and writes the table and the picture of `docs/benchmarks`.

Each row is set up in every peer, and then all peers run a chunk after the other, in rounds whose order is reversed
each time, so that disturbances of the machine hit all of them. A figure is the least of the chunks' medians. How
much the processors did for others meanwhile is watched; a chunk that was disturbed is run again, three times at most.

A row is always measured with all peers, so what is kept of it comes from one run; `--peers` prints and keeps nothing.
Needs Python alone, and the program `chart` for the picture. `scripts/peers.sh` builds the programs and calls this
with what it was given.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import chart
import table
from floor import WORK, Roofline
from workers import PEERS, Failed, Places, Worker, busy_seconds

QUIET = 0.3  # processors that others may use during a chunk


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")
    parser.add_argument("--rows", type=names, default=list(WORK), help="W01m,W03; all if not given")
    parser.add_argument("--peers", type=names, help="only these, for a look: nothing is kept")
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--budget", type=float, default=0.15, help="seconds per chunk")
    parser.add_argument("--missing", action="store_true", help="leave out rows that are kept already")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no row after so many")
    parser.add_argument("--report", action="store_true", help="only write the table and the picture again")
    parser.add_argument("--python", default=os.environ.get("PEERS_PYTHON", "python3"), help="of the Python peers")
    parser.add_argument("--target", type=Path, required=True, help="folder of what is built, and of what is kept")
    parser.add_argument("--docs", type=Path, required=True, help="folder of the table and the picture")
    return parser.parse_args()


def main():
    options = arguments()
    begin = time.monotonic()
    state = {"rows": {}, "roofline": {}, "versions": {}}
    kept, logs = options.target / "peers" / "state.json", options.target / "peers" / "logs"
    if kept.exists():
        state |= json.loads(kept.read_text())
    places = Places(options.python, options.target)
    logs.mkdir(parents=True, exist_ok=True)
    if unknown := set(options.rows) - set(WORK) | set(options.peers or []) - set(PEERS):
        sys.exit(f"no row or peer {', '.join(sorted(unknown))}; rows: {' '.join(WORK)}; peers: {' '.join(PEERS)}")
    if not options.report:
        if not options.peers:
            measure_roofline(state["roofline"], places, options)
            keep(kept, state)
        absent = {}
        for threads in options.threads:
            workers = [Worker(peer, threads, places.command(peer), logs) for peer in options.peers or PEERS]
            for row in options.rows:
                key = f"{row}/{threads}"
                if options.missing and key in state["rows"] or time.monotonic() - begin > options.seconds:
                    continue
                results = measure(row, [worker for worker in workers if worker.peer not in absent], options, absent)
                print(line(key, results), flush=True)
                if not options.peers:
                    state["rows"][key] = {"date": str(date.today()), "peers": results}
                    state["versions"] |= {worker.peer: worker.version for worker in workers if worker.version}
                    keep(kept, state)
            for worker in workers:
                worker.stop()
        for peer, reason in absent.items():
            print(f"{peer} skipped: {reason}")
    if not options.peers:
        write(options, state)
    left = [f"{row}/{threads}" for threads in options.threads for row in options.rows]
    left = [key for key in left if key not in state["rows"]]
    if left and not options.peers and not options.report:
        print(f"left for `--missing`: {' '.join(left)}")


def measure(row, workers, options, absent):
    """What each peer that has the row took for it."""
    results, ready = {}, []
    for worker in workers:
        try:
            if worker.process is None:
                try:
                    worker.start()
                except Failed as failure:
                    absent[worker.peer] = str(failure)
                    continue
            ready.append((worker, worker.ask(f"setup {row}"), []))
        except Failed as failure:
            if "not supported" not in str(failure):
                results[worker.peer] = {"error": str(failure)}
    for turn in range(options.rounds):
        for worker, _, chunks in ready[:: -1 if turn % 2 else 1]:
            if worker.peer in results:
                continue
            try:
                # Other programs disturb less in the real-time class, but threads of one program hand over faster out of
                # it; so each peer gets both, and the best counts.
                chunks.append(chunk(worker, options.budget, is_urgent=turn % 4 in (0, 3)))
            except (Failed, OSError) as failure:
                results[worker.peer] = {"error": str(failure)}
    for worker, first, chunks in ready:
        try:
            if worker.peer not in results:
                results[worker.peer] = figures(first, chunks, worker.ask("end"))
        except Failed as failure:
            results[worker.peer] = {"error": str(failure)}
    mark_wrong(results)
    return results


def chunk(worker, budget, is_urgent):
    """The median of a chunk."""
    worker.prefer(is_urgent)
    for _ in range(3):
        busy, own, start = busy_seconds(), worker.seconds(), time.monotonic()
        answer = worker.ask(f"run {budget} 20000")
        elapsed = time.monotonic() - start
        others = (busy_seconds() - busy - (worker.seconds() - own)) / elapsed
        if others < QUIET:
            break
    worker.prefer(False)
    return statistics.median(answer["t"])


def figures(first, medians, end):
    return {
        "best": float(f"{min(medians):.4g}"),
        "spread": round(max(medians) / min(medians), 2),
        "first": float(f"{first['first_s']:.4g}"),
        "check": first["check"],
        "memory": round(max(0.0, end["peak_rss_mb"] - end["base_rss_mb"]), 1),
    }


def mark_wrong(results):
    """Results that do not add up to what most have are no results."""
    measured = {peer: result for peer, result in results.items() if "best" in result}
    if not measured:
        return
    right = statistics.median_low(result["check"] or 0.0 for result in measured.values())
    for peer, result in measured.items():
        if result["check"] is None or abs(result["check"] - right) > 2e-3 * abs(right):
            results[peer] = {"error": f"adds up to {result['check']}, not {right}"}


def measure_roofline(kept, places, options):
    """The best of what was ever found on this machine: everything that disturbs makes it slower."""
    for threads in options.threads:
        if str(threads) in kept and options.missing:
            continue
        try:
            command = [places.target / "release" / "roofline", str(threads)]
            run = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"no floor with {threads} threads: {getattr(error, 'stderr', None) or error}".strip())
            continue
        new = Roofline.of(json.loads(run.stdout))
        old = kept.get(str(threads))
        kept[str(threads)] = (new.best_of(Roofline.of(old)) if old else new).as_json()


def keep(path, state):
    """Whole or not at all, whatever happens meanwhile."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(state, indent=1))
    draft.replace(path)


def line(key, results):
    cells = [
        f"{peer} {table.time(result['best'])}" if "best" in result else f"{peer} failed ({result['error']})"
        for peer, result in results.items()
    ]
    return f"{key}: {', '.join(cells)}"


def write(options, state):
    rooflines = {int(threads): Roofline.of(found) for threads, found in state["roofline"].items()}
    rows = table.rows(state["rows"], rooflines)
    files = {
        "peers.md": table.markdown(rows, rooflines, state["versions"]),
        "peers.svg": chart.svg(rows, options.target),
    }
    for name, text in files.items():
        if text is None:
            print(f"left as it was: {options.docs / name}")
            continue
        (options.docs / name).write_text(text)
        print(f"written: {options.docs / name}")


if __name__ == "__main__":
    main()
