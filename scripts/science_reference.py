"""What NumPy and SciPy compute for the programs of examples/science.

    python scripts/science_reference.py                             # writes examples/science/expected.npz
    python scripts/science_reference.py --photograph astronaut.png  # writes astronaut.npz from scikit-image's file, too

Each function here has a module of its name there. Where SciPy has another method than the example, it is used: a sine
transform for the heat equation, `ndimage` and `signal` for pictures and spectra. Needs numpy, scipy and pillow.
"""

import argparse
import pathlib

import numpy as np
from scipy import fft, ndimage, signal, special

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "examples" / "science"


def uniform(counter):
    """A number between 0 and 1 for each counter: the finalizer of MurmurHash3 for 32 bits."""
    h = np.asarray(counter, dtype=np.uint64) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(16)
    h = h * np.uint64(0x85EBCA6B) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(13)
    h = h * np.uint64(0xC2B2AE35) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(16)
    return (h + 0.5) / 2.0**32


def heat():
    n, courant, steps = 128, 0.2, 1000
    x = np.arange(1, n + 1) / (n + 1)
    distance = np.hypot(x[:, None] - 0.5, x[None, :] - 0.4)
    u = np.exp(-(((distance - 0.25) / 0.04) ** 2))
    # Each sine is multiplied by one number per step, so this is what all steps do, up to rounding.
    mode = 2 * np.cos(np.pi * x) - 2
    factor = 1 + courant * (mode[:, None] + mode[None, :])
    last = fft.idstn(factor**steps * fft.dstn(u, type=1), type=1)
    return {"last": last[::4, ::4], "total": last.sum()}


def wave():
    height, width, courant, frames, steps = 128, 176, 0.5, 44, 8
    x = np.arange(width, dtype=float)

    def packet(x):
        return np.exp(-(((x - 28) / 9) ** 2)) * np.cos(2 * np.pi * x / 10)

    y = np.arange(height)
    is_open = np.ones((height, width))
    is_slit = (abs(y - 50) < 4) | (abs(y - 77) < 4)
    is_open[~is_slit, 60:63] = 0
    u = np.broadcast_to(packet(x), (height, width)) * is_open
    before = np.broadcast_to(packet(x + courant), (height, width)) * is_open
    energies = []
    for _ in range(frames):
        for _ in range(steps):
            after = 2 * u - before + courant**2 * ndimage.laplace(u, mode="nearest")
            u, before = after * is_open, u
        energies.append((u**2).mean())
    return {"last": u[::4, ::4], "squares": energies}


def ising():
    temperatures, side, sweeps, skipped = np.linspace(1.5, 3.5, 16), 64, 300, 100
    beta = (1 / temperatures)[:, None, None]
    spins = np.ones((len(temperatures), side, side))
    site = np.arange(spins.size).reshape(spins.shape)
    row, column = np.mgrid[:side, :side]
    is_black = (row + column) % 2 == 0
    magnetizations, energies = [], []
    for sweep in range(sweeps):
        for half, is_mine in enumerate((is_black, ~is_black)):
            field = sum(np.roll(spins, shift, axis) for axis in (1, 2) for shift in (1, -1))
            draw = uniform(site + (2 * sweep + half) * spins.size)
            flips = is_mine & (draw < np.exp(-2 * beta * spins * field))
            spins = np.where(flips, -spins, spins)
        magnetizations.append(abs(spins.mean((1, 2))))
        bonds = spins * (np.roll(spins, 1, 1) + np.roll(spins, 1, 2))
        energies.append(-bonds.mean((1, 2)))
    return {
        "spins": spins.astype(np.int8),
        "magnetization": np.mean(magnetizations[skipped:], 0),
        "energy": np.mean(energies[skipped:], 0),
    }


def kalman():
    rng = np.random.default_rng(1)
    steps, dt, noise, push = 120, 1.0, 4.0, 0.05
    move = np.eye(4) + dt * np.eye(4, k=2)
    half = np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    spread = np.kron(half, np.eye(2))
    state, truth = np.array([0.0, 0.0, 1.0, 0.5]), []
    for _ in range(steps):
        state = move @ state + np.linalg.cholesky(push * spread) @ rng.standard_normal(4)
        truth.append(state[:2])
    seen = np.array(truth) + np.sqrt(noise) * rng.standard_normal((steps, 2))

    def filtered(push):
        mean, cov, means, likelihood = np.zeros(4), 100 * np.eye(4), [], 0.0
        look = np.eye(2, 4)
        for z in seen:
            mean, cov = move @ mean, move @ cov @ move.T + push * spread
            error, s = z - look @ mean, look @ cov @ look.T + noise * np.eye(2)
            gain = np.linalg.solve(s, look @ cov).T
            mean, cov = mean + gain @ error, cov - gain @ look @ cov
            means.append(mean)
            likelihood -= 0.5 * (error @ np.linalg.solve(s, error) + np.log(np.linalg.det(2 * np.pi * s)))
        return np.array(means), cov, likelihood

    means, cov, likelihood = filtered(push)
    step = 1e-4
    slope = (filtered(push * np.exp(step))[2] - filtered(push * np.exp(-step))[2]) / (2 * step)
    return {
        "seen": seen, "truth": np.array(truth), "means": means, "cov": cov,
        "likelihood": likelihood, "slope": slope,
    }


def particle():
    rng = np.random.default_rng(2)
    steps, n = 100, 2000

    def grown(x, t):
        return x / 2 + 25 * x / (1 + x**2) + 8 * np.cos(1.2 * t)

    x, truth, seen = 0.1, [], []
    for t in range(steps):
        x = grown(x, t) + np.sqrt(10) * rng.standard_normal()
        truth.append(x)
        seen.append(x**2 / 20 + rng.standard_normal())
    number = np.arange(n)
    x = np.sqrt(5) * special.ndtri(uniform(number))
    means, sizes = [], []
    for t, z in enumerate(seen):
        x = grown(x, t) + np.sqrt(10) * special.ndtri(uniform(number + (t + 1) * n))
        weights = special.softmax(-0.5 * (z - x**2 / 20) ** 2)
        means.append(weights @ x)
        sizes.append(1 / (weights @ weights))
        points = (number + uniform(10**6 + t)) / n
        x = x[np.searchsorted(np.cumsum(weights), points).clip(max=n - 1)]
    return {"seen": seen, "truth": truth, "means": means, "sizes": sizes}


def nbody():
    rng = np.random.default_rng(3)
    stars, dt, steps, softening = 150, 0.02, 400, 0.2

    def disc(centre, velocity, tilt):
        radius = 0.3 + 0.9 * np.sqrt(rng.random(stars))
        angle = 2 * np.pi * rng.random(stars)
        speed = radius / (radius**2 + softening**2) ** 0.75
        flat = np.stack([np.cos(angle), np.sin(angle), 0 * angle], 1)
        round_ = np.stack([-np.sin(angle), np.cos(angle), 0 * angle], 1)
        turn = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
        x = np.concatenate([np.zeros((1, 3)), radius[:, None] * flat @ turn.T]) + centre
        v = np.concatenate([np.zeros((1, 3)), speed[:, None] * round_ @ turn.T]) + velocity
        return x, v, np.concatenate([[1.0], np.full(stars, 1e-5)])

    one = disc([-1.8, -1.0, 0.0], [0.4, 0.0, 0.0], 0.0)
    two = disc([1.8, 1.0, 0.0], [-0.4, 0.0, 0.0], 1.0)
    x, v, mass = (np.concatenate(pair) for pair in zip(one, two))
    begin = {"x": x, "v": v, "mass": mass}

    def acceleration(x):
        apart = x[None] - x[:, None]
        return (mass[None, :, None] * apart / ((apart**2).sum(2) + softening**2)[..., None] ** 1.5).sum(1)

    def energy(x, v):
        apart = x[None] - x[:, None]
        pairs = np.outer(mass, mass) / np.sqrt((apart**2).sum(2) + softening**2)
        return 0.5 * (mass * (v**2).sum(1)).sum() - 0.5 * (pairs.sum() - np.trace(pairs))

    before = energy(x, v)
    a = acceleration(x)
    for _ in range(steps):
        v = v + dt / 2 * a
        x = x + dt * v
        a = acceleration(x)
        v = v + dt / 2 * a
    return begin | {"last": x, "energies": [before, energy(x, v)]}


def spectrogram():
    rate, n, window, hop = 8000, 16000, 512, 128
    t = np.arange(n) / rate
    chirp = np.sin(2 * np.pi * (300 * t + 800 * t**2))
    song = 0.5 * np.sin(2 * np.pi * 2600 * t + 60 * np.sin(2 * np.pi * 3 * t)) * np.sin(2 * np.pi * 1.5 * t) ** 2
    hann = signal.get_window("hann", window)
    _, _, z = signal.stft(chirp + song, rate, hann, window, window - hop, boundary="even", padded=False)
    return {"magnitude": (abs(z) * hann.sum())[::6, ::4]}


def photograph():
    image = np.load(FOLDER / "astronaut.npz")["image"] / 255.0
    linear = np.where(image <= 0.04045, image / 12.92, ((image + 0.055) / 1.055) ** 2.4)
    blurred = ndimage.gaussian_filter(linear, (2, 2, 0), mode="mirror", radius=(6, 6, 0))
    light = linear @ [0.2126, 0.7152, 0.0722]
    edges = np.hypot(ndimage.sobel(light, 0, mode="mirror"), ndimage.sobel(light, 1, mode="mirror"))
    sharp = (linear + 0.8 * (linear - blurred)).clip(0, 1)
    counts, bounds = np.histogram(light, 256, (0, 1))
    equal = np.interp(light, bounds[1:], counts.cumsum() / light.size)
    small = ndimage.zoom(linear, (0.5, 0.5, 1), order=1, mode="nearest", grid_mode=True)
    xyz = linear @ np.array([
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]).T / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    lab = np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], 2)
    pictures = {
        "linear": linear, "blurred": blurred, "edges": edges, "sharp": sharp, "equal": equal, "small": small,
        "lab": lab,
    }
    return {name: picture[::8, ::8] for name, picture in pictures.items()}


def reduced(path):
    """The photograph at a size that a repository can hold."""
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((144, 144), Image.Resampling.LANCZOS))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photograph", type=pathlib.Path, help="scikit-image's file astronaut.png")
    given = parser.parse_args()
    if given.photograph:
        np.savez_compressed(FOLDER / "astronaut.npz", image=reduced(given.photograph))
    found = {}
    for program in (heat, wave, ising, kalman, particle, nbody, spectrogram, photograph):
        found |= {f"{program.__name__}.{name}": np.asarray(value) for name, value in program().items()}
    np.savez_compressed(FOLDER / "expected.npz", **found)
    for name, value in found.items():
        print(f"{name:26} {value.dtype}{list(value.shape)}")


if __name__ == "__main__":
    main()
