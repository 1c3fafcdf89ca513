"""Models under `torch.compile`: opfuse beside Inductor and eager PyTorch.

    python torch_compile.py [--models bert,gpt2] [--threads 1,2] [--seconds 2] [--repeats 2]
    python torch_compile.py --missing               goes on where an earlier run stopped
    python torch_compile.py --only-page             writes the page of what is known
    python torch_compile.py --nets [...]            networks and programs of nets.py instead; `step` where they train
    python torch_compile.py --functions [...]       functions of functions.py instead, without gradients
    python torch_compile.py --small-functions [...] functions of small_functions.py instead, without gradients
    python torch_compile.py --other-functions [...] functions of other_functions.py instead, without gradients

Models have the architectures of transformers in small random configurations, and one has BERT-base's sizes. For each
model and mode, processes of their own measure first calls: of `aot_eager`, which traces and compiles nothing; and of
both compilers with empty caches on disk, and then with those that they left. The processes of all take turns. For each
number of threads, one more process takes steady calls of all three in turns, and compares their results. Times are the
least of all turns; the spread is the greatest median by the least.

What was found is kept in FILE.json (`--state`), and `--docs FILE.md` writes a page of it.
"""

from __future__ import annotations

import argparse
import datetime
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


def text(model: Any, length: int = 32, batch: int = 2) -> tuple[Any, tuple[Any, ...]]:
    import torch

    return model, (torch.randint(500, (batch, length)),)


def image(model: Any, size: int = 32) -> tuple[Any, tuple[Any, ...]]:
    import torch

    return model, (torch.randn(2, 3, size, size),)


def make(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model with random weights, and its arguments."""
    import torch

    torch.manual_seed(0)
    if name not in MODELS:
        import functions
        import nets
        import other_functions
        import small_functions

        others = {**other_functions.OTHER_FUNCTIONS, **other_functions.MORE_FUNCTIONS}
        all_functions = {**functions.FUNCTIONS, **small_functions.SMALL_FUNCTIONS, **others}
        return {**nets.NETWORKS, **nets.PROGRAMS, **all_functions}[name]()
    import transformers as hf

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
            return layers, (torch.randn(32, 256),)
        case _:
            raise ValueError(f"{name} is in the list of models, and has no case")


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
MODES = ["inference", "step"]


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
        found = compiled(*arguments)
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
    """Seconds of the first call, and those of them that opfuse took."""
    call = caller(name, backend, training)
    own = Clock()
    if backend == "opfuse":
        import opfuse.torch as backend_of_opfuse

        # The classes and functions themselves: nothing else tells PyTorch's time from opfuse's.
        backend_of_opfuse._compile = own.timed(backend_of_opfuse._compile)
        backend_of_opfuse.Graph.__call__ = own.timed(backend_of_opfuse.Graph.__call__)
    start = time.perf_counter()
    call()
    return {"first": time.perf_counter() - start, "own": own.seconds}


class Clock:
    """Adds up the time of calls. A call inside another is counted once."""

    def __init__(self) -> None:
        self.seconds, self.depth = 0.0, 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            self.depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.depth -= 1
                if self.depth == 0:
                    self.seconds += time.perf_counter() - start

        return call


def steady(name: str, training: bool, seconds: float) -> dict[str, Any]:
    """The times of steady calls, in turns, and the largest difference from eager results."""
    calls = {backend: caller(name, backend, training) for backend in BACKENDS}
    results = {}
    for backend, call in calls.items():
        for _ in range(3):
            results[backend] = call().detach().clone()
    wide = {b: found if found.is_complex() else found.double() for b, found in results.items()}
    error = {b: (wide[b] - wide["eager"]).abs().max().item() for b in BACKENDS}
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
        "OPFUSE_CACHE_DIR": f"{caches}/opfuse",
        "OPFUSE_NUM_THREADS": str(task["threads"]),
        "OMP_NUM_THREADS": str(task["threads"]),
    }
    command = [sys.executable, __file__, "--task", json.dumps(task)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def first_row(name: str, mode: str, threads: int, repeats: int) -> dict[str, Any]:
    """The least seconds of first calls, and their spread: the greatest by the least."""
    task = {"do": "first", "model": name, "training": mode == "step", "threads": threads}
    runs: dict[str, list[dict[str, Any]]] = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as caches:
            runs.setdefault("tracing", []).append(asked({**task, "backend": "aot_eager"}, caches))
            for state in ("cold", "warm"):
                for backend in ("inductor", "opfuse"):
                    runs.setdefault(f"{backend} {state}", []).append(asked({**task, "backend": backend}, caches))
    failed = [one["failed"] for all_ in runs.values() for one in all_ if "failed" in one]
    if failed:
        return {"failed": failed[0]}
    seconds = {kind: [one["first"] for one in all_] for kind, all_ in runs.items()}
    return {
        "first": {kind: min(all_) for kind, all_ in seconds.items()},
        "own": {kind: min(one["own"] for one in all_) for kind, all_ in runs.items() if kind.startswith("opfuse")},
        "spread": max(max(all_) / min(all_) for all_ in seconds.values()),
    }


def steady_row(name: str, mode: str, threads: int, seconds: float) -> dict[str, Any]:
    task = {"do": "steady", "model": name, "training": mode == "step", "threads": threads, "seconds": seconds}
    with tempfile.TemporaryDirectory() as caches:
        return asked(task, caches)


def mean(numbers: list[float]) -> float:
    return math.exp(sum(map(math.log, numbers)) / len(numbers)) if numbers else float("nan")


def by_inductor(found: dict[str, Any]) -> float:
    return float(found["least"]["inductor"] / found["least"]["opfuse"])


def steady_line(key: str, found: dict[str, Any]) -> str:
    name, mode, threads = key.split("/")
    if "failed" in found:
        return f"| {name} | {mode} | {threads} | failed: {found['failed']} |"
    least = found["least"]
    cells = [f"{least[backend] * 1e3:.2f} ms" for backend in BACKENDS]
    cells += [f"{least['eager'] / least['opfuse']:.2f}", f"**{by_inductor(found):.2f}**"]
    cells += [f"{found['spread']:.2f}", f"{found['error']:.0e}"]
    return f"| {name} | {mode} | {threads} | {' | '.join(cells)} |"


def first_line(key: str, found: dict[str, Any]) -> str:
    name, mode, _ = key.split("/")
    if "failed" in found:
        return f"| {name} | {mode} | failed: {found['failed']} |"
    first, own = found["first"], found["own"]
    cells = [f"{first['tracing']:.2f} s"]
    for state in ("cold", "warm"):
        cells += [f"{first[f'{backend} {state}']:.2f} s" for backend in ("inductor", "opfuse")]
        cells += [f"{own[f'opfuse {state}']:.2f} s"]
        cells += [f"**{first[f'inductor {state}'] / first[f'opfuse {state}']:.1f}**"]
        ours = max(first[f"opfuse {state}"] - first["tracing"], own[f"opfuse {state}"])
        beyond = (first[f"inductor {state}"] - first["tracing"]) / ours
        cells += [f"{beyond:.1f}" if beyond > 0 else "-"]
    return f"| {name} | {mode} | {' | '.join(cells)} | {found['spread']:.2f} |"


STEADY_HEAD = """| model | | thr | eager | Inductor | opfuse | by eager | by Inductor | spread | error |
|---|---|---|---|---|---|---|---|---|---|"""
FIRST_CELLS = "model, , tracing, Inductor cold, opfuse, of it ours, times, beyond tracing, Inductor warm, opfuse,"
FIRST_HEAD = f"| {(FIRST_CELLS + ' of it ours, times, beyond tracing, spread').replace(', ', ' | ')} |\n|{'---|' * 14}"


def machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "an unknown machine"
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    wide = " with AVX-512" if any(line.startswith("flags") and "avx512f" in line for line in lines) else ""
    return f"{os.cpu_count()} cores of {model}{wide}"


MODELS_TITLE = "# Models under torch.compile"
MODELS_TEXT = [
    "Models have the architectures of transformers in small random configurations; `bert-base` has four layers of",
    "BERT-base's sizes. *Inference* is a call without gradients, and *step* a forward and a backward pass. The",
    "results of all backends are checked against eager PyTorch's: *error* is opfuse's greatest difference.",
]
NETS_TITLE = "# Networks and programs under torch.compile"
NETS_TEXT = [
    "What people write in PyTorch: networks of torchvision with batch and size, a U-Net, an encoder, a decoder, an",
    "LSTM by hand, a recommender, and numerical programs. `python/benches/nets.py` has all of them. *Inference* is a",
    "call without gradients, and *step* a forward and a backward pass. *Error* is opfuse's greatest difference from",
    "eager PyTorch, as a number, whatever the results' size is. That of `particles` means nothing: resampling picks",
    "another particle for the least difference of a sum.",
]
FUNCTIONS_TITLE = "# Functions under torch.compile"
FUNCTIONS_TEXT = [
    "What people write between networks, from `python/benches/functions.py`. They were written in one go, before any",
    "was measured. The classes of the slowest were mended since: `embedding mean`, `outer sums`, `masked mean`,",
    "`positions`, `index_add`, `scatter_add`, `channels first`, `mixed bits`. *Inference* is a call without gradients.",
    "*Error* is opfuse's greatest difference from eager PyTorch, as a number, whatever the results' size is.",
]
SMALL_FUNCTIONS_TITLE = "# More functions under torch.compile"
SMALL_FUNCTIONS_TEXT = [
    "Points, colours, pairs, small matrices, short rows and layouts, from `python/benches/small_functions.py`. They",
    "were written in one go, before any was measured. Short rows, short folds, columns put side by side and transposed",
    "copies were mended since. *Inference* is a call without gradients. *Error* is opfuse's greatest difference from",
    "eager PyTorch, as a number, whatever the results' size is.",
]
OTHER_FUNCTIONS_TITLE = "# Other functions under torch.compile"
OTHER_FUNCTIONS_TEXT = [
    "Images, sound, finance, physics, statistics, graphs, recommenders, language, losses, whole numbers, masks, narrow",
    "dtypes, optimizers, geometry and recurrences, from `python/benches/other_functions.py`. Somebody who did not look",
    "at the compiler wrote them in one go, before any was measured. A first look at 60 of them found a mean of 1.38, and",
    "nine under a half. The classes of the slowest were mended since. These are long rows of folds, folds over dims",
    "between others, short rows at indices, cross products, concatenations of concatenations, windows that are added,",
    "and whole numbers that are divided by literals. 30 rows were measured again after that, and the others before.",
    "*Inference* is a call without gradients. *Error* is opfuse's greatest difference from eager PyTorch in the first",
    "result, as a number, whatever its size is. `euclid` has no row: Inductor compiled it for more than three minutes.",
]
TEXTS = {
    "models": (MODELS_TITLE, MODELS_TEXT),
    "nets": (NETS_TITLE, NETS_TEXT),
    "functions": (FUNCTIONS_TITLE, FUNCTIONS_TEXT),
    "small-functions": (SMALL_FUNCTIONS_TITLE, SMALL_FUNCTIONS_TEXT),
    "other-functions": (OTHER_FUNCTIONS_TITLE, OTHER_FUNCTIONS_TEXT),
}
STEADY_TEXT = [
    "",
    "## Steady calls",
    "",
    "Calls of eager PyTorch, Inductor and opfuse take turns in one process. A time is the least of all turns;",
    "*spread* is the greatest median by the least. *By Inductor* is how many times as fast opfuse is.",
    "",
    "| | threads | geometric mean | rows ahead or even | least | greatest |",
    "|---|---|---|---|---|---|",
]


def rows(kind: str) -> list[tuple[str, str]]:
    """Names and modes. Programs and functions are not trained."""
    if kind == "models":
        return [(name, mode) for name in MODELS for mode in MODES]
    import functions
    import nets
    import other_functions
    import small_functions

    if kind == "functions":
        return [(name, "inference") for name in functions.FUNCTIONS]
    if kind == "small-functions":
        return [(name, "inference") for name in small_functions.SMALL_FUNCTIONS]
    if kind == "other-functions":
        others = [*other_functions.OTHER_FUNCTIONS, *other_functions.MORE_FUNCTIONS]
        return [(name, "inference") for name in others]
    networks = [(name, mode) for name in nets.NETWORKS for mode in MODES]
    return networks + [(name, "inference") for name in nets.PROGRAMS]


def page(state: dict[str, Any]) -> str:
    """What is known, as a page."""
    steady, firsts = state["steady"], state["first"]
    good = {key: found for key, found in steady.items() if "least" in found}
    title, introduction = TEXTS[state["kind"]]
    lines = [title, ""]
    lines += [f"Made by `{state['command']}`", f"on {state['day']}, {state['machine']}.", ""]
    lines += [f"Libraries: {state['libraries']}.", "", *introduction, *STEADY_TEXT]
    for threads in sorted({key.split("/")[2] for key in good}):
        for mode in MODES:
            own = {key: found for key, found in good.items() if key.endswith(f"/{mode}/{threads}")}
            if own:
                ratios = sorted((by_inductor(found), key.split("/")[0]) for key, found in own.items())
                ahead = sum(ratio >= 0.995 for ratio, _ in ratios)
                (low, slow), (high, fast) = ratios[0], ratios[-1]
                average = mean([ratio for ratio, _ in ratios])
                cells = f"**{average:.2f}** | {ahead} of {len(ratios)} | {low:.2f} ({slow}) | {high:.2f} ({fast})"
                lines.append(f"| {mode}, by Inductor | {threads} | {cells} |")
    eager = mean([found["least"]["eager"] / found["least"]["opfuse"] for found in good.values()])
    inductor = mean([by_inductor(found) for found in good.values()])
    lines += ["", f"All rows by Inductor: {inductor:.2f}. By eager PyTorch: {eager:.2f}."]
    lines += ["", STEADY_HEAD, *(steady_line(key, found) for key, found in steady.items()), ""]
    if state["kind"] != "models":
        threads = sorted({key.split("/")[2] for key in steady})
        keys = [f"{name}/{mode}/{count}" for name, mode in rows(state["kind"]) for count in threads]
        missing = [key.rsplit("/", 1)[0].replace("/", ", ") for key in keys if key not in steady]
        lines += ["Not measured yet:", "", *(f"- {row}" for row in missing), ""] if missing else []
    if not firsts:
        return "\n".join(lines)
    lines += [
        "## First calls",
        "",
        "Each is the first call in a process of its own, after imports. *Tracing* is that of `aot_eager`: Dynamo and",
        "AOTAutograd, which every backend waits for, and then eager calls. *Cold* starts with empty caches on disk,",
        "and *warm* with those that the cold process left. *Of it ours* is the time inside opfuse. *Times* is how many",
        "times as long Inductor takes. *Beyond tracing* is the same of what both take beyond tracing.",
        "",
        FIRST_HEAD,
        *(first_line(key, found) for key, found in firsts.items()),
        "",
    ]
    known = [found for found in firsts.values() if "first" in found]
    for mode in ("cold", "warm"):
        by = [found["first"][f"inductor {mode}"] / found["first"][f"opfuse {mode}"] for found in known]
        share = [found["own"][f"opfuse {mode}"] / found["first"][f"opfuse {mode}"] for found in known]
        if known:
            text = f"Geometric means with {mode} caches: Inductor takes {mean(by):.1f} times as long;"
            lines.append(f"{text} {100 * mean(share):.0f} % of opfuse's first call is its own.")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(kind="models")
    kinds = {
        "nets": "networks and programs of nets.py",
        "functions": "functions of functions.py",
        "small-functions": "functions of small_functions.py",
        "other-functions": "functions of other_functions.py",
    }
    for kind, what in kinds.items():
        parser.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=what)
    parser.add_argument("--models", help="some of them, with commas between")
    parser.add_argument("--modes", default="inference,step")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=2.0, help="of steady calls, for each row")
    parser.add_argument("--repeats", type=int, default=2, help="of first calls; 0 leaves them out")
    parser.add_argument("--missing", action="store_true", help="only rows that an earlier run did not measure")
    parser.add_argument("--limit", type=float, default=math.inf, help="stop after so many seconds")
    parser.add_argument("--state", type=Path, default=Path(tempfile.gettempdir()) / "opfuse_torch_compile.json")
    parser.add_argument("--docs", type=Path, help="the page to write")
    parser.add_argument("--only-page", action="store_true", help="measure nothing")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        worker(json.loads(options.task))
        return
    state: dict[str, Any] = {"steady": {}, "first": {}, "kind": options.kind}
    if (options.missing or options.only_page) and options.state.exists():
        state = json.loads(options.state.read_text())
    if not options.only_page:
        measure(options, state)
    if options.docs:
        options.docs.write_text(page(state))


def measure(options: argparse.Namespace, state: dict[str, Any]) -> None:
    from importlib.metadata import version

    state["libraries"] = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "opfuse"))
    state["machine"], state["day"] = machine(), datetime.date.today().isoformat()
    chosen = f"--threads {options.threads} --seconds {options.seconds:g} --repeats {options.repeats}"
    chosen = chosen if options.kind == "models" else f"--{options.kind} {chosen}"
    state["command"] = f"python python/benches/torch_compile.py {chosen}"
    threads = [int(count) for count in options.threads.split(",")]
    known, modes = rows(options.kind), options.modes.split(",")
    models = options.models.split(",") if options.models else [name for name, _ in known]
    if unknown := set(models) - {name for name, _ in known}:
        raise SystemExit(f"there is no model {min(unknown)}; the models are {', '.join(dict(known))}")
    chosen_rows = [(name, mode) for name, mode in known if name in models and mode in modes]
    end = time.monotonic() + options.limit
    tasks = [("steady", f"{name}/{mode}/{count}") for name, mode in chosen_rows for count in threads]
    # First calls are those of the greatest number of threads, because the compilers use them, too.
    tasks += [("first", f"{name}/{mode}/{max(threads)}") for name, mode in chosen_rows if options.repeats]
    for kind, key in tasks:
        if options.missing and key in state[kind] and "failed" not in state[kind][key]:
            continue
        if time.monotonic() > end:
            print("stopped at the limit; --missing goes on")
            return
        name, mode, count = key.split("/")
        if kind == "steady":
            state[kind][key] = steady_row(name, mode, int(count), options.seconds)
            print(steady_line(key, state[kind][key]), flush=True)
        else:
            state[kind][key] = first_row(name, mode, int(count), options.repeats)
            print(first_line(key, state[kind][key]), flush=True)
        options.state.parent.mkdir(parents=True, exist_ok=True)
        options.state.write_text(json.dumps(state, indent=1))


if __name__ == "__main__":
    main()
