"""The extension `fft` of the array API standard: Fourier transforms.

Transforms are along an axis, or along several. `n` and `s` are sizes of the signal, which is cut or followed by zeros.
`norm` is "backward", "ortho" or "forward".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opfuse import DType, Tensor, ops
from opfuse.array_api._dtypes import COMPLEX, FLOATS

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]


def _need(name: str, x: Tensor, kinds: tuple[DType, ...]) -> None:
    if x.dtype not in kinds:
        raise TypeError(f"{name}: expected an array of {', '.join(map(str, kinds))} but got {x.dtype}")


def _listed(numbers: int | Sequence[int] | None) -> list[int] | None:
    if numbers is None:
        return None
    return [numbers] if isinstance(numbers, int) else list(numbers)


def _along_one(name: str, kinds: tuple[DType, ...], about: str) -> Callable[..., Tensor]:
    operator = getattr(ops, f"fft_{name}")

    def function(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        _need(name, x, kinds)
        return operator(x, n, axis, norm)

    function.__name__, function.__doc__ = name, about
    return function


def _along_several(name: str, kinds: tuple[DType, ...], about: str) -> Callable[..., Tensor]:
    operator = getattr(ops, f"fft_{name}")

    def function(
        x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
    ) -> Tensor:
        _need(name, x, kinds)
        if s is not None and axes is not None and len(s) != len(axes):
            raise ValueError(f"{name}: {len(s)} sizes for {len(axes)} axes")
        return operator(x, _listed(s), _listed(axes), norm)

    function.__name__, function.__doc__ = name, about
    return function


ANY = FLOATS + COMPLEX
fft = _along_one("fft", ANY, "The transform along an axis.")
ifft = _along_one("ifft", ANY, "The inverse transform along an axis.")
fftn = _along_several("fftn", ANY, "The transform along axes.")
ifftn = _along_several("ifftn", ANY, "The inverse transform along axes.")
rfft = _along_one("rfft", FLOATS, "The first half of the transform of real numbers; the other half are conjugates.")
irfft = _along_one("irfft", ANY, "The real numbers of which `rfft` gives the transform.")
rfftn = _along_several("rfftn", FLOATS, "The transform of real numbers along axes: the half along the last one.")
irfftn = _along_several("irfftn", ANY, "The real numbers of which `rfftn` gives the transform.")
hfft = _along_one("hfft", ANY, "The transform of numbers whose other half are conjugates, which is real.")
ihfft = _along_one("ihfft", FLOATS, "The numbers of which `hfft` gives the transform.")


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `fft` for `n` numbers at a distance of `d`."""
    return ops.fft_fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `rfft` for `n` numbers at a distance of `d`."""
    return ops.fft_rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Frequency 0 in the middle."""
    return ops.fft_fftshift(x, _listed(axes))


def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Undoes `fftshift`."""
    return ops.fft_ifftshift(x, _listed(axes))


def __dir__() -> list[str]:
    return __all__
