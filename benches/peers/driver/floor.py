"""What no program could beat on this machine: the least time for the bytes or the arithmetic of a row.

Bytes count each input and each output once. Arithmetic counts products at the peak of fused multiply-adds, other
operations at half of it, `exp` and `log` at the measured rate of a vectorized exponential, and what also divides
(sigmoid, tanh, erf) at that of a sigmoid. A perfect kernel could overlap the two, so the floor is the larger one.
"""

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Work:
    what: str
    bytes: float = 0.0
    products: float = 0.0
    plain: float = 0.0
    exps: float = 0.0
    sigmoids: float = 0.0
    writes: bool = True
    """Whether what is written is worth counting; if not, memory is as fast as it can be read."""


def ten_ops(n):
    return Work(f"ten ops, {n:.0e}".replace("+0", ""), bytes=20 * n, plain=8 * n, sigmoids=2 * n)


def attention(what, n_heads):
    scores = 4 * n_heads * 256 * 256
    return Work(what, bytes=16 * 4 * 256 * 512, products=4 * 4 * 256 * 256 * 512, plain=5 * scores, exps=scores)


N, WIDE, SQUARE = 10_000_000, 4096 * 1024, 4096 * 4096
MLP = 784 * 1024 + 1024 * 10
D, HIDDEN, TOKENS = 384, 1536, 1024
LAYER = 4 * D * D + 2 * D * HIDDEN
WORK = {
    "W01s": ten_ops(1_000),
    "W01m": ten_ops(100_000),
    "W01l": ten_ops(N),
    "W02": Work("relu(a*b+c), 1e7", bytes=16 * N, plain=3 * N),
    "W03": Work("gelu(x + bias)", bytes=8 * WIDE, plain=8 * WIDE, sigmoids=WIDE),
    "W04": Work("softmax", bytes=8 * WIDE, plain=4 * WIDE, exps=WIDE),
    "W05": Work("layer norm", bytes=8 * WIDE, plain=8 * WIDE),
    "W06": Work("rms norm * silu(g)", bytes=12 * WIDE, plain=6 * WIDE, sigmoids=WIDE),
    "W07": Work("layer norm of residual", bytes=12 * WIDE, plain=10 * WIDE),
    "W08a": Work("sum over rows", bytes=4 * SQUARE, plain=SQUARE, writes=False),
    "W08b": Work("sum over columns", bytes=4 * SQUARE, plain=SQUARE, writes=False),
    "W08c": Work("sum of all", bytes=4 * SQUARE, plain=SQUARE, writes=False),
    "W09": Work("mean and variance", bytes=4 * SQUARE, plain=4 * SQUARE, writes=False),
    "W10": Work("relu((a + b)') stored", bytes=4 * 2048 * 2048, plain=2 * 2048 * 2048),
    "W11t": Work("x' * 2 + z", bytes=12 * SQUARE / 2, plain=SQUARE),
    "W11s": Work("x[:, ::2] * 2 + z", bytes=4 * SQUARE + 8 * SQUARE / 2, plain=SQUARE),
    "W11c": Work("five-point mean", bytes=8 * 2048 * 2048, plain=5 * 2048 * 2048),
    "W12": Work(
        "gelu(x w + b)",
        bytes=4 * (512 * 1024 + 1024 * 4096 + 512 * 4096),
        products=2 * 512 * 1024 * 4096,
        plain=8 * 512 * 4096,
        sigmoids=512 * 4096,
    ),
    "W13": Work("two-layer perceptron", bytes=4 * (256 * 784 + MLP), products=2 * 256 * MLP, plain=2 * 256 * 1024),
    "W14": Work(
        "training step of W13",
        bytes=4 * (256 * 784 + 2 * MLP),
        # Forward, and the gradients of both weights and of what is between them.
        products=2 * 256 * (2 * MLP + 1024 * 10),
        plain=2 * MLP,
    ),
    "W15a": attention("attention, 1 head", 1),
    "W15b": attention("attention, 8 heads", 8),
    "W16": Work(
        "encoder layer",
        bytes=4 * (2 * TOKENS * D + LAYER),
        products=2 * TOKENS * LAYER + 4 * 8 * 128 * 128 * D,
        plain=TOKENS * (8 * HIDDEN + 30 * D),
        exps=8 * 12 * 128 * 128,
        sigmoids=TOKENS * HIDDEN,
    ),
    "W17": Work("Black-Scholes, 1e7", bytes=20 * N, plain=33 * N, exps=2 * N, sigmoids=2 * N),
    "W18k": Work(
        "nearest of 256 centres",
        bytes=4 * 64 * (16_384 + 256),
        products=2 * 16_384 * 256 * 64,
        plain=4 * 16_384 * 256,
    ),
    "W18n": Work("sum of 1/distance", bytes=16 * 2048, plain=16 * 2048 * 2048),
    "W19h": Work("W02 in f16", bytes=8 * N, plain=3 * N),
    "W19b": Work("W02 in bf16", bytes=8 * N, plain=3 * N),
    "W20a": Work("a + b, 1"),
    "W20b": Work("a + b, 64"),
    "W20c": Work("relu(a*b+c), 64"),
    "W22": Work("200 ops, 65536", bytes=12 * 65_536, plain=200 * 65_536),
}


@dataclass(frozen=True)
class Roofline:
    """What the machine does in a second: operations, and bytes by footprint."""

    fma: float
    exp: float
    sigmoid: float
    triad: dict
    read: dict

    @staticmethod
    def of(found):
        rates = {name: {int(bytes): rate for bytes, rate in found[name].items()} for name in ("triad", "read")}
        return Roofline(found["fma"], found["exp"], found["sigmoid"], **rates)

    def as_json(self):
        return asdict(self)

    def best_of(self, other):
        most = lambda one, two: {bytes: max(rate, two.get(bytes, 0)) for bytes, rate in one.items()}
        return Roofline(
            max(self.fma, other.fma),
            max(self.exp, other.exp),
            max(self.sigmoid, other.sigmoid),
            most(self.triad, other.triad),
            most(self.read, other.read),
        )

    def bandwidth(self, bytes, writes):
        """Bytes per second of a footprint, between the measured ones as on paper with logarithmic axes."""
        rates = sorted((self.triad if writes else self.read).items())
        if bytes <= rates[0][0]:
            return rates[0][1]
        for (below, slow), (above, fast) in zip(rates, rates[1:]):
            if bytes <= above:
                share = math.log(bytes / below) / math.log(above / below)
                return slow ** (1 - share) * fast**share
        return rates[-1][1]

    def floor(self, row):
        """Seconds, and what binds; None for rows that are nothing but the cost of a call."""
        work = WORK[row]
        if not work.bytes:
            return None
        memory = work.bytes / self.bandwidth(work.bytes, work.writes)
        arithmetic = work.products / self.fma + work.plain / (self.fma / 2)
        arithmetic += work.exps / self.exp + work.sigmoids / self.sigmoid
        return max((memory, "memory"), (arithmetic, "arithmetic"))
