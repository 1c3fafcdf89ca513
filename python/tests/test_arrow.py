"""Arrays of Arrow as tensors over their memory, and back."""

import ctypes
import gc
import threading

import opfuse
import pytest

NULL = "1 nulls; fill them first"


class Lent:
    """An object that gives a tensor's array, as other libraries give theirs."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __arrow_c_array__(self, requested_schema=None):
        return self.tensor.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"]
)
def test_there_and_back(dtype):
    x = opfuse.tensor([[0, 1, 1], [1, 0, 1]], dtype=dtype)
    y = opfuse.from_arrow(Lent(x))
    assert y.dtype is x.dtype and y.tolist() == x.tolist()
    assert (y.data_ptr() == x.data_ptr()) == (dtype != "bool")
    if dtype != "bool":
        with pytest.raises(opfuse.Error, match="borrowed"):
            x.zero_()
        with pytest.raises(opfuse.Error, match="read-only.*Arrow|Arrow.*read-only"):
            y.zero_()
    del y
    gc.collect()
    x.zero_()
    assert opfuse.from_arrow(Lent(x.T)).tolist() == x.T.tolist()


def test_capsules_that_nobody_takes_are_freed():
    x = opfuse.ones(3)
    capsules = x.__arrow_c_array__()
    with pytest.raises(opfuse.Error, match="borrowed"):
        x.zero_()
    del capsules
    gc.collect()
    x.zero_()


def test_a_capsule_is_taken_once():
    class Twice:
        def __init__(self):
            self.capsules = opfuse.ones(3).__arrow_c_array__()

        def __arrow_c_array__(self, requested_schema=None):
            return self.capsules

    twice = Twice()
    x = opfuse.from_arrow(twice)
    with pytest.raises(ValueError, match="released"):
        opfuse.from_arrow(twice)
    del twice
    gc.collect()
    assert x.tolist() == [1, 1, 1]


def test_the_last_view_may_go_on_another_thread():
    x = opfuse.ones(4)
    views = [opfuse.from_arrow(Lent(x))[1:]]
    thread = threading.Thread(target=views.clear)
    thread.start()
    thread.join()
    gc.collect()
    x.zero_()


def test_what_is_refused():
    with pytest.raises(TypeError, match="list has no __arrow_c_array__"):
        opfuse.from_arrow([1.0])
    with pytest.raises(opfuse.Error, match="dims"):
        opfuse.tensor(1.0).__arrow_c_array__()
    with pytest.raises(opfuse.Error, match="convert"):
        opfuse.ones(2, dtype="bfloat16").__arrow_c_array__()
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class Wrong:
        def __init__(self, given):
            self.given = given

        def __arrow_c_array__(self, requested_schema=None):
            return self.given

    for given in ((), (1, 2), (make(1, b"arrow_array", None), make(1, b"other", None))):
        with pytest.raises(TypeError, match="no unused capsules"):
            opfuse.from_arrow(Wrong(given))


def test_arrays_of_pyarrow():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    given = pyarrow.array([1.5, 2.5, 3.5, 4.5])
    x = opfuse.from_arrow(given)
    assert x.tolist() == [1.5, 2.5, 3.5, 4.5] and x.data_ptr() == given.buffers()[1].address
    part = opfuse.from_arrow(given[1:3])
    assert part.tolist() == [2.5, 3.5] and part.data_ptr() == x.data_ptr() + 8
    del given, x
    gc.collect()
    assert part.tolist() == [2.5, 3.5]
    lists = pyarrow.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], pyarrow.list_(pyarrow.list_(pyarrow.int32(), 2), 2))
    assert opfuse.from_arrow(lists[1:]).tolist() == [[[5, 6], [7, 8]]]
    truth = pyarrow.array([True, False, True, True])[1:]
    assert opfuse.from_arrow(truth).tolist() == [False, True, True]
    assert opfuse.from_arrow(pyarrow.array([], pyarrow.int16())).shape == (0,)
    with pytest.raises(ValueError, match=NULL):
        opfuse.from_arrow(pyarrow.array([1, None, 3]))
    assert opfuse.from_arrow(pyarrow.array([1, None, 3])[2:]).tolist() == [3]
    for other in (pyarrow.array(["a"]), pyarrow.array([1], pyarrow.uint32()), pyarrow.array([[1], [2, 3]])):
        with pytest.raises(ValueError, match="cast"):
            opfuse.from_arrow(other)
    with pytest.raises(TypeError, match="combine_chunks"):
        opfuse.from_arrow(pyarrow.chunked_array([[1], [2]]))
    x = opfuse.arange(12).reshape(2, 3, 2)
    array = pyarrow.array(x)
    assert array.to_pylist() == x.tolist() and array.type.list_size == 3
    held = opfuse.arange(6.0)
    array = pyarrow.array(held)
    assert array.buffers()[1].address == held.data_ptr()
    with pytest.raises(opfuse.Error, match="borrowed"):
        held.zero_()
    del array
    gc.collect()
    held.zero_()
