"""opfuse under engines that exist: torchrun, Dask and Ray, with several processes on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scoring

HERE = Path(__file__).parent
PARTS = 8


def losses(n_processes: int) -> list[float]:
    """The losses of a training by so many processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", str(n_processes), str(HERE / "scoring.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("loss")]


def test_two_processes_train_as_one():
    pytest.importorskip("torch")
    one, two = losses(1), losses(2)
    assert len(one) == len(two) == scoring.N_STEPS and one[-1] != one[0]
    # Gradients are means of means, which rounds otherwise.
    assert np.allclose(one, two, rtol=2e-6, atol=0)


def test_dask_maps_over_partitions():
    distributed = pytest.importorskip("distributed")
    array = pytest.importorskip("dask.array")
    rows, weight = scoring.rows_and_weight()
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, host="127.0.0.1", dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        client.run(sys.path.insert, 0, str(HERE))
        parts = array.from_array(rows, chunks=(len(rows) // PARTS, 8))
        found = parts.map_blocks(scoring.score, weight, dtype="float32", chunks=(len(rows) // PARTS, 3)).compute()
        # A function that is made here travels with what it captured.
        bias = scoring.opfuse.full([3], 2.0)
        shifted = scoring.opfuse.compile(lambda x: x + bias)
        moved = client.submit(lambda x: shifted(scoring.opfuse.asarray(x)).numpy(), found).result()
    # Rows have the same bits in parts of any size.
    assert (found == scoring.score(rows, weight)).all()
    assert (moved == found + np.float32(2)).all()


def test_ray_maps_over_partitions():
    ray = pytest.importorskip("ray")
    rows, weight = scoring.rows_and_weight()
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(HERE)}},
    )
    try:
        remote = ray.remote(scoring.score)
        found = ray.get([remote.remote(part, weight) for part in np.array_split(rows, PARTS)])
    finally:
        ray.shutdown()
    assert (np.concatenate(found) == scoring.score(rows, weight)).all()


def test_threads_release_the_gil():
    """Four threads call one compiled function, and each gets the bits of a call alone."""
    from concurrent.futures import ThreadPoolExecutor

    rows, weight = scoring.rows_and_weight(64_000)
    expected = scoring.score(rows, weight)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda part: scoring.score(part, weight), np.array_split(rows, 16)))
    assert (np.concatenate(found) == expected).all()
