"""Gradients of tensors that record how they were made, as in `torch.autograd`."""

from __future__ import annotations

from opfuse._functional import _Within
from opfuse._opfuse import Tensor, _gradients, _Setting

TYPE_CHECKING = False  # As in `typing`, whose import takes as long as the rest of this package's Python.
if TYPE_CHECKING:
    from collections.abc import Sequence


def _all(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the outputs by the inputs. Nothing is added to `grad` of a tensor."""
    given = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs or [])
    kept = create_graph if retain_graph is None else retain_graph
    return tuple(_gradients(_all(outputs), _all(inputs), given, kept, create_graph, allow_unused))


def backward(
    tensors: Tensor | Sequence[Tensor], *, retain_graph: bool | None = None, create_graph: bool = False
) -> None:
    """Adds the gradients of numbers to the leaves that they depend on."""
    numbers = _all(tensors)
    for at, tensor in enumerate(numbers):
        kept = retain_graph or create_graph or at + 1 < len(numbers)
        tensor.backward(retain_graph=kept, create_graph=create_graph)


def detect_anomaly(check_nan: bool = True) -> _Within:
    """Backward passes end at the first NaN: `with opfuse.autograd.detect_anomaly():`, or as a decorator.

    The error names the operator and the line of Python that called it, and no leaf has got a gradient then. The forward
    pass has to run inside, too, because calls recorded elsewhere are not known by line. It is slow: every call is
    checked, and compiled functions run eagerly. `check_nan=False` turns it off inside.
    """
    return _Within("anomaly", bool(check_nan))


class set_detect_anomaly:
    """Turns `detect_anomaly` on or off for this thread: at once, and until a `with` statement over it ends."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._setting = _Setting("anomaly", bool(mode and check_nan))
        self._setting.enter()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        self._setting.leave()
