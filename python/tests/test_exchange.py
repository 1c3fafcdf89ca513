"""Memory that is shared with other libraries."""

import array
import ctypes
import gc
import threading

import opfuse
import pytest
from opfuse._opfuse import _from_exchange, _to_exchanges

numpy = pytest.importorskip("numpy", reason="NumPy is not installed")

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_both_ways(dtype):
    given = numpy.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    x = opfuse.asarray(given)
    assert x.dtype is opfuse.DType(given.dtype) and x.data_ptr() == given.ctypes.data
    given[0, 0] = 1
    assert x[0, 0].item() == 1
    back = numpy.asarray(x)
    assert back.dtype == given.dtype and back.ctypes.data == given.ctypes.data
    assert numpy.from_dlpack(x).tolist() == x.tolist() == x.numpy().tolist()
    x[1] = 0
    assert back[1].tolist() == given[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("cut", [numpy.s_[::2], numpy.s_[:, 1:], numpy.s_[:, ::-1], numpy.s_[1:2, 1], numpy.s_[:0]])
def test_strides(cut):
    given = numpy.arange(12.0).reshape(3, 4)[cut]
    assert opfuse.asarray(given).tolist() == given.tolist()
    assert opfuse.from_dlpack(given).tolist() == given.tolist()
    x = opfuse.arange(12.0).reshape(3, 4).T[1:, ::2]
    assert numpy.asarray(x).tolist() == x.tolist() and memoryview(x).tolist() == x.tolist()


def test_copies():
    given = numpy.ones(3, numpy.float32)
    assert opfuse.tensor(given).data_ptr() != given.ctypes.data
    assert opfuse.asarray(given, copy=True).data_ptr() != given.ctypes.data
    assert opfuse.asarray(given, copy=False).data_ptr() == given.ctypes.data
    with pytest.raises(ValueError, match="copy=False"):
        opfuse.asarray(given, dtype="float64", copy=False)
    with pytest.raises(ValueError, match="copy=False"):
        opfuse.asarray([1, 2], copy=False)
    x = opfuse.ones(3)
    assert numpy.array(x, copy=True).ctypes.data != x.data_ptr()
    assert numpy.asarray(x, dtype="float64").dtype == "float64"


def test_read_only():
    given = numpy.ones(3)
    given.setflags(write=False)
    x = opfuse.asarray(given)
    with pytest.raises(opfuse.Error, match="read-only"):
        x.add_(1)
    assert not numpy.asarray(x).flags.writeable and not numpy.from_dlpack(x).flags.writeable
    with pytest.raises(BufferError):
        x.__dlpack__()
    assert opfuse.asarray(b"ab").tolist() == [97, 98]
    with pytest.raises(opfuse.Error, match="read-only"):
        opfuse.asarray(b"ab").zero_()


def test_buffers():
    held = array.array("d", [1.0, 2.0])
    x = opfuse.asarray(held)
    held[0] = 9.0
    assert x.tolist() == [9.0, 2.0] and x.dtype is opfuse.float64
    with pytest.raises(BufferError):
        held.append(1.0)
    del x
    gc.collect()
    held.append(1.0)
    assert opfuse.asarray(memoryview(b"abcd").cast("h")).dtype is opfuse.int16
    assert bytes(opfuse.tensor([1, 2], dtype="uint8")) == b"\x01\x02"


def test_memory_outlives_its_maker():
    x = opfuse.asarray(numpy.arange(1000.0))
    view = memoryview(opfuse.arange(1000.0))
    shared = numpy.from_dlpack(opfuse.arange(1000.0))
    gc.collect()
    assert x.sum().item() == sum(view) == shared.sum() == 499500.0


def test_memory_goes_back_from_any_thread():
    died = []

    class Watched(numpy.ndarray):
        def __del__(self):
            died.append(1)

    def drop(tensors):
        tensors.clear()

    tensors = [opfuse.asarray(numpy.zeros(4).view(Watched)) for _ in range(5)]
    tensors = [x + 1 for x in tensors] + tensors
    thread = threading.Thread(target=drop, args=(tensors,))
    thread.start()
    thread.join()
    gc.collect()
    opfuse.asarray(numpy.zeros(1))
    assert len(died) >= 5


@pytest.mark.parametrize("bad", ["S4", "datetime64[s]", "clongdouble", "O", "uint16"])
def test_unknown_dtypes(bad):
    with pytest.raises((TypeError, BufferError, ValueError)):
        opfuse.asarray(numpy.zeros(2, dtype=bad))


def test_bfloat16_has_no_buffer():
    x = opfuse.ones(2, dtype="bfloat16")
    with pytest.raises(TypeError, match="float32"):
        x.numpy()
    assert opfuse.from_dlpack(x).dtype is opfuse.bfloat16


def test_gradients_stay_here():
    x = opfuse.ones(2).requires_grad_()
    for share in (lambda: x.__dlpack__(), lambda: memoryview(x)):
        with pytest.raises(BufferError, match="detach"):
            share()


class Liar:
    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


def test_liars():
    for capsule in (None, 5, "dltensor"):
        with pytest.raises(TypeError, match="capsule"):
            opfuse.from_dlpack(Liar(capsule))
    used = opfuse.ones(2).__dlpack__(max_version=(1, 0))
    opfuse.from_dlpack(Liar(used))
    with pytest.raises(TypeError, match="capsule"):
        opfuse.from_dlpack(Liar(used))
    with pytest.raises(TypeError, match="__dlpack__"):
        opfuse.from_dlpack([1, 2])

    class Raises:
        def __dlpack__(self, **_):
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        opfuse.from_dlpack(Raises())
    # A capsule that nobody takes is freed.
    opfuse.ones(2).__dlpack__()
    opfuse.ones(2).__dlpack__(max_version=(1, 0))


def test_devices_of_dlpack():
    x = opfuse.ones(2)
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="dl_device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream"):
        x.__dlpack__(stream=1)


def test_arrays_are_operands():
    x, n = opfuse.ones(2, 3), numpy.arange(6, dtype="float32").reshape(2, 3)
    scaled = [numpy.float32(2) * x, x * numpy.array(2.0)]
    for found in (x + n, n + x, n * x, x - n, n / x, x**n, n > x, x <= n, n @ x.T, *scaled):
        assert isinstance(found, opfuse.Tensor) and found.dtype in (opfuse.float32, opfuse.bool)
    assert (n - x).tolist() == (n - 1).tolist() and (n > x).tolist() == (n > 1).tolist()
    x += n
    assert x.tolist() == (n + 1).tolist()
    n += opfuse.ones(2, 3)
    assert n[0, 0] == 1.0 and numpy.mean(x) == x.mean().item()
    assert opfuse.tensor([numpy.ones(2), numpy.zeros(2)]).tolist() == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("given", ["uint16", "uint32", "uint64", ">f4", ">i2", "longdouble"])
def test_other_dtypes_are_copied_as_what_is_said(given):
    array = numpy.array([1, 2], dtype=given)
    assert opfuse.asarray(array, dtype="int64").tolist() == [1, 2]
    assert opfuse.tensor(array, dtype="bfloat16").tolist() == [1.0, 2.0]
    for refused in ({}, {"dtype": "int64", "copy": False}):
        with pytest.raises(TypeError, match="dtype="):
            opfuse.asarray(array, **refused)


SUBSCRIPTS = [
    numpy.s_[:, None, 1:3],
    numpy.s_[[0, 2], [1, 3]],
    numpy.s_[:, [1, 0], :2],
    numpy.s_[[0, 1], :, [1, 2]],
    numpy.s_[numpy.array([[0, 1], [1, 2]])],
    numpy.s_[::-1, ::2, 3:0:-2],
    numpy.s_[numpy.int64(1)],
    numpy.s_[numpy.array(1)],
    numpy.s_[numpy.bool_(True)],
    numpy.s_[range(2)],
    numpy.s_[numpy.array([0, 1], dtype="uint8")],
    numpy.s_[numpy.array([0, 1], dtype="int8")],
    numpy.s_[0, [True, False, True, False]],
    numpy.s_[-100:100:3],
]


@pytest.mark.parametrize("subscript", SUBSCRIPTS, ids=str)
def test_subscripts_of_numpy(subscript):
    array = numpy.arange(60).reshape(3, 4, 5)
    x = opfuse.tensor(array)
    assert x[subscript].tolist() == array[subscript].tolist()
    x[subscript] = -7
    array[subscript] = -7
    assert x.tolist() == array.tolist()


def test_values_of_numpy_are_written():
    x = opfuse.zeros(3, 4)
    x[0] = range(4)
    x[1:] = numpy.ones((1, 1, 2, 4))
    x[:, 0] = numpy.float32(5)
    assert x.tolist() == [[5, 1, 2, 3], [5, 1, 1, 1], [5, 1, 1, 1]]


def test_numpy_scalars_and_operands():
    x = opfuse.ones(2)
    assert (x * numpy.float32(3)).tolist() == [3.0, 3.0]
    assert opfuse.tensor([numpy.int8(1), numpy.bool_(True)]).tolist() == [1, 1]
    with pytest.raises(TypeError, match="asarray"):
        opfuse.add(x, numpy.ones(2))


class Description(ctypes.Structure):
    """DLPack's `DLTensor`."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    """DLPack's `DLManagedTensorVersioned`."""


Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed))
Managed._fields_ = [
    ("version", ctypes.c_uint32 * 2),
    ("context", ctypes.c_void_p),
    ("deleter", Deleter),
    ("flags", ctypes.c_uint64),
    ("tensor", Description),
]
SetError = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
Out = ctypes.POINTER(ctypes.POINTER(Managed))


class Table(ctypes.Structure):
    """DLPack's `DLPackExchangeAPI`."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Description), Out, ctypes.c_void_p, SetError)),
        ("from_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, Out)),
        ("to_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Managed), ctypes.POINTER(ctypes.c_void_p))),
        ("describe", ctypes.c_void_p),
        ("stream", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))),
    ]


def table():
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    capsule = opfuse.Tensor.__dlpack_c_exchange_api__
    return Table.from_address(pointer(capsule, b"dlpack_exchange_api"))


def test_the_c_exchange_interface_gives_and_takes():
    api, out, stream = table(), ctypes.POINTER(Managed)(), ctypes.c_void_p(1)
    assert list(api.version) == [1, 3] and not api.previous
    assert api.stream(1, 0, ctypes.byref(stream)) == 0 and stream.value is None
    x = opfuse.arange(6.0).reshape(2, 3).T
    assert api.from_object(x, ctypes.byref(out)) == 0
    given = out.contents.tensor
    assert given.data == x.data_ptr() and given.shape[:2] == [3, 2] and given.strides[:2] == [1, 3]
    assert (given.code, given.bits, given.lanes, list(given.device), out.contents.flags) == (2, 32, 1, [1, 0], 0)
    made = ctypes.c_void_p()
    assert api.to_object(out, ctypes.byref(made)) == 0
    y = ctypes.cast(made, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(y))
    y.add_(1)
    assert y.stride() == x.stride() and x.tolist() == [[1, 4], [2, 5], [3, 6]]
    read_only = opfuse.asarray(b"\1\2")
    assert api.from_object(read_only, ctypes.byref(out)) == 0 and out.contents.flags == 1
    out.contents.deleter(out)


def test_the_c_exchange_interface_refuses():
    api, out = table(), ctypes.POINTER(Managed)()
    with pytest.raises(TypeError):
        api.from_object(1, ctypes.byref(out))
    with pytest.raises(BufferError, match="detach"):
        api.from_object(opfuse.ones(2).requires_grad_(), ctypes.byref(out))
    with pytest.raises(BufferError, match="no tensor"):
        api.to_object(None, ctypes.byref(ctypes.c_void_p()))
    with pytest.raises(AttributeError):
        _from_exchange([1])
    with pytest.raises(BufferError, match="detach"):
        _to_exchanges([opfuse.ones(2).requires_grad_()], opfuse.Tensor)
    values = [_from_exchange(opfuse.ones(2)), 3]
    _to_exchanges(values, opfuse.Tensor)
    assert values[0].tolist() == [1, 1] and values[1] == 3


def test_the_c_exchange_interface_allocates():
    api, out, said = table(), ctypes.POINTER(Managed)(), []
    set_error = SetError(lambda _, kind, text: said.append((kind, text)))
    sizes = (ctypes.c_int64 * 2)(2, 3)
    prototype = Description(device=(1, 0), ndim=2, code=2, bits=64, lanes=1, shape=sizes)
    assert api.allocate(ctypes.byref(prototype), ctypes.byref(out), None, set_error) == 0 and not said
    new = out.contents.tensor
    assert new.bits == 64 and new.shape[:2] == [2, 3] and new.strides[:2] == [3, 1]
    assert ctypes.cast(new.data, ctypes.POINTER(ctypes.c_double))[:6] == [0.0] * 6
    out.contents.deleter(out)
    for change, text in [
        ({"code": 7}, b"class 7"),
        ({"device": (2, 0)}, b"not the cpu"),
        ({"ndim": -1}, b"dims"),
        ({"shape": (ctypes.c_int64 * 2)(2, -3)}, b"negative"),
        ({"shape": (ctypes.c_int64 * 2)(2**40, 2**40)}, b"too many elements"),
    ]:
        for name, value in change.items():
            refused = Description.from_buffer_copy(prototype)
            setattr(refused, name, value)
        assert api.allocate(ctypes.byref(refused), ctypes.byref(out), None, set_error) == -1
        kind, found = said.pop()
        assert kind == b"BufferError" and text in found and not said
