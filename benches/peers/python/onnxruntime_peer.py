"""onnxruntime on the CPU. A row's graph is built ahead; its first call makes the session, which optimizes it."""

import worker  # first: it says how many threads there are

import numpy as np
import onnxruntime
from formulas import Formulas
from onnx import helper, numpy_helper
from rows import ROWS


class Graph:
    def __init__(self):
        self.nodes, self.constants, self.inputs, self.feeds = [], [], [], {}

    def name(self):
        return f"v{len(self.nodes) + len(self.constants) + len(self.inputs)}"

    def constant(self, array):
        name = self.name()
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return Value(self, name)

    def input(self, array):
        name, dtype = self.name(), helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, dtype, array.shape))
        self.feeds[name] = array
        return Value(self, name)

    def add(self, op, *operands, **attributes):
        operands = [operand if isinstance(operand, Value) else self.constant(operand) for operand in operands]
        name = self.name()
        self.nodes.append(helper.make_node(op, [operand.name for operand in operands], [name], **attributes))
        return Value(self, name)

    def session(self, outputs):
        infos = [helper.make_empty_tensor_value_info(output.name) for output in outputs]
        graph = helper.make_graph(self.nodes, "row", self.inputs, infos, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = worker.OPTIONS.threads, 1
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Value:
    """A value of a graph that reads like an array; numbers become f32 constants."""

    def __init__(self, graph, name):
        self.graph, self.name = graph, name

    def apply(self, op, *operands, **attributes):
        operands = [np.float32(operand) if isinstance(operand, float) else operand for operand in operands]
        return self.graph.add(op, self, *operands, **attributes)

    def __add__(self, other):
        return self.apply("Add", other)

    def __sub__(self, other):
        return self.apply("Sub", other)

    def __mul__(self, other):
        return self.apply("Mul", other)

    def __truediv__(self, other):
        return self.apply("Div", other)

    def __matmul__(self, other):
        return self.apply("MatMul", other)

    def __getitem__(self, index):
        """Slices, and None for a new axis."""
        new = [axis for axis, part in enumerate(index) if part is None]
        if new:
            return self.apply("Unsqueeze", np.array(new))
        cut = [(axis, part) for axis, part in enumerate(index) if part != slice(None)]
        starts = [part.start or 0 for _, part in cut]
        stops = [np.iinfo(np.int64).max if part.stop is None else part.stop for _, part in cut]
        steps = [part.step or 1 for _, part in cut]
        return self.apply("Slice", *map(np.array, (starts, stops, [axis for axis, _ in cut], steps)))


def op(name, **attributes):
    return lambda x, *operands: x.apply(name, *operands, **attributes)


class Onnx(Formulas):
    def silu(self, x):
        return x * self.sigmoid(x)

    def rsqrt(self, x):
        return self.sqrt(x).apply("Reciprocal")

    def mean(self, x):
        return x.apply("ReduceMean", np.array([-1]), keepdims=1)

    def rms_norm(self, x, weight):
        return x / self.sqrt(self.mean(x * x) + 1e-6) * weight

    def sum(self, x, axis, keep=False):
        axes = [] if axis is None else [np.array([axis])]
        return x.apply("ReduceSum", *axes, keepdims=int(keep))

    def mean_and_variance(self, x):
        centred = x - self.mean(x)
        return self.mean(x), self.mean(centred * centred)

    def split_heads(self, x, n_heads):
        return x.apply("Reshape", np.array([0, 0, n_heads, -1])).apply("Transpose", perm=[0, 2, 1, 3])

    def merge_heads(self, x):
        return x.apply("Transpose", perm=[0, 2, 1, 3]).apply("Reshape", np.array([0, 0, -1]))


FORMULAS = Onnx(
    exp=op("Exp"), log=op("Log"), sqrt=op("Sqrt"), erf=op("Erf"), tanh=op("Tanh"), relu=op("Relu"),
    sigmoid=op("Sigmoid"), gelu=op("Gelu", approximate="tanh"), minimum=op("Min"), maximum=op("Max"),
    softmax=op("Softmax", axis=-1), layer_norm=op("LayerNormalization", epsilon=1e-5),
    transpose=op("Transpose", perm=[1, 0]), swap_last=op("Transpose", perm=[0, 1, 3, 2]),
    argmin=op("ArgMin", axis=1, keepdims=0),
)  # fmt: skip


def make(name):
    row = ROWS[name]
    formula = getattr(FORMULAS, row.formula, None)
    if formula is None or row.dtype == "bfloat16":
        return None
    graph = Graph()
    place = lambda operand, array: (graph.constant if operand.is_parameter else graph.input)(array)
    outputs = formula(*(place(*pair) for pair in zip(row.operands, (a.astype(row.dtype) for a in row.inputs()))))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    names, session = [output.name for output in outputs], None

    def call():
        nonlocal session
        if session is None:
            session = graph.session(outputs)
        return session.run(names, graph.feeds)

    return call, worker.check


worker.serve(make, f"onnxruntime {onnxruntime.__version__}")
