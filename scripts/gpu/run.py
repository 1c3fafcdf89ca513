#!/usr/bin/env python3
"""Tests and measures opfuse on a machine with a GPU and no Rust, from the folder that `scripts/gpu/pack.sh` made.

    python3 run.py OUT                                          everything
    python3 run.py OUT --stages machine,tests --seconds 500     these stages, begun within so many seconds
    python3 run.py OUT --stages memory --rows W04,G03b          these rows of a stage

PyTorch and JAX are measured with the interpreter that runs this, if it has them. What is found goes to OUT/results.json
after each row, and what programs print to OUT/log.txt; a later run adds to what is there. Nothing is waited for without
a limit. Stages, in order:

    machine     what it is, and how fast it copies
    tests       the tests of `tests/cuda` on the device
    sanitizer   some of them under compute-sanitizer, where it is there
    first       first calls of fused kernels: nothing kept, and code kept on disk
    calls       what a call costs: small ops, rows of small kernels
    products    layers of 4096 and 8192 beside PyTorch and JAX: products as modelled, by each of our two kernels alone,
                and by cublasLt alone
    memory, workloads      rows beside PyTorch and JAX
"""

import argparse
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from pathlib import Path

import measure
from sizes import GROUPS

HERE = Path(__file__).resolve().parent
STAGES = ["machine", "tests", "sanitizer", "first", "calls", "products", "memory", "workloads"]
# Seconds that the tests may take, one of them, and one under a sanitizer; tests that run at the same time.
TESTS, TEST, SANITIZED = 480.0, 400.0, 150.0
AT_ONCE = 4
SANITIZERS = {
    "memcheck": ["first::", "graphs::", "products::", "fast::", "wgmma::", "cublaslt::", "compiled::functions_have_the_bits_of_the_cpu"],
    "racecheck": ["products::", "fast::", "wgmma::", "compiled::functions_have_the_bits_of_the_cpu"],
    "synccheck": ["products::", "fast::", "wgmma::", "compiled::functions_have_the_bits_of_the_cpu"],
}
COPY = """
import json, time, torch
x = torch.empty(2**30, dtype=torch.uint8, device="cuda").random_()
y = torch.empty_like(x)
def seconds():
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(20): y.copy_(x)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / 20
best = min(seconds() for _ in range(8))
properties = torch.cuda.get_device_properties(0)
print(json.dumps({"copy_bytes_per_s": 2 * 2**30 / best, "gpu": properties.name, "multiprocessors": properties.multi_processor_count,
                  "memory": properties.total_memory, "torch": torch.__version__, "cuda": torch.version.cuda}))
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")
    parser.add_argument("out", type=Path)
    parser.add_argument("--stages", type=names, default=STAGES)
    parser.add_argument("--rows", type=names, default=[])
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so many")
    parser.add_argument("--tests", type=names, default=[""], help="beginnings of names of tests")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of PyTorch and JAX")
    parser.add_argument("--tiny", action="store_true", help="sizes for an emulator, to try this script")
    parser.add_argument("--peers-device", choices=("cuda", "cpu"), default="cuda", help="where PyTorch and JAX run")
    parser.add_argument("--programs", type=Path, default=HERE / "bin")
    options = parser.parse_args()
    if unknown := set(options.stages) - set(STAGES):
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {' '.join(STAGES)}")
    return options


class Run:
    def __init__(self, options):
        self.options, self.begin = options, time.monotonic()
        options.out.mkdir(parents=True, exist_ok=True)
        self.path, self.log = options.out / "results.json", options.out / "log.txt"
        self.results = json.loads(self.path.read_text()) if self.path.exists() else {}
        if options.tiny:
            self.results["is_trial"] = True
        self.logs = Path(tempfile.mkdtemp(prefix="opfuse-logs-"))
        self.setting = measure.Setting(
            options.programs, options.python, options.peers_device, self.logs, options.tiny, self.begin + options.seconds
        )

    def keep(self):
        """Whole or not at all, whatever happens meanwhile."""
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(self.results, indent=1))
        draft.replace(self.path)

    def say(self, text):
        print(text, flush=True)
        with open(self.log, "a") as log:
            log.write(text.rstrip("\n") + "\n")

    def left(self, most):
        return max(0.0, min(most, self.setting.end - time.monotonic()))

    def command(self, command, limit, environment=None):
        """What it prints, and how it ended: its status, or None if it was ended or is not there."""
        self.say(f"$ {' '.join(map(str, command))}")
        try:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=os.environ | (environment or {}), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self.say(str(error))
            return str(error), None
        try:
            output, status = process.communicate(timeout=self.left(limit))[0], process.returncode
        except subprocess.TimeoutExpired:
            # What it has started holds the pipe too.
            os.killpg(process.pid, signal.SIGKILL)
            output, status = process.communicate()[0], None
        text = output.decode(errors="replace")
        with open(self.log, "a") as log:
            log.write(f"{text[-400_000:]}\n[status {status} of {command[-2:]}]\n")
        return text, status

    def machine(self):
        found = {"date": str(date.today()), "system": platform.platform(), "python": platform.python_version()}
        found["commit"] = (HERE / "commit").read_text().strip() if (HERE / "commit").exists() else "unknown"
        query = "name,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.mem,power.limit"
        text, status = self.command(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], 60)
        if status == 0:
            found["nvidia_smi"] = text.strip()
        for package in ("torch", "triton", "jax"):
            text, status = self.command([self.options.python, "-c", f"import {package}; print({package}.__version__)"], 120)
            found[package] = text.strip().splitlines()[-1] if status == 0 else None
        text, status = self.command([self.options.python, "-c", COPY], 120)
        if status == 0:
            found |= json.loads(text.strip().splitlines()[-1])
        self.results["machine"] = found

    def tests(self):
        """The tests in a process each, so that one which hangs or breaks its device is one that failed."""
        program = self.options.programs / "cuda"
        text, status = self.command([program, "--list"], 60)
        names = [name for name in re.findall(r"^(\S+): test$", text, re.M) if name.startswith(tuple(self.options.tests))]
        found = self.results.setdefault("tests", {})
        end = time.monotonic() + TESTS
        with ThreadPoolExecutor(AT_ONCE) as pool:
            started = {pool.submit(self.test, program, name, end): name for name in names}
            for done in as_completed(started):
                name = started[done]
                found[name] = done.result()
                self.say(f"{name}: {found[name]['outcome']} {found[name].get('seconds', '')} s")
                self.keep()
        outcomes = [test["outcome"] for test in found.values()]
        self.say(", ".join(f"{outcomes.count(what)} {what}" for what in dict.fromkeys(outcomes)))

    def test(self, program, name, end):
        limit = min(TEST, end - time.monotonic())
        if self.left(limit) <= 0:
            return {"outcome": "not run"}
        start = time.monotonic()
        text, status = self.command([program, "--exact", name, "--nocapture"], limit, self.on_device())
        outcome = "timed out" if status is None else "ok" if status == 0 and "1 passed" in text else "failed"
        if outcome == "ok" and "skipped" in text:
            outcome = "skipped"
        found = {"outcome": outcome, "seconds": round(time.monotonic() - start, 2)}
        notes = [line for line in text.splitlines() if line.startswith(("skipped", "compared"))]
        if notes:
            found["notes"] = notes[:20]
        if outcome in ("failed", "timed out"):
            found["end"] = text[-1500:]
        return found

    def on_device(self):
        return {
            "OPFUSE_CUDA_TESTS": "device",
            "OPFUSE_GOLDEN": os.environ.get("OPFUSE_GOLDEN", str(HERE / "tests" / "golden")),
        }

    def sanitizer(self):
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        found = self.results.setdefault("sanitizer", {})
        if not os.access(tool, os.X_OK):
            return self.say("compute-sanitizer is not there")
        text, _ = self.command([self.options.programs / "cuda", "--list"], 60)
        names = re.findall(r"^(\S+): test$", text, re.M)
        for check, beginnings in SANITIZERS.items():
            for name in (name for name in names if name.startswith(tuple(beginnings))):
                if self.left(SANITIZED) <= 0:
                    return
                command = [tool, "--tool", check, "--target-processes", "all", "--error-exitcode", "99"]
                command += [self.options.programs / "cuda", "--exact", name, "--nocapture"]
                text, status = self.command(command, SANITIZED, self.on_device())
                summary = re.findall(r"^=+ ((?:ERROR|RACECHECK) SUMMARY.*)$", text, re.M)
                outcome = {None: "timed out", 0: "ok"}.get(status, f"status {status}")
                found[f"{check} {name}"] = {"outcome": outcome, "summary": summary[-2:]}
                if status != 0:
                    found[f"{check} {name}"]["end"] = text[-1500:]
                self.say(f"{check} {name}: {outcome} {' '.join(summary[-2:])}")
                self.keep()

    def first(self):
        found = self.results.setdefault("first", {})

        def keep(key, phase, result):
            found.setdefault(key, {})[phase] = result
            self.say(f"{key}, {phase}: {result}")
            self.keep()

        measure.first_use(self.setting, keep)

    def group(self, name):
        found = self.results.setdefault("rows", {}).setdefault(name, {})

        def keep(key, result):
            if result is None:
                return self.say(f"{key}: not begun, the time is over")
            found[key] = result
            cells = [f"{peer} {told(its)}" for peer, its in result["peers"].items()]
            self.say(f"{key}: {', '.join(cells)}")
            self.keep()

        for peer, reason in measure.group(name, self.setting, self.options.rows, keep).items():
            self.say(f"{peer} skipped: {reason}")

    def stage(self, name):
        self.say(f"== {name}, {time.monotonic() - self.begin:.0f} s after the start")
        getattr(self, name)() if name not in GROUPS else self.group(name)
        self.results.setdefault("stages", {})[name] = str(date.today())
        self.keep()


def told(result):
    return f"{result['best'] * 1e6:.1f} us" if "best" in result else f"failed ({result['error']})"


def find_nvrtc():
    """Lets opfuse find NVRTC and cublasLt where Python's packages have them, unless it is told another place."""
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations if spec else []:
        folder = Path(place) / "cu13" / "lib"
        if folder.is_dir():
            os.environ.setdefault("OPFUSE_CUDA_LIB_DIR", str(folder))


def main():
    run = Run(arguments())
    find_nvrtc()
    # Inputs that several workers need are made once.
    with tempfile.TemporaryDirectory(prefix="opfuse-inputs-") as inputs:
        os.environ["PEERS_INPUTS"] = inputs
        for stage in STAGES:
            if stage in run.options.stages and run.left(1.0) > 0:
                run.stage(stage)
    for log in sorted(run.logs.iterdir()):
        with open(run.log, "a") as all_of_them:
            all_of_them.write(f"== {log.name}\n{log.read_text(errors='replace')[-20_000:]}\n")
    shutil.rmtree(run.logs, ignore_errors=True)


if __name__ == "__main__":
    main()
