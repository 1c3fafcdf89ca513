"""Functions of functions: compile, grad, vmap, and settings."""

import json
import math
import pickle
import signal
import threading
from collections import namedtuple

import opfuse
import pytest

Pair = namedtuple("Pair", "first second")


def layer(parameters, x, scale=1.0):
    h = (x @ parameters["w"] + parameters["b"]).relu()
    return {"y": h * scale, "parts": [h.sum(), (h.amax(1), scale)]}


def sample():
    opfuse.manual_seed(0)
    return {"w": opfuse.randn(4, 3), "b": opfuse.zeros(3)}, opfuse.randn(5, 4)


def test_compile_keeps_bits_and_structure():
    parameters, x = sample()
    fast = opfuse.compile(layer)
    for scale in (1.0, 2.0, 1):
        for _ in range(2):
            expected, found = layer(parameters, x, scale=scale), fast(parameters, x, scale=scale)
            assert found["y"].tolist() == expected["y"].tolist()
            assert found["parts"][1][0].tolist() == expected["parts"][1][0].tolist()
            assert found["parts"][1][1] == scale and type(found["parts"][1][1]) is type(scale)
    report = fast.explain()
    assert report.kernels_after < report.kernels_before
    assert "<iframe" in report._repr_html_() and "kernel" in str(report) and report.to_json().startswith("{")
    assert fast.counts()["captures"] >= 3


def test_minimize_compares_with_eager_calls():
    parameters, x = sample()
    fast = opfuse.compile(layer)
    with pytest.raises(opfuse.Error, match="call the function first"):
        fast.minimize(parameters, x, scale=1.0)
    fast(parameters, x, scale=1.0)
    assert fast.minimize(parameters, x, scale=1.0) is None
    assert fast.explain().peak_bytes > 0


def test_profile_says_what_a_function_runs():
    parameters, x = sample()
    fast = opfuse.compile(layer)
    fast(parameters, x, scale=1.0)
    result, profile = opfuse.profile(fast, parameters, x, scale=1.0)
    assert result["y"].tolist() == layer(parameters, x, scale=1.0)["y"].tolist()
    rows = json.loads(profile.to_json())["rows"]
    kernels = [row for row in rows if row["kind"] == "kernel"]
    assert kernels and all(row["name"].endswith(" of layer") and row["calls"] == 1 for row in kernels)
    assert 0 < profile.covered <= profile.wall
    assert "kernel" in str(profile) and "<iframe" in profile._repr_html_()
    assert json.loads(profile.to_chrome_trace())["traceEvents"]
    _, profile = opfuse.profile(lambda: x + x)
    assert "aten::add" in repr(profile)
    with pytest.raises(ZeroDivisionError):
        opfuse.profile(lambda: 1 / 0)
    with pytest.raises(opfuse.Error, match="profile"):
        opfuse.profile(lambda: opfuse.profile(lambda: x))


def test_compile_as_decorator_and_method():
    @opfuse.compile(breaks="error")
    def double(x):
        return x + x

    assert double(opfuse.ones(2)).tolist() == [2.0, 2.0]
    assert double.__wrapped__(opfuse.ones(1)).tolist() == [2.0]

    class Model:
        weight = opfuse.ones(3)

        @opfuse.compile
        def __call__(self, x):
            return x * self.weight

    assert Model()(opfuse.ones(3)).tolist() == [1.0, 1.0, 1.0]


def test_compile_named_tuples_and_new_sizes():
    swap = opfuse.compile(lambda pair: Pair(pair.second * 2, pair.first))
    for size in (1, 2, 7, 100):
        found = swap(Pair(opfuse.zeros(size), opfuse.ones(size)))
        assert isinstance(found, Pair) and found.first.tolist() == [2.0] * size


def test_compile_reads_values():
    @opfuse.compile
    def step(x):
        return x * 2 if x.sum().item() > 0 else x - 1

    assert step(opfuse.ones(2)).tolist() == [2.0, 2.0]
    assert step(-opfuse.ones(2)).tolist() == [-2.0, -2.0]
    assert step.breaks()
    strict = opfuse.compile(lambda x: x * x.sum().item(), breaks="error")
    with pytest.raises(ValueError, match="item|to_scalar|read"):
        strict(opfuse.ones(2))


def test_exceptions_come_through():
    @opfuse.compile
    def fails(x):
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            fails(opfuse.ones(2))

    @opfuse.compile
    def misuses(x):
        return x + opfuse.ones(3)

    with pytest.raises(ValueError, match="size of tensor"):
        misuses(opfuse.ones(2))
    with pytest.raises(TypeError, match="hashed"):
        opfuse.compile(lambda x, y: x)(opfuse.ones(1), bytearray(b"a"))


def test_interrupt_in_a_capture():
    @opfuse.compile
    def interrupted(x):
        signal.raise_signal(signal.SIGINT)
        for _ in range(1000):
            x = x + 1
        return x

    # A shell without job control starts what runs in its background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted(opfuse.ones(2))
    finally:
        signal.signal(signal.SIGINT, before)
    assert (opfuse.ones(2) + 1).tolist() == [2.0, 2.0]


def test_threads_share_a_compiled_function():
    shared = opfuse.compile(lambda x: (x * 2).sum())
    found = []
    run = lambda: found.extend(shared(opfuse.ones(50)).item() for _ in range(20))  # noqa: E731
    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [100.0] * 160


@opfuse.compile
def doubled(x):
    """Twice as much."""
    return x + x


class Layer:
    @opfuse.compile
    def tripled(x):
        return x * 3


def test_decorated_functions_pickle_by_name():
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert pickle.loads(pickle.dumps(Layer.tripled)) is Layer.tripled
    assert (doubled.__name__, Layer.tripled.__qualname__) == ("doubled", "Layer.tripled")

    @opfuse.compile
    def local(x):
        return x

    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(local)


def test_compiled_functions_pickle():
    again = pickle.loads(pickle.dumps(opfuse.compile(layer)))
    parameters, x = sample()
    assert again(parameters, x)["y"].tolist() == layer(parameters, x)["y"].tolist()


def test_zeros_of_both_signs_are_two_values():
    divide = opfuse.compile(lambda x, number: x / number)
    one, nan = opfuse.ones(1), float("nan")
    assert [divide(one, number).item() for number in (0.0, -0.0, 0.0)] == [math.inf, -math.inf, math.inf]
    before = divide.counts()["captures"]
    divide(one, nan), divide(one, nan)
    assert divide.counts()["captures"] == before + 1


def test_many_plain_values_are_forgotten():
    power = opfuse.compile(lambda x, n: x + n, capacity=4)
    x = opfuse.zeros(1)
    for n in range(5000):
        assert power(x, n).item() == n


def loss(parameters, x):
    return layer(parameters, x)["y"].pow(2).sum()


def test_grad():
    parameters, x = sample()
    gradients = opfuse.grad(loss)(parameters, x)
    assert gradients.keys() == parameters.keys()
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    loss(leaves, x).backward()
    for name, value in leaves.items():
        assert gradients[name].tolist() == value.grad.tolist()
    value, pair = opfuse.value_and_grad(loss, argnums=(0, 1))(parameters, x)
    assert value.item() == loss(parameters, x).item() and pair[1].shape == x.shape
    compiled = opfuse.compile(opfuse.grad(loss))
    for _ in range(3):
        assert compiled(parameters, x)["w"].tolist() == gradients["w"].tolist()
    with pytest.raises(ValueError, match="one element"):
        opfuse.grad(lambda x: x)(x)
    with pytest.raises(ValueError, match="argnums"):
        opfuse.grad(loss, argnums=5)(parameters, x)


def test_no_grad_and_backward():
    x = opfuse.ones(3).requires_grad_()
    with opfuse.no_grad():
        assert not (x * 2).requires_grad and not opfuse.is_grad_enabled()
        with opfuse.enable_grad():
            assert (x * 2).requires_grad
    assert opfuse.no_grad()(lambda: (x * 2).requires_grad)() is False
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0] and x.is_leaf
    x.grad = None
    assert x.grad is None


def test_vmap():
    x = opfuse.arange(6.0).reshape(2, 3)
    assert opfuse.vmap(lambda row: row.sum())(x).tolist() == [3.0, 12.0]
    assert opfuse.vmap(lambda row, y: row * y, in_dims=(1, None), out_dims=1)(x, x[:, 0]).shape == (2, 3)
    with pytest.raises(ValueError, match="in_dims"):
        opfuse.vmap(lambda x: x, in_dims=(0, 0))(x)
    with pytest.raises(ValueError, match="same size"):
        opfuse.vmap(lambda x, y: x)(x, opfuse.ones(5))


def test_autocast():
    x = opfuse.ones(4, 4)
    with opfuse.autocast("bfloat16"):
        assert (x @ x).dtype is opfuse.bfloat16
        with opfuse.autocast(enabled=False):
            assert (x @ x).dtype is opfuse.float32
    assert (x @ x).dtype is opfuse.float32
