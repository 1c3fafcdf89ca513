"""The networks and programs of the net benchmark, written in plain PyTorch.

`NETWORKS` are trained, too, and `PROGRAMS` are not. Each name has what makes a module and its arguments. Weights and
inputs are random and seeded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Any, ...]]


class Program(nn.Module):
    """A function where a module is asked for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def image(name: str, batch: int, size: int) -> Callable[[], Made]:
    """A network of torchvision."""

    def made() -> Made:
        import torchvision

        return getattr(torchvision.models, name)(), (torch.randn(batch, 3, size, size),)

    return made


class DoubleConv(nn.Sequential):
    def __init__(self, given: int, made: int) -> None:
        layers: list[nn.Module] = []
        for channels in (given, made):
            layers += [nn.Conv2d(channels, made, 3, padding=1, bias=False), nn.BatchNorm2d(made), nn.ReLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = DoubleConv(3, 16), DoubleConv(16, 32), DoubleConv(32, 64)
        self.pool = nn.MaxPool2d(2)
        self.ups = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)])
        self.backs = nn.ModuleList([DoubleConv(64, 32), DoubleConv(32, 16)])
        self.last = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(self.pool(first))
        x = self.third(self.pool(second))
        for up, back, skip in zip(self.ups, self.backs, (second, first), strict=True):
            x = back(torch.cat([up(x), skip], 1))
        return self.last(x)


class Attention(nn.Module):
    """Causal attention with rotary positions over a cache, of Llama's form."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], past: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.into(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k = rotated(q, turn), rotated(k, turn)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.out(found.transpose(1, 2).reshape(batch, length, width))


def rotated(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * turn[0] + torch.cat([-high, low], -1) * turn[1]


class Decoder(nn.Module):
    """A decoder of Llama's form: a prompt, or one token after a cache."""

    def __init__(self, width: int = 256, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, width)
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(layers))
        self.gates = nn.ModuleList(nn.Linear(width, 8 * width // 3 * 2, bias=False) for _ in range(layers))
        self.downs = nn.ModuleList(nn.Linear(8 * width // 3, width, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2 * layers))
        self.head = nn.Linear(width, 1000, bias=False)
        at = torch.arange(512)[:, None] * 10000 ** (-torch.arange(0, width // heads, 2) / (width // heads))
        self.register_buffer("angles", torch.cat([at, at], -1))

    def forward(self, tokens: Tensor, cache: Tensor | None = None) -> Tensor:
        start = 0 if cache is None else cache.shape[4]
        angles = self.angles[start : start + tokens.shape[1]]
        turn, x = (angles.cos(), angles.sin()), self.embedding(tokens)
        for layer, attention in enumerate(self.attention):
            past = None if cache is None else cache[layer]
            x = x + attention(self.norms[2 * layer](x), turn, past)
            gate, up = self.gates[layer](self.norms[2 * layer + 1](x)).chunk(2, -1)
            x = x + self.downs[layer](F.silu(gate) * up)
        return self.head(x)


class Lstm(nn.Module):
    """An LSTM, step by step."""

    def __init__(self, width: int = 64, steps: int = 24) -> None:
        super().__init__()
        self.width, self.steps = width, steps
        self.into, self.back = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = cell = x.new_zeros(x.shape[0], self.width)
        for step in range(self.steps):
            i, f, g, o = (self.into(x[:, step]) + self.back(hidden)).chunk(4, -1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
        return hidden


class Recommender(nn.Module):
    """Embedding bags, interactions and dense layers, of DLRM's form."""

    def __init__(self, tables: int = 8, width: int = 16) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(5000, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + tables * (tables + 1) // 2, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        low = self.bottom(dense)
        parts = torch.stack([low, *(bag(sparse[:, at]) for at, bag in enumerate(self.bags))], 1)
        products = parts @ parts.transpose(1, 2)
        return self.top(torch.cat([low, products[:, self.pairs[0], self.pairs[1]]], 1)).sigmoid()


def kalman(measured: Tensor, state: Tensor, spread: Tensor) -> Tensor:
    """Constant velocity in one dim: a batch of tracks, 30 steps."""
    step = torch.tensor([[1.0, 0.1], [0.0, 1.0]])
    noise, seen = torch.eye(2) * 0.01, torch.tensor([[1.0, 0.0]])
    for z in measured.unbind(1):
        state, spread = state @ step.T, step @ spread @ step.T + noise
        total = (seen @ spread @ seen.T)[:, 0, 0] + 0.5
        gain = spread[:, :, 0] / total[:, None]
        state = state + gain * (z - state[:, 0])[:, None]
        spread = spread - gain[:, :, None] * spread[:, :1, :]
    return state


def particles(states: Tensor, measured: Tensor, noise: Tensor) -> Tensor:
    """Ten steps of a particle filter with systematic resampling."""
    n = states.shape[0]
    places = (torch.arange(n) + 0.5) / n
    for z, shake in zip(measured, noise, strict=True):
        states = states / 2 + 25 * states / (1 + states * states) + shake
        weights = torch.softmax(-((states * states / 20 - z) ** 2) / 2, 0)
        states = states[torch.searchsorted(weights.cumsum(0), places).clamp(max=n - 1)]
    return states


def pipeline(photos: Tensor) -> Tensor:
    """Bytes to network inputs: scaled, resized, blurred, edges, normalized."""
    x = F.interpolate(photos.permute(0, 3, 1, 2).float() / 255, size=(224, 224), mode="bilinear", align_corners=False)
    line = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
    blur = (line[:, None] * line).expand(3, 1, 5, 5)
    x = F.conv2d(F.pad(x, (2, 2, 2, 2), mode="reflect"), blur, groups=3)
    gray = (x * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1)
    across, down = gray[:, 1:-1, 2:] - gray[:, 1:-1, :-2], gray[:, 2:, 1:-1] - gray[:, :-2, 1:-1]
    edges = F.pad((across * across + down * down).sqrt(), (1, 1, 1, 1))
    mean, spread = x.mean((2, 3), keepdim=True), x.std((2, 3), keepdim=True)
    return torch.cat([(x - mean) / (spread + 1e-6), edges[:, None]], 1)


def marched(directions: Tensor) -> Tensor:
    """A sphere and a plane by signed distances: 32 steps for each pixel, then a light."""
    x, y, z = directions.unbind(-1)
    far = torch.zeros_like(x)

    def distance(t: Tensor) -> Tensor:
        px, py, pz = x * t, y * t, z * t - 3
        ball = (px * px + py * py + pz * pz).sqrt() - 1 + 0.1 * (8 * px).sin() * (8 * py).sin()
        return torch.minimum(ball, py + 1)

    for _ in range(32):
        far = torch.where(far < 20, far + 0.7 * distance(far), far)
    light = ((distance(far + 0.01) - distance(far)) * 100).clamp(0, 1)
    return torch.where(far < 20, light, torch.zeros_like(light))


def bodies(at: Tensor, speed: Tensor, mass: Tensor) -> Tensor:
    """Four steps of gravity between all pairs."""
    for _ in range(4):
        apart = at[None] - at[:, None]
        inverse = ((apart * apart).sum(-1) + 1e-3).rsqrt()
        speed = speed + 0.01 * (apart * (inverse**3 * mass)[..., None]).sum(1)
        at = at + 0.01 * speed
    return at


def waves(now: Tensor, before: Tensor) -> Tensor:
    """Ten steps of the wave equation on a ring of pixels."""
    for _ in range(10):
        around = now.roll(1, 0) + now.roll(-1, 0) + now.roll(1, 1) + now.roll(-1, 1) - 4 * now
        now, before = 2 * now - before + 0.1 * around, now
    return now


def clusters(points: Tensor, centers: Tensor) -> Tensor:
    """Three steps of k-means."""
    for _ in range(3):
        nearest = ((points[:, None] - centers) ** 2).sum(-1).argmin(1)
        ones = F.one_hot(nearest, centers.shape[0]).to(points.dtype)
        centers = (ones.T @ points) / ones.sum(0).clamp(min=1)[:, None]
    return centers


def program(function: Callable[..., Any], *inputs: Callable[[], Tensor]) -> Callable[[], Made]:
    return lambda: (Program(function), tuple(made() for made in inputs))


def rand(*sizes: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*sizes)


def decoder(tokens: int, cached: int) -> Callable[[], Made]:
    def made() -> Made:
        cache = torch.randn(4, 2, 1, 4, cached, 64) if cached else None
        return Decoder(), (torch.randint(1000, (1, tokens)), cache)

    return made


def encoder() -> Made:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), (torch.randn(4, 64, 256),)


def rays() -> Tensor:
    line = torch.linspace(-1, 1, 256)
    y, x = torch.meshgrid(line, line, indexing="ij")
    return F.normalize(torch.stack([x, y, torch.ones_like(x)], -1), dim=-1)


def recommender() -> Made:
    return Recommender(), (torch.randn(256, 13), torch.randint(5000, (256, 8, 4)))


NETWORKS: dict[str, Callable[[], Made]] = {
    "resnet18 1x224": image("resnet18", 1, 224),
    "resnet18 8x64": image("resnet18", 8, 64),
    "resnet50 1x224": image("resnet50", 1, 224),
    "mobilenet_v3_small 1x224": image("mobilenet_v3_small", 1, 224),
    "mobilenet_v3_small 8x96": image("mobilenet_v3_small", 8, 96),
    "efficientnet_b0 1x128": image("efficientnet_b0", 1, 128),
    "squeezenet1_1 4x128": image("squeezenet1_1", 4, 128),
    "unet 2x64": lambda: (UNet(), (torch.randn(2, 3, 64, 64),)),
    "encoder 4x64": encoder,
    "decoder prompt 64": decoder(64, 0),
    "decoder token after 256": decoder(1, 256),
    "lstm 32x24": lambda: (Lstm(), (torch.randn(32, 24, 64),)),
    "recommender 256": recommender,
}

PROGRAMS: dict[str, Callable[[], Made]] = {
    "kalman 1000x30": program(kalman, rand(1000, 30), rand(1000, 2), lambda: torch.eye(2).repeat(1000, 1, 1)),
    "particles 100000": program(particles, rand(100_000), rand(10), rand(10, 100_000)),
    "pipeline 4x480x640": program(pipeline, lambda: torch.randint(256, (4, 480, 640, 3)).to(torch.uint8)),
    "marched 256x256": program(marched, rays),
    "bodies 512": program(bodies, rand(512, 3), rand(512, 3), lambda: torch.rand(512)),
    "waves 512x512": program(waves, rand(512, 512), rand(512, 512)),
    "clusters 10000x8": program(clusters, rand(10_000, 8), rand(16, 8)),
}
