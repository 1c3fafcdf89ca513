"""Programs as users of PyTorch write them, and what opfuse leaves to PyTorch in them."""

import dataclasses
import warnings

import opfuse
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not there; OPFUSE_PYTHON_TORCH=1 scripts/python.sh installs it")

import opfuse.torch  # noqa: E402

nn = torch.nn
F = nn.functional


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function, **options):
    return torch.compile(function, backend="opfuse", **options)


def same(function, *args, fallback=None):
    """Compares eager and compiled calls, each with arguments and draws of its own. Says what ran in PyTorch."""
    results = []
    for call in (function, compiled(function)):
        torch.manual_seed(1)
        own = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = call(*own)
        results.append((found if isinstance(found, tuple) else (found,), own))
    told = [str(one.message) for one in caught if "opfuse.torch" in str(one.message)]
    assert bool(told) == bool(fallback) and all(fallback in text for text in told), told
    for expected, found in zip(*(sum(map(list, result), []) for result in results), strict=True):
        if isinstance(expected, torch.Tensor):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5, equal_nan=True)
        else:
            assert found == expected


def test_constants_in_functions():
    table = torch.tensor([1.0, 2.0, 3.0])

    def function(x):
        y = x * table + torch.tensor([4.0, 5.0, 6.0]) * torch.tensor(2) + torch.as_tensor([1, 2, 3])
        y[torch.tensor([0, 2])] += 1
        y[y > 30] = torch.tensor(0.5)
        return y + torch.arange(3) + torch.linspace(0, 1, 3)

    same(function, torch.ones(3))
    fast = compiled(function)
    fast(torch.ones(3))
    table.mul_(10)
    torch.testing.assert_close(fast(torch.ones(3)), function(torch.ones(3)))


def test_numpy_in_functions():
    numpy = pytest.importorskip("numpy")
    same(lambda x: torch.from_numpy(numpy.sin(x.numpy()) + 1) * 2, torch.randn(4))


def test_complex_numbers_run_in_pytorch():
    def spectrum(x):
        z = torch.fft.rfft(x)
        return torch.fft.irfft(z * 2, n=8) + x, z.abs().sum() * 2

    def rotated(q, angles):
        z = torch.view_as_complex(q.reshape(2, 3, 4, 2)) * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(z).flatten(-2) * 2

    same(spectrum, torch.randn(2, 8), fallback="complex64")
    same(rotated, torch.randn(2, 3, 8), torch.randn(3, 4), fallback="complex64")
    same(lambda z: z, torch.complex(torch.ones(2), torch.ones(2)))


def test_other_dtypes_run_in_pytorch():
    same(lambda x: (x.to(torch.uint16).to(torch.int32) * 2, x + 1), torch.arange(5), fallback="uint16")


def test_control_flow_operators_run_in_pytorch():
    branch = lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,)) * 2  # noqa: E731
    same(branch, torch.ones(3), fallback="cond")
    torch._dynamo.reset()
    same(branch, -torch.ones(3), fallback="cond")


def test_refused_calls_run_in_pytorch(monkeypatch):
    def refuses(*_, **__):
        raise opfuse.UnsupportedError("refused here")

    monkeypatch.setitem(opfuse.torch._SPECIAL, torch.ops.aten.tanh.default, refuses)
    function = lambda x: (x * 2).tanh() + (x - 1).tanh()  # noqa: E731
    same(function, torch.randn(3), fallback="refused here")
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match="refused here"):
        report = opfuse.torch.explain(function, torch.randn(3))
    assert "tanh" in str(report) and report.graphs and sum(report.fallbacks.values()) == 2


def test_custom_operators_run_in_pytorch():
    @torch.library.custom_op("opfuse_test::square", mutates_args=())
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    square.register_fake(torch.empty_like)
    same(lambda x: square(x + 1).sum() * 2, torch.randn(3), fallback="square")


def test_bags_of_embeddings():
    ids, offsets, scales = torch.tensor([1, 2, 4, 5, 2]), torch.tensor([0, 2, 2]), torch.rand(5, requires_grad=True)
    cases = [
        (mode, padding, by_freq, None)
        for mode in ("sum", "mean", "max")
        for padding in (None, 2)
        for by_freq in (False, mode != "max")
    ]
    for mode, padding, by_freq, scaled in [*cases, ("sum", None, False, scales), ("sum", 2, False, scales)]:
        torch.manual_seed(0)
        model = nn.EmbeddingBag(20, 5, mode=mode, padding_idx=padding, scale_grad_by_freq=by_freq)
        found = []
        for call in (model, compiled(model)):
            model.zero_grad()
            scales.grad = None
            with warnings.catch_warnings():
                # No call is left to PyTorch.
                warnings.simplefilter("error")
                y = call(ids, offsets, per_sample_weights=scaled)
                (y * torch.arange(5.0)).sum().backward()
            by_scales = torch.zeros(0) if scales.grad is None else scales.grad.clone()
            found.append((y.detach(), model.weight.grad.clone(), by_scales))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)


def test_views_with_another_sign():
    same(lambda x: x + 1, torch._neg_view(torch.arange(3.0)))


def test_loops_branches_and_containers():
    @dataclasses.dataclass
    class Batch:
        x: torch.Tensor
        n: int

    def function(x, flags, *, scale=2.0):
        batch = Batch(x * scale, 3)
        if batch.x.mean() > 0:
            batch.x = batch.x.relu()
        for step in range(batch.n):
            batch.x = batch.x + step
        return batch.x, flags["name"], {"n": [batch.x.sum()]}["n"][0]

    same(function, torch.randn(3, 3), {"name": "a"})
    same(function, -torch.ones(2, 2), {"name": "b"})


def test_writes_buffers_and_counters():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("count", torch.tensor(0))
            self.calls = 0

        def forward(self, x):
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.count += 1
            self.calls += 1
            return (x - self.mean) / self.count

    x = torch.randn(4, 5, 3)
    found = []
    for wrap in (lambda model: model, compiled):
        model = Average()
        call = wrap(model)
        found.append([*(call(row) for row in x), model.mean, model.count, torch.tensor(model.calls)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_optimizers_and_whole_steps():
    found = []
    for wrap in (lambda function: function, compiled):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.AdamW(model.parameters(), 0.05)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = wrap(step)
        found.append([run(torch.ones(2, 4)) for _ in range(4)] + [model.weight.detach()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
