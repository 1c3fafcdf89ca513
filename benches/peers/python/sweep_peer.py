"""PyTorch on single operators: reads calls as `benches/peers/src/sweep` does, and makes the same operands.

A call is `NAME(ARG,…,KEY=ARG)` and runs as `torch.ops.aten.NAME.OVERLOAD`. With `grad:` before it, a backward pass from
gradients of ones follows. `text.rs` explains the grammar.
"""

import functools
import re

import worker  # first: it says how many threads there are

import numpy as np  # noqa: E402
import torch  # noqa: E402
from rows import Operand  # noqa: E402

torch.set_num_threads(worker.OPTIONS.threads)

DTYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "bool": torch.bool,
    "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
}  # fmt: skip
FORMATS = {
    "channels_last": torch.channels_last,
    "contiguous_format": torch.contiguous_format,
    "preserve_format": torch.preserve_format,
}
WORDS = {"None": None, "True": True, "False": False, **DTYPES, **FORMATS}
TENSOR = re.compile(r"(\w+)\[([\d,]*)\]((?::[-\w.]+)*)")
KEY, TEXT, WORD = re.compile(r"(\w+)="), re.compile(r'"([^"]*)"'), re.compile(r"[^,)\]]+")


class Reader:
    """What is left of a text, and the tensors that were made."""

    def __init__(self, text):
        self.rest, self.tensors, self.leaves = text, [], []

    def takes(self, what):
        found = self.rest.startswith(what)
        self.rest = self.rest[len(what) :] if found else self.rest
        return found

    def matches(self, pattern):
        found = pattern.match(self.rest)
        self.rest = self.rest[found.end() :] if found else self.rest
        return found

    def arguments(self):
        positional, named = [], {}
        while not self.takes(")"):
            if key := self.matches(KEY):
                named[key[1]] = self.argument()
            else:
                positional.append(self.argument())
            self.takes(",")
        return positional, named

    def argument(self):
        if found := self.matches(TENSOR):
            return self.tensor(*found.groups())
        if self.takes("["):
            items = []
            while not self.takes("]"):
                items.append(self.argument())
                self.takes(",")
            return items
        if found := self.matches(TEXT):
            return found[1]
        word = self.matches(WORD)[0]
        if word in WORDS:
            return WORDS[word]
        return int(word) if re.fullmatch(r"-?\d+", word) else float(word)

    def tensor(self, dtype, sizes, words):
        sizes, words = [int(size) for size in sizes.split(",") if size], words.split(":")[1:]
        spread = next((tuple(map(float, word.split(".."))) for word in words if ".." in word), None)
        tensor = laid_out(len(self.tensors) + 1, dtype, sizes, spread, words)
        self.tensors.append(tensor)
        if tensor.is_floating_point() and "n" not in words:
            self.leaves.append(tensor)
        return tensor


def laid_out(number, dtype, sizes, spread, words):
    def stored(*sizes):
        # A copy: the elements are kept for other calls, and this one may write.
        return torch.tensor(elements(number, dtype, sizes, spread, tuple(words)), dtype=DTYPES[dtype])

    *outer, last = sizes or [1]
    if "t" in words:
        return stored(*outer[:-1], last, outer[-1]).transpose(-2, -1)
    if "s" in words:
        return stored(*outer, 2 * last)[..., ::2]
    if "w" in words:
        return stored(*outer, last + 8)[..., 1 : last + 1]
    if "b" in words:
        return stored(1, *sizes[1:]).expand(sizes)
    if "cl" in words:
        order = [0, len(sizes) - 1, *range(1, len(sizes) - 1)]
        return stored(sizes[0], *sizes[2:], sizes[1]).permute(order)
    return stored(*sizes)


@functools.lru_cache(maxsize=12)
def elements(number, dtype, sizes, spread, words):
    """An array of f32, or of f64 for whole numbers."""
    count = int(np.prod(sizes))
    if "perm" in words:
        return (np.arange(count) * 7919 % count).astype(np.float64).reshape(sizes)
    if "sorted" in words:
        return (np.arange(count) % sizes[-1] / sizes[-1]).reshape(sizes)
    if DTYPES[dtype].is_floating_point:
        low, high = spread or (-1.0, 1.0)
        return uniform(number, count, low, high).reshape(sizes)
    low, high = spread or {"bool": (0.0, 2.0), "u8": (0.0, 200.0)}.get(dtype, (-100.0, 100.0))
    unit = uniform(number, count, 0.0, 1.0).astype(np.float64)
    return np.floor(low + (high - low) * unit).reshape(sizes)


def uniform(number, count, low, high):
    return Operand((count,), low, high).made(number)


def flat(outputs):
    """The tensors among results; numbers become tensors."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, (tuple, list)):
        return [tensor for output in outputs for tensor in flat(output)]
    return [] if outputs is None else [torch.tensor(outputs)]


def check(outputs):
    total = 0.0
    for output in flat(outputs):
        if output.numel() == 0:
            continue
        values = output.double()
        total += float((values.abs() + values * values).mean())
    return total


def with_gradients(operator, positional, named, leaves):
    """A call that returns the outputs and the gradients of the leaves."""
    for leaf in leaves:
        leaf.requires_grad_()

    def run():
        return [output for output in flat(operator(*positional, **named)) if output.requires_grad]

    @torch.enable_grad()
    def call():
        outputs = run()
        found = torch.autograd.grad(outputs, leaves, roots, allow_unused=True)
        return [output.detach() for output in outputs] + [gradient for gradient in found if gradient is not None]

    with torch.enable_grad():
        roots = [torch.ones_like(output, memory_format=torch.contiguous_format) for output in run()]
    return call


def make(name):
    text = name.removeprefix("grad:")
    name_of_operator, rest = text.split("(", 1)
    operator = torch.ops.aten
    for part in name_of_operator.removeprefix("aten::").split("."):
        operator = getattr(operator, part)
    if "." not in name_of_operator:
        operator = operator.default
    reader = Reader(rest)
    positional, named = reader.arguments()
    if text != name:
        return with_gradients(operator, positional, named, reader.leaves), check
    return (lambda: operator(*positional, **named)), check


torch.set_grad_enabled(False)
torch.relu(torch.ones(64, 64) @ torch.ones(64, 64))
worker.serve(make, f"torch-eager {torch.__version__}")
