#!/usr/bin/env python3
"""Times steady calls of exported models against torch eager and torch.compile.

    PEERS_PYTHON=/path/to/python scripts/exported_times.sh [--threads 1,2] [--rounds 5] [--seconds 0.3]
        [--models bert,gpt2] [--state FILE.json] [--docs FILE.md]

The models are those of scripts/export_models.py, with its seeds and inputs. torch runs the module that was exported,
in inference mode, and opfuse runs the file (`opfuse bench`). In each round every way runs for the seconds given, one
after another, in processes that wait while others run. A time is the median of a round's calls, and the tables have
the least of all rounds. A ratio is that of one round: the median of them, with the least and the greatest.

Rows are kept in the state file, and those that are there are not measured again. Needs torch 2.9 or later,
transformers and numpy.
"""

import argparse
import datetime
import importlib.metadata
import json
import logging
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SCRIPTS = pathlib.Path(__file__).resolve().parent
WAYS = ("eager", "compile")


def median_of_calls(call, seconds):
    """The median time of the calls that fit into some seconds. The first call is not counted."""
    call()
    times, start = [], time.perf_counter()
    while not times or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def worker(threads):
    """Answers `{"model": …, "way": …, "seconds": …}` by a time or an error, line by line."""
    # What libraries print belongs to no answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    import torch

    torch.set_num_threads(threads)
    logging.disable(logging.CRITICAL)
    sys.path.insert(0, str(SCRIPTS))
    from export_models import models

    every = {name: (make, calls[0]) for name, make, calls, _ in models()}
    current, functions = None, {}
    for line in sys.stdin:
        request = json.loads(line)
        name, way = request["model"], request["way"]
        try:
            if current != name:
                make, (args, kwargs) = every[name]
                torch.manual_seed(0)
                torch._dynamo.reset()
                model = make().train(name == "perceptron")
                current, functions = name, {"eager": model, "compile": torch.compile(model)}
            with torch.inference_mode():
                found = {"time": median_of_calls(lambda: functions[way](*args, **kwargs), request["seconds"])}
        except Exception as error:  # noqa: BLE001
            found = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:100]}"}
        print(json.dumps(found), file=answers, flush=True)


class Torch:
    """The process that runs torch."""

    def __init__(self, threads):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        command = [sys.executable, "-B", __file__, "--worker", str(threads)]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.process = subprocess.Popen(command, **pipes, text=True, env=environment)

    def time(self, model, way, seconds):
        print(json.dumps({"model": model, "way": way, "seconds": seconds}), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def opfuse(program, model, threads, seconds):
    """The times of `opfuse bench`, which calls eagerly and compiled in turns."""
    command = [program, "bench", f"{model}.pt2", "--input", f"{model}.npz", "--seconds", str(seconds)]
    ran = subprocess.run([*command, "--threads", str(threads), "--json"], capture_output=True, text=True)
    if ran.returncode != 0:
        return {way: {"error": ran.stderr.strip()[:100]} for way in WAYS}
    row = json.loads(ran.stdout)["rows"][0]
    return {"eager": {"time": row["eager"]["median_s"]}, "compile": {"time": row["compiled"]["median_s"]}}


def measure(options, torch, folder, name, threads):
    """The rounds of a row: for each, four times by name."""
    if "error" in torch.time(name, "compile", 0):
        print(f"{name}: torch.compile fails", file=sys.stderr)
    rounds = []
    for _ in range(options.rounds):
        found = {f"torch {way}": torch.time(name, way, options.seconds) for way in WAYS}
        own = opfuse(options.opfuse, folder / name, threads, options.seconds)
        rounds.append(found | {f"opfuse {way}": own[way] for way in WAYS})
    return rounds


def least(rounds, way):
    """The least time of a way, as text."""
    times = [found[way]["time"] for found in rounds if "time" in found[way]]
    if not times:
        return "fails"
    best = min(times)
    return f"{best * 1e3:.3g} ms" if best >= 1e-3 else f"{best * 1e6:.3g} us"


def ratios(rounds, way):
    """How many times as fast opfuse's compiled calls are as those of `way`, round by round."""
    pairs = [(found[way].get("time"), found["opfuse compile"].get("time")) for found in rounds]
    return sorted(peer / own for peer, own in pairs if peer and own)


def said(found):
    """A ratio and its spread, as text."""
    return f"**{statistics.median(found):.2f}** ({found[0]:.2f} to {found[-1]:.2f})" if found else "none"


def summary(rows, threads, way):
    found = {name: statistics.median(every) for name, rounds in rows if (every := ratios(rounds, way))}
    if not found:
        return ""
    worst = min(found, key=found.get)
    ahead = sum(ratio >= 1 for ratio in found.values())
    mean = statistics.geometric_mean(found.values())
    return f"| {way} | {threads} | **{mean:.2f}** | {ahead} of {len(found)} | {found[worst]:.2f} ({worst}) |\n"


def page(state, arguments, versions):
    """The rows as Markdown."""
    rows = {}
    for key, rounds in state.items():
        name, threads = key.split()
        rows.setdefault(int(threads), []).append((name, rounds))
    text = f"""# Exported models beside PyTorch

Made by `scripts/exported_times.sh {arguments}`
on {datetime.date.today()}, {versions}.

Models are those of `scripts/export_models.py`: small random configurations, with the inputs of their first recorded
call. PyTorch runs the module in inference mode, and opfuse the file. All ways take turns, and each has a process that
waits meanwhile. A time is the least median of all rounds. *By eager* and *by compile* are how many times as fast
opfuse's compiled calls are: the median of all rounds, then the least and the greatest. The times include what a call
costs before it computes, which is much of them in models of this size.

| by | threads | geometric mean | models ahead or even | least |
|---|---|---|---|---|
"""
    for threads, of in sorted(rows.items()):
        text += "".join(summary(of, threads, f"torch {way}") for way in WAYS)
    for threads, of in sorted(rows.items()):
        text += f"\n## {threads} thread{'s' * (threads > 1)}\n\n"
        text += "| model | torch eager | torch.compile | opfuse eager | opfuse compiled | by eager | by compile |\n"
        text += "|---|---|---|---|---|---|---|\n"
        for name, rounds in of:
            cells = [least(rounds, way) for way in ("torch eager", "torch compile", "opfuse eager", "opfuse compile")]
            cells += [said(ratios(rounds, f"torch {way}")) for way in WAYS]
            text += f"| {name} | {' | '.join(cells)} |\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--opfuse", help="the program `opfuse`")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--models", default="")
    parser.add_argument("--state", type=pathlib.Path)
    parser.add_argument("--docs", type=pathlib.Path)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker)
    state = json.loads(options.state.read_text()) if options.state and options.state.exists() else {}
    wanted = [name for name in options.models.split(",") if name]
    with tempfile.TemporaryDirectory() as folder:
        export = [sys.executable, "-B", str(SCRIPTS / "export_models.py"), folder, *wanted]
        subprocess.run(export, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        names = sorted(file.stem for file in pathlib.Path(folder).glob("*.pt2"))
        for threads in map(int, options.threads.split(",")):
            missing = [name for name in names if f"{name} {threads}" not in state]
            torch = Torch(threads) if missing else None
            for name in missing:
                rounds = measure(options, torch, pathlib.Path(folder), name, threads)
                state[f"{name} {threads}"] = rounds
                text = ", ".join(f"by {way} {said(ratios(rounds, f'torch {way}'))}" for way in WAYS)
                print(f"{name}, {threads} threads: {text}", flush=True)
                if options.state:
                    options.state.write_text(json.dumps(state))
            if torch:
                torch.close()
    if options.docs:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "a processor")
        versions = f"{os.cpu_count()} cores of {processor}, torch {importlib.metadata.version('torch')}"
        shown = f"--threads {options.threads} --rounds {options.rounds} --seconds {options.seconds}"
        options.docs.write_text(page(state, shown + f" --models {options.models}" * bool(wanted), versions))


if __name__ == "__main__":
    main()
