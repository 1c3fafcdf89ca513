"""The rows of the comparison: which formula, on which operands.

An operand's elements depend on its number (the first is 1) and their place alone, so every library sees the same bits
as `benches/workloads` gives opfuse. A parameter is what a graph may hold as a constant. `Scale` is that of
`benches/peers/src/scale.rs`, and rows that begin with G are those of `large.rs` beside it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Operand:
    """`factor * uniform[low, high) + shift`."""

    shape: tuple
    low: float = -1.0
    high: float = 1.0
    factor: float = 1.0
    shift: float = 0.0
    is_parameter: bool = False

    def values(self, seed):
        """Its elements; those of large ones are kept in a folder, if there is one, for all who need them."""
        folder = os.environ.get("PEERS_INPUTS")
        if folder is None or np.prod(self.shape) < 1_000_000:
            return self.made(seed)
        about = (seed, *self.shape, self.low, self.high, self.factor, self.shift)
        path = Path(folder) / ("_".join(map(str, about)) + ".npy")
        if not path.exists():
            own = path.with_suffix(f".{os.getpid()}.npy")
            np.save(own, self.made(seed))
            own.replace(path)
        return np.load(path)

    def made(self, seed):
        count = np.arange(np.prod(self.shape), dtype=np.uint64) + np.uint64(seed << 40)
        bits = count * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
        bits ^= bits >> np.uint64(31)
        low, high = np.float32(self.low), np.float32(self.high)
        uniform = low + (high - low) * ((bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24))
        return (uniform * np.float32(self.factor) + np.float32(self.shift)).reshape(self.shape)


class Mask:
    """0, and -1e9 above the diagonal."""

    is_parameter = True

    def values(self, _seed):
        return np.triu(np.full((256, 256), -1e9, np.float32), 1)


class Targets:
    """One-hot: row i has its one in column 7 i mod 10."""

    is_parameter = False

    def values(self, _seed):
        return np.eye(10, dtype=np.float32)[7 * np.arange(256) % 10]


@dataclass(frozen=True)
class Row:
    what: str
    formula: str
    operands: list
    dtype: str = "float32"

    def inputs(self):
        return [operand.values(seed) for seed, operand in enumerate(self.operands, start=1)]


@dataclass(frozen=True)
class Scale:
    """Repeats or parts of operands, and how many sets of them there are."""

    words: list
    n_sets: int

    @staticmethod
    def of_name(name):
        row, words, n_sets = (name.split("@") + ["", ""])[:3]
        return row, Scale([word for word in words.split(",") if word], int(n_sets or 1))

    def parts(self, inputs):
        """What is cut is cut before it goes to a device."""
        words = self.words + ["-"] * len(inputs)
        return [self.part(array, word) for array, word in zip(inputs, words)]

    @staticmethod
    def part(array, word):
        if "/" not in word:
            return array
        axis, parts = map(int, word.split("/"))
        size = max(array.shape[axis] // parts, 1)
        return np.ascontiguousarray(array[(slice(None),) * axis + (slice(0, size),)])

    def sets(self, inputs, tile):
        """The operands of each set; `tile(operand, times)` repeats one, times are given for every axis."""
        words = self.words + ["-"] * len(inputs)
        return [[self.repeated(x, word, tile) for x, word in zip(inputs, words)] for _ in range(self.n_sets)]

    @staticmethod
    def repeated(x, word, tile):
        if "x" not in word:
            return tile(x, (1,) * len(x.shape))
        axis, times = map(int, word.split("x"))
        return tile(x, tuple(times if at == axis else 1 for at in range(len(x.shape))))


def uniform(*shape, low=-1.0, high=1.0):
    return Operand(shape, low, high)


def parameter(*shape, factor=1.0, shift=0.0):
    return Operand(shape, factor=factor, shift=shift, is_parameter=True)


def weight(n_inputs, n_outputs):
    return parameter(n_inputs, n_outputs, factor=1.0 / n_inputs**0.5)


def bias(size):
    return parameter(size, factor=0.01)


def gain(size):
    return parameter(size, factor=0.1, shift=1.0)


def layer(size):
    """A part of a layer that repeats make square."""
    return [uniform(1024, size), parameter(size, 1024, factor=1.0 / size**0.5), parameter(1024)]


N, D, HIDDEN = 10_000_000, 384, 1536
WIDE, SQUARE, VECTOR = uniform(4096, 1024), uniform(4096, 4096), parameter(1024)
LONG = uniform(64, 16_384)
WIDER = uniform(4096, 1024, low=-4.0, high=4.0)
PERCEPTRON = [uniform(256, 784), weight(784, 1024), bias(1024), weight(1024, 10), bias(10)]
ATTENTION = [uniform(4, 256, 512)] * 3 + [Mask()]
ENCODER = [
    uniform(8, 128, D), gain(D), bias(D), weight(D, 3 * D), bias(3 * D), weight(D, D), bias(D),
    gain(D), bias(D), weight(D, HIDDEN), bias(HIDDEN), weight(HIDDEN, D), bias(D),
]  # fmt: skip
OPTIONS = [uniform(N, low=5.0, high=30.0), uniform(N, low=1.0, high=100.0), uniform(N, low=0.25, high=10.0)]

ROWS = {
    "W01s": Row("ten ops, 1e3", "ten_ops", [uniform(1_000)] * 4),
    "W01m": Row("ten ops, 1e5", "ten_ops", [uniform(100_000)] * 4),
    "W01l": Row("ten ops, 1e7", "ten_ops", [uniform(N)] * 4),
    "W02": Row("relu(a*b+c), 1e7", "relu_of_fma", [uniform(N)] * 3),
    "W03": Row("gelu(x + bias)", "bias_gelu", [WIDER, VECTOR]),
    "W04": Row("softmax", "softmax_rows", [WIDER]),
    "W05": Row("layer norm", "norm_rows", [WIDE, VECTOR, VECTOR]),
    "W06": Row("rms norm * silu(g)", "gated_norm", [WIDE, WIDE, VECTOR]),
    "W07": Row("layer norm of residual", "residual_norm", [WIDE, VECTOR, WIDE, VECTOR, VECTOR]),
    "W08a": Row("sum over rows", "sum_rows", [SQUARE]),
    "W08b": Row("sum over columns", "sum_columns", [SQUARE]),
    "W08c": Row("sum of all", "sum_all", [SQUARE]),
    "W09": Row("mean and variance", "mean_and_variance", [SQUARE]),
    "W10": Row("relu((a + b)') stored", "outer", [uniform(2048, 1), uniform(1, 2048)]),
    "W11t": Row("x' * 2 + z", "transposed_fma", [uniform(4096, 2048), uniform(2048, 4096)]),
    "W11s": Row("x[:, ::2] * 2 + z", "strided_fma", [SQUARE, uniform(4096, 2048)]),
    "W11c": Row("five-point mean", "five_points", [uniform(2048, 2048)]),
    "W12": Row("gelu(x w + b)", "linear_gelu", [uniform(512, 1024), weight(1024, 4096), parameter(4096)]),
    "W13": Row("two-layer perceptron", "perceptron", PERCEPTRON),
    "W14": Row("training step of W13", "training_step", [*PERCEPTRON, Targets()]),
    "W15a": Row("attention, 1 head", "one_head", ATTENTION),
    "W15b": Row("attention, 8 heads", "eight_heads", ATTENTION),
    "W16": Row("encoder layer", "encoder_layer", ENCODER),
    "W17": Row("Black-Scholes, 1e7", "black_scholes", OPTIONS),
    "W18k": Row("nearest of 256 centres", "nearest", [uniform(16_384, 64), uniform(256, 64)]),
    "W18n": Row("sum of 1/distance", "inverse_distances", [uniform(2048, 3)]),
    "W19h": Row("W02 in f16", "relu_of_fma", [uniform(N)] * 3, "float16"),
    "W19b": Row("W02 in bf16", "relu_of_fma", [uniform(N)] * 3, "bfloat16"),
    "W20a": Row("a + b, 1", "sum_of_two", [uniform(1)] * 2),
    "W20b": Row("a + b, 64", "sum_of_two", [uniform(64)] * 2),
    "W20c": Row("relu(a*b+c), 64", "relu_of_fma", [uniform(64)] * 3),
    "W22": Row("200 ops, 65536", "many_ops", [uniform(65_536)] * 2),
    "G01": Row("copy", "copy", [WIDE]),
    "G02": Row("a + b", "sum_of_two", [WIDE] * 2),
    "G02b": Row("a + b in bf16", "sum_of_two", [WIDE] * 2, "bfloat16"),
    "G03b": Row("softmax in bf16", "softmax_rows", [WIDE], "bfloat16"),
    "G03l": Row("softmax of long rows", "softmax_rows", [LONG]),
    "G04b": Row("layer norm in bf16", "norm_rows", [WIDE, VECTOR, VECTOR], "bfloat16"),
    "G04l": Row("layer norm of long rows", "norm_rows", [LONG, parameter(16_384), parameter(16_384)]),
    "G05b": Row("gelu(x + bias) in bf16", "bias_gelu", [WIDE, VECTOR], "bfloat16"),
    "G10": Row("gelu(x w + b), 4096", "linear_gelu", layer(4096)),
    "G10b": Row("gelu(x w + b), 4096, bf16", "linear_gelu", layer(4096), "bfloat16"),
    "G11": Row("gelu(x w + b), 8192", "linear_gelu", layer(8192)),
    "G11b": Row("gelu(x w + b), 8192, bf16", "linear_gelu", layer(8192), "bfloat16"),
    "G20": Row("100 products of 16 x 16", "products", [uniform(16, 16), parameter(16, 16, factor=0.433)]),
}
