#!/usr/bin/env python3
"""Writes docs/benchmarks/gpu.md and gpu.svg from what `run.py` found on a machine with a GPU.

    scripts/gpu/report.py RESULTS.json [MORE.json ...]

Several files are parts of one run; results of later files replace those of earlier ones. Needs Python alone, and for
gpu.svg the program `chart`: `cargo build --release -p opfuse-peers --bin chart`.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "driver" if (HERE / "driver").is_dir() else HERE.parents[1] / "benches" / "peers" / "driver"))

from chart import bar, drawn  # noqa: E402

PEERS = [
    "opfuse-compile", "opfuse-fast", "opfuse-own", "opfuse-wgmma", "opfuse-cublaslt", "opfuse-eager",
    "torch-compile", "torch-graphs", "torch-eager", "jax-jit",
]  # fmt: skip
OURS, FAST = "opfuse-compile", "opfuse-fast"
# Who may compute products.
WHO = ("opfuse-own", "opfuse-wgmma", "opfuse-cublaslt")
NOT_OF_MEMORY = ("opfuse-fast", "opfuse-own", "opfuse-wgmma", "opfuse-cublaslt", "torch-graphs")
# What is asked for.
OF_COPY, OF_TORCH, MEAN, OF_PRODUCTS, COLD, DISK, HOST, REPLAYED = 0.9, 1.0, 1.3, 0.95, 0.1, 5e-3, 4e-6, 1.5e-6
KERNELS = 100  # of row G20


def merged(files):
    whole = {"is_trial": False}
    for file in files:
        part = json.loads(Path(file).read_text())
        whole["is_trial"] |= part.get("is_trial", False)
        for key in ("machine", "stages", "tests", "sanitizer", "first"):
            whole.setdefault(key, {}).update(part.get(key, {}))
        for group, rows in part.get("rows", {}).items():
            whole.setdefault("rows", {}).setdefault(group, {}).update(rows)
    return whole


def best(row, peer):
    """Seconds, or nothing if the peer failed or was not there."""
    return row["peers"].get(peer, {}).get("best")


def over(numerator, denominator):
    return numerator / denominator if numerator and denominator else None


def geometric_mean(values):
    values = [value for value in values if value]
    return statistics.geometric_mean(values) if values else None


def fastest(row, peers):
    return min((found for peer in peers if (found := best(row, peer))), default=None)


def table(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def judged(value, least=None, most=None, form="{:.2f}"):
    """Bold if it misses what is asked for."""
    if value is None:
        return "not measured"
    misses = least is not None and value < least or most is not None and value > most
    return f"**{form.format(value)}**" if misses else form.format(value)


def micro(seconds):
    return number(seconds and seconds * 1e6, "{:.1f}" if seconds and seconds < 1e-3 else "{:.0f}")


def memory_rows(results):
    rows = {key: row for group in ("memory", "workloads") for key, row in results.get("rows", {}).get(group, {}).items()}
    return {key: row for key, row in rows.items() if row["is_memory"]}


def copy_speed(results):
    """The best copy of the run, in bytes a second: what a large copy within PyTorch reached, or a row that copies."""
    copies = [row["bytes"] / found for key, row in memory_rows(results).items() if key.startswith("G01") if (found := fastest(row, PEERS))]
    return max([results.get("machine", {}).get("copy_bytes_per_s") or 0.0, *copies]) or None


def shares(results):
    speed = copy_speed(results)
    return {key: over(over(row["bytes"], best(row, OURS)), speed) for key, row in memory_rows(results).items()}


def against_torch(results, ours=OURS):
    rows = results.get("rows", {}).get("workloads", {})
    return {key: over(best(row, "torch-compile"), best(row, ours)) for key, row in rows.items()}


def product_ratios(results):
    rows = results.get("rows", {}).get("products", {})
    return {key: over(fastest(row, ["torch-compile", "torch-eager"]), fastest(row, [OURS, FAST])) for key, row in rows.items()}


def firsts(results, phase):
    return [found[phase]["first"] - found[phase]["later"] for found in results.get("first", {}).values() if "first" in found.get(phase, {})]


def host(results, row, peer):
    rows = results.get("rows", {}).get("calls", {})
    return next((found["peers"].get(peer, {}).get("host") for key, found in rows.items() if key.split()[0] == row), None)


def least(named):
    known = {key: value for key, value in named.items() if value}
    return min(known.items(), key=lambda item: item[1]) if known else (None, None)


def figures(results):
    copies, workloads, products = shares(results), against_torch(results), product_ratios(results)
    enough = [value for value in copies.values() if value]
    rows = [
        (f"element-wise and row kernels from 64 MB up, of the copy bandwidth ({number(over(copy_speed(results), 1e9), '{:.0f}')} GB/s)",
         f"{OF_COPY}", f"{sum(value >= OF_COPY for value in enough)} of {len(enough)} rows; least {judged(least(copies)[1], least=OF_COPY)} ({least(copies)[0]})"),
        ("compiled against torch.compile, every workload", f"{OF_TORCH:.1f}", f"least {judged(least(workloads)[1], least=OF_TORCH)} ({least(workloads)[0]})"),
        ("the same, geometric mean", f"{MEAN}", judged(geometric_mean(workloads.values()), least=MEAN)),
        ("the same with `Numerics::Fast`", f"{MEAN}", judged(geometric_mean(against_torch(results, FAST).values()), least=MEAN)),
        *((f"{key}, against the best of PyTorch's", f"{OF_PRODUCTS}", judged(value, least=OF_PRODUCTS)) for key, value in products.items() if "bf16" in key),
        ("first use of a fused kernel, nothing kept: most, ms", f"{COLD * 1e3:.0f}", judged(most(firsts(results, "cold"), 1e3), most=COLD * 1e3, form="{:.1f}")),
        ("the same, code kept on disk: most, ms", f"{DISK * 1e3:.0f}", judged(most(firsts(results, "disk"), 1e3), most=DISK * 1e3, form="{:.1f}")),
        ("eager small op (W20b), host side, µs", f"{HOST * 1e6:.0f}", judged(scaled(host(results, "W20b", "opfuse-eager"), 1e6), most=HOST * 1e6)),
        (f"row of {KERNELS} kernels (G20), host side, µs per kernel", f"{REPLAYED * 1e6}", judged(scaled(host(results, "G20", OURS), 1e6 / KERNELS), most=REPLAYED * 1e6)),
    ]  # fmt: skip
    return table(["figure", "asked for", "measured"], [list(row) for row in rows])


def most(values, factor):
    return max(values) * factor if values else None


def scaled(value, factor):
    return None if value is None else value * factor


def memory_table(results):
    share = shares(results)
    rows = [
        [key, *(number(over(row["bytes"], best(row, peer)) and row["bytes"] / best(row, peer) / 1e9, "{:.0f}") for peer in PEERS if peer not in NOT_OF_MEMORY), judged(share[key], least=OF_COPY)]
        for key, row in memory_rows(results).items()
    ]  # fmt: skip
    return table(["GB/s", *(peer for peer in PEERS if peer not in NOT_OF_MEMORY), "of the copy"], rows)


def time_table(rows, ratio=None, peers=PEERS):
    named = [peer for peer in peers if any(peer in row["peers"] for row in rows.values())]
    body = [
        [key, *(micro(best(row, peer)) for peer in named), *([judged(ratio[key], least=OF_TORCH)] if ratio else [])]
        for key, row in rows.items()
    ]
    return table(["µs", *named, *(["times as fast as torch.compile"] if ratio else [])], body)


def product_table(results):
    rows, ratio = results.get("rows", {}).get("products", {}), product_ratios(results)
    named = [peer for peer in PEERS if any(peer in row["peers"] for row in rows.values())]
    ours = lambda row: min((peer for peer in WHO if best(row, peer)), key=lambda peer: best(row, peer), default="")
    body = [
        [key, *(number(over(row["flops"], best(row, peer)) and row["flops"] / best(row, peer) / 1e12, "{:.1f}") for peer in named), ours(row), judged(ratio[key], least=OF_PRODUCTS)]
        for key, row in rows.items()
    ]  # fmt: skip
    told = (
        "`opfuse-own`, `opfuse-wgmma` and `opfuse-cublaslt` are `opfuse-fast` with `OPFUSE_CUDA_PRODUCTS` set: where the first or the "
        "last are faster than that, the shares in `runtime::cuda::roofline` are wrong. The model never takes `wgmma`; where it is the "
        "fastest of the three, it should."
    )
    return table(["TFLOP/s", *named, "fastest of the three", "against PyTorch's best"], body) + "\n\n" + told


def host_table(rows):
    named = [peer for peer in PEERS if any("host" in row["peers"].get(peer, {}) for row in rows.values())]
    body = [[key, *(micro(row["peers"].get(peer, {}).get("host")) for peer in named)] for key, row in rows.items()]
    return table(["µs until a call returns", *named], body)


def first_table(results):
    names = {"cold": "opfuse, nothing kept", "disk": "opfuse, from disk", "torch": "torch.compile", "jax": "jax.jit"}
    cell = lambda found: number((found["first"] - found["later"]) * 1e3, "{:.1f}") if "first" in found else ""
    rows = [[key, *(cell(found.get(phase, {})) for phase in names)] for key, found in results.get("first", {}).items()]
    return table(["ms, first call less a later one", *names.values()], rows)


def tests(results):
    outcomes = [test["outcome"] for test in results.get("tests", {}).values()]
    counts = ", ".join(f"{outcomes.count(what)} {what}" for what in dict.fromkeys(outcomes)) or "none was run"
    lines = [f"Tests of `tests/cuda` on the device: {counts}."]
    lines += [f"- `{name}`: {test['outcome']}" for name, test in results.get("tests", {}).items() if test["outcome"] not in ("ok", "skipped")]
    checked = results.get("sanitizer", {})
    if checked:
        good = sum(found["outcome"] == "ok" for found in checked.values())
        lines += ["", f"Under compute-sanitizer: {good} of {len(checked)} without a complaint."]
        lines += [f"- `{name}`: {found['outcome']}; {' '.join(found['summary'])}" for name, found in checked.items() if found["outcome"] != "ok"]
    return "\n".join(lines)


def failures(results):
    lines = [
        f"- {key}, {peer}: {found['error']}"
        for rows in results.get("rows", {}).values()
        for key, row in rows.items()
        for peer, found in row["peers"].items()
        if "error" in found and "not supported" not in found["error"]
    ]
    return "\n".join(lines) or "Nothing failed."


def machine(results):
    found = results.get("machine", {})
    named = [found.get("gpu") or "a GPU without a name", found.get("nvidia_smi")]
    named += [f"{package} {found[package]}" for package in ("torch", "triton", "jax") if found.get(package)]
    return f"Measured on {found.get('date')} on {'; '.join(filter(None, named))}; opfuse at {found.get('commit')}."


def markdown(results):
    rows = results.get("rows", {})
    return f"""# On a GPU

{"Only a trial of the scripts, with tiny sizes: no figure here means anything. " if results["is_trial"] else ""}{machine(results)} Reproduced by `scripts/gpu/pack.sh`, `run.py` of what it packs, and `scripts/gpu/report.py`, which wrote
this page. All libraries ran each row in turns in one run, from the same operands, and what results add up to was compared.
A time is the least of the medians of chunks; calls follow each other, and a sample ends when its results are in memory.
Operands that a cache could hold are used in turns.

![workloads](gpu.svg)

{figures(results)}

## Memory

{memory_table(results)}

## Workloads

{time_table(rows.get("workloads", {}), against_torch(results))}

## Products

{product_table(results)}

## Calls

{time_table(rows.get("calls", {}))}

{host_table(rows.get("calls", {}))}

## First calls

{first_table(results)}

## Correctness

{tests(results)}

## What failed

{failures(results)}
"""


def svg(results, target):
    """How many times as fast as torch.compile each workload is, on a logarithmic axis."""
    ratios = {key: value for key, value in against_torch(results).items() if value}
    names = [key.partition(" ")[::2] for key in ratios]
    lines = [
        ("title", "opfuse beside torch.compile on a GPU"),
        ("series", "compiled"),
        ("slower", "slower"),
        ("panel", "times as fast as torch.compile"),
    ]
    for (name, what), value in zip(names, ratios.values()):
        lines += [("row", name, what), bar(0, 0, value)]
    return drawn(lines, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    parser.add_argument("--docs", type=Path, default=Path("docs/benchmarks"))
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    parser.add_argument("--target", type=Path, default=target, help="folder of the program that draws the chart")
    options = parser.parse_args()
    results = merged(options.results)
    for name, written in {"gpu.md": markdown(results), "gpu.svg": svg(results, options.target)}.items():
        if written is None:
            continue
        (options.docs / name).write_text(written)
        print(f"written: {options.docs / name}")


if __name__ == "__main__":
    main()
