"""Training steps of opfuse beside PyTorch.

    python3 benches/training.py WORKER [SECONDS [ROUNDS]]

prints a table in Markdown, and the geometric means of its ratios over the networks. WORKER is the executable of
`benches/training.rs`. All run in turns; the best of several rounds counts. PyTorch has the fused AdamW, and runs the
loss eagerly and under torch.compile.
"""

import statistics
import subprocess
import sys

import torch
from torch import nn
from torch.nn import functional as F

from timing import best

NETWORKS = ["mlp", "cnn", "transformer", "lstm", "autoencoder"]
UPDATES = {"adamw 100x1e4": (100, 10_000), "adamw 1x1e7": (1, 10_000_000)}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, activation="gelu", batch_first=True)
        self.inner, self.output = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(128, 10)

    def forward(self, x):
        return self.output(self.inner(x).mean(1))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.output = nn.LSTM(64, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x):
        return self.output(self.inner(x)[0][:, -1])


def network(row):
    mlp = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    cnn = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10))
    autoencoder = nn.Sequential(
        nn.Linear(784, 256), nn.SiLU(), nn.Linear(256, 32), nn.SiLU(), nn.Linear(32, 256), nn.SiLU(),
        nn.Linear(256, 784))
    return {
        "mlp": (mlp, torch.randn(64, 784)),
        "cnn": (cnn, torch.randn(32, 1, 14, 14)),
        "transformer": (Encoder(), torch.randn(8, 64, 128)),
        "lstm": (Lstm(), torch.randn(32, 32, 64)),
        "autoencoder": (autoencoder, torch.rand(64, 784)),
    }[row]


def of_torch(row):
    """The step of PyTorch, and that with a loss under torch.compile."""
    if row in UPDATES:
        count, elements = UPDATES[row]
        tensors = [torch.randn(elements).requires_grad_(True) for _ in range(count)]
        for tensor in tensors:
            tensor.grad = torch.randn(elements)
        return [torch.optim.AdamW(tensors, fused=True).step]
    model, x = network(row)
    y = torch.randint(0, 10, x.shape[:1])

    def loss_of(x, y):
        out = model(x)
        return F.binary_cross_entropy_with_logits(out, x) if row == "autoencoder" else F.cross_entropy(out, y)

    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step(loss_of):
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    # Code depends on the number of threads.
    torch.compiler.reset()
    compiled = torch.compile(loss_of)
    return [lambda: step(loss_of), lambda: step(compiled)]


def shown(micros):
    return f"{micros / 1000:.3g} ms" if micros >= 1000 else f"{micros:.3g} us"


def main():
    worker = sys.argv[1]
    seconds = sys.argv[2] if len(sys.argv) > 2 else "1"
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    others = ["apart", "PyTorch", "torch.compile"]
    print("| step | threads | whole |", *[f"{other} | times as fast |" for other in others])
    print("|---" * (3 + 2 * len(others)) + "|")
    ratios = {}
    for row in [*NETWORKS, *UPDATES]:
        for threads in [1, 2]:
            torch.set_num_threads(threads)
            peers = dict(zip(others[1:], of_torch(row)))
            found = {}
            for _ in range(rounds):
                out = subprocess.run([worker, row, str(threads), seconds], capture_output=True, text=True, check=True)
                times = dict(zip(["whole", "apart"], map(float, out.stdout.split())))
                times |= {name: best(step, float(seconds)) for name, step in peers.items()}
                found = {name: min(time, found.get(name, time)) for name, time in times.items()}
            whole = found["whole"]
            cells = [f"{shown(found[name])} | {found[name] / whole:.2f} |" if name in found else " | |"
                     for name in others]
            print(f"| {row} | {threads} | {shown(whole)} |", *cells, flush=True)
            for name in others if row in NETWORKS else []:
                ratios.setdefault((name, threads), []).append(found[name] / whole)
    print()
    for (name, threads), of_networks in ratios.items():
        print(f"- {name}, threads: {threads}, geometric mean: {statistics.geometric_mean(of_networks):.2f}")


main()
