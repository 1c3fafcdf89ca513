"""The peers as processes: how they are started, asked and watched.

A worker is asked by lines and answers with lines (`benches/peers/src/protocol.rs`). One that does not come up is a
library that is not installed; one that does not answer in time is ended and started anew for the next row.
"""

import json
import os
import select
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
START_LIMIT, ANSWER_LIMIT = 300.0, 240.0
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Places:
    """Where programs are: interpreter of the Python peers, and folder of what was built and measured."""

    python: str
    target: Path

    def command(self, peer):
        if peer.startswith("opfuse-"):
            return [str(self.target / "release" / "opfuse-peers")]
        if peer in ("candle", "burn"):
            return [str(self.target / "peers" / peer / "release" / f"{peer}-peers")]
        return [self.python, str(HERE / "python" / f"{PYTHON[peer]}_peer.py")]


PYTHON = {
    "torch-eager": "torch",
    "torch-compile": "torch",
    "torch-graphs": "torch",
    "jax-jit": "jax",
    "onnxruntime": "onnxruntime",
    "numpy": "numpy",
    "numexpr": "numexpr",
    "numba": "numba",
}
# Graphs are for devices alone (`scripts/gpu`).
PEERS = ["opfuse-compile", "opfuse-eager", *(peer for peer in PYTHON if peer != "torch-graphs"), "candle", "burn"]


class Failed(Exception):
    """A worker said no, or nothing at all."""


@dataclass
class Worker:
    peer: str
    threads: int
    command: list
    logs: Path
    process: subprocess.Popen = field(default=None, repr=False)
    version: str = None
    device: str = "cpu"
    settings: dict = field(default_factory=dict)
    """Variables of its environment besides."""

    def start(self):
        if not os.access(self.command[0], os.X_OK) and "/" in self.command[0]:
            raise Failed("not built")
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | self.settings
        for library in ("OMP", "RAYON"):
            environment[f"{library}_NUM_THREADS"] = str(self.threads)
        command = [*self.command, "--peer", self.peer, "--threads", str(self.threads), "--serve"]
        if self.device != "cpu":
            command += ["--device", self.device]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        self.version = self.answer(START_LIMIT).get("version")

    @property
    def log(self):
        return self.logs / f"{self.peer}-{self.threads}.log"

    def ask(self, command):
        """The answer; an error if it says that something went wrong."""
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except OSError:
            self.stop()
            raise Failed("it ended") from None
        answer = self.answer(ANSWER_LIMIT)
        if answer.get("ok") is False:
            raise Failed(answer["error"])
        return answer

    def answer(self, limit):
        end = time.monotonic() + limit
        while True:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.stop()
                raise Failed(f"no answer in {limit:.0f} s")
            line = self.process.stdout.readline()
            if not line:
                self.stop()
                last = self.log.read_text().strip().splitlines()[-1:] or ["it ended"]
                raise Failed(last[0][:200])
            if line.startswith("@@"):
                return json.loads(line[2:])

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def seconds(self):
        """What its threads have used of the processors."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:13])) / TICK

    def prefer(self, is_urgent):
        """In the real-time class other programs do not take its cores away; needs the right to ask for it."""
        policy, priority = (os.SCHED_RR, 1) if is_urgent else (os.SCHED_OTHER, 0)
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            try:
                os.sched_setscheduler(int(thread), policy, os.sched_param(priority))
            except OSError:
                pass


def busy_seconds():
    """What all programs together have used of the processors."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _wait, interrupts, soft, stolen = fields[:8]
    return (user + nice + system + interrupts + soft + stolen) / TICK
