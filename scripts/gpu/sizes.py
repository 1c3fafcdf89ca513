"""The rows of the comparison on a GPU: how those of `benches/peers/python/rows.py` are scaled, and what they move.

Bytes count each input and each output once. Small rows, which a device's cache would hold, go through several sets of
operands, so that none is found there.
"""

from dataclasses import dataclass, replace

MIB, N, WIDE, SQUARE = 2**20, 10_000_000, 4096 * 1024, 4096 * 4096
COLD = 512 * MIB


@dataclass(frozen=True)
class Size:
    """One row at one size; `changes` is a word per operand, as `benches/peers/src/scale.rs` reads it."""

    row: str
    what: str
    changes: str = ""
    bytes: float = 0.0
    flops: float = 0.0
    is_memory: bool = False
    """Whether memory is all that it waits for."""
    is_trained: bool = False
    """Whether a call's outputs are the next one's operands, so that there is one set."""

    @property
    def key(self):
        return f"{self.row} {self.what}"

    @property
    def name(self):
        """What a worker is told."""
        n_sets = 1
        if self.is_memory and not self.is_trained:
            n_sets = max(1, min(8, -(-COLD // int(self.bytes or COLD))))
        return f"{self.row}@{self.changes}@{n_sets}"

    def tiny(self):
        """The same of a size for programs that emulate a GPU."""
        words = []
        for word in self.changes.split(",") if self.changes else []:
            axis, _, times = word.partition("x")
            words.append(f"{axis}/{SHRINK.get(self.row, 64)}" if times else word)
        if not words:
            words = WHOLE.get(self.row, "").split(",")
        return replace(self, changes=",".join(words), bytes=0.0, is_memory=False)


# How many parts operands of rows are cut into where sizes are tiny, and rows that are not scaled otherwise.
SHRINK = {"W01l": 10_000, "W02": 10_000, "W17": 10_000, "W19h": 10_000, "W19b": 10_000, "W12": 256, "W16": 8, "W15a": 4, "W15b": 4}
WHOLE = {"W01m": "0/64,0/64,0/64,0/64", "W22": "0/64,0/64"}


def memory():
    """Element-wise and row kernels from 64 MB up, in f32 and 16-bit floats."""
    f32, half = 4, 2

    def of(row, what, operands, width, count, accesses, times):
        return [
            Size(
                row,
                f"{what}, {count * width * n / MIB:.0f} MiB",
                ",".join(f"0x{n}" if operand == "x" else "-" for operand in operands),
                bytes=accesses * count * width * n,
                is_memory=True,
            )
            for n in times
        ]

    return [
        *of("G01", "copy", "x", f32, WIDE, 2, (4, 16, 64)),
        *of("G02", "a + b", "xx", f32, WIDE, 3, (4, 16)),
        *of("G02b", "a + b in bf16", "xx", half, WIDE, 3, (8, 32)),
        *of("W02", "relu(a*b+c)", "xxx", f32, N, 4, (2,)),
        *of("W19b", "relu(a*b+c) in bf16", "xxx", half, N, 4, (4,)),
        *of("W03", "gelu(x + bias)", "x-", f32, WIDE, 2, (4,)),
        *of("G05b", "gelu(x + bias) in bf16", "x-", half, WIDE, 2, (8, 32)),
        *of("W04", "softmax", "x", f32, WIDE, 2, (4,)),
        *of("G03b", "softmax in bf16", "x", half, WIDE, 2, (8, 32)),
        *of("G03l", "softmax of long rows", "x", f32, 64 * 16_384, 2, (16, 64)),
        *of("W05", "layer norm", "x--", f32, WIDE, 2, (4,)),
        *of("G04b", "layer norm in bf16", "x--", half, WIDE, 2, (8, 32)),
        *of("G04l", "layer norm of long rows", "x--", f32, 64 * 16_384, 2, (16, 64)),
        *of("W08a", "sum over rows", "x", f32, SQUARE, 1, (1,)),
        *of("W08b", "sum over columns", "x", f32, SQUARE, 1, (1,)),
        *of("W08c", "sum of all", "x", f32, SQUARE, 1, (1,)),
    ]


def workloads():
    """W01 to W19 at the size of a GPU."""

    def row(name, what, changes="", bytes=0.0, flops=0.0, is_memory=None):
        return Size(name, what, changes, bytes, flops, bytes > 0.0 if is_memory is None else is_memory)

    alike = lambda count, times, axis=0: ",".join([f"{axis}x{times}"] * count)
    heads = lambda n: alike(3, n) + ",-"
    attention = 4 * 256 * 256 * 512 * 4 * 16
    encoder = 2 * 64 * 128 * (4 * 384 * 384 + 2 * 384 * 1536) + 4 * 64 * 128 * 128 * 384
    return [
        row("W01s", "ten ops, 1e3"),
        row("W01m", "ten ops, 1e5"),
        row("W01l", "ten ops, 8e7", alike(4, 8), 20 * 8 * N),
        row("W02", "relu(a*b+c), 8e7", alike(3, 8), 16 * 8 * N),
        row("W03", "gelu(x + bias), 256 MiB", "0x16,-", 8 * 16 * WIDE),
        row("W04", "softmax, 256 MiB", "0x16", 8 * 16 * WIDE),
        row("W05", "layer norm, 256 MiB", "0x16,-,-", 8 * 16 * WIDE),
        row("W06", "rms norm * silu(g), 256 MiB", "0x16,0x16,-", 12 * 16 * WIDE),
        row("W07", "layer norm of residual, 256 MiB", "0x16,-,0x16,-,-", 12 * 16 * WIDE),
        row("W08a", "sum over rows, 256 MiB", "0x4", 4 * 4 * SQUARE),
        row("W08b", "sum over columns, 256 MiB", "0x4", 4 * 4 * SQUARE),
        row("W08c", "sum of all, 256 MiB", "0x4", 4 * 4 * SQUARE),
        row("W09", "mean and variance, 256 MiB", "0x4", 4 * 4 * SQUARE),
        row("W10", "relu((a + b)') stored, 8192 x 8192", "0x4,1x4", 4 * 8192 * 8192),
        row("W11t", "x' * 2 + z, 128 MiB", "1x4,0x4", 3 * 4 * 4 * SQUARE / 2),
        row("W11s", "x[:, ::2] * 2 + z, 128 MiB", "0x4,0x4", 4 * (4 * SQUARE + 8 * SQUARE / 2)),
        row("W11c", "five-point mean, 256 MiB", "0x16", 8 * 16 * 2048 * 2048),
        row("W12", "gelu(x w + b), 8192 rows", "0x16,-,-", flops=2 * 8192 * 1024 * 4096),
        row("W13", "two-layer perceptron, 8192 rows", "0x32,-,-,-,-", flops=2 * 8192 * (784 * 1024 + 1024 * 10)),
        replace(
            row("W14", "training step of W13", "0x32,-,-,-,-,0x32", flops=6 * 8192 * (784 * 1024 + 1024 * 10)),
            is_trained=True,
        ),
        row("W15a", "attention, 1 head, batch 64", heads(16), flops=attention),
        row("W15b", "attention, 8 heads, batch 64", heads(16), flops=attention),
        row("W16", "encoder layer, batch 64", "0x8" + ",-" * 12, flops=encoder),
        row("W17", "Black-Scholes, 8e7", alike(3, 8), 20 * 8 * N),
        row("W18k", "nearest of 256 centres, 262144 points", "0x16,-", flops=2 * 16 * 16_384 * 64 * 256),
        row("W18n", "sum of 1/distance, 16384 points", "0x8", flops=9 * 16_384 * 16_384),
        row("W19h", "W02 in f16, 1.6e8", alike(3, 16), 8 * 16 * N),
        row("W19b", "W02 in bf16, 1.6e8", alike(3, 16), 8 * 16 * N),
    ]


def products():
    """A layer whose three sizes are one."""
    square = lambda row, size, what: Size(
        row, f"gelu(x w + b), {size}, {what}", ",".join(f"{axis}x{size // 1024}" for axis in (0, 1, 0)), flops=2.0 * size**3
    )
    return [
        square("G10b", 4096, "bf16"),
        square("G11b", 8192, "bf16"),
        square("G10", 4096, "f32"),
        square("G11", 8192, "f32"),
    ]


def calls():
    """What a call costs besides its kernels; the last two are some kernels in a row."""
    return [
        Size("W20a", "a + b, 1"),
        Size("W20b", "a + b, 64"),
        Size("W20c", "relu(a*b+c), 64"),
        Size("W01s", "ten ops, 1e3"),
        Size("W22", "200 ops, 65536"),
        Size("G20", "100 products of 16 x 16"),
    ]


GROUPS = {"memory": memory, "workloads": workloads, "products": products, "calls": calls}
# Functions of one kernel or few, small enough that a first call is all compilation.
FIRST = [
    Size("W01m", "ten ops, 1e5"),
    Size("W03", "gelu(x + bias)", "0/16,-"),
    Size("W04", "softmax", "0/16"),
    Size("W05", "layer norm", "0/16,-,-"),
    Size("W07", "layer norm of residual", "0/16,-,0/16,-,-"),
    Size("W08a", "sum over rows", "0/16"),
    Size("W10", "relu((a + b)') stored", "0/16,1/16"),
    Size("W17", "Black-Scholes", "0/100,0/100,0/100"),
]
