"""Measures rows on a GPU, opfuse beside PyTorch and JAX, in turns.

All peers set a row up, then run one chunk after the other, in rounds whose order is reversed each time. So disturbances
of the machine hit all of them. A figure is the least of the chunks' medians. The workers are those of
`scripts/peers.sh`.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Packed beside this, or where the repository has them.
PEERS = HERE if (HERE / "driver").is_dir() else HERE.parents[1] / "benches" / "peers"
sys.path.insert(0, str(PEERS / "driver"))

from compare import figures, mark_wrong  # noqa: E402
from sizes import FIRST, GROUPS  # noqa: E402
from workers import PYTHON, Failed, Worker  # noqa: E402

NAMES = ["opfuse-compile", "opfuse-eager", "torch-compile", "torch-eager", "jax-jit"]
# What more peers show: products that may be summed in another order, by whom the model says, by our kernels alone, by
# those for groups of four warps, and by cublasLt, each wherever it takes them; and replayed graphs.
PRODUCTS = ["own", "wgmma", "cublaslt"]
MORE = {
    "products": ["opfuse-fast", *(f"opfuse-{who}" for who in PRODUCTS)],
    "workloads": ["opfuse-fast"],
    "calls": ["torch-graphs"],
}
SETTINGS = {f"opfuse-{who}": {"OPFUSE_CUDA_PRODUCTS": who} for who in PRODUCTS}
HOST_CALLS = 300


@dataclass
class Setting:
    """Where programs are, which device peers use, and how long things may take."""

    programs: Path
    python: str
    peers_device: str
    logs: Path
    is_tiny: bool
    end: float
    """When no row is begun any more, on the monotonic clock."""

    @property
    def budget(self):
        return 0.02 if self.is_tiny else 0.1

    @property
    def rounds(self):
        return 2 if self.is_tiny else 4

    def worker(self, peer):
        is_ours = peer.startswith("opfuse-")
        command = [str(self.programs / "opfuse-peers")] if is_ours else [
            self.python, "-B", str(PEERS / "python" / f"{PYTHON[peer]}_peer.py")
        ]
        device = "cuda" if is_ours else self.peers_device
        return Worker(peer, 1, command, self.logs, device=device, settings=SETTINGS.get(peer, {}))

    def size(self, size):
        return size.tiny() if self.is_tiny else size


def group(name, setting, rows, keep):
    """Measures the rows of a group, or some of them; `keep(key, results)` is called after each."""
    workers = [setting.worker(peer) for peer in [*NAMES, *MORE.get(name, [])]]
    absent = {}
    try:
        for size in GROUPS[name]():
            if rows and size.row not in rows:
                continue
            if time.monotonic() > setting.end:
                keep(size.key, None)
                continue
            found = measure(setting.size(size), workers, setting, absent, counts_host=name == "calls")
            keep(size.key, {"bytes": size.bytes, "flops": size.flops, "is_memory": size.is_memory, "peers": found})
    finally:
        for worker in workers:
            worker.stop()
    return absent


def measure(size, workers, setting, absent, counts_host):
    """What each peer took for a row; one that cannot start is left out of what follows."""
    results, ready = {}, []
    for worker in workers:
        if worker.peer in absent:
            continue
        try:
            if worker.process is None:
                worker.start()
        except Failed as failure:
            absent[worker.peer] = str(failure)
            continue
        try:
            ready.append((worker, worker.ask(f"setup {size.name}"), []))
        except Failed as failure:
            results[worker.peer] = {"error": str(failure)}
    for turn in range(setting.rounds):
        for worker, _, chunks in ready[:: -1 if turn % 2 else 1]:
            if worker.peer not in results:
                try:
                    chunks.append(statistics.median(worker.ask(f"run {setting.budget} 20000")["t"]))
                except Failed as failure:
                    results[worker.peer] = {"error": str(failure)}
    for worker, first, chunks in ready:
        if worker.peer in results:
            continue
        try:
            host = min(worker.ask(f"host {HOST_CALLS}")["host_s"] for _ in range(3)) if counts_host else None
            results[worker.peer] = figures(first, chunks, worker.ask("end"))
            if host is not None:
                results[worker.peer]["host"] = float(f"{host:.4g}")
        except Failed as failure:
            results[worker.peer] = {"error": str(failure)}
    mark_wrong(results)
    return results


def first_use(setting, keep):
    """First calls of fused kernels: with an empty folder for code, and in a new process with what that left, and peers'."""
    folder = Path(tempfile.mkdtemp(prefix="opfuse-code-"))
    before = os.environ.get("OPFUSE_CACHE_DIR")
    os.environ["OPFUSE_CACHE_DIR"] = str(folder)
    try:
        for phase, peer in [
            ("cold", "opfuse-compile"),
            ("disk", "opfuse-compile"),
            ("torch", "torch-compile"),
            ("jax", "jax-jit"),
        ]:
            worker = setting.worker(peer)
            for size in FIRST:
                if time.monotonic() > setting.end:
                    break
                try:
                    answer = worker.ask(f"setup {size.name}")
                    keep(size.key, phase, {"first": answer["first_s"], "later": answer["est_s"]})
                    worker.ask("end")
                except Failed as failure:
                    keep(size.key, phase, {"error": str(failure)})
                    if worker.process is None and phase in ("torch", "jax"):
                        break
            worker.stop()
    finally:
        os.environ.pop("OPFUSE_CACHE_DIR")
        if before is not None:
            os.environ["OPFUSE_CACHE_DIR"] = before
        shutil.rmtree(folder, ignore_errors=True)
