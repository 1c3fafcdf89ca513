"""Functions of tensors for `torch_compile.py --functions`: what people write between networks.

They were written in one go, from what images, text, particles, finance, signals and models are made of, before any was
measured. Most take about a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from nets import Made, program
from torch import Tensor


def normal(*sizes: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*sizes)


def uniform(*sizes: int, low: float = 0.0, high: float = 1.0) -> Callable[[], Tensor]:
    return lambda: torch.rand(*sizes) * (high - low) + low


def ints(end: int, *sizes: int, start: int = 0, dtype: torch.dtype = torch.int64) -> Callable[[], Tensor]:
    return lambda: torch.randint(start, end, sizes).to(dtype)


def black_scholes(spot: Tensor, strike: Tensor, time: Tensor) -> Tensor:
    spread = 0.3 * torch.sqrt(time)
    first = (torch.log(spot / strike) + (0.05 + 0.045) * time) / spread
    second = first - spread
    return spot * torch.special.ndtr(first) - strike * torch.exp(-0.05 * time) * torch.special.ndtr(second)


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    low, high = y[..., :32], y[..., 32:]
    return torch.cat([low * cos - high * sin, low * sin + high * cos], -1)


def value_and_spread(x: Tensor) -> Tensor:
    y = x.float() / 255
    return torch.stack([y.amax(-1), y.amax(-1) - y.amin(-1), y.mean(-1)], -1)


def median_filter(x: Tensor) -> Tensor:
    padded = F.pad(x, (1, 1, 1, 1), mode="reflect")
    return padded.unfold(2, 3, 1).unfold(3, 3, 1).flatten(-2).median(-1)[0]


def blurred(x: Tensor, taps: Tensor) -> Tensor:
    across = F.conv2d(x, taps.view(1, 1, 1, -1), padding=(0, 4))
    return F.conv2d(across, taps.view(1, 1, -1, 1), padding=(4, 0))


def edges(x: Tensor) -> Tensor:
    down = x[:, 2:, 1:-1] - x[:, :-2, 1:-1]
    along = x[:, 1:-1, 2:] - x[:, 1:-1, :-2]
    return (down * down + along * along).sqrt()


def morphology(x: Tensor) -> Tensor:
    return F.max_pool2d((x > 128).float(), 3, 1, 1) - F.max_pool2d((x > 200).float(), 5, 1, 2)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    hidden = torch.ones(128, 128).tril() == 0
    return torch.softmax((q @ k.transpose(-1, -2) * 0.125).masked_fill(hidden, float("-inf")), -1) @ v


def gates(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    most, which = torch.topk(torch.softmax(x @ weight, -1), 2)
    return most / most.sum(-1, keepdim=True), which


def correlation(x: Tensor) -> Tensor:
    y = x - x.mean(1, keepdim=True)
    length = y.norm(dim=1)
    return y @ y.T / (length[:, None] * length[None])


def centers(x: Tensor, before: Tensor) -> Tensor:
    nearest = ((x**2).sum(1, keepdim=True) - 2 * x @ before.T + (before**2).sum(1)).argmin(1)
    count = torch.bincount(nearest, minlength=32).clamp(min=1)
    return torch.zeros_like(before).index_add(0, nearest, x) / count[:, None]


def ranks(links: Tensor, rank: Tensor) -> Tensor:
    return reduce(lambda rank, _: 0.85 * (links @ rank) + 0.15 / rank.shape[0], range(10), rank)


def heat(x: Tensor) -> Tensor:
    def step(x: Tensor, _: int) -> Tensor:
        return F.pad((x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) * 0.25, (1, 1, 1, 1))

    return reduce(step, range(20), x)


def life(x: Tensor) -> Tensor:
    around = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]

    def step(x: Tensor, _: int) -> Tensor:
        n: Any = sum(torch.roll(x, shift, (0, 1)) for shift in around)
        return ((n == 3) | ((n == 2) & (x == 1))).to(torch.int32)

    return reduce(step, range(5), x)


def forces(places: Tensor, mass: Tensor) -> Tensor:
    apart = places[None] - places[:, None]
    return (apart * (((apart**2).sum(-1) + 0.01) ** -1.5 * mass)[..., None]).sum(1)


def mixed(x: Tensor) -> Tensor:
    y = (x ^ (x >> 33)) * 0x51AFD7ED558CCD
    return (y ^ (y >> 29)) * 0x1B873593


def rotated(q: Tensor, v: Tensor) -> Tensor:
    axis = q[:, :3]
    return v + 2 * torch.linalg.cross(axis, torch.linalg.cross(axis, v) + q[:, 3:] * v)


def gated_unit(x: Tensor, by_input: Tensor, by_state: Tensor) -> Tensor:
    h = x.new_zeros(x.shape[1], 128)
    for row in x.unbind(0):
        (zi, ri, ni), (zh, rh, nh) = (row @ by_input).chunk(3, -1), (h @ by_state).chunk(3, -1)
        z = torch.sigmoid(zi + zh)
        h = (1 - z) * torch.tanh(ni + torch.sigmoid(ri + rh) * nh) + z * h
    return h


def positions(time: Tensor, rate: Tensor) -> Tensor:
    return torch.cat([torch.sin(time[:, None] * rate), torch.cos(time[:, None] * rate)], -1)


def overlaps(a: Tensor, b: Tensor) -> Tensor:
    low, high = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    sides = (high - low).clamp(min=0)
    return sides[..., 0] * sides[..., 1] / ((a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1]))[:, None]


def horner(x: Tensor) -> Tensor:
    return ((((x * 1.1 + 2) * x - 3) * x + 4) * x - 5) * x + 6


FUNCTIONS: dict[str, Callable[[], Made]] = {
    "black_scholes": program(black_scholes, *(uniform(10**6, low=50, high=100),) * 2, uniform(10**6, low=0.1)),
    "distances": program(lambda a, b: ((a[:, None] - b) ** 2).sum(-1).sqrt(), normal(1000, 3), normal(1000, 3)),
    "distances l1": program(lambda a, b: (a[:, None] - b).abs().sum(-1), normal(300, 32), normal(400, 32)),
    "forces": program(forces, normal(300, 3), uniform(300)),
    "overlaps": program(overlaps, lambda: torch.rand(500, 4).sort(1)[0], lambda: torch.rand(600, 4).sort(1)[0]),
    "softmax 4096x33": program(lambda x: torch.softmax(x * 1.7, -1), normal(4096, 33)),
    "softmax masked": program(
        lambda x: torch.softmax(x + torch.triu(torch.full((200, 200), -1e9), 1), -1), normal(16, 200, 200)
    ),
    "logsumexp dim 1": program(lambda x: torch.logsumexp(x, 1), normal(64, 1000, 10)),
    "layer_norm bf16": program(
        lambda x, w, b: F.layer_norm(x, (768,), w, b),
        lambda: torch.randn(2048, 768).bfloat16(),
        *(lambda: torch.randn(768).bfloat16(),) * 2,
    ),
    "group_norm silu": program(
        lambda x, w, b: F.silu(F.group_norm(x, 8, w, b)), normal(4, 64, 32, 32), normal(64), normal(64)
    ),
    "rotary": program(rotary, normal(512, 8, 64), normal(512, 1, 32), normal(512, 1, 32)),
    "positions": program(positions, uniform(4096, high=1000), uniform(64)),
    "attention": program(F.scaled_dot_product_attention, *(normal(8, 8, 128, 64),) * 3),
    "attention causal": program(causal, *(normal(2, 8, 128, 64),) * 3),
    "mlp gelu": program(lambda x, a, b: F.gelu(x @ a) @ b, normal(256, 512), normal(512, 2048), normal(2048, 512)),
    "mlp of 4 rows": program(
        lambda x, a, b: F.relu(F.relu(x @ a.T) @ b.T), normal(4, 1024), normal(1024, 1024), normal(1024, 1024)
    ),
    "gates": program(gates, normal(2048, 256), normal(256, 16)),
    "gated unit": program(gated_unit, normal(16, 64, 32), normal(32, 384), normal(128, 384)),
    "cross_entropy": program(F.cross_entropy, normal(512, 8000), ints(8000, 512)),
    "embedding mean": program(lambda t, i: t[i].mean(1), normal(100_000, 64), ints(100_000, 512, 30)),
    "masked mean": program(
        lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True), normal(64, 128, 256), uniform(64, 128)
    ),
    "one_hot sums": program(lambda i: F.one_hot(i, 64).sum(0), ints(64, 100_000)),
    "index_add": program(lambda i, w: torch.zeros(1000).index_add(0, i, w), ints(1000, 10**6), uniform(10**6)),
    "scatter_add": program(
        lambda x, i: torch.zeros_like(x).scatter_add(1, i, x), normal(1000, 256), ints(256, 1000, 256)
    ),
    "bucketize": program(torch.bucketize, uniform(100_000), lambda: torch.linspace(0, 1, 100)),
    "sort": program(lambda x: torch.sort(x)[0], normal(100_000)),
    "topk": program(lambda x: torch.topk(x, 50, -1)[0], normal(256, 10_000)),
    "argmax dim 0": program(lambda x: x.argmax(0), normal(1000, 1000)),
    "cumsum dim 0": program(lambda x: x.cumsum(0), normal(1000, 1000)),
    "cumsum backwards": program(lambda x: x.flip(-1).cumsum(-1).flip(-1), normal(1000, 500)),
    "standardized": program(lambda x: (x - x.mean(0)) / x.std(0), normal(10_000, 50)),
    "correlation": program(correlation, normal(100, 5000)),
    "centers": program(centers, normal(20_000, 16), normal(32, 16)),
    "ranks": program(ranks, lambda: torch.softmax(torch.randn(2000, 2000), 0), lambda: torch.full((2000,), 1 / 2000)),
    "outer sums": program(lambda a, b: torch.einsum("bi,bj->bij", a, b).sum(0), normal(1000, 32), normal(1000, 48)),
    "traces": program(lambda a, b: (a @ b).diagonal(dim1=1, dim2=2).sum(-1), *(normal(500, 12, 12),) * 2),
    "cosines of blocks": program(lambda x, d: d @ x @ d.T, normal(512, 8, 8), normal(8, 8)),
    "turns 3x3": program(lambda m, v: (m @ v[..., None]).squeeze(-1), normal(100_000, 3, 3), normal(100_000, 3)),
    "turns by quaternions": program(rotated, normal(100_000, 4), normal(100_000, 3)),
    "mixed bits": program(mixed, ints(2**62, 10**6, start=-(2**62))),
    "filter i16": program(
        lambda x, k: (x.unfold(0, 16, 1).int() * k).sum(-1) >> 8,
        ints(3000, 100_000, start=-3000, dtype=torch.int16),
        ints(100, 16, start=-100, dtype=torch.int32),
    ),
    "horner": program(horner, normal(10**6)),
    "leaky f16": program(lambda x: torch.where(x > 0, x * 2, x * 0.1).clamp(-3, 3), lambda: torch.randn(10**6).half()),
    "averages": program(lambda a, b: torch.lerp(a, b, 0.01).clamp(-1, 1), normal(100, 10_000), normal(100, 10_000)),
    "dequantized i8": program(
        lambda x, s: x.float() * s[:, None], ints(127, 1000, 1024, start=-128, dtype=torch.int8), uniform(1000)
    ),
    "transposed sum": program(lambda x, y: x.T + y, normal(1024, 1024), normal(1024, 1024)),
    "channels first": program(lambda x: x.permute(0, 3, 1, 2).contiguous() * 2 - 1, normal(8, 128, 128, 3)),
    "joined and padded": program(
        lambda x, y: F.pad(torch.cat([x, y * 2], 1), (2, 2)), normal(500, 300), normal(500, 200)
    ),
    "frames": program(lambda x, w: (x.unfold(0, 400, 160) * w).abs().sum(1), normal(64_000), normal(400)),
    "conv1d of sound": program(
        lambda x, w: F.conv1d(x, w, stride=10).relu(), normal(8, 1, 16_000), normal(32, 1, 80)
    ),
    "conv2d depthwise": program(
        lambda x, w: F.conv2d(x, w, padding=1, groups=64), normal(8, 64, 32, 32), normal(64, 1, 3, 3)
    ),
    "conv3d": program(
        lambda x, w: F.conv3d(x, w, padding=1).relu(), normal(1, 8, 16, 32, 32), normal(16, 8, 3, 3, 3)
    ),
    "conv2d transposed": program(
        lambda x, w: F.conv_transpose2d(x, w, stride=2), normal(2, 32, 32, 32), normal(32, 16, 2, 2)
    ),
    "pools": program(lambda x: F.avg_pool2d(x, 3, 2, 1) + F.max_pool2d(x, 3, 2, 1), normal(8, 32, 56, 56)),
    "pooled and multiplied": program(
        lambda x, w: F.adaptive_avg_pool2d(x, 1).flatten(1) @ w, normal(32, 256, 14, 14), normal(256, 100)
    ),
    "median filter": program(median_filter, normal(1, 1, 256, 256)),
    "blurred": program(blurred, normal(8, 1, 256, 256), uniform(9)),
    "edges": program(edges, normal(16, 256, 256)),
    "value and spread": program(value_and_spread, ints(256, 512, 512, 3, dtype=torch.uint8)),
    "morphology": program(morphology, ints(256, 4, 1, 256, 256, dtype=torch.uint8)),
    "grid_sample": program(
        lambda x, g: F.grid_sample(x, g, align_corners=False), normal(4, 3, 128, 128), uniform(4, 128, 128, 2, low=-1)
    ),
    "resized": program(
        lambda x: F.interpolate(x, size=(112, 112), mode="bilinear", align_corners=False), normal(4, 3, 224, 224)
    ),
    "doubled": program(lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest") * 0.5, normal(4, 32, 56, 56)),
    "pixel_shuffle": program(lambda x: F.pixel_shuffle(x, 2).relu(), normal(4, 64, 64, 64)),
    "heat": program(heat, normal(256, 256)),
    "life": program(life, ints(2, 512, 512, dtype=torch.int32)),
}
