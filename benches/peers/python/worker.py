"""A worker of the comparison: what every Python peer does with its command line, its inputs and its clock.

A peer imports this module before its library, because thread counts are read when libraries load, and ends with
`serve(make, version)`. `make(row)` returns two functions, or None for what the library cannot express. One is a call
that ends when its results are in memory. The other is the sum by which the first call's results are checked. On a
device a call may end before that: then `serve` gets `wait(outputs)`, and a sample ends with it. The protocol is that of
`benches/peers/src/protocol.rs`.
"""

import argparse
import ctypes
import gc
import itertools
import json
import os
import sys
from time import perf_counter

parser = argparse.ArgumentParser()
parser.add_argument("--peer", required=True)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
parser.add_argument("--serve", action="store_true", help="the only mode; here so that every worker is called alike")
OPTIONS = parser.parse_args()
ON_CPU = OPTIONS.device == "cpu"
for library in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
    os.environ[f"{library}_NUM_THREADS"] = str(OPTIONS.threads)
os.environ["NUMEXPR_MAX_THREADS"] = str(OPTIONS.threads)

import numpy as np  # noqa: E402

SAMPLE = 300e-6 if ON_CPU else 2e-3
SHORT, LONG, WARM_UP = SAMPLE / 3, 50e-3, 0.1


def check(outputs):
    """What outputs add up to: the sum of mean(|y| + y²)."""
    if isinstance(outputs, (tuple, list)):
        return sum(check(output) for output in outputs)
    values = np.asarray(outputs).astype(np.float64)
    return float(np.mean(np.abs(values) + values * values))


def memory(key):
    """A line of the process's status in MiB: VmRSS is now, VmHWM the most."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key))


def reset_peak():
    try:
        with open("/proc/self/clear_refs", "w") as clear:
            clear.write("5")
    except OSError:
        pass  # the peak is then that of the whole process


def give_back():
    """Lets the C library give memory of former rows back, where it knows how."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def timed(call, wait):
    start = perf_counter()
    output = call()
    wait(output)
    return output, perf_counter() - start


def in_turns(function, sets):
    """A call of a function on one set of operands after the other."""
    if len(sets) == 1:
        inputs = sets[0]
        return lambda: function(*inputs)
    turn = itertools.cycle(sets)
    return lambda: function(*next(turn))


class Session:
    """One row after the other; the timing is that of `src/session.rs`."""

    def __init__(self, make, wait):
        self.make, self.wait, self.call, self.estimate, self.before = make, wait, None, 0.0, 0.0

    def setup(self, row):
        self.call = None
        gc.collect()
        give_back()
        self.before = memory("VmRSS")
        made = self.make(row)
        if made is None:
            return {"ok": False, "error": "not supported"}
        call, check_of = made
        reset_peak()
        output, first = timed(call, self.wait)
        total = check_of(output)
        del output
        self.estimate = min(timed(call, self.wait)[1] for _ in range(2))
        self.call = call
        return {"ok": True, "first_s": first, "est_s": self.estimate, "check": total}

    def run(self, budget, most):
        call, budget = self.call, float(budget)
        if self.estimate < LONG:
            end = perf_counter() + min(WARM_UP, budget / 5)
            while perf_counter() < end:
                self.wait(call())
        n_calls = int(SAMPLE / max(self.estimate, 1e-9)) if self.estimate < SHORT else 1
        least = 3 if self.estimate < LONG else 2
        seconds, end = [], perf_counter() + budget
        gc.disable()
        while len(seconds) < int(most) and (len(seconds) < least or perf_counter() < end):
            start = perf_counter()
            for _ in range(n_calls):
                output = call()
            self.wait(output)
            seconds.append((perf_counter() - start) / n_calls)
        gc.enable()
        self.estimate = min(seconds)
        return {"t": seconds, "inner": n_calls}

    def host(self, n_calls):
        """Seconds of a call until it returns."""
        call, n_calls = self.call, int(n_calls)
        self.wait(call())
        gc.disable()
        start = perf_counter()
        for _ in range(n_calls):
            output = call()
        seconds = perf_counter() - start
        self.wait(output)
        gc.enable()
        return {"host_s": seconds / n_calls}

    def end(self):
        peak, self.call = memory("VmHWM"), None
        return {"peak_rss_mb": peak, "base_rss_mb": self.before}


def serve(make, version, wait=lambda outputs: None):
    """Answers commands until the driver says `quit` or goes away; `version` is for the table's head."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries that print do not get between the answers
    session = Session(make, wait)
    answers.write("@@" + json.dumps({"ready": True, "version": version}) + "\n")
    for line in sys.stdin:
        command, *arguments = line.split() or [""]
        if command == "quit":
            return
        try:
            commands = {"setup": session.setup, "run": session.run, "host": session.host, "end": session.end}
            answer = commands[command](*arguments)
        except Exception as error:  # what one row cannot do leaves the others alone
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        answers.write(f"@@{json.dumps(answer)}\n")
