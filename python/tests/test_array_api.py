"""The namespace of the array API standard, as a library uses it that knows no other name of opfuse."""

import math
import subprocess
import sys

import opfuse
import pytest

import opfuse.array_api as xp


def standardized(x):
    """What a library does that takes arrays of any kind."""
    space = x.__array_namespace__(api_version="2024.12")
    return (x - space.mean(x, axis=0)) / space.std(x, axis=0, correction=1)


def test_a_tensor_names_its_functions():
    x = xp.reshape(xp.arange(6, dtype=xp.float64), (3, 2))
    assert x.__array_namespace__() is xp
    assert standardized(x).tolist() == [[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]
    assert opfuse.compile(standardized)(x).tolist() == standardized(x).tolist()
    with pytest.raises(ValueError, match="2099.12"):
        x.__array_namespace__(api_version="2099.12")


def test_every_listed_name_is_there():
    assert len(set(xp.__all__)) == len(xp.__all__)
    assert [name for name in xp.__all__ if not hasattr(xp, name)] == []
    assert dir(xp) == sorted(xp.__all__)


def test_arrays_of_no_dims_count_in_promotion_and_numbers_do_not():
    single = xp.asarray([1.0, 2.0], dtype=xp.float32)
    assert (xp.add(single, xp.asarray(1.0, dtype=xp.float64))).dtype == xp.float64
    assert xp.add(single, 1.0).dtype == xp.float32
    assert xp.result_type(xp.int8, xp.uint8) == xp.int16
    assert xp.sum(xp.asarray([1, 2], dtype=xp.int8)).dtype == xp.int64
    assert not xp.can_cast(xp.int64, xp.float32)


def test_searches_sets_and_sorts():
    x = xp.asarray([3, 1, 3, 2])
    found = xp.unique_all(x)
    assert found.values.tolist() == [1, 2, 3]
    assert found.indices.tolist() == [1, 3, 0]
    assert found.inverse_indices.tolist() == [2, 0, 2, 1]
    assert found.counts.tolist() == [1, 1, 2]
    assert xp.argsort(x, descending=True, stable=True).tolist() == [0, 2, 3, 1]
    assert xp.searchsorted(xp.asarray([1, 2, 3]), x, side="right").tolist() == [3, 1, 3, 2]
    assert [part.tolist() for part in xp.nonzero(x == 3)] == [[0, 2]]


def test_linear_algebra():
    a = xp.asarray([[4.0, 2.0], [2.0, 3.0]], dtype=xp.float64)
    found = xp.linalg.eigh(a)
    back = found.eigenvectors @ (found.eigenvalues.unsqueeze(1) * xp.matrix_transpose(found.eigenvectors))
    assert float(xp.max(xp.abs(back - a))) < 1e-14
    # One dim is one vector, and two dims are a matrix for each of a stack.
    stack = xp.stack([a, xp.linalg.inv(a)])
    assert xp.linalg.solve(stack, a[0]).shape == (2, 2)
    assert xp.linalg.solve(stack, a).shape == (2, 2, 2)
    assert xp.linalg.solve(stack, a)[0].tolist() == xp.eye(2).tolist()
    assert xp.linalg.matrix_rank(xp.zeros((3, 2)), rtol=xp.asarray(0.5)).tolist() == 0
    assert xp.linalg.vector_norm(xp.asarray([-2.0, 0.0]), axis=()).tolist() == [2.0, 0.0]
    assert xp.linalg.vector_norm(xp.asarray([-2.0, 0.0]), axis=(), ord=0).tolist() == [1.0, 0.0]
    with pytest.raises(TypeError, match="cholesky: .*int64"):
        xp.linalg.cholesky(xp.eye(2, dtype=xp.int64))
    with pytest.raises(ValueError, match="mode"):
        xp.linalg.qr(a, mode="r")
    with pytest.raises(IndexError, match="axis 0"):
        xp.linalg.cross(a, a, axis=0)


def test_diagonals_beyond_int64_are_zero():
    assert xp.eye(2, k=2**63).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert xp.eye(2, 3, k=-(2**70)).tolist() == [[0.0] * 3] * 2


def test_odd_numbers():
    x = xp.asarray([-0.0, 0.0, math.nan, -math.inf])
    assert xp.signbit(x).tolist()[:2] == [True, False]
    assert math.isnan(xp.sign(x).tolist()[2])
    tiny = xp.nextafter(xp.asarray(0.0, dtype=xp.float64), xp.asarray(-1.0, dtype=xp.float64))
    assert float(tiny) == -5e-324
    assert xp.clip(xp.asarray([-300, 300], dtype=xp.int16), -1000, 100).tolist() == [-300, 100]
    assert math.isnan(float(xp.max(x)))


def test_a_mask_of_no_dims_is_an_index():
    x = xp.asarray([1, 2])
    assert x[xp.asarray(True)].shape == (1, 2)
    assert x[xp.asarray(False)].shape == (0, 2)
    x[xp.asarray(True)] = 7
    assert x.tolist() == [7, 7]


def test_devices_and_streams():
    x = xp.asarray([1.0])
    assert x.to_device(x.device).tolist() == [1.0]
    with pytest.raises(TypeError, match="stream"):
        x.to_device(x.device, stream=1)
    with pytest.raises(TypeError, match="device"):
        x.to_device(3)
    assert xp.__array_namespace_info__().default_device() == x.device


def test_the_package_loads_the_namespace_when_it_is_asked_for():
    program = "import sys, opfuse; assert 'opfuse.array_api' not in sys.modules; opfuse.ones(1).__array_namespace__()"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_complex_numbers():
    z = xp.asarray([1 + 2j, 3 - 1j], dtype=xp.complex128)
    assert xp.real(z).tolist() == [1, 3] and xp.imag(z).tolist() == [2, -1]
    assert xp.conj(z).tolist() == [1 - 2j, 3 + 1j]
    assert xp.multiply(z, 2).dtype == xp.complex128
    assert xp.multiply(xp.ones(2), 1j).tolist() == [1j, 1j]
    assert xp.multiply(xp.ones(2), 1j).dtype == xp.complex64
    assert xp.result_type(xp.complex64, xp.float64) == xp.complex128
    assert xp.result_type(xp.float32, 1j) == xp.complex64
    assert xp.isdtype(xp.complex64, "complex floating") and xp.isdtype(xp.complex64, "numeric")
    assert not xp.isdtype(xp.complex64, "real floating")
    assert xp.finfo(xp.complex64).dtype == xp.float32
    assert xp.vecdot(z, z).tolist() == 15
    assert xp.full(2, 1 - 1j).tolist() == [1 - 1j, 1 - 1j]
    assert abs(xp.sign(z)[0].item() - (1 + 2j) / math.sqrt(5)) < 1e-15
    assert xp.sum(z).tolist() == 4 + 1j and xp.prod(z).tolist() == 5 + 5j
    assert xp.cumulative_prod(z).tolist() == [1 + 2j, 5 + 5j]
    with pytest.raises(TypeError, match="int64"):
        xp.add(xp.asarray([1]), 1j)
    with pytest.raises(TypeError, match="common dtype"):
        xp.result_type(xp.int64, xp.complex64)


def test_complex_matrices():
    a = xp.asarray([[2.0, 1j], [-1j, 3.0]], dtype=xp.complex128)
    found = xp.linalg.eigh(a)
    assert found.eigenvalues.dtype == xp.float64
    back = (found.eigenvectors * found.eigenvalues) @ xp.conj(xp.matrix_transpose(found.eigenvectors))
    assert float(xp.max(xp.abs(back - a))) < 1e-14
    assert abs(xp.linalg.det(a).item() - 5) < 1e-14
    lower = xp.linalg.cholesky(a)
    assert float(xp.max(xp.abs(lower @ xp.conj(xp.matrix_transpose(lower)) - a))) < 1e-14
    assert float(xp.max(xp.abs(xp.linalg.inv(a) @ a - xp.eye(2)))) < 1e-14
    assert xp.linalg.svd(a).S.dtype == xp.float64


def test_fourier_transforms():
    x = xp.asarray([1.0, 2.0, 4.0, 3.0], dtype=xp.float64)
    assert xp.fft.fft(x).tolist() == [10, -3 + 1j, 0, -3 - 1j]
    assert xp.fft.rfft(x).tolist() == [10, -3 + 1j, 0]
    assert xp.fft.irfft(xp.fft.rfft(x)).tolist() == x.tolist()
    assert xp.fft.ifft(xp.fft.fft(x)).tolist() == x.tolist()
    assert xp.fft.fft(x, n=2).tolist() == [3, -1]
    grid = xp.reshape(xp.arange(6, dtype=xp.float32), (2, 3))
    assert xp.fft.fftn(grid).dtype == xp.complex64 and xp.fft.fftn(grid).shape == (2, 3)
    assert xp.fft.rfftn(grid, axes=(0, 1)).shape == (2, 2)
    assert float(xp.max(xp.abs(xp.fft.irfftn(xp.fft.rfftn(grid), s=(2, 3), axes=(0, 1)) - grid))) < 1e-5
    assert xp.fft.hfft(xp.fft.ihfft(x), n=4).tolist() == x.tolist()
    assert xp.fft.fftfreq(4, d=0.5).tolist() == [0, 0.5, -1, -0.5]
    assert xp.fft.rfftfreq(4).tolist() == [0, 0.25, 0.5]
    assert xp.fft.fftshift(x).tolist() == [4, 3, 1, 2]
    assert xp.fft.ifftshift(xp.fft.fftshift(x)).tolist() == x.tolist()
    assert xp.fft.fftshift(grid, axes=1).tolist() == [[2, 0, 1], [5, 3, 4]]
    assert sorted(xp.fft.__all__) == dir(xp.fft)
    with pytest.raises(TypeError, match="rfft: .*complex64"):
        xp.fft.rfft(xp.fft.fftn(grid))
    with pytest.raises(TypeError, match="fft: .*int64"):
        xp.fft.fft(xp.arange(3))
    with pytest.raises(ValueError, match="2 sizes for 1 axes"):
        xp.fft.fftn(grid, s=(2, 3), axes=(0,))
