"""Tensors: creation, indexing, Python's protocols, exceptions."""

import copy
import gc
import math
import pickle
import subprocess
import sys
import threading
import weakref

import opfuse
import pytest


def check(tensor, expected, dtype=None):
    assert tensor.tolist() == expected
    if dtype is not None:
        assert tensor.dtype is dtype


def test_needs_neither_numpy_nor_torch():
    code = "import sys, opfuse; opfuse.ones(2).sum(); sys.exit(any(m in sys.modules for m in ('numpy', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1, opfuse.int64),
        (1.5, opfuse.float32),
        (True, opfuse.bool),
        ([], opfuse.float32),
        ([[1, 2], [3, 4]], opfuse.int64),
        ([[1, 2.5], [3, True]], opfuse.float32),
        (((1,), (2,)), opfuse.int64),
        ([[[]]], opfuse.float32),
    ],
)
def test_creation_from_numbers(data, dtype):
    tensor = opfuse.tensor(data)
    assert tensor.dtype is dtype
    plain = [list(row) for row in data] if isinstance(data, tuple) else data
    assert tensor.tolist() == plain


def test_creation_from_tensors():
    x = opfuse.arange(3)
    check(opfuse.tensor([x, x + 3]), [[0, 1, 2], [3, 4, 5]])
    check(opfuse.tensor([opfuse.tensor(1), 2]), [1, 2])


@pytest.mark.parametrize("dtype", ["float64", opfuse.float64, "double", "f64"])
def test_dtypes_are_named_in_many_ways(dtype):
    assert opfuse.zeros(2, dtype=dtype).dtype is opfuse.float64
    assert opfuse.float64 == opfuse.DType("float64") and hash(opfuse.float64) == hash(opfuse.DType("float64"))
    assert opfuse.zeros(1, dtype=int).dtype is opfuse.int64


def test_overloads_methods_and_names():
    x = opfuse.tensor([[1.0, 5.0], [3.0, 2.0]])
    assert opfuse.max(x).item() == 5.0
    values, indices = x.max(1)
    check(values, [5.0, 3.0])
    check(indices, [1, 0])
    assert x.max(dim=1).indices.tolist() == [1, 0]
    check(x.max(opfuse.tensor(3.0)), [[3.0, 5.0], [3.0, 3.0]])
    check(x.reshape(4), [1.0, 5.0, 3.0, 2.0])
    check(x.reshape((4,)), x.reshape([4]).tolist())
    check(opfuse.add(x, 1, alpha=2), [[3.0, 7.0], [5.0, 4.0]])
    out = opfuse.zeros(2, 2)
    assert opfuse.add(x, x, out=out) is out
    check(out, [[2.0, 10.0], [6.0, 4.0]])
    assert x.add_(1) is x
    check(x, [[2.0, 6.0], [4.0, 3.0]])
    assert "Tensor" in opfuse.add.__doc__ and "alpha" in opfuse.Tensor.add.__doc__


def test_names_and_forms_of_numpy_and_pytorch():
    x = opfuse.tensor([[3.0, 4.0], [0.0, 2.0]])
    check(x.sum(axis=1, keepdims=True), [[7.0], [2.0]])
    check(opfuse.relu(input=-x), [[0.0, 0.0], [0.0, 0.0]])
    assert x.mean(axis=None, out=None).item() == 2.25
    check(x.norm(dim=1), [5.0, 2.0])
    assert x.norm().item() == x.norm(2).item() == opfuse.norm(x, p="fro").item()
    assert x.norm(p=1, dim=(0, 1), keepdim=True).shape == (1, 1)
    check(opfuse.einsum("ij,jk->ik", x, x), (x @ x).tolist())
    check(opfuse.einsum("ij->j", [x]), [3.0, 6.0])
    check(x.where(x > 2, 0), [[3.0, 4.0], [0.0, 0.0]])
    check(opfuse.tensor([3, 1, 3]).unique(), [1, 3])
    values, counts = opfuse.unique(opfuse.tensor([3, 1, 3]), return_counts=True)
    assert (values.tolist(), counts.tolist()) == ([1, 3], [1, 2])
    assert (x.double().dtype, x.long().dtype, x.astype("int8").dtype) == (opfuse.float64, opfuse.int64, opfuse.int8)
    assert x.float() is x and x.cpu() is x and x.astype("float32") is not x
    assert (x.is_floating_point(), x.element_size(), x.nelement(), x.ndimension()) == (True, 4, 4, 2)
    assert opfuse.finfo(opfuse.float32).bits == 32 and opfuse.long is opfuse.int64 and opfuse.is_tensor(x)
    check(opfuse.tensor(range(3)), [0, 1, 2])
    check(round(opfuse.tensor([1.26]), 1), [opfuse.tensor(1.3).item()])
    assert [one.tolist() for one in divmod(opfuse.tensor([7, -7]), 2)] == [[3, -4], [1, 1]]
    check(reversed(opfuse.arange(3)), [2, 1, 0])
    with pytest.raises(AttributeError, match="nothing"):
        opfuse.nothing  # noqa: B018
    with pytest.raises(TypeError, match="zeros: 'complex256' names no dtype"):
        opfuse.zeros(2, dtype="complex256")


def test_writes_by_operators():
    x = opfuse.tensor([7.0, 9.0])
    same = x
    x -= 1
    x //= 2
    x **= 2
    x %= 5
    x *= 2
    x /= 4
    assert x is same and x.tolist() == [2.0, 0.5]
    n = opfuse.tensor([4])
    n <<= 2
    n >>= 1
    n |= 1
    check(n, [9])


def test_data_and_hooks():
    w = opfuse.ones(2).requires_grad_()
    for _ in range(2):
        (w * w).sum().backward()
        w.data -= 0.25 * w.grad
        w.grad.zero_()
    assert w.tolist() == [0.25, 0.25] and w.requires_grad
    w.data = opfuse.zeros(2)
    check(w.detach(), [0.0, 0.0])
    with pytest.raises(TypeError, match="keeps its shape"):
        w.data = opfuse.zeros(3)
    handle = w.register_hook(lambda gradient: gradient * 2)
    y = w * 3
    y.retain_grad()
    y.sum().backward()
    assert (w.grad.tolist(), y.grad.tolist()) == ([6.0, 6.0], [1.0, 1.0])
    handle.remove()
    (found,) = opfuse.autograd.grad((w + 1).square().sum(), w)
    check(found, [2.0, 2.0])


def test_operators_of_python():
    x = opfuse.tensor([1.0, -2.0, 4.0])
    check(1 - x, [0.0, 3.0, -3.0])
    check(2 / x, [2.0, -1.0, 0.5])
    check(2**x, [2.0, 0.25, 16.0])
    check(x**2, [1.0, 4.0, 16.0])
    check(-x, [-1.0, 2.0, -4.0])
    check(abs(x), [1.0, 2.0, 4.0])
    check(x // 2, [0.0, -1.0, 2.0])
    check(x % 3, [1.0, 1.0, 1.0])
    check(x > 0, [True, False, True])
    check(~(x > 0), [False, True, False])
    check((x > 0) | (x < -1), [True, True, True])
    assert (x @ x).item() == 21.0
    assert (x == "text") is False and (x != None) is True  # noqa: E711
    same = x
    x += 1
    assert same is x
    with pytest.raises(TypeError):
        x + "text"
    with pytest.raises(TypeError):
        x + None


def test_numbers():
    one = opfuse.tensor([[3]])
    assert int(one) == 3 and float(one) == 3.0 and bool(one) and one.item() == 3 and [10, 11, 12, 13][one] == 13
    assert math.isnan(opfuse.tensor(math.nan).item())
    assert f"{opfuse.tensor(1.25):.1f}" == "1.2"
    with pytest.raises(ValueError, match="any\\(\\) or all\\(\\)"):
        bool(opfuse.ones(2))
    with pytest.raises(TypeError):
        [1, 2][opfuse.tensor(1.0)]


def test_containers():
    x = opfuse.arange(6).reshape(3, 2)
    assert len(x) == 3 and [row.tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    assert 5 in x and 6 not in x
    first, *_ = x
    check(first, [0, 1])
    with pytest.raises(TypeError):
        len(opfuse.tensor(1))
    with pytest.raises(TypeError):
        iter(opfuse.tensor(1))
    assert {x: 1}[x] == 1


def test_text():
    assert repr(opfuse.tensor([True, False])) == "tensor([ True False], dtype=bool)"
    assert repr(opfuse.zeros(0, 3)) == "tensor([], shape=[0, 3], dtype=float32)"
    assert "requires_grad=True" in repr(opfuse.ones(1, dtype="float64").requires_grad_())
    assert str(opfuse.int32) == "int32" and repr(opfuse.int32) == "opfuse.int32"


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32"])
def test_pickles(dtype):
    x = opfuse.tensor([[0, 1], [1, 0]], dtype=dtype).T[:, 1:]
    again = pickle.loads(pickle.dumps(x))
    assert again.dtype is x.dtype and again.tolist() == x.tolist()
    assert pickle.loads(pickle.dumps(opfuse.DType(dtype))) is opfuse.DType(dtype)
    assert copy.deepcopy(x).tolist() == x.tolist()
    assert pickle.loads(pickle.dumps(opfuse.Device("cpu"))) == opfuse.Device("cpu") == "cpu"


def test_indexing():
    x = opfuse.arange(24).reshape(2, 3, 4)
    check(x[1, 2], [20, 21, 22, 23])
    check(x[..., -1], [[3, 7, 11], [15, 19, 23]])
    check(x[0, ::-1, 0], [8, 4, 0])
    check(x[0, 0, ::-2], [3, 1])
    check(x[0, 0, 3:0:-1], [3, 2, 1])
    check(x[0, 0, 9:5], [])
    assert x[:, None, ..., None].shape == (2, 1, 3, 4, 1)
    check(x[0, [2, 0], 1], [9, 1])
    check(x[0][opfuse.tensor([True, False, True])], [[0, 1, 2, 3], [8, 9, 10, 11]])
    check(x[x > 21], [22, 23])
    assert x[opfuse.tensor(1)].shape == (3, 4)
    assert x[[]].shape == (0, 3, 4)
    for bad in [2, (0, 0, 0, 0), (..., ...), slice(None, None, 0)]:
        with pytest.raises((IndexError, ValueError)):
            x[bad]
    for bad in ["a", 1.5, (0, "a")]:
        with pytest.raises(TypeError):
            x[bad]


def test_assignment():
    x = opfuse.zeros(3, 4)
    x[0] = 1
    x[1, ::2] = opfuse.tensor([5.0, 6.0])
    x[2, ::-1] = opfuse.tensor([1.0, 2.0, 3.0, 4.0])
    check(x, [[1, 1, 1, 1], [5, 0, 6, 0], [4, 3, 2, 1]])
    x[x > 3] = -1
    x[:, [0, 3]] = 9
    check(x, [[9, 1, 1, 9], [9, 0, -1, 9], [9, 3, 2, 9]])
    with pytest.raises(ValueError):
        x[0] = opfuse.ones(3)
    with pytest.raises(IndexError):
        x[3] = 1


@pytest.mark.parametrize(
    ("call", "exception", "text"),
    [
        (lambda x: x + opfuse.zeros(3), ValueError, r"\[2, 2\]"),
        (lambda x: x.sum(9), IndexError, "Dimension"),
        (lambda x: x.reshape(3), ValueError, "shape"),
        (lambda x: opfuse.add(x), TypeError, "can be called as"),
        (lambda x: opfuse.add(x, other=1, more=2), TypeError, "more"),
        (lambda x: opfuse.zeros(2, dtype="f99"), TypeError, "zeros"),
        (lambda x: opfuse.empty(2**50), MemoryError, "memory"),
        (lambda x: x.to("mars"), ValueError, "mars"),
        (lambda x: opfuse.tensor([[1], [1, 2]]), ValueError, "length"),
        (lambda x: opfuse.tensor([1, [2]]), ValueError, "mixed"),
        (lambda x: opfuse.tensor(["a"]), TypeError, "str"),
        (lambda x: opfuse.tensor(None), TypeError, "NoneType"),
        (lambda x: opfuse.tensor(2**64), OverflowError, "int"),
        (lambda x: opfuse.load("absent.npy"), FileNotFoundError, "absent.npy"),
        (lambda x: opfuse.save("x.txt", {"a": x}), ValueError, "safetensors"),
        (lambda x: x.backward(), ValueError, "require grad"),
        (lambda x: opfuse.cat([]), ValueError, "cat"),
        (lambda x: opfuse.cat([x, None]), TypeError, "cat"),
    ],
)
def test_exceptions(call, exception, text):
    with pytest.raises(exception, match=text):
        call(opfuse.ones(2, 2))
    check(opfuse.ones(2) + 1, [2.0, 2.0])


def test_exceptions_are_opfuse_errors():
    for name in ("ArgumentError", "DTypeError", "RangeError", "OutOfMemoryError", "UnsupportedError", "FileError"):
        assert issubclass(getattr(opfuse, name), opfuse.Error)
    with pytest.raises(opfuse.Error):
        opfuse.ones(2) + opfuse.ones(3)


def test_nested_lists_that_contain_themselves():
    own = []
    own.append(own)
    with pytest.raises(ValueError, match="levels"):
        opfuse.tensor(own)


def test_threads_run_while_kernels_do():
    x = opfuse.ones(600, 600)
    counted = []

    def count():
        while not done.is_set():
            counted.append(1)

    done = threading.Event()
    thread = threading.Thread(target=count)
    thread.start()
    for _ in range(20):
        x = (x @ x).mul(1 / 600)
    done.set()
    thread.join()
    assert len(counted) > 1000
    results = []
    threads = [threading.Thread(target=lambda: results.append((opfuse.ones(64) * 2).sum().item())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [128.0] * 16


def test_lifetime():
    x = opfuse.ones(4)
    died = weakref.ref(x)
    del x
    gc.collect()
    assert died() is None


@pytest.mark.parametrize(
    "code",
    [
        "import opfuse; x = opfuse.ones(1000, 1000) @ opfuse.ones(1000, 1000)",
        "import opfuse, atexit; x = opfuse.ones(3); atexit.register(lambda: print((x + 1).sum()))",
        "import opfuse; f = opfuse.compile(lambda x: x + 1); opfuse.keep = (f, f(opfuse.ones(9)))",
        "import opfuse, os; x = opfuse.ones(300, 300) @ opfuse.ones(300, 300); p = os.fork()\n"
        "y = (opfuse.ones(8) + 1).sum().item(); assert y == 16.0\n"
        "if p: assert os.waitpid(p, 0)[1] == 0",
        "import opfuse, threading\n"
        "threading.Thread(target=lambda: [opfuse.ones(500, 500) @ opfuse.ones(500, 500) for _ in range(9)],"
        " daemon=True).start()",
    ],
)
def test_ends_cleanly(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_files(tmp_path):
    tensors = {"a": opfuse.arange(6.0).reshape(2, 3), "b": opfuse.tensor([1, 2], dtype="int16")}
    for name in ("x.safetensors", "x.npz"):
        opfuse.save(tmp_path / name, tensors)
        loaded = opfuse.load(tmp_path / name)
        assert {key: (value.dtype, value.tolist()) for key, value in loaded.items()} == {
            key: (value.dtype, value.tolist()) for key, value in tensors.items()
        }
    opfuse.save(tmp_path / "x.npy", tensors["a"])
    loaded = opfuse.load(tmp_path / "x.npy")
    check(loaded, tensors["a"].tolist())
    with pytest.raises(opfuse.Error, match="read-only"):
        loaded.add_(1)


def test_random_numbers():
    opfuse.manual_seed(3)
    first = opfuse.randn(4)
    opfuse.manual_seed(3)
    assert first.tolist() == opfuse.randn(4).tolist() != opfuse.randn(4).tolist()
    generator = opfuse.Generator().manual_seed(5)
    drawn = opfuse.rand(3, generator=generator)
    generator.manual_seed(5)
    assert drawn.tolist() == opfuse.rand(3, generator=generator).tolist()
