"""More functions for `torch_compile.py --functions`: points, colours, pairs, small matrices, short rows, layouts.

They were written in one go after those of `functions.py` had been measured, and before any of these was.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from functions import ints, normal, uniform
from nets import Made, program
from torch import Tensor


def inverted(m: Tensor) -> Tensor:
    a, b, c, d = m[:, 0, 0], m[:, 0, 1], m[:, 1, 0], m[:, 1, 1]
    rows = torch.stack([torch.stack([d, -b], -1), torch.stack([-c, a], -1)], -2)
    return rows / (a * d - b * c)[:, None, None]


def luminance(x: Tensor) -> Tensor:
    red, green, blue = x.unbind(-1)
    y = 0.299 * red + 0.587 * green + 0.114 * blue
    return torch.stack([y, (blue - y) * 0.565, (red - y) * 0.713], -1)


def product_of_pairs(a: Tensor, b: Tensor) -> Tensor:
    real = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
    return torch.stack([real, a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]], -1)


def overlap(a: Tensor, b: Tensor) -> Tensor:
    sides = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0)
    both = sides[:, 0] * sides[:, 1]
    areas = [(x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b)]
    return both / (areas[0] + areas[1] - both)


def smoothed(x: Tensor) -> Tensor:
    steps = [x[:, 0]]
    for column in x.unbind(1)[1:]:
        steps.append(0.9 * steps[-1] + 0.1 * column)
    return torch.stack(steps, 1)


def masked_variance(x: Tensor, mask: Tensor) -> Tensor:
    count = mask.sum(-1, keepdim=True)
    mean = (x * mask).sum(-1, keepdim=True) / count
    return (((x - mean) ** 2) * mask).sum(-1) / count.squeeze(-1)


def focal(x: Tensor, y: Tensor) -> Tensor:
    p = torch.sigmoid(x)
    right = p * y + (1 - p) * (1 - y)
    return (0.25 * (1 - right) ** 2 * F.binary_cross_entropy_with_logits(x, y, reduction="none")).mean()


def fourier_features(x: Tensor, b: Tensor) -> Tensor:
    z = 2 * math.pi * x @ b
    return torch.cat([z.sin(), z.cos()], -1)


def haversine(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    s = torch.sin((c - a) / 2) ** 2 + torch.cos(a) * torch.cos(c) * torch.sin((d - b) / 2) ** 2
    return 2 * torch.asin(torch.sqrt(s))


def biased_by_distance(scores: Tensor, slope: Tensor) -> Tensor:
    at = torch.arange(scores.shape[-1])
    return torch.softmax(scores + slope[:, None, None] * (at - at[:, None]), -1)


def bytes_of_bits(x: Tensor) -> Tensor:
    return (x.view(-1, 8).to(torch.int32) * (2 ** torch.arange(8, dtype=torch.int32))).sum(-1)


def gated(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


SMALL_FUNCTIONS: dict[str, Callable[[], Made]] = {
    "weighted softplus": program(lambda x, w: (F.softplus(x) * w).sum(-1), normal(4096, 200), normal(200)),
    "dots of pairs": program(
        lambda a, b: (a[:, :, None] * b[:, None]).sum(-1), normal(200, 20, 16), normal(200, 20, 16)
    ),
    "products of pairs 8": program(lambda a, b: a[:, :, None] * b[:, None], normal(10_000, 8), normal(10_000, 8)),
    "products of pairs 32": program(lambda a, b: a[:, :, None] * b[:, None], normal(600, 32), normal(600, 32)),
    "traces 4x4": program(lambda m: torch.diagonal(m, dim1=-2, dim2=-1).sum(-1), normal(20_000, 4, 4)),
    "times vectors by sums": program(
        lambda m, v: (m * v[:, None]).sum(-1), normal(100_000, 3, 3), normal(100_000, 3)
    ),
    "quadratic forms": program(lambda x, a: ((x @ a) * x).sum(-1), normal(10_000, 16), normal(16, 16)),
    "determinants 2x2": program(
        lambda m: m[:, 0, 0] * m[:, 1, 1] - m[:, 0, 1] * m[:, 1, 0], normal(200_000, 2, 2)
    ),
    "inverses 2x2": program(inverted, normal(100_000, 2, 2)),
    "directions": program(lambda v: v / (v * v).sum(-1, keepdim=True).sqrt(), normal(200_000, 3)),
    "polar": program(
        lambda x, y: torch.stack([torch.sqrt(x * x + y * y), torch.atan2(y, x)], -1), normal(100_000), normal(100_000)
    ),
    "grey": program(lambda x: (x * torch.tensor([0.299, 0.587, 0.114])).sum(-1), uniform(512, 512, 3)),
    "luminance": program(luminance, uniform(512, 512, 3)),
    "saturation": program(lambda x: x.amax(-1) - x.amin(-1), uniform(512, 512, 3)),
    "complex as pairs": program(product_of_pairs, normal(1000, 300, 2), normal(1000, 300, 2)),
    "overlap": program(overlap, uniform(100_000, 4), uniform(100_000, 4)),
    "smoothed": program(smoothed, normal(20_000, 16)),
    "moving mean": program(lambda x: x.unfold(-1, 5, 1).mean(-1), normal(500, 1000)),
    "speeds": program(lambda x: (x[:, 1:] - x[:, :-1]).pow(2).sum(-1).sqrt(), normal(500, 100, 8)),
    "layer_norm of 12": program(lambda x: F.layer_norm(x, (12,)), normal(20_000, 12)),
    "softmax of 12": program(lambda x: torch.softmax(x, -1), normal(20_000, 12)),
    "rows of 8": program(lambda x: x * x[:, :1], normal(80_000, 8)),
    "rows of 37": program(lambda x, s: x * s[:, None] + s[:, None] ** 2, normal(5000, 37), normal(5000)),
    "logmeanexp": program(lambda x: torch.logsumexp(x, 1) - math.log(50), normal(200, 50, 40)),
    "divergence": program(lambda p, q: (p * (p.log() - q.log())).sum(-1), uniform(5000, 30), uniform(5000, 30)),
    "one-hot loss": program(
        lambda x, t: -(F.log_softmax(x, -1) * F.one_hot(t, 20)).sum(-1).mean(), normal(5000, 20), ints(20, 5000)
    ),
    "transposed": program(lambda x: x.t().contiguous() * 2, normal(20_000, 30)),
    "permuted": program(lambda x: x.permute(2, 0, 1).contiguous() * 2, normal(100, 200, 30)),
    "channels last": program(lambda x: (x.permute(0, 2, 3, 1) * 1.5).contiguous(), normal(8, 32, 64, 64)),
    "bytes to images": program(
        lambda x: (x.permute(0, 3, 1, 2).float() / 255 - 0.45) / 0.22, ints(255, 4, 128, 128, 3, dtype=torch.uint8)
    ),
    "bias, channels last": program(lambda x, b: F.relu(x + b), normal(8, 64, 64, 32), normal(32)),
    "masked variance": program(masked_variance, normal(3000, 128), ints(2, 3000, 128, dtype=torch.float32)),
    "smooth_l1": program(
        lambda x, y: F.smooth_l1_loss(x, y, reduction="none").mean(-1), normal(3000, 100), normal(3000, 100)
    ),
    "focal": program(focal, normal(100_000), ints(2, 100_000, dtype=torch.float32)),
    "fourier features": program(fourier_features, normal(5000, 3), normal(3, 64)),
    "waves": program(lambda x: torch.sin(x) * 0.5 + torch.cos(x * 2), normal(1_000_000)),
    "haversine": program(haversine, *(uniform(100_000),) * 4),
    "bytes of bits": program(bytes_of_bits, ints(2, 80_000, dtype=torch.bool)),
    "gated": program(gated, normal(1000, 512)),
    "rms_norm": program(
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, normal(2000, 384), normal(384)
    ),
    "biased by distance": program(biased_by_distance, normal(8, 128, 128), normal(8)),
    "sum of dim 1": program(lambda x: x.sum(1), normal(500, 7, 100)),
    "variance of dim 0": program(lambda x: x.var(0), normal(300, 500)),
    "maxima of images": program(lambda x: x.amax((1, 2)), normal(100, 20, 20, 16)),
    "squares of 5x5": program(lambda x: (x * x).sum((-1, -2)), normal(5000, 5, 5)),
    "powers": program(lambda x: torch.stack([x, x**2, x**3, x**4], -1), normal(100_000)),
    "sums of segments": program(
        lambda x, i: torch.zeros(100, 32).index_add(0, i, x), normal(5000, 32), ints(100, 5000)
    ),
    "conv 1x1": program(
        lambda x, w: F.relu(torch.einsum("bchw,oc->bohw", x, w)), normal(4, 16, 64, 64), normal(24, 16)
    ),
}
