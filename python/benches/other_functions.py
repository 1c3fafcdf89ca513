"""Functions for `torch_compile.py --other-functions`, each of another field or way through memory.

They were written in one go by somebody who did not look at the compiler, before any was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from functions import ints, normal, uniform
from nets import Made, program
from torch import Tensor

Maker = Callable[[], Tensor]


def of(dtype: torch.dtype, maker: Maker) -> Maker:
    return lambda: maker().to(dtype)


def seen(maker: Maker, view: Callable[[Tensor], Tensor]) -> Maker:
    """What a user has after slicing, transposing or expanding: not contiguous."""
    return lambda: view(maker())


def booleans(*sizes: int, part: float = 0.5) -> Maker:
    return lambda: torch.rand(*sizes) < part


def boxes(count: int) -> Maker:
    def made() -> Tensor:
        corner = torch.rand(count, 2) * 500
        return torch.cat([corner, corner + torch.rand(count, 2) * 100 + 5], 1)

    return made


def spread_matrix(n: int) -> Maker:
    def made() -> Tensor:
        a = torch.randn(n, n)
        return a @ a.T / n + torch.eye(n)

    return made


bf16, f16, f64, u8, i32 = torch.bfloat16, torch.float16, torch.float64, torch.uint8, torch.int32


# Images


def sobel(x: Tensor) -> tuple[Tensor, Tensor]:
    across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
    kernels = torch.stack([across, across.T])[:, None]
    gx, gy = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), kernels).unbind(1)
    return torch.hypot(gx, gy), torch.atan2(gy, gx)


def median_of_cross(x: Tensor) -> Tensor:
    around = [x] + [torch.roll(x, shift, dim) for dim in (-1, -2) for shift in (1, -1)]
    return torch.stack(around).sort(0)[0][2]


def gamma_table(x: Tensor) -> Tensor:
    table = ((torch.arange(256) / 255.0) ** (1 / 2.2) * 255 + 0.5).to(torch.uint8)
    return table[x.long()]


def bilinear_samples(image: Tensor, at: Tensor) -> Tensor:
    _, height, width = image.shape
    x, y = at[:, 0] * (width - 1), at[:, 1] * (height - 1)
    x0, y0 = x.floor().long().clamp(0, width - 2), y.floor().long().clamp(0, height - 2)
    fx, fy = x - x0, y - y0
    top = image[:, y0, x0] * (1 - fx) + image[:, y0, x0 + 1] * fx
    bottom = image[:, y0 + 1, x0] * (1 - fx) + image[:, y0 + 1, x0 + 1] * fx
    return top * (1 - fy) + bottom * fy


def hsv(x: Tensor) -> Tensor:
    r, g, b = x[:, 0], x[:, 1], x[:, 2]
    value, which = x.max(1)
    delta = value - x.amin(1)
    safe = torch.where(delta == 0, torch.ones_like(delta), delta)
    candidates = torch.stack([(g - b) / safe, 2 + (b - r) / safe, 4 + (r - g) / safe], 1)
    hue = candidates.gather(1, which[:, None]).squeeze(1) / 6 % 1.0
    return torch.stack([hue, delta / value.clamp(min=1e-8), value], 1)


def equalized(x: Tensor) -> Tensor:
    flat = x.flatten(1).long()
    counts = torch.zeros(x.shape[0], 256, dtype=torch.int64).scatter_add(1, flat, torch.ones_like(flat))
    total = counts.cumsum(1)
    table = (total - total[:, :1]) * 255 // (total[:, -1:] - total[:, :1]).clamp(min=1)
    return table.gather(1, flat).view(x.shape).to(torch.uint8)


def opened(x: Tensor) -> Tensor:
    eroded = -F.max_pool2d(-x, 5, 1, 2)
    return x - F.max_pool2d(eroded, 5, 1, 2)


def box_by_integral(x: Tensor) -> Tensor:
    total = F.pad(x.cumsum(-1).cumsum(-2), (1, 0, 1, 0))
    k = 15
    return (total[..., k:, k:] - total[..., :-k, k:] - total[..., k:, :-k] + total[..., :-k, :-k]) / k**2


def blended_bytes(front: Tensor, back: Tensor) -> Tensor:
    alpha = front[..., 3:].to(torch.int32)
    mixed = front[..., :3].to(torch.int32) * alpha + back.to(torch.int32) * (255 - alpha) + 128
    return ((mixed + (mixed >> 8)) >> 8).to(torch.uint8)


def similarity(x: Tensor, y: Tensor) -> Tensor:
    mx, my = F.avg_pool2d(x, 7, 1), F.avg_pool2d(y, 7, 1)
    vx, vy = F.avg_pool2d(x * x, 7, 1) - mx * mx, F.avg_pool2d(y * y, 7, 1) - my * my
    both = F.avg_pool2d(x * y, 7, 1) - mx * my
    score = (2 * mx * my + 1e-4) * (2 * both + 9e-4) / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))
    return score.mean((1, 2, 3))


def patches(x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    y = x.view(n, c, h // 16, 16, w // 16, 16).permute(0, 2, 4, 3, 5, 1).reshape(n, -1, 256 * c)
    return (y - y.mean(-1, keepdim=True)) / (y.var(-1, keepdim=True) + 1e-6).sqrt()


def augmented(x: Tensor) -> Tensor:
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return ((x[:, 16:240, 16:240].flip(2).float() / 255 - mean) / std).permute(0, 3, 1, 2).to(torch.bfloat16)


def demosaiced(x: Tensor) -> Tensor:
    green = (x[0::2, 1::2] + x[1::2, 0::2]) * 0.5
    small = torch.stack([x[0::2, 0::2], green, x[1::2, 1::2]])
    return small.repeat_interleave(2, 1).repeat_interleave(2, 2).clamp(0, 1)


# Sound


def mel_decibels(x: Tensor, cos: Tensor, sin: Tensor, mel: Tensor) -> Tensor:
    louder = torch.cat([x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]], 1)
    frames = louder.unfold(1, 256, 128) * torch.hann_window(256)
    power = (frames @ cos) ** 2 + (frames @ sin) ** 2
    level = 10 * torch.log10((power @ mel).clamp(min=1e-10))
    return torch.maximum(level, level.amax((1, 2), keepdim=True) - 80)


def spectrum(x: Tensor) -> Tensor:
    z = torch.fft.rfft(x * torch.hann_window(x.shape[-1]), dim=-1)
    return torch.log1p(z.real**2 + z.imag**2)


def biquad(x: Tensor) -> Tensor:
    x1 = x2 = y1 = y2 = torch.zeros_like(x[:, 0])
    out = []
    for t in range(x.shape[1]):
        x0 = x[:, t]
        y0 = 0.2 * x0 + 0.4 * x1 + 0.2 * x2 + 0.37 * y1 - 0.19 * y2
        x1, x2, y1, y2 = x0, x1, y0, y1
        out.append(y0)
    return torch.stack(out, 1)


def mu_law(x: Tensor) -> tuple[Tensor, Tensor]:
    code = ((torch.sign(x) * torch.log1p(255 * x.abs()) / math.log(256.0) + 1) / 2 * 255 + 0.5).to(torch.uint8)
    y = code.float() / 255 * 2 - 1
    return code, torch.sign(y) * ((1 + 255.0) ** y.abs() - 1) / 255


def overlap_added(frames: Tensor) -> Tensor:
    y = (frames * torch.hann_window(512)).transpose(1, 2)
    hop = 256
    return F.fold(y, (1, (y.shape[-1] - 1) * hop + 512), (1, 512), stride=(1, hop)).squeeze(2)


# Finance


def drawdowns(returns: Tensor) -> tuple[Tensor, Tensor]:
    wealth = torch.exp(returns.cumsum(1))
    fall = 1 - wealth / wealth.cummax(1)[0]
    return fall.amax(1), (fall > 0.1).sum(1)


def rolling_bands(x: Tensor) -> Tensor:
    window = x.unfold(1, 20, 1)
    mean, spread = window.mean(-1), window.std(-1)
    return (x[:, 19:] - mean) / (2 * spread + 1e-9)


def portfolios(weights: Tensor, returns: Tensor) -> tuple[Tensor, Tensor]:
    w = weights / weights.sum(1, keepdim=True)
    centred = returns - returns.mean(0)
    risk = torch.einsum("pi,ij,pj->p", w, centred.T @ centred / (returns.shape[0] - 1), w).sqrt()
    gain = w @ returns.mean(0)
    return gain / risk, risk


def asian_option(shocks: Tensor) -> Tensor:
    dt = 1 / shocks.shape[1]
    paths = 100 * torch.exp(((0.02 - 0.5 * 0.04) * dt + 0.2 * math.sqrt(dt) * shocks).cumsum(1))
    payoff = (paths.mean(1) - 100).clamp(min=0) * (paths.amax(1) < 140)
    return math.exp(-0.02) * torch.stack([payoff.mean(), payoff.std() / math.sqrt(shocks.shape[0])])


def american_puts(spot: Tensor) -> Tensor:
    steps = 40
    up = math.exp(0.3 * math.sqrt(1 / steps))
    growth = math.exp(0.03 / steps)
    p = (growth - 1 / up) / (up - 1 / up)
    at = torch.arange(steps + 1)
    value = (100 - spot[:, None] * up ** (2.0 * at - steps)).clamp(min=0)
    for n in range(steps - 1, -1, -1):
        held = (p * value[:, 1:] + (1 - p) * value[:, :-1]) / growth
        value = torch.maximum(held, 100 - spot[:, None] * up ** (2.0 * at[: n + 1] - n))
    return value[:, 0]


def bond_prices(rate: Tensor, flows: Tensor) -> tuple[Tensor, Tensor]:
    years = torch.arange(1, flows.shape[1] + 1, dtype=rate.dtype)
    present = flows * (1 + rate[:, None]) ** -years
    price = present.sum(1)
    return price, (present * years).sum(1) / price


def strength_index(price: Tensor) -> Tensor:
    change = price[:, 1:] - price[:, :-1]
    gain, loss = F.relu(change), F.relu(-change)
    kernel = torch.full((1, 1, 14), 1 / 14)
    up, down = (F.conv1d(side[:, None], kernel)[:, 0] for side in (gain, loss))
    return 100 - 100 / (1 + up / (down + 1e-8))


# Physics


def lennard_jones(x: Tensor) -> tuple[Tensor, Tensor]:
    d = x[:, None] - x[None]
    d = d - 10 * torch.round(d / 10)
    r2 = (d * d).sum(-1)
    near = (r2 < 6.25) & ~torch.eye(x.shape[0], dtype=torch.bool)
    inverse = torch.where(near, 1 / (r2 + 0.1), torch.zeros_like(r2))
    six = inverse**3
    force = (24 * (2 * six * six - six) * inverse)[..., None] * d
    return force.sum(1), 2 * (six * six - six).sum()


def heat_3d(x: Tensor) -> Tensor:
    for _ in range(4):
        inner = x[1:-1, 1:-1, 1:-1]
        around = (
            x[2:, 1:-1, 1:-1] + x[:-2, 1:-1, 1:-1] + x[1:-1, 2:, 1:-1]
            + x[1:-1, :-2, 1:-1] + x[1:-1, 1:-1, 2:] + x[1:-1, 1:-1, :-2]
        )  # fmt: skip
        x = F.pad(inner + 0.1 * (around - 6 * inner), (1, 1, 1, 1, 1, 1))
    return x


def waves(now: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    for _ in range(8):
        laplacian = sum(torch.roll(now, s, d) for d in (0, 1) for s in (1, -1)) - 4 * now
        now, before = 1.99 * now - 0.99 * before + 0.2 * laplacian, now
    return now, before


def smoothed_particles(x: Tensor, mass: Tensor) -> Tensor:
    q = torch.cdist(x, x) / 0.1
    near = 1 - 1.5 * q**2 + 0.75 * q**3
    far = 0.25 * (2 - q) ** 3
    w = torch.where(q < 1, near, torch.where(q < 2, far, torch.zeros_like(q)))
    return w @ mass / (math.pi * 0.1**3)


def rigid(q: Tensor, shift: Tensor, points: Tensor) -> Tensor:
    w, x, y, z = F.normalize(q, dim=-1).unbind(-1)
    m = torch.stack(
        [
            1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
            2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
            2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
        ],
        -1,
    ).view(-1, 3, 3)  # fmt: skip
    return torch.einsum("bij,bnj->bni", m, points) + shift[:, None]


def boltzmann(f: Tensor) -> Tensor:
    cx = torch.tensor([0.0, 1, 0, -1, 0, 1, -1, -1, 1])
    cy = torch.tensor([0.0, 0, 1, 0, -1, 1, 1, -1, -1])
    w = torch.tensor([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    rho = f.sum(0)
    ux, uy = torch.einsum("k,kij->ij", cx, f) / rho, torch.einsum("k,kij->ij", cy, f) / rho
    cu = 3 * (cx[:, None, None] * ux + cy[:, None, None] * uy)
    equal = w[:, None, None] * rho * (1 + cu + 0.5 * cu**2 - 1.5 * (ux**2 + uy**2))
    f = f + (equal - f) / 0.6
    xs, ys = [0, 1, 0, -1, 0, 1, -1, -1, 1], [0, 0, 1, 0, -1, 1, 1, -1, -1]
    return torch.stack([torch.roll(f[k], (xs[k], ys[k]), (0, 1)) for k in range(9)])


def tridiagonal(lower: Tensor, main: Tensor, upper: Tensor, right: Tensor) -> Tensor:
    n = main.shape[1]
    c, d = [upper[:, 0] / main[:, 0]], [right[:, 0] / main[:, 0]]
    for i in range(1, n):
        below = main[:, i] - lower[:, i] * c[-1]
        c.append(upper[:, i] / below)
        d.append((right[:, i] - lower[:, i] * d[-1]) / below)
    x = [d[-1]]
    for i in range(n - 2, -1, -1):
        x.append(d[i] - c[i] * x[-1])
    return torch.stack(x[::-1], 1)


def lorenz(state: Tensor) -> Tensor:
    def slope(s: Tensor) -> Tensor:
        x, y, z = s.unbind(0)
        return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    h = 0.01
    for _ in range(5):
        a = slope(state)
        b = slope(state + h / 2 * a)
        c = slope(state + h / 2 * b)
        state = state + h / 6 * (a + 2 * b + 2 * c + slope(state + h * c))
    return state


def legendre(x: Tensor) -> Tensor:
    p = [torch.ones_like(x), x]
    for n in range(1, 12):
        p.append(((2 * n + 1) * x * p[-1] - n * p[-2]) / (n + 1))
    return torch.stack(p, -1)


def ising(spins: Tensor, chance: Tensor) -> Tensor:
    i = torch.arange(spins.shape[-1])
    board = (i[:, None] + i) % 2
    for colour in range(2):
        around = sum(torch.roll(spins, s, d) for d in (-1, -2) for s in (1, -1))
        flips = (chance[colour] < torch.exp(-0.88 * (spins * around).float())) & (board == colour)
        spins = torch.where(flips, -spins, spins)
    return spins


# Statistics


def mahalanobis(x: Tensor, precision: Tensor) -> Tensor:
    y = x - x.mean(0, keepdim=True)
    return torch.einsum("ni,ij,nj->n", y, precision, y).clamp(min=0).sqrt()


def mixture(x: Tensor, mean: Tensor, log_std: Tensor, logit: Tensor) -> tuple[Tensor, Tensor]:
    z = (x[:, None] - mean) * torch.exp(-log_std)
    log_p = -0.5 * (z * z).sum(-1) - log_std.sum(-1) - 0.5 * x.shape[1] * math.log(2 * math.pi)
    joint = log_p + F.log_softmax(logit, 0)
    total = torch.logsumexp(joint, 1)
    return total, torch.exp(joint - total[:, None])


def density(points: Tensor, data: Tensor) -> Tensor:
    width = 1.06 * data.std() * data.shape[0] ** -0.2
    z = (points[:, None] - data) / width
    return torch.exp(-0.5 * z * z).mean(1) / (width * math.sqrt(2 * math.pi))


def spearman(x: Tensor, y: Tensor) -> Tensor:
    a, b = (v.argsort(1).argsort(1).float() for v in (x, y))
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    return (a * b).sum(1) / ((a * a).sum(1) * (b * b).sum(1)).sqrt()


def robust(x: Tensor) -> Tensor:
    centre = x.median(0)[0]
    spread = (x - centre).abs().median(0)[0]
    return ((x - centre) / (1.4826 * spread + 1e-8)).clamp(-5, 5)


def expanding(x: Tensor) -> tuple[Tensor, Tensor]:
    n = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)
    mean = x.cumsum(1) / n
    return mean, ((x * x).cumsum(1) / n - mean * mean).clamp(min=0).sqrt()


def moments(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    d = x - mean
    v = (d * d).mean(-1)
    return torch.stack([mean[..., 0], v, (d**3).mean(-1) / v**1.5, (d**4).mean(-1) / v**2 - 3], -1)


def autocorrelation(x: Tensor) -> Tensor:
    y = x - x.mean(-1, keepdim=True)
    lags = [(y[:, : y.shape[1] - k] * y[:, k:]).sum(-1) for k in range(12)]
    return torch.stack(lags, -1) / lags[0][:, None]


def calibration(logits: Tensor, label: Tensor) -> Tensor:
    sure, guess = torch.softmax(logits, -1).max(-1)
    bin_of = torch.bucketize(sure, torch.linspace(0, 1, 16)[1:-1])
    sums = torch.zeros(15, 3).index_add(
        0, bin_of, torch.stack([torch.ones_like(sure), sure, (guess == label).float()], -1)
    )
    return (sums[:, 1] - sums[:, 2]).abs().sum() / sums[:, 0].sum()


# Graphs


def messages(x: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    degree = torch.ones(x.shape[0]).index_add(0, target, torch.ones(target.shape[0]))
    scale = degree.rsqrt()
    sent = x[source] * (scale[source] * scale[target])[:, None]
    return F.relu((torch.zeros_like(x).index_add(0, target, sent) + x / degree[:, None]) @ weight)


def edge_softmax(score: Tensor, target: Tensor) -> Tensor:
    nodes, heads = 2000, score.shape[1]
    index = target[:, None].expand(-1, heads)
    score = F.leaky_relu(score, 0.2)
    most = torch.full((nodes, heads), -1e9).scatter_reduce(0, index, score, "amax")
    e = torch.exp(score - most[target])
    return e / (torch.zeros(nodes, heads).scatter_add(0, index, e)[target] + 1e-9)


def edge_convolution(x: Tensor, near: Tensor, weight: Tensor) -> Tensor:
    around = x[near]
    pair = torch.cat([x[:, None].expand_as(around), around - x[:, None]], -1)
    return F.leaky_relu(pair @ weight, 0.2).amax(1)


def min_plus(d: Tensor) -> Tensor:
    return torch.minimum(d, (d[:, :, None] + d[None]).amin(1))


def components(linked: Tensor) -> Tensor:
    label = torch.arange(linked.shape[0], dtype=torch.int32)
    for _ in range(4):
        label = torch.minimum(label, torch.where(linked, label, 2**30).amin(1))
    return label


# Recommenders


def bag_scores(table: Tensor, history: Tensor, item: Tensor) -> Tensor:
    real = (history > 0).float()[..., None]
    user = (table[history] * real).sum(1) / real.sum(1).clamp(min=1)
    return torch.einsum("bd,bkd->bk", user, table[item]) / math.sqrt(table.shape[1])


def hashed_features(a: Tensor, b: Tensor, first: Tensor, second: Tensor) -> Tensor:
    crossed = ((a * 2654435761) ^ (b * 40503)) & 0x7FFFFFFF
    return torch.cat([first[crossed % first.shape[0]], second[(crossed >> 7) % second.shape[0]]], -1)


def factor_machine(x: Tensor, linear: Tensor) -> Tensor:
    total = x.sum(1)
    return torch.sigmoid(0.5 * (total * total - (x * x).sum(1)).sum(-1) + linear.sum(1))


def feature_crosses(x: Tensor) -> Tensor:
    i, j = torch.tril_indices(x.shape[1], x.shape[1], -1)
    return torch.cat([x[:, 0], (x @ x.transpose(1, 2))[:, i, j]], 1)


# Text


def rotary_pairs(x: Tensor, angle: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def relative_bias(scores: Tensor, table: Tensor) -> Tensor:
    at = torch.arange(scores.shape[-1])
    far = (at[:, None] - at).clamp(min=0)
    large = 16 + (torch.log(far.float().clamp(min=1) / 16) / math.log(128 / 16) * 16).long()
    bucket = torch.where(far < 16, far, large.clamp(max=31))
    return torch.softmax(scores + table[bucket].permute(2, 0, 1), -1)


def residual_norm(x: Tensor, y: Tensor, bias: Tensor, weight: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    total = x + (y + bias)
    return total, F.layer_norm(total.float(), (total.shape[-1],), weight, shift).to(x.dtype)


def label_smoothing(logits: Tensor, label: Tensor) -> Tensor:
    log_p = F.log_softmax(logits, -1)
    real = label != 0
    right = -log_p.gather(-1, label[..., None]).squeeze(-1)
    loss = 0.9 * right - 0.1 * log_p.mean(-1)
    return torch.where(real, loss, torch.zeros_like(loss)).sum() / real.sum()


def token_shift(x: Tensor, mix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    before = F.pad(x, (0, 0, 1, -1))
    return tuple(x * m + before * (1 - m) for m in mix)  # type: ignore[return-value]


def top_p(logits: Tensor) -> Tensor:
    p, order = torch.softmax(logits / 0.8, -1).sort(-1, descending=True)
    kept = torch.where(p.cumsum(-1) - p > 0.9, torch.zeros_like(p), p)
    return torch.zeros_like(p).scatter(-1, order, kept / kept.sum(-1, keepdim=True))


def top_k_softmax(logits: Tensor, temperature: Tensor) -> Tensor:
    warm = logits / temperature[:, None]
    least = torch.topk(warm, 40, -1)[0][:, -1:]
    return torch.softmax(warm.masked_fill(warm < least, float("-inf")), -1)


def repetition_penalty(logits: Tensor, seen_tokens: Tensor) -> Tensor:
    score = logits.gather(1, seen_tokens)
    score = torch.where(score < 0, score * 1.3, score / 1.3)
    return F.log_softmax(logits.scatter(1, seen_tokens, score), -1)


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    state = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(2)
    norm = (q * k.cumsum(2)).sum(-1, keepdim=True)
    return torch.einsum("bhtd,bhtde->bhte", q, state) / norm


def windowed_grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (x.repeat_interleave(4, 1) for x in (k, v))
    at = torch.arange(q.shape[-2])
    far = at[:, None] - at
    scores = 30 * torch.tanh(q @ k.transpose(-1, -2) / 8 / 30)
    return torch.softmax(scores.masked_fill((far < 0) | (far >= 32), -1e9), -1) @ v


def selective_scan(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    h = x.new_zeros(x.shape[0], x.shape[2], a.shape[1])
    step, out = F.softplus(delta), []
    for t in range(x.shape[1]):
        h = h * torch.exp(step[:, t, :, None] * a) + (step[:, t] * x[:, t])[..., None] * b[:, t, None]
        out.append((h * c[:, t, None]).sum(-1))
    return torch.stack(out, 1)


def minimal_gates(x: Tensor, weight: Tensor) -> Tensor:
    h, out = x.new_zeros(x.shape[0], x.shape[2]), []
    for t in range(x.shape[1]):
        both = torch.cat([x[:, t], h], -1) @ weight
        f = torch.sigmoid(both[:, ::2])
        h = f * h + (1 - f) * torch.tanh(both[:, 1::2])
        out.append(h)
    return torch.stack(out, 1).mean(1)


def hidden_markov(emit: Tensor, move: Tensor) -> Tensor:
    alpha = emit[:, 0]
    log_move = F.log_softmax(move, 1)
    for t in range(1, emit.shape[1]):
        alpha = torch.logsumexp(alpha[:, :, None] + log_move, 1) + emit[:, t]
    return torch.logsumexp(alpha, 1)


def viterbi(emit: Tensor, move: Tensor) -> Tensor:
    score, back = emit[:, 0], []
    for t in range(1, emit.shape[1]):
        most, which = (score[:, :, None] + move).max(1)
        score = most + emit[:, t]
        back.append(which)
    path = [score.argmax(1, keepdim=True)]
    for which in reversed(back):
        path.append(which.gather(1, path[-1]))
    return torch.cat(path[::-1], 1)


# Losses


def dice(logits: Tensor, label: Tensor) -> Tensor:
    p = torch.softmax(logits, 1)
    target = F.one_hot(label, logits.shape[1]).permute(0, 3, 1, 2).float()
    both, total = (p * target).sum((0, 2, 3)), (p + target).sum((0, 2, 3))
    return 1 - ((2 * both + 1) / (total + 1)).mean()


def hard_triplets(x: Tensor, label: Tensor) -> Tensor:
    squares = (x * x).sum(1)
    d = (squares[:, None] + squares - 2 * x @ x.T).clamp(min=1e-12).sqrt()
    same = label[:, None] == label
    far = torch.where(same, d, torch.zeros_like(d)).amax(1)
    near = d.masked_fill(same, float("inf")).amin(1)
    return F.relu(far - near + 0.3).mean()


def contrastive(a: Tensor, b: Tensor) -> Tensor:
    z = F.normalize(torch.cat([a, b]), dim=1)
    n = a.shape[0]
    scores = (z @ z.T / 0.07).masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
    return F.cross_entropy(scores, torch.arange(2 * n).roll(n))


def generalized_overlap(a: Tensor, b: Tensor) -> Tensor:
    areas = [(x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b)]
    both = (torch.min(a[:, None, 2:], b[:, 2:]) - torch.max(a[:, None, :2], b[:, :2])).clamp(min=0).prod(-1)
    whole = (torch.max(a[:, None, 2:], b[:, 2:]) - torch.min(a[:, None, :2], b[:, :2])).prod(-1)
    union = areas[0][:, None] + areas[1] - both
    return both / union - (whole - union) / whole


def matrix_suppression(box: Tensor, score: Tensor) -> Tensor:
    order = score.argsort(descending=True)
    b = box[order]
    x1, y1, x2, y2 = b.unbind(1)
    wide = (torch.minimum(x2[:, None], x2) - torch.maximum(x1[:, None], x1)).clamp(min=0)
    tall = (torch.minimum(y2[:, None], y2) - torch.maximum(y1[:, None], y1)).clamp(min=0)
    area = (x2 - x1) * (y2 - y1)
    overlap = (wide * tall / (area[:, None] + area - wide * tall)).triu(1)
    worst = overlap.amax(0)
    decay = torch.exp(-2 * (overlap**2 - worst[:, None] ** 2)).amin(0)
    return torch.zeros_like(score).scatter(0, order, score[order] * decay)


def soft_argmax(heat: Tensor) -> Tensor:
    n, k, h, w = heat.shape
    p = torch.softmax(heat.flatten(2) * 10, -1).view(n, k, h, w)
    x, y = torch.linspace(-1, 1, w), torch.linspace(-1, 1, h)
    return torch.stack([(p.sum(2) * x).sum(-1), (p.sum(3) * y).sum(-1)], -1)


def gaussian_divergence(mean: Tensor, log_var: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    z = mean + torch.exp(0.5 * log_var) * noise
    return z, (-0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(1)).mean()


# Integers


def popcounts(a: Tensor, b: Tensor) -> Tensor:
    x = a[:, None] ^ b
    x = x - ((x >> 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
    return ((x * 0x0101010101010101) >> 56).sum(-1)


def fnv(x: Tensor) -> Tensor:
    h = torch.full((x.shape[0],), 2166136261)
    for column in x.unbind(1):
        h = ((h ^ column.long()) * 16777619) & 0xFFFFFFFF
    return h


def adler(x: Tensor) -> Tensor:
    n = x.shape[1]
    a = (1 + x.sum(1, dtype=torch.int64)) % 65521
    b = (n + (x.long() * torch.arange(n, 0, -1)).sum(1)) % 65521
    return (b << 16) | a


def morton(x: Tensor, y: Tensor) -> Tensor:
    def spaced(v: Tensor) -> Tensor:
        v = (v | (v << 8)) & 0x00FF00FF
        v = (v | (v << 4)) & 0x0F0F0F0F
        v = (v | (v << 2)) & 0x33333333
        return (v | (v << 1)) & 0x55555555

    return spaced(x) | (spaced(y) << 1)


def dates(day: Tensor) -> Tensor:
    z = day + 719468
    era = torch.div(z, 146097, rounding_mode="floor")
    doe = z - era * 146097
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    month = torch.where(mp < 10, mp + 3, mp - 9)
    return torch.stack([yoe + era * 400 + (month <= 2), month, doy - (153 * mp + 2) // 5 + 1], -1)


def euclid(a: Tensor, b: Tensor) -> Tensor:
    for _ in range(12):
        zero = b == 0
        a, b = torch.where(zero, a, b), torch.where(zero, b, a % torch.where(zero, 1, b))
    return a


def power_mod(base: Tensor, exponent: Tensor) -> Tensor:
    result = torch.ones_like(base)
    for bit in range(12):
        result = torch.where((exponent >> bit) & 1 == 1, result * base % 1000003, result)
        base = base * base % 1000003
    return result


def packed_nibbles(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = x.view(x.shape[0], -1, 32)
    scale = rows.abs().amax(-1, keepdim=True) / 7
    q = (torch.round(rows / scale).clamp(-8, 7) + 8).to(torch.uint8)
    return q[..., 0::2] | (q[..., 1::2] << 4), scale.squeeze(-1).half()


def bit_planes(x: Tensor) -> Tensor:
    return ((x[..., None] >> torch.arange(8, dtype=torch.uint8)) & 1).bool().sum((0, 1))


# Quantities in few bits


def nibbles_times_vector(packed: Tensor, scale: Tensor, zero: Tensor, x: Tensor) -> Tensor:
    q = torch.stack([packed & 15, packed >> 4], -1).flatten(1)
    w = (q.view(q.shape[0], -1, 64).float() - zero[..., None]) * scale[..., None]
    return w.flatten(1) @ x


def fake_quantized(w: Tensor) -> Tensor:
    scale = w.abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-8) / 127
    return torch.round(w / scale).clamp(-128, 127) * scale


def quantized_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = x.aminmax(dim=-1, keepdim=True)
    scale = (high - low) / 255
    zero = torch.round(-low / scale)
    return (torch.round(x / scale) + zero).clamp(0, 255).to(torch.uint8), scale, zero.int()


# Optimizers


def adamw(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    step = (m / (1 - 0.9**10)) / ((v / (1 - 0.999**10)).sqrt() + 1e-8)
    return p * (1 - 1e-3 * 0.01) - 1e-3 * step, m, v


def lion_clipped(p: Tensor, g: Tensor, h: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    norm = (g.pow(2).sum() + h.pow(2).sum()).sqrt()
    g = g * (1.0 / (norm + 1e-6)).clamp(max=1)
    return p - 1e-4 * (torch.sign(0.9 * m + 0.1 * g) + 0.1 * p), torch.lerp(m, g, 0.01)


def muon(g: Tensor) -> Tensor:
    x = g.bfloat16() / (g.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.float()


def adafactor(g: Tensor, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    g2 = g * g + 1e-30
    row, column = 0.99 * row + 0.01 * g2.mean(1), 0.99 * column + 0.01 * g2.mean(0)
    u = g * (row / row.mean()).rsqrt()[:, None] * column.rsqrt()
    return u / (u.pow(2).mean().sqrt() / 1.0).clamp(min=1), row, column


# Geometry


def mesh_normals(vertex: Tensor, face: Tensor) -> tuple[Tensor, Tensor]:
    a, b, c = vertex[face].unbind(1)
    n = torch.linalg.cross(b - a, c - a)
    total = torch.zeros_like(vertex).index_add(0, face.flatten(), n.repeat_interleave(3, 0))
    return F.normalize(total, dim=-1), 0.5 * n.norm(dim=-1)


def inverted_3x3(m: Tensor) -> tuple[Tensor, Tensor]:
    r0, r1, r2 = m.unbind(1)
    c0, c1, c2 = torch.linalg.cross(r1, r2), torch.linalg.cross(r2, r0), torch.linalg.cross(r0, r1)
    det = (r0 * c0).sum(-1)
    return torch.stack([c0, c1, c2], -1) / det[:, None, None], det


def in_triangles(p: Tensor, t: Tensor) -> Tensor:
    def side(a: Tensor, b: Tensor) -> Tensor:
        d = b - a
        return d[:, 0] * (p[:, None, 1] - a[:, 1]) - d[:, 1] * (p[:, None, 0] - a[:, 0])

    a, b, c = t.unbind(1)
    s, u, v = side(a, b), side(b, c), side(c, a)
    inside = ((s >= 0) & (u >= 0) & (v >= 0)) | ((s <= 0) & (u <= 0) & (v <= 0))
    return inside.sum(1)


def ray_spheres(origin: Tensor, ray: Tensor, centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    d = ray / ray.norm(dim=-1, keepdim=True)
    away = origin[:, None] - centre
    b = (away * d[:, None]).sum(-1)
    disc = b * b - (away * away).sum(-1) + radius * radius
    t = -b - disc.clamp(min=0).sqrt()
    t = torch.where((disc > 0) & (t > 0), t, torch.full_like(t, 1e9))
    return t.min(1)


def projected(points: Tensor, pose: Tensor) -> tuple[Tensor, Tensor]:
    seen_from = torch.cat([points, torch.ones_like(points[:, :1])], -1) @ pose.transpose(-1, -2)
    z = seen_from[..., 2].clamp(min=1e-3)
    u, v = seen_from[..., 0] / z, seen_from[..., 1] / z
    r2 = u * u + v * v
    bend = 1 + r2 * (-0.2 + 0.05 * r2)
    at = torch.stack([500 * u * bend + 320, 500 * v * bend + 240], -1)
    size = torch.tensor([640.0, 480.0])
    return at, (seen_from[..., 2] > 0) & ((at >= 0) & (at < size)).all(-1)


def six_to_rotation(x: Tensor) -> Tensor:
    a, b = x[:, :3], x[:, 3:]
    a = F.normalize(a, dim=-1)
    b = F.normalize(b - (a * b).sum(-1, keepdim=True) * a, dim=-1)
    return torch.stack([a, b, torch.linalg.cross(a, b)], -2)


def chamfer(a: Tensor, b: Tensor) -> Tensor:
    d = ((a[:, :, None] - b[:, None]) ** 2).sum(-1)
    return d.amin(1).mean(1) + d.amin(2).mean(1)


def volume_rendered(density_: Tensor, colour: Tensor, depth: Tensor) -> tuple[Tensor, Tensor]:
    gap = F.pad(depth[:, 1:] - depth[:, :-1], (0, 1), value=1e3)
    alpha = 1 - torch.exp(-F.relu(density_) * gap)
    clear = torch.cumprod(F.pad(1 - alpha + 1e-10, (1, 0), value=1.0), 1)[:, :-1]
    weight = alpha * clear
    return (weight[..., None] * colour).sum(1), (weight * depth).sum(1)


# Layouts and odd reductions


def looked_up(edges_: Tensor, x: Tensor, values: Tensor) -> Tensor:
    i = torch.searchsorted(edges_, x).clamp(1, edges_.shape[1] - 1)
    x0, x1 = edges_.gather(1, i - 1), edges_.gather(1, i)
    y0, y1 = torch.take_along_dim(values, i - 1, 1), torch.take_along_dim(values, i, 1)
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def batch_statistics(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    var, mean = torch.var_mean(x, (0, 2, 3), keepdim=True, correction=0)
    return F.hardswish((x - mean) * torch.rsqrt(var + 1e-5) * weight[:, None, None] + bias[:, None, None])


def unfilled(x: Tensor) -> Tensor:
    """The last value that was not NaN, as pandas' ffill."""
    bad = torch.isnan(x)
    last = torch.where(bad, 0, torch.arange(x.shape[1])).cummax(1)[0]
    return torch.nan_to_num(x.gather(1, last))


def runs(x: Tensor) -> Tensor:
    """How long each run of true has been."""
    count = x.int().cumsum(1)
    return count - torch.where(x, 0, count).cummax(1)[0]


def shuffled_channels(x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    left, right = x.chunk(2, 1)
    y = torch.cat([left, F.relu6(right)], 1)
    return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def interleaved(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a.flip(0), b * 2], 1).reshape(-1, a.shape[1])[1:-1:3].contiguous()


def shifted_windows(x: Tensor) -> Tensor:
    n, h, w, c = x.shape
    y = torch.roll(x, (-4, -4), (1, 2)).view(n, h // 8, 8, w // 8, 8, c)
    y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, c)
    return y - y.mean(1, keepdim=True)


def lines_with_nan() -> Tensor:
    x = torch.randn(400, 500)
    return x.masked_fill(torch.rand(400, 500) < 0.3, float("nan"))


OTHER_FUNCTIONS: dict[str, Callable[[], Made]] = {
    # Images
    "sobel": program(sobel, uniform(2, 1, 256, 256)),
    "median of cross": program(median_of_cross, uniform(128, 128)),
    "gamma table": program(gamma_table, ints(256, 512, 512, 3, dtype=u8)),
    "bilinear samples": program(bilinear_samples, uniform(3, 240, 320), uniform(20_000, 2)),
    "hsv": program(hsv, uniform(1, 3, 200, 200)),
    "equalized": program(equalized, ints(256, 8, 256, 256, dtype=u8)),
    "top hat": program(opened, uniform(2, 1, 128, 128)),
    "box by integral": program(box_by_integral, of(f64, uniform(4, 200, 200))),
    "blended bytes": program(blended_bytes, ints(256, 256, 256, 4, dtype=u8), ints(256, 256, 256, 3, dtype=u8)),
    "augmented bytes": program(augmented, ints(256, 2, 256, 256, 3, dtype=u8)),
    # Sound
    "mel decibels": program(mel_decibels, normal(2, 16_000), normal(256, 129), normal(256, 129), uniform(129, 40)),
    "biquad": program(biquad, normal(2000, 48)),
    # Finance
    "drawdowns": program(drawdowns, seen(normal(500, 250), lambda x: x * 0.01)),
    "rolling bands": program(rolling_bands, normal(60, 500)),
    "portfolios": program(portfolios, uniform(2000, 50), normal(250, 50)),
    "asian option": program(asian_option, normal(4000, 52)),
    # Physics
    "lennard-jones": program(lennard_jones, uniform(256, 3, high=10)),
    "heat 3-d": program(heat_3d, normal(48, 48, 48)),
    "waves 2-d": program(waves, normal(128, 128), normal(128, 128)),
    "smoothed particles": program(smoothed_particles, uniform(400, 3), uniform(400)),
    "rigid": program(rigid, normal(100, 4), normal(100, 3), normal(100, 500, 3)),
    "tridiagonal f64": program(
        tridiagonal,
        of(f64, uniform(2000, 24)),
        of(f64, uniform(2000, 24, low=3, high=4)),
        of(f64, uniform(2000, 24)),
        of(f64, normal(2000, 24)),
    ),
    # Statistics
    "mahalanobis": program(mahalanobis, normal(10_000, 24), spread_matrix(24)),
    "mixture": program(mixture, normal(2000, 8), normal(10, 8), seen(normal(10, 8), lambda x: x * 0.3), normal(10)),
    "kernel density": program(density, normal(300), normal(1000)),
    "spearman": program(spearman, normal(100, 200), normal(100, 200)),
    "entropy of columns": program(
        lambda x: torch.special.entr(torch.softmax(x, 0)).sum(0), seen(normal(1000, 600), lambda x: x[::2, 1::2])
    ),
    # Graphs
    "messages": program(messages, normal(2000, 32), ints(2000, 10_000), ints(2000, 10_000), normal(32, 32)),
    "edge softmax": program(edge_softmax, normal(12_000, 4), ints(2000, 12_000)),
    "edge convolution": program(edge_convolution, normal(600, 16), ints(600, 600, 10), normal(32, 32)),
    # Recommenders
    "bag scores": program(bag_scores, normal(20_000, 32), ints(20_000, 200, 40), ints(20_000, 200, 20)),
    "hashed features": program(
        hashed_features, ints(10**6, 10_000), ints(10**6, 10_000), normal(5003, 16), normal(1009, 8)
    ),
    # Text
    "rotary of pairs bf16": program(rotary_pairs, of(bf16, normal(4, 128, 8, 64)), of(bf16, uniform(128, 32))),
    "relative bias": program(relative_bias, normal(8, 128, 128), normal(32, 8)),
    "residual norm bf16": program(
        residual_norm,
        of(bf16, normal(1000, 512)),
        of(bf16, normal(1000, 512)),
        of(bf16, normal(512)),
        normal(512),
        normal(512),
    ),
    "label smoothing": program(label_smoothing, normal(8, 32, 2000), ints(2000, 8, 32)),
    "token shift": program(token_shift, normal(4, 256, 384), uniform(3, 384)),
    "top p": program(top_p, seen(normal(16, 4000), lambda x: x * 3)),
    "top k softmax": program(top_k_softmax, normal(16, 16_000), uniform(16, low=0.5, high=1.5)),
    "linear attention": program(linear_attention, *(normal(2, 4, 64, 32),) * 3),
    "windowed, grouped": program(windowed_grouped, normal(1, 8, 128, 64), *(normal(1, 2, 128, 64),) * 2),
    "selective scan": program(
        selective_scan,
        normal(4, 32, 64),
        normal(4, 32, 64),
        lambda: -torch.rand(64, 16),
        normal(4, 32, 16),
        normal(4, 32, 16),
    ),
    "minimal gates": program(minimal_gates, normal(32, 24, 64), seen(normal(128, 128), lambda x: x * 0.1)),
    "gelu tanh f16": program(
        lambda x, b: F.gelu(x + b, approximate="tanh").clamp(max=6), of(f16, normal(400, 512)), of(f16, normal(512))
    ),
    "softcapped bf16": program(
        lambda x: torch.softmax(20 * torch.tanh(x / 20), -1), of(bf16, seen(normal(300, 333), lambda x: x * 10))
    ),
    # Losses
    "dice": program(dice, normal(2, 6, 96, 96), ints(6, 2, 96, 96)),
    "hard triplets": program(hard_triplets, normal(400, 64), ints(20, 400)),
    "contrastive": program(contrastive, normal(200, 128), normal(200, 128)),
    "generalized overlap": program(generalized_overlap, boxes(300), boxes(100)),
    "matrix suppression": program(matrix_suppression, boxes(300), uniform(300)),
    # Integers
    "popcounts of pairs": program(popcounts, *(ints(2**62, 200, 4), ints(2**62, 100, 4))),
    "fnv": program(fnv, ints(256, 5000, 24, dtype=u8)),
    "adler": program(adler, ints(256, 400, 1024, dtype=u8)),
    "dates": program(dates, ints(40_000, 10_000, start=-20_000)),
    "euclid": program(euclid, ints(1000, 5000, start=1, dtype=i32), ints(1000, 5000, start=1, dtype=i32)),
    "power mod": program(power_mod, ints(1000, 5000, start=1), ints(4096, 5000)),
    # Quantities in few bits
    "packed nibbles": program(packed_nibbles, normal(256, 512)),
    "nibbles @ vector": program(
        nibbles_times_vector, ints(256, 1024, 256, dtype=u8), uniform(1024, 8), uniform(1024, 8, high=15), normal(512)
    ),
    "fake quantized": program(fake_quantized, normal(192, 128, 3, 3)),
    # Optimizers
    "adamw": program(adamw, *(normal(150_000),) * 3, uniform(150_000)),
    "lion, clipped": program(lion_clipped, *(normal(300, 400),) * 4),
    # Geometry
    "mesh normals": program(mesh_normals, normal(2000, 3), ints(2000, 4000, 3)),
    "inverses 3x3 f64": program(inverted_3x3, of(f64, normal(5000, 3, 3))),
    "in triangles": program(in_triangles, uniform(500, 2), uniform(200, 3, 2)),
    # Layouts and odd reductions
    "looked up": program(
        looked_up, lambda: torch.rand(50, 64).sort(1)[0], uniform(50, 400), normal(50, 64)
    ),
    "batch statistics": program(batch_statistics, normal(8, 24, 32, 32), normal(24), normal(24)),
    "filled forward": program(unfilled, lines_with_nan),
    "runs of true": program(runs, booleans(200, 500, part=0.7)),
    "interleaved": program(interleaved, normal(2000, 300), normal(2000, 300)),
    "expanded and strided": program(
        lambda x, y: ((x - y) ** 2).sum((0, 2)),
        seen(normal(1, 100, 60), lambda x: x.expand(60, 100, 60)),
        seen(normal(60, 60, 200), lambda x: x.permute(1, 2, 0)[:, ::2]),
    ),
    "einsum of 4 letters": program(
        lambda a, b, c: torch.einsum("bxi,byj,ijk->bxyk", a, b, c),
        normal(8, 24, 10),
        normal(8, 28, 6),
        normal(10, 6, 5),
    ),
    "small products chained": program(
        lambda a, b, c: torch.tanh(a @ b) @ c.mT + a, *(normal(800, 6, 6),) * 3
    ),
    "transposed long rows": program(lambda x: torch.logsumexp(x.T, -1), normal(20_000, 12)),
    "one long row": program(lambda x: ((x - x.mean()) / x.abs().amax(), x.argmin()), normal(300_000)),
    "any, all, count": program(
        lambda x: ((x > 2).any(1), (x > -3).all(2), (x.abs() < 1).sum((0, 2)), torch.count_nonzero(x > 0, 0)),
        normal(20, 100, 100),
    ),
    "products and norms": program(
        lambda x: (x.prod(1), torch.linalg.vector_norm(x, float("inf"), (0, 2)), torch.linalg.vector_norm(x, 3, -1)),
        uniform(50, 20, 60, low=0.5, high=1.5),
    ),
}

# Rows over the number asked for: of the same kinds, for a second look.
MORE_FUNCTIONS: dict[str, Callable[[], Made]] = {
    "similarity of images": program(similarity, uniform(2, 1, 96, 96), uniform(2, 1, 96, 96)),
    "patches": program(patches, normal(4, 3, 224, 224)),
    "demosaiced": program(demosaiced, uniform(512, 512)),
    "spectrum": program(spectrum, normal(128, 1024)),
    "mu law": program(mu_law, uniform(60_000, low=-1)),
    "overlap added": program(overlap_added, normal(4, 60, 512)),
    "american puts": program(american_puts, uniform(500, low=80, high=120)),
    "bond prices f64": program(
        bond_prices, of(f64, uniform(3000, low=0.01, high=0.08)), of(f64, uniform(3000, 30, low=1, high=6))
    ),
    "strength index": program(strength_index, uniform(100, 500, low=50, high=60)),
    "lattice boltzmann": program(boltzmann, uniform(9, 100, 100, low=0.05, high=0.2)),
    "lorenz f64": program(lorenz, of(f64, normal(3, 2000))),
    "legendre f64": program(legendre, of(f64, uniform(20_000, low=-1))),
    "ising": program(ising, seen(ints(2, 4, 96, 96, dtype=i32), lambda x: x * 2 - 1), uniform(2, 4, 96, 96)),
    "robust": program(robust, normal(400, 100)),
    "expanding": program(expanding, normal(300, 400)),
    "moments of middle": program(lambda x: moments(x.transpose(1, 2)), normal(30, 200, 20)),
    "autocorrelation": program(autocorrelation, normal(300, 500)),
    "calibration": program(calibration, normal(4000, 10), ints(10, 4000)),
    "winsorized": program(
        lambda x: x.clamp(torch.quantile(x, 0.05, 1, keepdim=True), torch.quantile(x, 0.95, 1, keepdim=True)),
        normal(100, 300),
    ),
    "bootstrap": program(lambda x, i: torch.stack(torch.std_mean(x[i], 1), -1), normal(500), ints(500, 200, 500)),
    "min plus": program(min_plus, uniform(160, 160)),
    "components": program(components, booleans(400, 400, part=0.005)),
    "factor machine": program(factor_machine, seen(normal(1500, 26, 16), lambda x: x * 0.1), normal(1500, 26)),
    "feature crosses": program(feature_crosses, normal(500, 27, 16)),
    "repetition penalty": program(repetition_penalty, normal(16, 32_000), ints(32_000, 16, 100)),
    "hidden markov": program(hidden_markov, normal(16, 32, 24), normal(24, 24)),
    "viterbi": program(viterbi, normal(32, 24, 16), normal(16, 16)),
    "positions of mask": program(
        lambda m: torch.where(m, m.long().cumsum(-1) - 1, -1), booleans(128, 1024, part=0.8)
    ),
    "soft argmax": program(soft_argmax, normal(8, 17, 64, 48)),
    "gaussian divergence": program(gaussian_divergence, *(normal(2000, 64),) * 3),
    "morton": program(morton, ints(2**16, 60_000, dtype=i32), ints(2**16, 60_000, dtype=i32)),
    "bit planes": program(bit_planes, ints(256, 100, 200, dtype=u8)),
    "quantized rows": program(quantized_rows, normal(500, 300)),
    "muon": program(muon, normal(64, 128)),
    "adafactor": program(adafactor, normal(600, 500), uniform(600), uniform(500)),
    "rays and spheres": program(ray_spheres, normal(2000, 3), normal(2000, 3), normal(12, 3), uniform(12)),
    "projected": program(projected, normal(2000, 3), normal(6, 3, 4)),
    "rotations of six": program(six_to_rotation, normal(10_000, 6)),
    "chamfer": program(chamfer, normal(4, 150, 3), normal(4, 200, 3)),
    "volume rendered": program(
        volume_rendered, normal(500, 64), uniform(500, 64, 3), lambda: torch.rand(500, 64).sort(1)[0]
    ),
    "shuffled channels": program(shuffled_channels, normal(4, 64, 56, 56)),
    "shifted windows": program(shifted_windows, normal(2, 56, 56, 96)),
}
