"""What the workers of engines run: functions that processes import, and the training of one process among several."""

from __future__ import annotations

from typing import Any

import numpy as np
import opfuse

N_STEPS = 5
BATCH = 8


@opfuse.compile
def probabilities(x: Any, weight: Any) -> Any:
    """A softmax of scores, row by row."""
    scores = x @ weight
    powers = (scores - scores.amax(1, True)).exp()
    return powers / powers.sum(1, True)


def score(rows: Any, weight: Any) -> Any:
    """The probabilities of some rows of a NumPy array, as an array."""
    return probabilities(opfuse.asarray(rows), opfuse.asarray(weight)).numpy()


def rows_and_weight(n_rows: int = 1000) -> tuple[Any, Any]:
    numbers = np.random.default_rng(0)
    return numbers.normal(size=(n_rows, 8)).astype("float32"), numbers.normal(size=(8, 3)).astype("float32")


def train() -> None:
    """Trains a small network on this process's share of each batch. The first process prints the mean losses."""
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    parallel = nn.parallel.DistributedDataParallel(model)
    compiled = torch.compile(parallel, backend="opfuse")
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=0.01)
    numbers = torch.Generator().manual_seed(1)
    share = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    for _ in range(N_STEPS):
        x, labels = torch.randn(BATCH, 16, generator=numbers), torch.randint(4, (BATCH,), generator=numbers)
        loss = nn.functional.cross_entropy(compiled(x[share]), labels[share])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print("loss", (mean / world).item())
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
