"""Records calls of PyTorch's operators as golden cases (tests/golden/SCHEMA.md has the format).

    python3 scripts/record_calls.py tests/golden_science
    python3 scripts/record_calls.py tests/golden_linalg

write a folder anew. It needs torch and numpy. Calls are listed below, and for the second folder in linalg_calls.py:
operator, overload, arguments. Floating arguments get gradients where PyTorch has them; a tuple of dtypes repeats a
call.
"""

import json
import math
import struct
import sys
import zlib
from pathlib import Path

import torch

import linalg_calls

NAN, INF = math.nan, math.inf
DTYPES = {
    torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64", torch.int8: "i8",
    torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool",
}
SAFE = {"f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "i8": "I8", "i16": "I16", "i32": "I32", "i64": "I64",
        "u8": "U8", "bool": "BOOL"}
TOLERANCE = {"f64": (1e-9, 1e-10), "f32": (2e-5, 1e-6), "f16": (2e-3, 1e-4), "bf16": (1.6e-2, 1e-3)}
torch.manual_seed(20261125)


def rand(*sizes, dtype=torch.float32):
    return torch.randn(sizes, dtype=torch.float64).to(dtype)


def distinct(*sizes, dtype=torch.float32):
    """Numbers that all differ, so that indices are determined."""
    count = math.prod(sizes)
    return (torch.randperm(count) - count // 2).to(dtype).div(4 if dtype.is_floating_point else 1).to(dtype).reshape(sizes)


def ints(*sizes, low=0, high=6, dtype=torch.int64):
    return torch.randint(low, high, sizes, dtype=dtype)


def transposed(x):
    return x.transpose(-1, -2).contiguous().transpose(-1, -2)


def sliced(x):
    wide = torch.zeros([*x.shape[:-1], 2 * x.shape[-1] + 1], dtype=x.dtype)
    wide[..., 1::2] = x
    return wide[..., 1::2]


def t(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


class Store:
    def __init__(self):
        self.tensors = {}

    def put(self, key, x):
        self.tensors[key] = x.detach().contiguous().clone()

    def write(self, path):
        header, blobs, at = {}, [], 0
        for key, x in self.tensors.items():
            dense = torch.empty(x.numel(), dtype=x.dtype).copy_(x.reshape(-1))
            data = bytes(dense.view(torch.uint8).tolist())
            header[key] = {"dtype": SAFE[DTYPES[x.dtype]], "shape": list(x.shape), "data_offsets": [at, at + len(data)]}
            blobs.append(data)
            at += len(data)
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def number(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def argument(store, case, name, ty, value):
    if isinstance(value, torch.Tensor):
        key = f"{case}.in.{name}"
        base = value if value._base is None else value._base
        size = sum((n - 1) * s for n, s in zip(value.shape, value.stride())) + 1 if value.numel() else 0
        start = value.storage_offset() if value.numel() else 0
        window = torch.as_strided(base.detach(), [start + size], [1], 0)
        store.put(key, window)
        return {"name": name, "kind": "tensor", "dtype": DTYPES[value.dtype], "shape": list(value.shape),
                "stride": list(value.stride()), "offset": start, "layout": "contiguous", "key": key}
    if value is None:
        return {"name": name, "kind": "none"}
    if isinstance(value, torch.dtype):
        return {"name": name, "kind": "dtype", "value": DTYPES[value]}
    if isinstance(value, bool):
        return {"name": name, "kind": "bool", "value": value}
    if isinstance(value, str):
        return {"name": name, "kind": "str", "value": value}
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
        items = [argument(store, case, f"{name}.{at}", ty, x) for at, x in enumerate(value)]
        for item in items:
            del item["name"]
        return {"name": name, "kind": "tensor_list", "items": items}
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(x, bool) for x in value):
            return {"name": name, "kind": "bool_list", "value": list(value)}
        kind = "float_list" if any(isinstance(x, float) for x in value) else "int_list"
        return {"name": name, "kind": kind, "value": [number(x) for x in value]}
    if isinstance(value, int):
        return {"name": name, "kind": "float" if ty == "float" else "int", "value": value}
    return {"name": name, "kind": "float", "value": number(value)}


def record(store, case, op, overload, args, kwargs, options):
    call = getattr(getattr(torch.ops.aten, op), overload or "default")
    schema = call._schema
    given, rest = {}, list(args)
    for parameter in schema.arguments:
        name = parameter.name
        if rest and not parameter.kwarg_only:
            given[name] = rest.pop(0)
        else:
            given[name] = kwargs.get(name, parameter.default_value if parameter.has_default_value() else None)
            if name == "dtype" and isinstance(given[name], int):
                given[name] = torch.int64
    entry = {"id": case, "op": f"aten::{op}", "overload": overload}
    entry["args"] = [argument(store, case, p.name, str(p.type), given[p.name]) for p in schema.arguments]
    entry["tag"] = options.get("tag", "science")
    positional = [given[p.name] for p in schema.arguments if not p.kwarg_only]
    named = {p.name: given[p.name] for p in schema.arguments if p.kwarg_only}
    try:
        outputs = call(*positional, **named)
    except Exception as error:
        entry["error"] = {"kind": type(error).__name__, "message": str(error).split("\n")[0][:160]}
        entry["tag"] = "error"
        return entry
    outputs = [outputs] if not isinstance(outputs, (tuple, list)) else list(outputs)
    inputs = {name: x for name, x in given.items() if isinstance(x, torch.Tensor)}
    for name, xs in given.items():
        if isinstance(xs, (list, tuple)):
            inputs |= {f"{name}.{at}": x for at, x in enumerate(xs) if isinstance(x, torch.Tensor)}
    wide = 64 if options.get("loose") else 1
    entry["outputs"] = []
    for at, output in enumerate(outputs):
        if isinstance(output, (bool, int, float)):
            kind = {bool: "bool", int: "int", float: "float"}[type(output)]
            entry["outputs"].append({"kind": kind, "value": number(output)})
            continue
        dtype = DTYPES[output.dtype]
        rtol, atol = TOLERANCE.get(dtype, (0, 0))
        key = f"{case}.out.{at}"
        # Memory without a value is not compared.
        checked = at not in options.get("unchecked", ())
        store.put(key, output)
        shared = {}
        for name, x in inputs.items():
            if x.numel() and output.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
                shared = {"alias_of": name, "offset": output.storage_offset()}
        entry["outputs"].append(shared | {
            "kind": "tensor", "dtype": dtype, "shape": list(output.shape), "stride": list(output.stride()),
            "check": "values" if checked else "meta", "key": key, "stride_exact": False, "rtol": rtol * wide,
            "atol": atol * wide})
    gradients(store, case, entry, call, given, positional, named, wide, options)
    return entry


def gradients(store, case, entry, call, given, positional, named, wide, options):
    floating = {name: x for name, x in given.items() if isinstance(x, torch.Tensor) and x.is_floating_point()}
    if not floating or options.get("no_grad"):
        return
    leaves = {name: x.detach().clone().requires_grad_() for name, x in floating.items()}
    swap = {id(floating[name]): leaves[name] for name in leaves}
    try:
        outputs = call(*[swap.get(id(x), x) for x in positional], **{k: swap.get(id(x), x) for k, x in named.items()})
        outputs = [outputs] if not isinstance(outputs, (tuple, list)) else list(outputs)
        wanted = [(at, x) for at, x in enumerate(outputs) if isinstance(x, torch.Tensor) and x.grad_fn is not None]
        if not wanted:
            return
        cotangents = [torch.randn_like(x) for _, x in wanted]
        found = torch.autograd.grad([x for _, x in wanted], list(leaves.values()), cotangents, allow_unused=True)
    except (RuntimeError, NotImplementedError):
        # What PyTorch does not differentiate is not compared.
        return
    grads = {"cotangents": [], "inputs": []}
    for (at, _), cotangent in zip(wanted, cotangents):
        key = f"{case}.ct.{at}"
        store.put(key, cotangent)
        grads["cotangents"].append({"output": at, "key": key})
    for name, gradient in zip(leaves, found):
        if gradient is None or name in options.get("zero", ()):
            grads["inputs"].append({"name": name, "kind": "none"})
            continue
        key, dtype = f"{case}.grad.{name}", DTYPES[gradient.dtype]
        store.put(key, gradient)
        rtol, atol = TOLERANCE[dtype]
        grads["inputs"].append({"name": name, "kind": "tensor", "dtype": dtype, "shape": list(gradient.shape), "key": key,
                                "rtol": 2 * rtol * wide, "atol": 4 * atol * wide})
    entry["grads"] = grads


CALLS = []


def add(op, *args, overload="", options=None, **kwargs):
    CALLS.append((op, overload, args, kwargs, options or {}))


F = (torch.float32, torch.float64)
HALVES = (torch.float16, torch.bfloat16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def order_statistics():
    for dtype in (*F, *HALVES, *WHOLE):
        x = distinct(5, 7, dtype=dtype) if dtype.is_floating_point else ints(5, 7, high=120, dtype=dtype)
        for op in ("median", "nanmedian"):
            add(op, x)
            if dtype.is_floating_point:
                add(op, transposed(x), 0, True, overload="dim")
                add(op, sliced(x), -1, overload="dim")
        if dtype.is_floating_point:
            add("kthvalue", x, 3, 0)
            add("kthvalue", transposed(x), 7, -1, True)
        add("mode", ints(4, 9, high=4).to(dtype), 1)
        add("mode", transposed(ints(4, 9, high=4).to(dtype)), 0, True)
    # The gradient of a NaN is not compared.
    for values in ([NAN, 1, NAN, 2], [NAN, 1, NAN, 2, 3], [NAN, NAN], [3.0], [1, INF, -INF, NAN]):
        for op in ("median", "nanmedian"):
            add(op, t(values), 0, overload="dim")
            add(op, t(values), options={"no_grad": True})
        # How PyTorch's mode sorts a NaN depends on where it stands.
        if not math.isnan(values[0]) or all(math.isnan(x) for x in values):
            add("mode", t(values))
        for q in (0.0, 0.3, 1.0):
            add("quantile", t(values), q, overload="scalar", options={"no_grad": True})
            add("nanquantile", t(values), q, overload="scalar", options={"no_grad": True})
    add("mode", t([3, 1, 2, 1, 2, 3, 0]))
    add("median", t([2.0, 2, 2, 1]))
    add("median", t(3.0), 0, overload="dim")
    add("kthvalue", t(3.0), 1)
    add("median", torch.zeros(0), options={"no_grad": True})
    for op in ("median", "nanmedian"):
        add(op, torch.zeros(0, 3), 0, overload="dim")
        add(op, torch.zeros(0, 3), 1, overload="dim")
        add(op, t([True, False], torch.bool))
    add("mode", torch.zeros(0, 3), 1)
    add("mode", torch.zeros(3, 0), 1)
    add("kthvalue", t([3.0, 1]), 0)
    add("kthvalue", t([3.0, 1]), 3)
    for dtype in F:
        x = distinct(4, 6, dtype=dtype)
        for way in ("linear", "lower", "higher", "midpoint", "nearest"):
            for op in ("quantile", "nanquantile"):
                add(op, x, t([0.0, 0.3, 0.5, 1.0], dtype), 1, interpolation=way)
                add(op, transposed(x), 0.25, 0, True, overload="scalar", interpolation=way)
        add("quantile", x, 0.4, overload="scalar")
        add("quantile", sliced(x), t([0.1, 0.9], dtype), None, True)
    holes = distinct(3, 8)
    holes[0, 2] = holes[1, :] = NAN
    add("nanquantile", holes, t([0.0, 0.6, 1.0]), -1, options={"no_grad": True})
    add("quantile", holes, t([0.0, 0.6, 1.0]), 0, options={"no_grad": True})
    add("quantile", t(2.0), t([0.5, 0.2]), None, True)
    add("quantile", rand(4).half(), 0.5, overload="scalar")
    add("quantile", rand(4), 1.5, overload="scalar")
    add("quantile", rand(4), t(0.5, torch.float64))
    add("quantile", rand(4), rand(1, 1))
    add("quantile", torch.zeros(0), 0.5, overload="scalar")
    add("quantile", rand(4), 0.5, overload="scalar", interpolation="other")


def searching():
    for dtype in (*F, torch.float16, *WHOLE):
        line = ints(9, high=9).sort().values.to(dtype)
        for right in (False, True):
            add("searchsorted", line, ints(3, 5, low=-1 if dtype.is_signed else 0, high=11).to(dtype), overload="Tensor", right=right)
            add("bucketize", transposed(ints(3, 5, high=11).to(dtype)), line, overload="Tensor", right=right)
    lines = rand(3, 6).sort().values
    add("searchsorted", lines, rand(3, 4), overload="Tensor")
    add("searchsorted", transposed(lines), sliced(rand(3, 4)), overload="Tensor", side="right", out_int32=True)
    add("searchsorted", t([1.0, 3, 5, INF]), t([0.0, 1, 2, NAN, 6, INF, -INF, -0.0]), overload="Tensor", right=True)
    add("searchsorted", t([-0.0, 0.0, 1.0]), t([0.0, -0.0]), overload="Tensor")
    add("searchsorted", torch.zeros(0), rand(3), overload="Tensor")
    add("searchsorted", rand(3), torch.zeros(0), overload="Tensor")
    add("searchsorted", t([3, 1, 2]), t([2]), overload="Tensor", sorter=t([1, 2, 0], torch.int64))
    add("searchsorted", t([1.0, 3, 5]), 3, overload="Scalar")
    add("bucketize", 2, t([1.0, 3, 5]), overload="Scalar")
    far = torch.iinfo(torch.int64)
    add("searchsorted", t([far.min, -1, far.max], torch.int64), t([far.min, far.max, 0], torch.int64), overload="Tensor")
    add("searchsorted", rand(2, 3), rand(3, 3), overload="Tensor")
    add("searchsorted", rand(3), rand(3), overload="Tensor", side="up")
    add("searchsorted", rand(3), rand(3), overload="Tensor", side="left", right=True)
    add("searchsorted", t(3.0), rand(3), overload="Tensor")
    add("bucketize", rand(3), rand(2, 2), overload="Tensor")
    for dtype in (torch.float32, torch.int64, torch.uint8):
        for size in (0, 3, 40):
            for invert in (False, True):
                add("isin", ints(4, 7, high=50).to(dtype), ints(size, high=50).to(dtype), overload="Tensor_Tensor", invert=invert)
    add("isin", t([1, 2, NAN]), t([2, NAN]), overload="Tensor_Tensor")
    add("isin", ints(4, 3), 2, overload="Tensor_Scalar")
    add("isin", 2, ints(4, 3), overload="Scalar_Tensor")


def uniques():
    flags = dict(return_inverse=True, return_counts=True)
    for dtype in (*F, torch.bfloat16, *WHOLE, torch.bool):
        x = ints(4, 5, high=5).to(dtype)
        add("_unique2", x, True, True, True, options={"no_grad": True})
        add("_unique2", transposed(x), options={"no_grad": True})
        if dtype not in HALVES:
            add("unique_dim", ints(6, 2, high=2).to(dtype), 0, True, True, True, options={"no_grad": True})
            add("unique_dim", ints(2, 6, high=2).to(dtype), 1, options={"no_grad": True})
        add("unique_consecutive", ints(12, high=2).to(dtype), True, True, options={"no_grad": True})
    add("unique_consecutive", ints(6, 2, high=2), True, True, 0)
    add("unique_dim_consecutive", ints(6, 2, high=2), 0, True, True)
    add("unique_consecutive", t([2, 2, 1, 1, 2]), options={"no_grad": True})
    add("_unique2", t([2.0, NAN, 1, NAN, 2, INF, -INF]), True, True, True, options={"no_grad": True})
    add("_unique2", t(3, torch.int64), True, True, True)
    add("_unique2", torch.zeros(0, 3, dtype=torch.int64), True, True, True)
    add("unique_dim", torch.zeros(0, 2, dtype=torch.int64), 0, True, True, True)
    add("unique_dim", torch.zeros(2, 0, dtype=torch.int64), 0)
    add("_unique", ints(9, high=4), True, True)


def histograms():
    for dtype in WHOLE:
        add("bincount", ints(20, high=7, dtype=dtype))
        add("bincount", ints(20, high=7, dtype=dtype), rand(20, dtype=torch.float64), 9, options={"no_grad": True})
    add("bincount", t([1, 1, 3], torch.int64), t([1, 2, 3], torch.int64))
    add("bincount", t([1, 1, 3], torch.int64), t([1, 2, 3]), options={"no_grad": True})
    add("bincount", torch.zeros(0, dtype=torch.int64), None, 3)
    for bad in (t([1.0]), t([-1], torch.int64), t([[1]], torch.int64), t([True], torch.bool)):
        add("bincount", bad)
    for dtype in (*F, *HALVES):
        add("histc", (rand(5, 7) * 2).to(dtype), 6, -2, 3, options={"no_grad": True})
        add("histc", ints(5, 7).to(dtype), 5, options={"no_grad": True})
    for values, bins, low, high in (([1, 2, 1, NAN, 5], 4, 0, 3), ([1.0, 1], 3, 0, 0), ([], 3, 0, 0), ([1.0], 0, 0, 0),
                                    ([1.0], 3, 5, 2), ([1.0], 3, 0.0, INF), ([1, NAN], 4, 0, 0)):
        add("histc", t(values), bins, low, high, options={"no_grad": True})
    add("histc", ints(3), 4)
    for dtype in F:
        edges = t([-2.0, -1, 0, 0.5, 3], dtype)
        add("histogram", rand(4, 9, dtype=dtype), edges, overload="bins_tensor", options={"no_grad": True})
        add("histogram", rand(20, dtype=dtype), edges, overload="bins_tensor", weight=rand(20, dtype=dtype), density=True, options={"no_grad": True})
        add("histogram", rand(30, dtype=dtype), 7, overload="bin_ct", range=[-1.5, 2.0], options={"no_grad": True})
        add("histogram", rand(30, dtype=dtype), 4, overload="bin_ct", density=True, options={"no_grad": True})
    lengths = t([2, 0, 4], torch.int64)
    for reduce in ("sum", "mean", "max", "min", "prod"):
        for dtype in F:
            add("segment_reduce", distinct(6, dtype=dtype) + 5, reduce, lengths=lengths)
            add("segment_reduce", distinct(6, 2, dtype=dtype) + 5, reduce, lengths=lengths, initial=1)
        add("segment_reduce", distinct(2, 3) + 5, reduce, lengths=t([[1, 2], [0, 3]], torch.int64), axis=1)
        add("segment_reduce", distinct(6) + 5, reduce, offsets=t([0, 2, 2, 6], torch.int64))
    add("segment_reduce", distinct(6), "sum", lengths=t([2, 0, 3], torch.int64))
    add("segment_reduce", distinct(6), "sum")
    add("segment_reduce", distinct(6), "other", lengths=lengths)


def matrices():
    for dtype in (*F, torch.int64):
        make = (lambda *s: rand(*s, dtype=dtype)) if dtype.is_floating_point else (lambda *s: ints(*s))
        add("kron", make(2, 3), make(3, 2))
        add("kron", make(2), make(2, 1, 3))
        add("linalg_cross", make(4, 3), make(1, 3))
        add("linalg_cross", transposed(make(3, 2)), make(3, 2), dim=0)
        add("cross", make(2, 3), make(2, 3))
        add("cross", make(3, 4), make(3, 4), 0)
        add("trace", make(3, 4))
        add("trace", transposed(make(4, 3)))
        add("cov", make(3, 6))
        add("cov", make(5))
        add("corrcoef", make(3, 6), options={"loose": True})
    add("kron", t(2.0), rand(2, 2))
    add("kron", rand(0, 2), rand(2, 2))
    add("trace", rand(3, 3).half(), options={"no_grad": True})
    add("trace", rand(0, 3))
    for bad in ((rand(4, 2), rand(4, 2)), (rand(4, 3), rand(3)), (rand(4, 3), rand(3, 3))):
        add("linalg_cross", *bad)
    add("cross", rand(4, 2), rand(4, 2))
    add("trace", rand(3))
    for op in ("tril_indices", "triu_indices"):
        for rows, columns, offset in ((3, 4, 0), (4, 3, 1), (3, 4, -1), (2, 2, 9), (2, 2, -9), (0, 3, 0), (3, 0, 1)):
            add(op, rows, columns, offset)
        add(op, 3, 3, dtype=torch.int32)
        add(op, 3, 3, dtype=torch.float32)
        add(op, -1, 3)
    add("cov", rand(3, 6), correction=0, fweights=ints(6, low=1), aweights=rand(6).abs())
    add("cov", rand(3, 6), fweights=ints(6, low=1))
    add("cov", rand(3, 6), aweights=rand(6).abs())
    add("cov", rand(2, 2, 2))
    add("corrcoef", rand(6))
    for p in (2.0, 1.0, 0.0, 3.5, INF):
        for dtype in F:
            add("cdist", rand(5, 3, dtype=dtype), rand(4, 3, dtype=dtype), p)
    add("cdist", rand(2, 1, 5, 3), transposed(rand(3, 4, 3)))
    add("cdist", rand(30, 3), rand(4, 3), options={"loose": True})
    same = rand(4, 3)
    add("cdist", same, same.clone())
    add("cdist", rand(2, 0), rand(3, 0))
    add("cdist", rand(0, 2), rand(3, 2))
    for bad in ((rand(3, 2), rand(2)), (rand(3, 2), rand(3, 3)), (ints(3, 2), ints(3, 2))):
        add("cdist", *bad)
    add("cdist", rand(3, 2), rand(3, 2), -1.0)
    holes = rand(4, 5)
    holes[0, 1] = holes[2] = NAN
    for dims in (None, [0], [1], [0, 1]):
        add("nanmean", holes, dims, options={"no_grad": True})
        add("nanmean", rand(4, 5, dtype=torch.float64), dims, True)
    add("nanmean", holes.half(), dtype=torch.float32, options={"no_grad": True})
    add("nanmean", ints(3))


def grids():
    for dtype in F:
        image = rand(2, 3, 4, 5, dtype=dtype)
        grid = torch.rand(2, 3, 3, 2, dtype=torch.float64).mul(2.8).sub(1.4).to(dtype)
        for mode in (0, 1, 2):
            for padding in (0, 1, 2):
                for corners in (True, False):
                    # Nearest pixels have no slope; PyTorch says zeros, we say none.
                    options = {"loose": True, "zero": ("grid",) if mode == 1 else ()}
                    add("grid_sampler_2d", image, grid, mode, padding, corners, options=options)
    add("grid_sampler_2d", rand(1, 1, 1, 1), rand(1, 2, 2, 2), 0, 2, True, options={"no_grad": True})
    add("grid_sampler", transposed(rand(1, 2, 4, 4)), sliced(rand(1, 2, 2, 2)), 0, 0, False, options={"loose": True})
    for bad in ((rand(1, 1, 2, 2), rand(2, 2, 2, 2)), (rand(1, 2, 2), rand(1, 2, 2, 2)), (rand(1, 1, 2, 2), rand(1, 2, 2, 3))):
        add("grid_sampler_2d", *bad, 0, 0, True)
    for dtype in (*F, *HALVES):
        x = rand(2, 3, 5, 6, dtype=dtype)
        # PyTorch adds gradients of halves up in halves.
        options = {"no_grad": dtype in HALVES}
        add("im2col", x, [2, 3], [1, 1], [0, 0], [1, 1], options=options)
        add("im2col", transposed(x), [2, 2], [2, 1], [1, 2], [2, 3], options=options)
    for dtype in F:
        add("col2im", rand(2, 12, 12, dtype=dtype), [4, 5], [2, 2], [1, 1], [0, 0], [1, 1])
        add("col2im", transposed(rand(12, 20, dtype=dtype)), [4, 5], [2, 2], [2, 1], [2, 1], [1, 2])
    add("im2col", rand(3, 5, 5), [3, 3], [1, 1], [1, 1], [2, 2])
    add("im2col", rand(1, 1, 2, 2), [3, 3], [1, 1], [0, 0], [1, 1])
    add("col2im", rand(4, 5), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1])
    for dtype in (*F, *HALVES):
        x = distinct(2, 3, 5, 7, dtype=dtype)
        for size in ([2, 3], [1, 1], [5, 7], [7, 9]):
            add("adaptive_max_pool2d", x, size, options={"no_grad": dtype in HALVES})
        add("adaptive_max_pool1d", distinct(2, 3, 7, dtype=dtype), [3])
    add("adaptive_max_pool2d", transposed(distinct(3, 4, 4)), [2, 2])
    add("adaptive_max_pool2d", ints(1, 2, 2), [1, 1])
    add("adaptive_max_pool2d", rand(3, 3), [1, 1])


def closeness():
    x = t([1.0, 2, NAN, INF])
    for nan in (False, True):
        add("allclose", x, x.clone(), 1e-5, 1e-8, nan)
    add("allclose", t([1.0, 2]), t([1.0, 2.00001]))
    add("allclose", t([1.0, 2]), t([1.0, 2.1]))
    add("allclose", ints(3), rand(3))


def decomposed():
    """What programs of torch.export contain after their decomposition."""
    flash = "_scaled_dot_product_flash_attention_for_cpu"
    for dtype in (*F, *HALVES):
        q, k, v = rand(2, 3, 5, 8, dtype=dtype), rand(2, 3, 7, 8, dtype=dtype), rand(2, 3, 7, 8, dtype=dtype)
        # PyTorch rounds the gradients of halves more often.
        options = {"no_grad": dtype in HALVES, "loose": True}
        add(flash, q, k, v, options=options)
        add(flash, q, rand(2, 3, 5, 8, dtype=dtype), rand(2, 3, 5, 8, dtype=dtype), 0.0, True, options=options)
        add(flash, q.transpose(1, 2).contiguous().transpose(1, 2), k, v, scale=0.3, options=options)
        add(flash, q, k, v, attn_mask=rand(2, 1, 5, 7, dtype=dtype), options=options)
    for causal, mask in ((False, None), (True, None), (False, rand(1, 1, 5, 5))):
        for dtype in F:
            q, k, v, g = (rand(2, 3, 5, 8, dtype=dtype) for _ in range(4))
            mask_of = None if mask is None else mask.to(dtype)
            y, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=mask_of)
            add(flash + "_backward", g, q, k, v, y, sums, 0.0, causal, attn_mask=mask_of,
                options={"no_grad": True, "loose": True})
    add(flash, rand(3, 5, 8), rand(3, 5, 8), rand(3, 5, 8))
    for dtype in F:
        x, weight = rand(2, 6, 4, 5, dtype=dtype), rand(6, dtype=dtype)
        for groups in (1, 3, 6):
            _, mean, rstd = torch.ops.aten.native_group_norm(x, weight, None, 2, 6, 20, groups, 1e-5)
            add("native_group_norm_backward", rand(2, 6, 4, 5, dtype=dtype), x, mean, rstd, weight, 2, 6, 20, groups,
                [True, True, True], options={"no_grad": True, "loose": True})
    x = rand(3, 4)
    # PyTorch 2.15 gives the tensor itself the gradient of what was replaced.
    options = {"no_grad": True}
    add("as_strided_scatter", x, rand(2, 3), [2, 3], [4, 1], options=options)
    add("as_strided_scatter", x, rand(2, 2), [2, 2], [1, 3], 2, options=options)
    add("as_strided_scatter", transposed(x), rand(2, 3), [2, 3], [4, 1], options=options)
    add("as_strided_scatter", t(1.0), t(2.0), [], [], options=options)
    add("as_strided_scatter", x, rand(3, 3), [2, 3], [4, 1])
    add("as_strided_scatter", x, rand(4, 3), [4, 3], [4, 1])


def windows():
    for op in ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"):
        for length in (0, 1, 2, 7, 16):
            add(op, length)
            add(op, length, False, overload="periodic")
        add(op, 9, True, overload="periodic", dtype=torch.float64)
        add(op, -1)
    add("hamming_window", 8, True, 0.6, overload="periodic_alpha")
    add("hamming_window", 8, False, 0.6, 0.3, overload="periodic_alpha_beta")
    add("kaiser_window", 8, False, 5.0, overload="beta")
    for steps in (0, 1, 5):
        add("logspace", -1, 2, steps)
        add("logspace", 0, 3, steps, 2.0, dtype=torch.float64)


def samples():
    y, x = rand(4, 6), rand(6).sort().values
    for op in ("trapezoid", "trapz", "cumulative_trapezoid"):
        add(op, y, overload="dx")
        add(op, transposed(y), dx=0.5, dim=0, overload="dx")
        add(op, y, x, overload="x")
        add(op, y, rand(4, 6), dim=0, overload="x")
        add(op, y[:, :1], overload="dx")
        add(op, y, rand(5), overload="x")
    for order in (1, 2):
        add("gradient", y, spacing=0.5, dim=1, edge_order=order, overload="scalarint")
        add("gradient", transposed(y), edge_order=order, overload="scalarint")
        add("gradient", y, dim=[1, 0], edge_order=order, overload="array")
        add("gradient", y, spacing=2.0, dim=[0], edge_order=order, overload="scalararray")
    add("gradient", y[:1], dim=0, overload="scalarint")


def arranged():
    line, pair = rand(3), rand(2)
    add("block_diag", [rand(2, 3), rand(2), t(5.0), rand(1, 2)])
    add("block_diag", [ints(2, 2), rand(1, 1)])
    add("cartesian_prod", [line, pair])
    add("cartesian_prod", [line])
    add("cartesian_prod", [line, pair, rand(2)])
    for r in (1, 2, 3, 4):
        add("combinations", line, r)
        add("combinations", line, r, True)
    add("vander", line)
    add("vander", line, 4, True)
    add("vander", ints(3), 3)
    add("linalg_vander", rand(2, 3), N=4)
    for op in ("hstack", "vstack", "dstack", "column_stack"):
        add(op, [line, rand(3)])
        add(op, [rand(3, 2), rand(3, 2)])
        add(op, [t(1.0), t(2.0)])
        add(op, [rand(2, 2, 3), rand(2, 2, 3)])
    add("row_stack", [line, rand(3)])
    for op in ("atleast_1d", "atleast_2d", "atleast_3d"):
        for x in (t(1.0), line, rand(2, 3), rand(2, 3, 4), rand(1, 2, 3, 4)):
            add(op, x)
    for op, x in (("hsplit", rand(6)), ("hsplit", rand(2, 6)), ("vsplit", rand(6, 2)), ("dsplit", rand(1, 2, 6))):
        add(op, x, 3, overload="int")
        add(op, x, [1, 4], overload="array")
        add(op, x, 4, overload="int")
    add("pad_sequence", [rand(3, 2), rand(1, 2), rand(2, 2)])
    add("pad_sequence", [rand(3), rand(1)], True, 7.0)
    add("diagflat", rand(2, 2), 1)
    add("fliplr", rand(2, 3))
    add("flipud", rand(2))
    add("fliplr", rand(2))
    add("sum_to_size", rand(2, 3, 4), [3, 1])
    add("sum_to_size", rand(2, 3), [2, 3])
    add("sum_to_size", rand(2, 3), [2])
    add("msort", rand(4, 3))
    add("equal", t([1.0, 2]), t([1.0, 2]))
    add("equal", t([1.0, 2]), t([1.0, 3]))
    add("equal", t([1.0, 2]), t([1.0]))


def contracted():
    for dtype in F:
        def make(*sizes):
            return rand(*sizes, dtype=dtype)

        add("tensordot", make(2, 3, 4), make(4, 3, 5), [1, 2], [1, 0])
        add("tensordot", make(2, 3), make(4, 5), [], [])
        add("tensordot", make(2, 3, 1), make(4, 5), [2], [0])
        add("bilinear", make(4, 3), make(4, 2), make(5, 3, 2), make(5))
        add("bilinear", make(2, 4, 3), make(2, 4, 2), make(5, 3, 2))
        add("linalg_multi_dot", [make(3), make(3, 4), make(4, 2), make(2)])
        add("linalg_multi_dot", [make(5, 3), make(3, 7), make(7, 2)])
        add("chain_matmul", [make(2, 3), make(3, 4)])
        add("addbmm", make(3, 5), make(2, 3, 4), make(2, 4, 5), beta=0.5, alpha=2)
        add("addr", make(3, 4), make(3), make(4), beta=2, alpha=0.5)
        add("inner", make(2, 3), make(4, 3))
        add("inner", make(3), make(3))
        add("linalg_vecdot", make(2, 3), make(2, 3), dim=0)
        for n in (0, 1, 2, 5):
            add("matrix_power", make(2, 3, 3), n, options={"loose": True, "no_grad": n == 0})
        for order in (1.0, -1.0, INF, -INF):
            add("linalg_matrix_norm", make(2, 3, 4), order, [0, 2])
        add("linalg_matrix_norm", make(3, 4), overload="str_ord", keepdim=True)
        add("linalg_norm", make(3, 4))
        add("linalg_norm", make(3, 4), 1.0)
        add("linalg_norm", make(3, 4), 3.0, [1], True)
        add("linalg_norm", make(3, 4), "fro", overload="ord_str")
        add("frobenius_norm", make(3, 4), [0], overload="dim")
        add("renorm", make(3, 4), 2.0, 0, 1.0)
        add("renorm", make(3, 4, 2), 1.0, 1, 0.5)
        add("pdist", make(5, 3))
        add("pdist", make(4, 3), 1.0)
        add("_cdist_forward", make(4, 3), make(5, 3), 2.0, None, options={"no_grad": True})
    add("tensordot", rand(2, 3), rand(4, 5), [0], [0])
    add("inner", rand(2, 3), rand(2))
    add("matrix_power", rand(2, 3), 2)


def formulas():
    for dtype in F:
        x = rand(3, 5, dtype=dtype)
        add("mvlgamma", x.abs() + 3, 3, options={"loose": True})
        add("special_xlog1py", x, x.abs(), options={"loose": True})
        add("special_xlog1py", x, 2, overload="other_scalar")
        add("special_xlog1py", 2, x.abs(), overload="self_scalar")
        add("special_ndtri", torch.sigmoid(x), options={"loose": True})
        add("special_log_ndtr", x * 8, options={"loose": True})
        add("special_round", x, decimals=1, options={"no_grad": True})
        add("special_softmax", x, 1)
        add("special_log_softmax", x, 0)
        add("angle", x)
        add("isreal", x)
        add("log_sigmoid_forward", x)
        add("nll_loss", x, ints(3, high=5))
        add("nll_loss2d", rand(2, 5, 3, 4, dtype=dtype), ints(2, 3, 4, high=5))
        targets = t([[1, 3, -1, 0, 2], [-1, 0, 0, 0, 0], [4, 0, 1, 2, 3]], torch.int64)
        for reduction in (0, 1, 2):
            add("multilabel_margin_loss", x, targets, reduction)
        add("multilabel_margin_loss", x[0].clone(), targets[0].clone())
        for reduce in ("prod", "mean", "amax", "amin"):
            add("index_reduce", x, 1, ints(4, high=5), distinct(3, 4, dtype=dtype), reduce, options={"no_grad": True})
            add("index_reduce", x, 0, ints(2, high=3), distinct(2, 5, dtype=dtype), reduce, include_self=False,
                options={"no_grad": True})
        for op in ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"):
            image = rand(1, 2, 9, 7, dtype=dtype)
            add(op, image, [4, 5], False, options={"loose": True})
            add(op, image, [12, 3], True, options={"loose": True})
            add(op, image, [5, 5], False, 0.5, 0.7, options={"loose": True})
            add(op, image, None, False, [0.5, 1.5], overload="vec", options={"loose": True})
    # In f64 PyTorch computes with a scale of f32.
    add("fake_quantize_per_tensor_affine_cachemask", rand(3, 5), 0.05, 3, -20, 20, options={"no_grad": True})
    add("special_xlog1py", t([0.0, 0, 1]), t([NAN, INF, -1]), options={"no_grad": True})
    add("angle", t([-0.0, NAN, -INF, 3]), options={"no_grad": True})
    for op in ("absolute", "arcsin", "fix", "negative", "special_erf", "special_expm1", "special_gammaln", "special_psi"):
        add(op, torch.sigmoid(rand(5)), options={"loose": True})
    add("multiply", rand(3), rand(3), overload="Tensor")
    add("divide", rand(3), ints(3, low=1), overload="Tensor_mode", rounding_mode="floor")
    add("clip", rand(5), -0.5, 0.5)
    add("greater", ints(5), 2, overload="Scalar")
    add("special_xlogy", rand(3), rand(3).abs())


def pools_of_volumes():
    for dtype in (*F, *HALVES):
        # PyTorch adds gradients of halves up in halves.
        options = {"no_grad": dtype in HALVES}
        x, small = distinct(1, 3, 5, 4, 6, dtype=dtype), distinct(2, 4, 3, 5, dtype=dtype)
        for op in ("max_pool3d", "max_pool3d_with_indices"):
            add(op, x, [2, 2, 2], options=options)
            add(op, x, [2], options=options)
            add(op, x, [3, 2, 3], [2, 1, 2], [1, 1, 1], options=options)
            add(op, small, [2, 1, 2], [1, 2, 3], [0, 0, 1], [2, 1, 3], options=options)
            add(op, small, [3, 2, 3], [2, 2, 2], [1, 0, 1], [1, 1, 1], True, options=options)
    # PyTorch has no means of halves over three dims on the CPU.
    for dtype in F:
        x, small = rand(1, 3, 5, 4, 6, dtype=dtype), rand(2, 4, 3, 5, dtype=dtype)
        for inside in (True, False):
            add("avg_pool3d", x, [2, 2, 2], [], [1, 0, 1], False, inside)
            add("avg_pool3d", small, [3, 2, 3], [2, 2, 2], [1, 1, 1], True, inside)
            add("avg_pool3d", small, [2, 1, 2], [1, 1, 1], [0], True, inside, 3)
        add("avg_pool3d", x, [2])
        add("avg_pool3d", x, [1, 2, 2], [2], 0, False, True, -2)
    holes = rand(1, 2, 3, 3, 4)
    holes[0, 0, 1, 1, 1] = holes[0, 1, 0] = NAN
    holes[0, 1, 2] = -INF
    one = rand(1, 1, 1, 1, 1)
    for op in ("max_pool3d", "max_pool3d_with_indices", "avg_pool3d"):
        add(op, holes, [2, 2, 2], [1, 1, 1], options={"no_grad": True})
        add(op, one, [1, 1, 1])
        # PyTorch takes means of no window that is larger than the input.
        if op != "avg_pool3d":
            add(op, one, [3, 3, 3], [1, 1, 1], [1, 1, 1])
        add(op, transposed(rand(2, 3, 4, 4)), [2, 2, 3])
        add(op, sliced(rand(2, 2, 3, 4, 3)), [2, 3, 2], [1, 1, 1])
        for bad in ((rand(3, 4, 4), [2]), (one, [2, 2, 2]), (one, [2, 2]), (one, [0]), (one, [1], [0])):
            add(op, *bad)
        add(op, rand(1, 1, 4, 4, 4), [2], [2], [2])
    add("avg_pool3d", rand(1, 1, 2, 2, 2), [2], [2], 0, False, True, 0)
    for dtype in F:
        x, options = distinct(2, 3, 4, 5, 4, dtype=dtype), {"no_grad": True}
        places = torch.ops.aten.max_pool3d_with_indices(x, [2, 3, 2], [1, 2, 2], [1, 1, 0], [2, 1, 1], True)[1]
        add("max_pool3d_with_indices_backward", rand(*places.shape, dtype=dtype), x, [2, 3, 2], [1, 2, 2], [1, 1, 0],
            [2, 1, 1], True, places, options=options)
        for inside, divisor in ((True, None), (False, None), (False, 5)):
            sizes = torch.ops.aten.avg_pool3d(x, [2, 3, 2], [1, 2, 2], [1, 1, 0], True, inside, divisor).shape
            add("avg_pool3d_backward", rand(*sizes, dtype=dtype), x, [2, 3, 2], [1, 2, 2], [1, 1, 0], True, inside,
                divisor, options=options)


def adaptive_pools_of_volumes():
    for dtype in (*F, *HALVES):
        options = {"no_grad": dtype in HALVES}
        for sizes in ([2, 3, 2], [1, 1, 1], [3, 4, 5], [4, 2, 7]):
            add("adaptive_max_pool3d", distinct(2, 2, 3, 4, 5, dtype=dtype), sizes, options=options)
    holes = rand(1, 2, 3, 3, 4)
    holes[0, 0, 1, 1, 1] = holes[0, 1, 0] = NAN
    holes[0, 1, 2] = -INF
    add("adaptive_max_pool3d", holes, [2, 2, 3])
    add("adaptive_max_pool3d", transposed(distinct(2, 3, 4, 4)), [2, 1, 3])
    add("adaptive_max_pool3d", sliced(distinct(1, 2, 2, 3, 4)), [1, 2, 3])
    add("adaptive_max_pool3d", rand(1, 2, 3, 3, 3), [2, 0, 2])
    for bad in ((ints(1, 2, 2, 2), [1, 1, 1]), (rand(3, 3, 3), [1, 1, 1]), (rand(1, 2, 2, 2), [1, 1]),
                (rand(1, 2, 0, 2), [1, 1, 1]), (rand(1, 2, 2, 2), [1, -1, 1])):
        add("adaptive_max_pool3d", *bad)
    # The last NaN of a window is taken, by pools of fewer dims too.
    add("adaptive_max_pool2d", holes[0, :, 0], [2, 3])
    add("adaptive_max_pool1d", holes[0, :, 1, 1], [2])


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*"):
        if old.suffix in (".json", ".safetensors"):
            old.unlink()
    if folder.name == "golden_linalg":
        linalg_calls.calls(add, rand, t, transposed, sliced)
    else:
        science()
    write(folder)


def science():
    for subject in (order_statistics, searching, uniques, histograms, matrices, grids, closeness, decomposed, windows, samples, arranged,
                    contracted, formulas, pools_of_volumes, adaptive_pools_of_volumes):
        subject()


def write(folder):
    by_op = {}
    for op, overload, args, kwargs, options in CALLS:
        by_op.setdefault(op, []).append((overload, args, kwargs, options))
    manifest = {"format": "golden-1", "reference": f"torch {torch.__version__.split('+')[0]}, cpu", "seed": 20261125}
    ops = {}
    for op, calls in sorted(by_op.items()):
        # Each operator draws cotangents of its own, so that calls of another do not change its file.
        torch.manual_seed(zlib.crc32(op.encode()))
        store, cases = Store(), []
        for number, (overload, args, kwargs, options) in enumerate(calls):
            cases.append(record(store, f"{op}/{number:04}", op, overload, args, kwargs, options))
        files = [f"{op}.json", f"{op}.safetensors"]
        text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        (folder / files[0]).write_text(f"[\n{text}\n]\n")
        store.write(folder / files[1])
        ops[op] = {"tier": "T1", "cases": len(cases), "with_grads": sum("grads" in case for case in cases),
                   "errors": sum("error" in case for case in cases), "tensors": len(store.tensors), "files": files}
    for field in ("cases", "with_grads", "errors"):
        manifest[field] = sum(entry[field] for entry in ops.values())
    manifest.update(operators=len(ops), extra=[], tiers={"T1": len(ops)}, ops=ops)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print({field: manifest[field] for field in ("operators", "cases", "with_grads", "errors")})


torch.set_num_threads(1)
main()
