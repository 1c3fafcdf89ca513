"""Models under `torch.compile`: opfuse beside Inductor and eager PyTorch.

    python torch_compile.py [--models bert,gpt2] [--threads 1,2] [--seconds 2] [--docs FILE]

Models have the architectures of transformers in small random configurations, and two have BERT-base's sizes. For each,
a process of its own measures the first call of a backend, which compiles: with empty caches on disk, and then with
those that it left. One more process takes steady calls of all three in turns, and compares their results. Times are the
least of all turns; the spread is the median by the least.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SMALL = {"vocab_size": 512, "max_position_embeddings": 128}
DECODER = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}


def text(model: Any, length: int = 32, batch: int = 2) -> tuple[Any, dict[str, Any]]:
    import torch

    return model, {"input_ids": torch.randint(500, (batch, length))}


def image(model: Any, size: int = 32) -> tuple[Any, dict[str, Any]]:
    import torch

    return model, {"pixel_values": torch.randn(2, 3, size, size)}


def make(name: str) -> tuple[Any, dict[str, Any]]:
    """A model with random weights, and its arguments."""
    import torch
    import transformers as hf

    torch.manual_seed(0)
    encoder = {**SMALL, **DECODER}
    match name:
        case "bert":
            return text(hf.BertModel(hf.BertConfig(**encoder)))
        case "bert-base":
            return text(hf.BertModel(hf.BertConfig(num_hidden_layers=4)), length=128, batch=1)
        case "distilbert":
            return text(
                hf.DistilBertModel(hf.DistilBertConfig(vocab_size=512, dim=64, hidden_dim=128, n_layers=2, n_heads=4))
            )
        case "gpt2":
            return text(hf.GPT2Model(hf.GPT2Config(vocab_size=512, n_embd=64, n_layer=2, n_head=4, use_cache=False)))
        case "llama":
            return text(hf.LlamaModel(hf.LlamaConfig(**SMALL, **DECODER, num_key_value_heads=2, use_cache=False)))
        case "qwen3":
            return text(
                hf.Qwen3Model(hf.Qwen3Config(**SMALL, **DECODER, num_key_value_heads=2, head_dim=16, use_cache=False))
            )
        case "t5":
            return text(
                hf.T5EncoderModel(hf.T5Config(vocab_size=512, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4))
            )
        case "mamba":
            return text(
                hf.MambaModel(hf.MambaConfig(vocab_size=512, hidden_size=32, num_hidden_layers=2, use_cache=False)), 8
            )
        case "vit":
            return image(hf.ViTModel(hf.ViTConfig(**DECODER, image_size=32, patch_size=8)))
        case "convnext":
            return image(hf.ConvNextModel(hf.ConvNextConfig(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1])), 64)
        case "resnet":
            return image(
                hf.ResNetModel(
                    hf.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic")
                ),
                64,
            )
        case "mlp":
            nn = torch.nn
            layers = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 64))
            return layers, {"input": torch.randn(32, 256)}
        case _:
            raise SystemExit(f"there is no model {name}; the models are {', '.join(MODELS)}")


MODELS = [
    "mlp",
    "bert",
    "distilbert",
    "gpt2",
    "llama",
    "qwen3",
    "t5",
    "mamba",
    "vit",
    "convnext",
    "resnet",
    "bert-base",
]
BACKENDS = ["eager", "inductor", "opfuse"]


def caller(name: str, backend: str, training: bool) -> Callable[[], Any]:
    """One call of the model: inference, or a forward and a backward pass."""
    import torch

    model, arguments = make(name)
    model.train(training)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    compiled = model if backend == "eager" else torch.compile(model, backend=backend)

    def result() -> Any:
        found = compiled(**arguments)
        return found if isinstance(found, torch.Tensor) else found[0]

    def infer() -> Any:
        with torch.no_grad():
            return result()

    def step() -> Any:
        model.zero_grad()
        result().square().mean().backward()
        return next(one.grad for one in model.parameters() if one.grad is not None)

    return step if training else infer


def first_call(name: str, backend: str, training: bool) -> dict[str, float]:
    call = caller(name, backend, training)
    start = time.perf_counter()
    call()
    return {"first": time.perf_counter() - start}


def steady(name: str, training: bool, seconds: float) -> dict[str, Any]:
    """The times of steady calls, in turns, and the largest difference from eager results."""
    calls = {backend: caller(name, backend, training) for backend in BACKENDS}
    results = {}
    for backend, call in calls.items():
        for _ in range(3):
            results[backend] = call().detach().clone()
    error = {b: (results[b] - results["eager"]).abs().max().item() for b in BACKENDS}
    times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["eager"]) < 5:
        for backend, call in calls.items():
            start = time.perf_counter()
            call()
            times[backend].append(time.perf_counter() - start)
    least = {backend: min(all_) for backend, all_ in times.items()}
    spread = {backend: statistics.median(all_) / least[backend] for backend, all_ in times.items()}
    return {
        "least": least,
        "spread": max(spread.values()),
        "error": error["opfuse"],
        "inductor_error": error["inductor"],
    }


def worker(task: dict[str, Any]) -> None:
    import torch

    torch.set_num_threads(task["threads"])
    if task["do"] == "first":
        found = first_call(task["model"], task["backend"], task["training"])
    else:
        found = steady(task["model"], task["training"], task["seconds"])
    print(json.dumps(found))


def asked(task: dict[str, Any], caches: str) -> dict[str, Any]:
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "OPFUSE_NUM_THREADS": str(task["threads"]),
        "OMP_NUM_THREADS": str(task["threads"]),
    }
    command = [sys.executable, __file__, "--task", json.dumps(task)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def row(name: str, training: bool, threads: int, seconds: float) -> dict[str, Any]:
    task = {"model": name, "training": training, "threads": threads, "seconds": seconds}
    found: dict[str, Any] = {**task}
    with tempfile.TemporaryDirectory() as caches:
        for backend in ("inductor", "opfuse"):
            for state in ("cold", "warm"):
                found[f"{backend} {state}"] = asked({**task, "do": "first", "backend": backend}, caches)
        found["steady"] = asked({**task, "do": "steady"}, caches)
    return found


def mean(numbers: list[float]) -> float:
    return math.exp(sum(map(math.log, numbers)) / len(numbers)) if numbers else float("nan")


def line(found: dict[str, Any]) -> str:
    head = f"| {found['model']} | {'step' if found['training'] else 'inference'} | {found['threads']} |"
    steady = found["steady"]
    failed = [one["failed"] for one in found.values() if isinstance(one, dict) and "failed" in one]
    if failed:
        return f"{head} failed: {failed[0]} |"
    firsts = [found[f"{backend} {state}"]["first"] for backend in ("inductor", "opfuse") for state in ("cold", "warm")]
    least = steady["least"]
    cells = [f"{one:.2f} s" for one in firsts]
    cells += [f"{least[backend] * 1e3:.2f} ms" for backend in BACKENDS]
    cells += [f"{least['eager'] / least['opfuse']:.2f}", f"**{least['inductor'] / least['opfuse']:.2f}**"]
    cells += [f"{steady['spread']:.2f}", f"{steady['error']:.0e}"]
    return f"{head} {' | '.join(cells)} |"


HEAD = """| model | | thr | Inductor, cold | warm | opfuse, cold | warm | eager | Inductor | opfuse | by eager | by Inductor | spread | error |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--modes", default="inference,step")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        worker(json.loads(options.task))
        return
    print(HEAD, flush=True)
    rows, lines = [], []
    for name in options.models.split(","):
        for mode in options.modes.split(","):
            for threads in map(int, options.threads.split(",")):
                rows.append(row(name, mode == "step", threads, options.seconds))
                lines.append(line(rows[-1]))
                print(lines[-1], flush=True)
    good = [
        one
        for one in rows
        if "least" in one["steady"]
        and all("first" in one[f"{b} {s}"] for b in ("inductor", "opfuse") for s in ("cold", "warm"))
    ]
    least = [one["steady"]["least"] for one in good]
    summary = [
        f"Steady calls beside Inductor, geometric mean: {mean([one['inductor'] / one['opfuse'] for one in least]):.2f}.",
        f"Beside eager PyTorch: {mean([one['eager'] / one['opfuse'] for one in least]):.2f}.",
    ]
    for state in ("cold", "warm"):
        by = [one[f"inductor {state}"]["first"] / one[f"opfuse {state}"]["first"] for one in good]
        summary.append(f"First calls, {state} caches: Inductor takes {mean(by):.1f} times as long.")
    print("\n" + "\n".join(summary))
    if options.docs:
        options.docs.write_text("\n".join([HEAD, *lines, "", *summary, ""]))


if __name__ == "__main__":
    main()
