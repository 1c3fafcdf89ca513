"""How long a call takes, for the scripts of this folder."""

import time


def best(call, seconds):
    """The least microseconds of calls that go on for so long, after three that warm up."""
    for _ in range(3):
        call()
    begin, found = time.perf_counter(), float("inf")
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - start)
    return found * 1e6
