"""Complex tensors and Fourier transforms beside NumPy's."""

import opfuse
import pytest

np = pytest.importorskip("numpy", reason="NumPy is not installed")


def numbers(*sizes, dtype="complex128"):
    rng = np.random.default_rng(7)
    return (rng.standard_normal(sizes) + 1j * rng.standard_normal(sizes)).astype(dtype)


def test_arrays_share_memory():
    a = numbers(3, 4)
    z = opfuse.from_dlpack(a)
    assert z.dtype is opfuse.complex128 and z.shape == (3, 4) and z.is_complex()
    z.mul_(2)
    np.testing.assert_array_equal(np.asarray(z), a)
    assert np.shares_memory(np.from_dlpack(z), a)
    np.testing.assert_array_equal(np.from_dlpack(z.T), a.T)
    np.testing.assert_array_equal(z.tolist(), a.tolist())
    assert opfuse.asarray(a.astype("complex64")).dtype is opfuse.complex64


def test_numbers():
    z = opfuse.tensor([1 + 2j, 3])
    assert z.dtype is opfuse.complex64 and z.tolist() == [1 + 2j, 3 + 0j]
    assert z[0].item() == 1 + 2j and complex(z[1]) == 3 and complex(opfuse.tensor(2.5)) == 2.5
    assert (z * 1j).tolist() == [-2 + 1j, 3j] and (1j + z).tolist() == [1 + 3j, 3 + 1j]
    assert (opfuse.ones(2) * 1j).dtype is opfuse.complex64
    # PyTorch's rule for whole numbers beside a number of Python.
    assert (opfuse.arange(3) * 1j).dtype is opfuse.complex64 and (1j + opfuse.arange(3)).dtype is opfuse.complex64
    assert (opfuse.ones(2, dtype="float64") * 1j).dtype is opfuse.complex128
    assert repr(opfuse.tensor([1.5 - 2j])) == "tensor([1.5-2.j], dtype=complex64)"
    assert opfuse.zeros(2, dtype="complex128").tolist() == [0, 0]
    with pytest.raises(opfuse.Error, match="imaginary"):
        z.to(opfuse.float32)


@pytest.mark.parametrize("name", "exp log sqrt sin cos tan sinh cosh tanh abs angle conj square".split())
def test_functions(name):
    a = numbers(5, 7)
    ours = getattr(opfuse, name)(opfuse.asarray(a))
    np.testing.assert_allclose(np.asarray(ours), getattr(np, name)(a), rtol=1e-13, atol=1e-13)


def test_parts_and_products():
    a, b = numbers(5, 7), numbers(7, 3)
    x, y = opfuse.asarray(a), opfuse.asarray(b)
    np.testing.assert_allclose(np.asarray(x @ y), a @ b, rtol=1e-13)
    np.testing.assert_allclose(np.asarray(x / (x + 2)), a / (a + 2), rtol=1e-13)
    np.testing.assert_array_equal(np.asarray(x.real), a.real)
    np.testing.assert_array_equal(np.asarray(x.imag), a.imag)
    np.testing.assert_allclose(x.sum().item(), a.sum(), rtol=1e-13)
    np.testing.assert_allclose(np.asarray(opfuse.einsum("ij,jk->ki", x, y)), (a @ b).T, rtol=1e-13)


def test_compiled_and_differentiated():
    a = numbers(6)
    step = opfuse.compile(lambda z, c: z * z + c)
    z, c = opfuse.asarray(a), opfuse.tensor(0.25 - 0.5j, dtype=opfuse.complex128)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(step(z, c)), np.asarray(z * z + c))
    gradient = opfuse.grad(lambda z: (z.abs() ** 2).sum())(z)
    np.testing.assert_allclose(np.asarray(gradient), 2 * a, rtol=1e-12)
    rows = opfuse.vmap(lambda row: row.sum())(opfuse.asarray(numbers(3, 4)))
    np.testing.assert_allclose(np.asarray(rows), numbers(3, 4).sum(1), rtol=1e-13)


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("n", [None, 5, 12])
def test_transforms_along_one_dim(n, norm):
    a = numbers(4, 9)
    for name in ["fft", "ifft", "hfft", "irfft"]:
        ours = getattr(opfuse, f"fft_{name}")(opfuse.asarray(a), n, 0, norm=norm)
        np.testing.assert_allclose(np.asarray(ours), getattr(np.fft, name)(a, n, 0, norm), rtol=1e-12, atol=1e-12)
    for name in ["rfft", "ihfft", "fft"]:
        ours = getattr(opfuse, f"fft_{name}")(opfuse.asarray(a.real.copy()), n, 1, norm=norm)
        np.testing.assert_allclose(np.asarray(ours), getattr(np.fft, name)(a.real, n, 1, norm), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", [None, "ortho"])
def test_transforms_along_several_dims(norm):
    a = numbers(3, 4, 6)
    for name in ["fftn", "ifftn", "irfftn"]:
        for sizes, dims in [(None, None), (None, (0, 2)), ((2, 5), (1, 2))]:
            ours = getattr(opfuse, f"fft_{name}")(opfuse.asarray(a), sizes, dims, norm=norm)
            theirs = getattr(np.fft, name)(a, sizes, dims, norm)
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        np.asarray(opfuse.fft_rfft2(opfuse.asarray(a.real.copy()), norm=norm)), np.fft.rfft2(a.real, norm=norm), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(np.asarray(opfuse.fft_fftshift(opfuse.asarray(a))), np.fft.fftshift(a))
    np.testing.assert_array_equal(np.asarray(opfuse.fft_ifftshift(opfuse.asarray(a), [1])), np.fft.ifftshift(a, 1))


def test_files(tmp_path):
    a = numbers(3, 4)
    np.save(tmp_path / "a.npy", a)
    np.testing.assert_array_equal(np.asarray(opfuse.load(tmp_path / "a.npy")), a)
