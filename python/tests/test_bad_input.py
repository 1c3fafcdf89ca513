"""What a caller should not do: an exception or a clean end follows, and never a crash."""

import ctypes
import pickle
import random
import subprocess
import sys
import threading

import opfuse
import pytest

ops = [getattr(opfuse.ops, name) for name in dir(opfuse.ops) if not name.startswith("__")]


def refused(call, *args, **kwargs):
    """The text of the exception, or `None`. Panics are bugs, and come as `RuntimeError` of that text."""
    try:
        call(*args, **kwargs)
    except Exception as error:
        assert "internal error" not in str(error) and "panicked" not in str(error), error
        return f"{type(error).__name__}: {error}"
    return None


def test_every_operator_takes_nonsense():
    x = opfuse.ones(2)
    for call in ops:
        for args in [(), (None,), (None, None), ("a",), (x, None), (x, "x"), (x, object()), ([],), (x, [None])]:
            refused(call, *args)


def odd_tensors():
    shapes = [(0,), (), (0, 3), (2, 3), (1, 1, 1, 1)]
    found = [opfuse.ones(*shape) if shape else opfuse.tensor(1.0) for shape in shapes]
    found += [opfuse.ones(3, 2).T, opfuse.ones(1).expand(5), opfuse.ones(2, 2, dtype="bfloat16"), opfuse.tensor(True)]
    return [*found, opfuse.ones(3, 3, dtype="int64"), opfuse.ones(2, dtype="float16"), opfuse.ones(2, device="meta")]


def test_every_operator_takes_odd_arguments():
    draw = random.Random(0)
    tensors, numbers = odd_tensors(), [0, 1, -1, 2, 3, -7, -(2**63), 2**63 - 1]

    def argument():
        kind = draw.random()
        if kind < 0.5:
            return draw.choice(tensors)
        if kind < 0.7:
            return draw.choice(numbers)
        if kind < 0.8:
            return [draw.choice(numbers) for _ in range(draw.randint(0, 3))]
        if kind < 0.9:
            return [draw.choice(tensors) for _ in range(draw.randint(0, 3))]
        return draw.choice([1.5, float("nan"), float("inf"), -0.0, "mean", "", True, None])

    for call in ops:
        for _ in range(8):
            refused(call, draw.choice(tensors), *(argument() for _ in range(draw.randint(0, 3))))


@pytest.mark.parametrize(
    "call",
    [
        lambda: opfuse.zeros(2**62),
        lambda: opfuse.zeros(2**31, 2**31, 2**31),
        lambda: opfuse.zeros(-1),
        lambda: opfuse.zeros(0, 2**62),
        lambda: opfuse.zeros(2**64),
        lambda: opfuse.eye(2**40),
        lambda: opfuse.arange(10**18),
        lambda: opfuse.ones(3).repeat(2**40),
        lambda: opfuse.ones(1).expand(2**62).contiguous(),
        lambda: opfuse.ones(1).expand(2**60).to("float64"),
        lambda: opfuse.ones(2).as_strided((10**6,), (1,)),
        lambda: opfuse.ones(2).as_strided((2,), (-1,)),
        lambda: opfuse.ones(5).unfold(0, -1, 1),
        lambda: opfuse.ones(5).chunk(-(2**63)),
        lambda: opfuse.one_hot(opfuse.tensor([2**62])),
        lambda: opfuse.repeat_interleave(opfuse.ones(2), opfuse.tensor([2**62, 2**62])),
        lambda: opfuse.ones(3)[2**64],
        lambda: opfuse.ones(3).narrow(0, -(2**63), 2**63 - 1),
        lambda: opfuse.randperm(2**50),
        lambda: opfuse.tensor([300], dtype="uint8"),
        lambda: opfuse.tensor([float("nan")], dtype="int64"),
        lambda: opfuse.tensor([1e30], dtype="int32"),
        lambda: opfuse.tensor([2**64]),
        lambda: opfuse.ones(2)[1.5],
        lambda: opfuse.ones(2)[{0}],
        lambda: opfuse.compile(3),
        lambda: opfuse.load("weights.pt"),
        lambda: opfuse.load("a\0b.npy"),
        lambda: opfuse.Device("\ud800"),
        lambda: opfuse.einsum("a" * 10000, opfuse.ones(1)),
        lambda: opfuse.stack(opfuse.ones(1) for _ in range(2)),
        lambda: type("Own", (opfuse.Tensor,), {}),
        lambda: opfuse.Tensor([1.0]),
    ],
)
def test_refused(call):
    assert refused(call) is not None
    assert (opfuse.ones(2) + 1).tolist() == [2.0, 2.0]


def test_sizes_beyond_memory_are_views():
    x = opfuse.ones(3).expand(2**50, 3)
    assert x.shape == (2**50, 3) and x[2**49].tolist() == [1.0, 1.0, 1.0]


class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class Kind(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Managed(ctypes.Structure):
    """DLPack's structure, without a version."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("kind", Kind),
        ("sizes", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class Forged:
    """An array whose capsule says what it is told to."""

    def __init__(self, sizes=(2,), strides=None, data=True, device=(1, 0), kind=(2, 32, 1), ndim=None, offset=0):
        self.memory = (ctypes.c_char * 64)()
        self.sizes = (ctypes.c_int64 * len(sizes))(*sizes) if sizes is not None else None
        self.strides = (ctypes.c_int64 * len(strides))(*strides) if strides is not None else None
        address = lambda part: ctypes.addressof(part) if part is not None else None  # noqa: E731
        start = address(self.memory) if data else None
        n_dims = len(sizes or ()) if ndim is None else ndim
        parts = (start, Device(*device), n_dims, Kind(*kind), address(self.sizes), address(self.strides), offset)
        self.managed = Managed(*parts, None, None)

    def __dlpack__(self, **_):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)


def test_a_capsule_that_tells_the_truth():
    assert opfuse.from_dlpack(Forged()).tolist() == [0.0, 0.0]
    assert opfuse.from_dlpack(Forged(offset=3)).tolist() == [0.0, 0.0]
    assert opfuse.from_dlpack(Forged((2, 2), (0, 1))).shape == (2, 2)


@pytest.mark.parametrize(
    "lie",
    [
        {"sizes": (-1,)},
        {"sizes": (2**62, 2**62)},
        {"sizes": (2**63 - 1,)},
        {"sizes": None, "ndim": 1},
        {"ndim": -1},
        {"ndim": 2**31 - 1},
        {"data": False},
        {"device": (2, 0)},
        {"device": (99, 0)},
        {"kind": (2, 32, 4)},
        {"kind": (2, 33, 1)},
        {"kind": (200, 8, 1)},
        {"kind": (5, 32, 1)},
        {"strides": (2**62,)},
        {"sizes": (2, 2), "strides": (2**62, 2**62)},
    ],
)
def test_capsules_that_lie(lie):
    with pytest.raises(BufferError):
        opfuse.from_dlpack(Forged(**lie))


@pytest.mark.parametrize(
    "interface",
    [
        None,
        {},
        {"version": 3, "shape": (2,), "typestr": "<f4", "data": (0, False)},
        {"version": 3, "shape": (-1,), "typestr": "<f4", "data": b"abcd"},
        {"version": 3, "shape": (100,), "typestr": "<f4", "data": b"abcd"},
        {"version": 3, "shape": (2, 2), "strides": (4, 1000), "typestr": "<f4", "data": b"abcdabcdabcdabcd"},
    ],
)
def test_interfaces_that_lie(interface):
    pytest.importorskip("numpy", reason="NumPy is not installed")
    array = type("Array", (), {"__array_interface__": interface})()
    assert refused(opfuse.asarray, array) is not None


def test_numbers_that_lie():
    class Number:
        def __len__(self):
            return -1

        def __index__(self):
            return "a"

        def __float__(self):
            raise ValueError("mine")

    bad, x = Number(), opfuse.ones(3)
    calls = [lambda: x + bad, lambda: opfuse.tensor(bad), lambda: x[bad], lambda: opfuse.zeros(bad), lambda: x.sum(bad)]
    assert all(refused(call) is not None for call in calls)


def test_pickles_that_lie():
    rebuild = opfuse._opfuse._rebuild
    for arguments in [
        (b"", "float32", (2,), False),
        (b"\0" * 7, "float32", (2,), False),
        (b"\0" * 8, "float32", (2**62, 2**62), False),
        (b"\0" * 8, "float32", (-2,), False),
        (b"\0" * 8, "none", (2,), False),
        (b"\0" * 8, "int64", (1,), True),
    ]:
        assert refused(rebuild, *arguments) is not None
    assert rebuild(b"\x07\x00", "bool", (2,), False).tolist() == [True, False]
    given, draw = pickle.dumps({"a": opfuse.ones(3), "dtype": opfuse.float32}), random.Random(0)
    for _ in range(300):
        changed = bytearray(given)
        # The last bytes only: a changed length of the frame asks Python itself for any amount of memory.
        changed[draw.randrange(len(changed) // 2, len(changed))] = draw.randrange(256)
        refused(pickle.loads, bytes(changed))


def test_hooks_that_lie():
    for wrong in (lambda g: opfuse.ones(5), lambda g: g.double(), lambda g: 5):
        x = opfuse.ones(2).requires_grad_()
        handle = x.register_hook(wrong)
        assert refused((x * 2).sum().backward) is not None and x.grad is None
        handle.remove()
        (x * 2).sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]


def test_settings_are_left_by_the_thread_that_entered():
    setting, found = opfuse.no_grad(), []
    with setting:
        thread = threading.Thread(target=lambda: found.append(refused(setting.__exit__, None, None, None)))
        thread.start()
        thread.join()
        assert "thread" in found[0] and not opfuse.is_grad_enabled()
    assert opfuse.is_grad_enabled() and refused(setting.__exit__) is not None

    def halfway():
        with opfuse.no_grad():
            yield

    started = halfway()
    thread = threading.Thread(target=lambda: next(started))
    thread.start()
    thread.join()
    assert opfuse.is_grad_enabled() and "thread" in refused(next, started)


def test_hashes_and_finalizers_may_call_again():
    inner = opfuse.compile(lambda x: x + 1)

    class Value:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return int(inner(opfuse.ones(1)).item())

        def __eq__(self, other):
            return inner(opfuse.ones(2)) is not None and self.n == other.n

        def __del__(self):
            inner(opfuse.ones(3))

    outer = opfuse.compile(lambda x, value: x * value.n)
    found = []
    run = lambda: found.extend(outer(opfuse.ones(1), Value(n)).item() for n in (2, 3, 2))  # noqa: E731
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [2.0] * 8 + [3.0] * 4


ENDS = {
    "a deep structure": "d = x\nfor _ in range(100000): d = (d,)\nrefuse(f, d); refuse(opfuse.tensor, d)",
    "a long history": "y = opfuse.ones(1).requires_grad_()\nfor _ in range(100000): y = y + 1\ny.backward()",
    "a history that is dropped": "y = opfuse.ones(1).requires_grad_()\nfor _ in range(100000): y = y * 1.0\ndel y",
    "a function that calls itself": "g = opfuse.compile(lambda x: g(x)); refuse(g, x)",
    "a fork while threads run": "import os, threading\n"
    "work = lambda: [opfuse.ones(300, 300) @ opfuse.ones(300, 300) for _ in range(60)]\n"
    "t = threading.Thread(target=work); t.start()\n"
    "p = os.fork()\n"
    "if p == 0: os._exit(0 if (opfuse.ones(400, 400) @ opfuse.ones(400, 400))[0, 0].item() == 400 else 1)\n"
    "t.join(); assert os.waitpid(p, 0)[1] == 0",
    "an interrupt while a long function is compiled": "import threading, _thread\n"
    "def long(x):\n    for i in range(30000): x = x * 1.0001 + i\n    return x\n"
    "threading.Timer(0.3, _thread.interrupt_main).start()\n"
    "try: opfuse.compile(long)(x)\nexcept KeyboardInterrupt: pass\nassert f(x).tolist() == [3.0]",
    "tensors in modules, hooks and finalizers": "import atexit, weakref\nopfuse.kept = x\n"
    "weakref.finalize(x, lambda: opfuse.ones(2) + 1)\natexit.register(lambda: f(x))\n"
    "class Late:\n    def __del__(self, f=f, ones=opfuse.ones): f(ones(2))\nsys.late = Late()\n"
    "y = opfuse.ones(2).requires_grad_(); y.register_hook(lambda g: g); z = (y * 2).sum()",
    "a package that is loaded again": "names = [n for n in sys.modules if n.startswith('opfuse')]\n"
    "for name in names: del sys.modules[name]\nrefuse(__import__, 'opfuse')",
}


@pytest.mark.parametrize("what", ENDS)
def test_processes_end(what):
    start = """
import opfuse, sys
x = opfuse.ones(1)
f = opfuse.compile(lambda x: x + 2)
f(x)
def refuse(call, *args):
    try: call(*args)
    except Exception: pass
"""
    command = [sys.executable, "-c", start + ENDS[what]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
