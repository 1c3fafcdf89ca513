"""Training steps of opfuse beside PyTorch.

    python3 benches/training.py WORKER [SECONDS [ROUNDS]]

prints a table in Markdown. WORKER is the executable of `benches/training.rs`. Rows run in turns; the best of several
rounds counts. PyTorch runs eagerly, with the fused AdamW.
"""

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
    if row in UPDATES:
        count, elements = UPDATES[row]
        tensors = [torch.randn(elements).requires_grad_(True) for _ in range(count)]
        for tensor in tensors:
            tensor.grad = torch.randn(elements)
        return torch.optim.AdamW(tensors, fused=True).step
    model, x = network(row)
    y = torch.randint(0, 10, x.shape[:1])
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        out = model(x)
        loss = F.binary_cross_entropy_with_logits(out, x) if row == "autoencoder" else F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def shown(micros):
    return f"{micros / 1000:.3g} ms" if micros >= 1000 else f"{micros:.3g} us"


def main():
    worker = sys.argv[1]
    seconds = sys.argv[2] if len(sys.argv) > 2 else "1"
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    print("| step | thr | whole | apart | times as fast | PyTorch | times as fast |\n|---|---|---|---|---|---|---|")
    for row in [*NETWORKS, *UPDATES]:
        for threads in [1, 2]:
            torch.set_num_threads(threads)
            step, ours, theirs = of_torch(row), [], []
            for _ in range(rounds):
                out = subprocess.run([worker, row, str(threads), seconds], capture_output=True, text=True, check=True)
                ours.append([float(word) for word in out.stdout.split()])
                theirs.append(best(step, float(seconds)))
            whole, peer = min(times[0] for times in ours), min(theirs)
            apart = min(times[-1] for times in ours)
            own = ("", "") if row in UPDATES else (shown(apart), f"{apart / whole:.2f}")
            print(f"| {row} | {threads} | {shown(whole)} | {own[0]} | {own[1]} | {shown(peer)} | {peer / whole:.2f} |",
                  flush=True)


main()
