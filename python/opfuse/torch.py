"""PyTorch's models on opfuse: `torch.compile(model, backend="opfuse")`.

AOTAutograd traces the forward and the backward pass of a model as graphs of ATen operators without writes. Each graph
becomes one compiled function of opfuse. Tensors share their memory both ways. Calls that opfuse has no operator or
dtype for run in PyTorch, between compiled parts; so does a call that opfuse refuses when the graph is captured.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import operator
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._dynamo.backends.common import aot_autograd
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

import opfuse
from opfuse._opfuse import Compiled, Tensor, _from_capsule, _from_exchange, _Inputs, _operator, _to_exchanges

aten = torch.ops.aten

_DTYPES = {
    getattr(torch, name)
    for name in "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
}

# Operators that are not split: constants of a graph pass through the first three, and what the others split into writes
# to parts of complex tensors, which AOTAutograd does not take.
_UNSPLIT = {"aten::lift", "aten::lift_fresh", "aten::lift_fresh_copy", "aten::polar", "aten::complex"}

# A check of a value. Its call returns nothing, and fails where the value is false.
_ASSERT = aten._assert_async.msg

# Arguments that say where a result lies. Every tensor is on the CPU, and row-major.
_PLACES = ("device", "layout", "pin_memory", "non_blocking")


# Older versions of PyTorch give and take capsules alone.
_EXCHANGES = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


def _from_torch(tensor: torch.Tensor) -> Tensor:
    """A tensor over the same memory."""
    if type(tensor) is not torch.Tensor and isinstance(tensor, FakeTensor):
        raise TypeError("opfuse.torch: a compiled graph was called with a fake tensor, which has no elements")
    if not tensor.is_cpu:
        raise ValueError(f"opfuse.torch: tensors must be on the cpu, and this one is on {tensor.device}")
    if tensor.is_neg():
        # Its memory has the elements with the other sign.
        tensor = tensor.resolve_neg()
    if _EXCHANGES:
        return _from_exchange(tensor)
    return _from_capsule(torch._C._to_dlpack(tensor.detach()))


def _converted(value: Any) -> Any:
    """A tensor over the memory of one, and any other value as it is."""
    return _from_torch(value) if isinstance(value, torch.Tensor) else value


def _give_away(values: list[Any]) -> None:
    """Puts tensors of PyTorch over the same memory in place of tensors."""
    if _EXCHANGES:
        _to_exchanges(values, torch.Tensor)
    else:
        values[:] = [
            torch._C._from_dlpack(value.__dlpack__()) if isinstance(value, Tensor) else value for value in values
        ]


def _sizes_of(value: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(size) for size in value.shape)


# What opfuse names otherwise, or what reads no elements. Views may get tensors with other strides than in the trace.
_SPECIAL: dict[Any, Callable[..., Any]] = {
    aten.view.default: lambda x, size: opfuse.ops.reshape(x, size),
    aten._unsafe_view.default: lambda x, size: opfuse.ops.reshape(x, size),
    aten.lift_fresh_copy.default: lambda x: x.clone(),
    aten.alias.default: lambda x: x,
    _ASSERT: lambda x, _message: x,
    torch.ops.prims.convert_element_type.default: lambda x, dtype: x.to(dtype),
    # In two roundings, as eager PyTorch computes what it is part of.
    torch.ops.prims.fma.default: lambda x, y, z: x * y + z,
    aten.copy.default: lambda x, source, _=False: source.to(x.dtype).expand(x.shape).clone(),
    aten.sym_size.int: lambda x, dim: x.shape[dim],
    aten.sym_stride.int: lambda x, dim: x.stride()[dim],
    aten.sym_numel.default: lambda x: x.numel(),
}


def _found(target: Any) -> Callable[..., Any] | None:
    """What runs a call of the graph, or `None` if only PyTorch can."""
    if not isinstance(target, OpOverload):
        # Numbers: sizes that are computed from others, and parts of results.
        return target if callable(target) and not isinstance(target, HigherOrderOperator) else None
    if target in _SPECIAL:
        return _SPECIAL[target]
    namespace, name = target._schema.name.split("::")
    return _operator(name, target._schema.overload_name) if namespace == "aten" else None


def _lack(node: torch.fx.Node) -> str | None:
    """Why only PyTorch can run a call of the graph, or `None`."""
    if _found(node.target) is None:
        return "opfuse has no operator of that name and overload"
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        # Part of a result, which is where the result is.
        source = node.args[0]
        return _lack(source) if source.op == "call_function" else None
    for value in (value for one in (node, *node.all_input_nodes) for value in tree_leaves(one.meta.get("val"))):
        lack = _lack_of_tensor(value) if isinstance(value, torch.Tensor) else None
        if lack is not None:
            return lack
    return None


def _lack_of_tensor(tensor: torch.Tensor) -> str | None:
    if tensor.dtype not in _DTYPES:
        return f"opfuse has no {str(tensor.dtype).removeprefix('torch.')}"
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        return f"opfuse takes dense tensors on the cpu, and not {tensor.layout} on {tensor.device}"
    return None


def _argument(value: Any) -> Any:
    if isinstance(value, (torch.memory_format, torch.layout)):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_argument(item) for item in value) if type(value) in (list, tuple) else list(value)
    return value


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keeps Python's garbage collector from running.

    Graphs are many objects that live on. The collector would go through all of them, and through every object of the
    program, again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Refused(Exception):
    """opfuse has the operator of a node, and refuses this call."""

    def __init__(self, node: torch.fx.Node, error: Exception) -> None:
        super().__init__(f"{node.target}: {error}")
        self.node, self.error = node, error


class _Interpreter(torch.fx.Interpreter):
    """Runs a graph with opfuse's operators."""

    def __init__(self, graph: torch.fx.GraphModule, constants: dict[str, Tensor]) -> None:
        super().__init__(graph)
        self.constants = constants
        # What must be true, in order: results of the compiled function that are looked at after each call.
        self.held: list[Tensor] = []

    def run_node(self, n: torch.fx.Node) -> Any:
        try:
            return super().run_node(n)
        except opfuse.Error as error:
            raise _Refused(n, error) from error

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Tensor:
        return self.constants[target]

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        call = _found(target)
        if call is None:
            raise NotImplementedError(f"opfuse.torch: there is no operator {target}")
        if not isinstance(target, OpOverload):
            return call(*args, **kwargs)
        if target is _ASSERT:
            self.held.append(args[0])
        given = {name: _argument(value) for name, value in kwargs.items() if name not in _PLACES}
        return call(*(_argument(value) for value in args), **given)


def _as_traced(value: Any, node: Any) -> Any:
    """The tensor with the strides that the graph gives it."""
    if not isinstance(value, Tensor):
        return value
    strides = _strides_of(node)
    if 0 in value.stride():
        # Elements that share their memory cannot be given away.
        value = value.contiguous()
    if strides is None or value.stride() == strides or 0 in strides:
        return value
    placed = opfuse.ops.empty_strided(list(value.shape), list(strides), dtype=value.dtype)
    return opfuse.ops.copy_(placed, value)


def _strides_of(node: torch.fx.Node) -> tuple[int, ...] | None:
    """The strides of a result in the trace, if they do not depend on sizes that may change."""
    traced = node.meta.get("val")
    strides = tuple(traced.stride()) if isinstance(traced, torch.Tensor) else None
    return strides if strides is not None and all(isinstance(stride, int) for stride in strides) else None


class Graph:
    """A graph of PyTorch as a compiled function of opfuse."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        names = [node.target for node in graph.graph.nodes if node.op == "get_attr"]
        with unset_fake_temporarily():
            self._constants = {name: _from_torch(_attribute(graph, name)) for name in names}
        self._graph = graph
        inputs = {node: at for at, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
        (output,) = graph.graph.find_nodes(op="output")
        # Others are not converted, and may be of any kind.
        is_used = [any(user is not output for user in node.users) for node in inputs]
        self._inputs = _Inputs(torch.Tensor, torch.nn.Parameter, is_used)
        # The graph in parts, once a call of it was refused.
        self._parts: Callable[..., Any] | None = None
        self._is_one = isinstance(output.args[0], torch.fx.Node)
        nodes = [output.args[0]] if self._is_one else output.args[0]
        # What the graph passes on needs no call, and what is no node is a constant of the graph, such as `None`.
        self._results = [node if isinstance(node, torch.fx.Node) and node not in inputs else None for node in nodes]
        self._messages = [str(node.args[1]) for node in graph.graph.find_nodes(op="call_function", target=_ASSERT)]
        self._has_results = bool(self._messages) or any(node is not None for node in self._results)
        self._given = [inputs.get(node) if isinstance(node, torch.fx.Node) else None for node in nodes]
        self._is_random = any(
            isinstance(node.target, OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
            for node in graph.graph.nodes
        )
        self.compiled = Compiled(self._traced, watch=False)

    def _traced(self, *inputs: Any) -> Any:
        interpreter = _Interpreter(self._graph, self._constants)
        with _collector_paused():
            results = interpreter.run(*inputs, enable_io_processing=False)
        results = [results] if self._is_one else results
        made = zip(results, self._results, strict=True)
        return [_as_traced(result, node) for result, node in made if node is not None] + interpreter.held

    def __call__(self, *inputs: Any) -> Any:
        if self._parts is not None:
            return self._parts(*inputs)
        own = self._inputs.own(inputs, _converted)
        try:
            computed = self._computed(own)
        except _Refused as refused:
            # Nothing was written yet: a graph writes to its inputs last.
            self._parts = self._without(refused)
            return self._parts(*inputs)
        _give_away(computed)
        made = iter(computed)
        results = [
            next(made) if node is not None else inputs[given] if given is not None else None
            for node, given in zip(self._results, self._given, strict=True)
        ]
        for message, holds in zip(self._messages, made, strict=True):
            if not holds:
                raise RuntimeError(message)
        return results[0] if self._is_one else results

    def _without(self, refused: _Refused) -> Callable[..., Any]:
        """The graph with one call left to PyTorch."""
        # Nodes of a copy have the same names.
        graph = torch.fx.GraphModule(self._graph, copy.deepcopy(self._graph.graph))
        lacks = {refused.node.name: str(refused.error)}
        made, run = _in_parts(graph, lacks)
        _tell(made, Counter({str(refused.node.target): 1}), {str(refused.node.target): str(refused.error)}, self)
        return run

    def _computed(self, inputs: tuple[Any, ...]) -> list[Any]:
        if not self._has_results:
            return []
        if not self._is_random:
            return self.compiled(*inputs)
        # Numbers start from a draw of PyTorch, so that `torch.manual_seed` decides them.
        generator = opfuse.default_generator()
        before = generator.get_state()
        generator.manual_seed(int(torch.randint(2**62, ())))
        try:
            return self.compiled(*inputs)
        finally:
            generator.set_state(before)


def _attribute(module: Any, name: str) -> torch.Tensor:
    for part in name.split("."):
        module = getattr(module, part)
    return module


class _Supported(OperatorSupportBase):
    """Which calls run in opfuse: all but those that lack something, by the name of the node."""

    def __init__(self, graph: torch.fx.GraphModule, lacks: Mapping[str, str]) -> None:
        self._graph, self._lacks = graph, lacks

    def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
        if node.op == "get_attr":
            constant = _attribute(self._graph, str(node.target))
            return isinstance(constant, torch.Tensor) and _lack_of_tensor(constant) is None
        return node.op == "call_function" and self._lack(node) is None

    def _lack(self, node: torch.fx.Node) -> str | None:
        source = node.args[0] if node.target is operator.getitem and node.args else node
        own = self._lacks.get(node.name)
        return own or self._lacks.get(getattr(source, "name", "")) or _lack(node)


class Report:
    """What became of the graphs of a model."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.fallbacks: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}

    @property
    def kernels_before(self) -> int:
        """The number of kernels if each operator ran alone."""
        return sum(graph.compiled.explain().kernels_before for graph in self.graphs)

    @property
    def kernels_after(self) -> int:
        """The number of kernels that run."""
        return sum(graph.compiled.explain().kernels_after for graph in self.graphs)

    def __str__(self) -> str:
        lines = [f"{len(self.graphs)} graphs, kernels {self.kernels_before} -> {self.kernels_after}"]
        for name, count in sorted(self.fallbacks.items()):
            lines.append(f"  {count} x {name} ran in PyTorch: {self.reasons[name]}")
        for graph in self.graphs:
            lines += ["", str(graph.compiled.explain())]
        return "\n".join(lines)

    __repr__ = __str__


_reports: list[Report] = []


class _Part(torch.nn.Module):
    """A compiled part of a graph, where a module is asked for."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.compiled_graph = graph

    def forward(self, *inputs: Any) -> Any:
        return self.compiled_graph(*inputs)


def _in_parts(graph: torch.fx.GraphModule, lacks: Mapping[str, str]) -> tuple[list[Graph], Callable[..., Any]]:
    """Compiles what opfuse can run, and leaves the calls between to PyTorch."""
    partitioner = CapabilityBasedPartitioner(graph, _Supported(graph, lacks), allows_single_node_partition=True)
    whole = partitioner.partition_and_fuse("opfuse_part_")
    parts = [name for name, _ in whole.named_children() if name.startswith("opfuse_part_")]
    made = [Graph(getattr(whole, name)) for name in parts]
    for name, part in zip(parts, made, strict=True):
        setattr(whole, name, _Part(part))
    return made, whole


def _compile(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles a graph of AOTAutograd."""
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    lacks = {node: lack for node in calls if (lack := _lack(node)) is not None}
    lacks = {node: lack for node, lack in lacks.items() if node.target is not operator.getitem}
    made: list[Graph] = []
    if not lacks and not any(graph.graph.find_nodes(op="call_module")):
        made = [Graph(graph)]
        run: Callable[..., Any] = made[0]
    else:
        made, run = _in_parts(graph, {})
    missing = Counter(str(node.target) for node in lacks)
    _tell(made, missing, {str(node.target): lack for node, lack in lacks.items()})
    return make_boxed_func(run)


def _tell(
    made: list[Graph], missing: Counter[str], reasons: Mapping[str, str], instead_of: Graph | None = None
) -> None:
    """Reports what became of a graph, and warns of what PyTorch runs."""
    for report in _reports:
        report.graphs = [graph for graph in report.graphs if graph is not instead_of] + made
        report.fallbacks += missing
        report.reasons.update(reasons)
    if missing:
        names = ", ".join(f"{count} x {name} ({reasons[name]})" for name, count in sorted(missing.items()))
        warnings.warn(f"opfuse.torch: PyTorch runs what opfuse cannot: {names}", stacklevel=2)


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """What PyTorch splits into other operators: all that it can split and opfuse does not have."""
    known = {**decomposition_table, **core_aten_decompositions()}
    overloads = {target: split for target, split in known.items() if isinstance(target, OpOverload)}
    return {
        target: split
        for target, split in overloads.items()
        if _found(target) is None and target._schema.name not in _UNSPLIT
    }


def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **_options: Any) -> Callable[..., Any]:
    """The backend of `torch.compile`. The package names it as an entry point, so its name `"opfuse"` is enough."""
    compiler = aot_autograd(
        fw_compiler=_compile,
        bw_compiler=_compile,
        decompositions=_decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    # Attention as products and a softmax, which fuse with what is around them, instead of a kernel of PyTorch.
    with _collector_paused(), sdpa_kernel(SDPBackend.MATH):
        return compiler(graph, example_inputs)


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Compiles a function or module, calls it once, and says what became of its graphs.

    What the call returns is dropped. A backward pass is not run; its graph is reported if PyTorch compiles it.
    """
    report = Report()
    _reports.append(report)
    try:
        torch._dynamo.reset()
        torch.compile(function, backend=backend)(*args, **kwargs)
    finally:
        _reports.remove(report)
    return report
