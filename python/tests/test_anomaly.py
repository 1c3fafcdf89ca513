"""`detect_anomaly`: the operator and the line of Python of the first NaN."""

import threading
from pathlib import Path

import opfuse
import pytest
from opfuse.autograd import detect_anomaly, set_detect_anomaly


def line(mark):
    """Where this file has the mark at the end of a line."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [at for at, text in enumerate(lines, 1) if text.endswith(f"# {mark}")]
    return f"{__file__}:{number}"


def refused(work, name, mark):
    with pytest.raises(opfuse.Error) as raised:
        work()
    text = str(raised.value)
    assert text.startswith(name), text
    assert line(mark) in text, text


def leaf(*numbers):
    return opfuse.tensor(list(numbers), requires_grad=True)


def root(x):
    return (
        x.sqrt()  # root
        * 0.0
    ).sum()


def test_a_nan_of_a_backward_pass_names_operator_and_line():
    x = leaf(0.0, 4.0)
    root(x).backward()
    assert x.grad.isnan().tolist() == [True, False]
    x.grad = None
    with detect_anomaly():
        refused(root(x).backward, "SqrtBackward", "root")
        assert x.grad is None
        refused(lambda: opfuse.autograd.grad(root(x), x), "SqrtBackward", "root")
        # Infinities are no anomaly.
        x.sqrt().sum().backward()
        assert x.grad.tolist() == [float("inf"), 0.25]
    root(x).backward()


def test_a_nan_of_the_loss_names_the_first_call_that_gave_one():
    x = leaf(-1.0, 4.0)
    with detect_anomaly():
        logarithm = x.log()  # logarithm
        loss = logarithm.exp().sum()
        refused(loss.backward, "LogBackward", "logarithm")
        logarithm[1].backward()
        # Python's operators, conversions, and functions that the package writes in Python.
        wrong = x - x / 0.0 + x / 0.0  # difference
        refused(wrong.sum().backward, "", "difference")
        loss = opfuse.norm(leaf(float("nan")))  # norm
        refused(loss.backward, "", "norm")


@pytest.mark.parametrize("n", [4, 100_000])
def test_calls_with_and_without_the_gil_are_located(n):
    x = opfuse.zeros(n).requires_grad_()
    with detect_anomaly():
        loss = (x.sqrt() * 0.0).sum()  # many
        refused(loss.backward, "SqrtBackward", "many")


def test_compiled_functions_run_eagerly_meanwhile():
    @opfuse.compile
    def step(x):
        loss = (x.sqrt() * 0.0).sum()  # compiled
        loss.backward()
        return loss.detach()

    x = leaf(0.0, 4.0)
    step(x)
    with detect_anomaly():
        refused(lambda: step(x), "SqrtBackward", "compiled")
    step(x)


def test_flags_decorators_and_threads():
    x = leaf(0.0, 4.0)
    with detect_anomaly(), detect_anomaly(check_nan=False):
        root(x).backward()
    with detect_anomaly(), set_detect_anomaly(False):
        root(x).backward()

    @detect_anomaly()
    def step():
        root(x).backward()

    refused(step, "SqrtBackward", "root")
    set_detect_anomaly(True)
    refused(root(x).backward, "SqrtBackward", "root")
    found = []

    def other():
        root(x).backward()
        found.append("no error")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == ["no error"]
    set_detect_anomaly(False)
    root(x).backward()
