"""What compiled functions take, and what they notice besides their arguments."""

import collections
import dataclasses
import functools
import gc
import weakref

import opfuse
import pytest


@dataclasses.dataclass
class State:
    w: opfuse.Tensor
    scale: float = 2.0

    @opfuse.compile
    def applied(self, x):
        return self.w * x * self.scale


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: opfuse.Tensor
    name: str


def test_dataclasses():
    double = opfuse.compile(lambda state, *, x: State(state.w * x * state.scale, state.scale))
    for _ in range(2):
        found = double(State(opfuse.ones(2)), x=opfuse.ones(2))
        assert isinstance(found, State) and found.w.tolist() == [2.0, 2.0] and found.scale == 2.0
    assert double.counts()["captures"] == 1
    assert State(opfuse.ones(1), 3.0).applied(opfuse.ones(1)).item() == 3.0
    found = opfuse.compile(lambda f: {"f": f, "more": [f.a + 1, None]})(Frozen(opfuse.ones(1), "n"))
    assert found["f"].name == "n" and found["more"][0].item() == 2.0
    gradient = opfuse.grad(lambda state: (state.w * state.scale).sum())(State(opfuse.ones(2)))
    assert isinstance(gradient, State) and gradient.w.tolist() == [2.0, 2.0]


def test_subclasses_of_dicts_and_lists():
    class Names(dict):
        pass

    class Items(list):
        pass

    kinds = []
    keep = opfuse.compile(lambda x: kinds.append(type(x)) or x)
    one = opfuse.ones(1)
    for given in (collections.OrderedDict(a=one), Names(a=one), Items([one])):
        assert type(keep(given)) is type(given) is kinds[-1]
    filled = collections.defaultdict(lambda: 3, a=one, b=2)
    assert opfuse.compile(lambda d: d["a"] * d["b"])(filled).item() == 2.0
    assert opfuse.compile(lambda x, s: x * len(s))(one, {1, 2}).item() == 2.0


def test_changes_of_containers_are_refused():
    def appends(xs):
        xs.append(xs[0] * 2)
        return xs[-1]

    def replaces(d):
        d["a"] = d["a"] + 1
        return d["a"]

    for function, given in ((appends, [opfuse.ones(1)]), (replaces, {"a": opfuse.ones(1)})):
        with pytest.raises(ValueError, match="changed a list"):
            opfuse.compile(function)(given)
    written = {"a": opfuse.ones(1)}
    assert opfuse.compile(lambda d: d["a"].add_(1))(written).item() == 2.0 == written["a"].item()


def test_unhashable_values_name_their_type():
    with pytest.raises(TypeError, match="bytearray"):
        opfuse.compile(lambda x, y: x)(opfuse.ones(1), bytearray(b"a"))
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    with pytest.raises(TypeError, match="asarray"):
        opfuse.compile(lambda x: x)(numpy.ones(2))


class Model:
    def __init__(self):
        self.w, self.parts, self.calls = opfuse.ones(2), {"scale": 1.0, "list": [opfuse.ones(1)]}, 0

    @opfuse.compile
    def __call__(self, x):
        return self.w * x * self.parts["scale"] * self.parts["list"][0]


def test_attributes_of_objects_are_noticed():
    model, x = Model(), opfuse.ones(2)
    outer = opfuse.compile(lambda x: model(x) + 1)
    seen = opfuse.compile(lambda model, x: model.w * x)
    for change in (
        lambda: None,
        lambda: setattr(model, "w", model.w * 5),
        lambda: model.parts.update(scale=3.0),
        lambda: model.parts["list"].__setitem__(0, opfuse.tensor([7.0])),
    ):
        change()
        expected = model.w * x * model.parts["scale"] * model.parts["list"][0]
        assert model(x).tolist() == expected.tolist()
        assert outer(x).tolist() == (expected + 1).tolist()
        assert seen(model, x).tolist() == model.w.tolist()
    captures = outer.counts()["captures"]
    model.w.add_(1)
    outer(x), outer(x)
    assert outer.counts()["captures"] == captures


rate = opfuse.tensor(2.0)


def helper(x):
    return x * rate


def test_variables_are_noticed():
    global rate
    weight = opfuse.ones(1)

    def function(x, factor=[1.0]):  # noqa: B006
        return helper(x) * weight * factor[0]

    fast, step, x = opfuse.compile(function), opfuse.compile(opfuse.grad(lambda x: function(x).sum())), opfuse.ones(1)
    assert fast(x).item() == step(x).item() == 2.0
    rate = opfuse.tensor(3.0)
    assert fast(x).item() == step(x).item() == 3.0
    weight = weight * 2
    assert fast(x).item() == step(x).item() == 6.0
    function.__defaults__[0][0] = 2.0
    assert fast(x).item() == 12.0
    before = fast.counts()["captures"]
    fast(x)
    assert fast.counts()["captures"] == before
    blind = opfuse.compile(function, watch=False)
    assert blind(x).item() == 12.0
    weight = weight * 2
    assert blind(x).item() == 12.0 and fast(x).item() == 24.0


def test_state_of_methods_and_partial_functions_is_noticed():
    model, x = Model(), opfuse.ones(2)
    bound = opfuse.compile(model.__call__.__func__.__wrapped__.__get__(model))
    partial = opfuse.compile(functools.partial(lambda own, x: own["w"] * x, {"w": opfuse.ones(2)}))
    assert bound(x).tolist() == partial(x).tolist() == [1.0, 1.0]
    model.w = model.w * 3
    partial.__wrapped__.args[0]["w"] = opfuse.ones(2) * 3
    assert bound(x).tolist() == partial(x).tolist() == [3.0, 3.0]


def test_methods_that_set_attributes():
    class Counter:
        def __init__(self):
            self.n, self.h = 0, opfuse.zeros(1)

        @opfuse.compile
        def step(self, x):
            self.n += 1
            self.h = self.h + x * self.n
            return self.h * 1

    counter, h = Counter(), 0.0
    for n in range(1, 6):
        h += n
        assert counter.step(opfuse.ones(1)).item() == h


def test_cycles_are_collected():
    class Owner:
        def __init__(self):
            self.weight = opfuse.ones(1000)
            self.call = opfuse.compile(lambda x: x + self.weight, watch=False)

    owner = Owner()
    died = weakref.ref(owner)
    # Without a call: programs keep what they captured until they are evicted.
    del owner
    gc.collect()
    assert died() is None


def test_derivatives_nest():
    x = opfuse.tensor([1.0, 2.0])
    cube = lambda x: (x**3).sum()  # noqa: E731
    assert opfuse.grad(lambda x: opfuse.grad(cube)(x).sum())(x).tolist() == [6.0, 12.0]
    assert opfuse.grad(opfuse.grad(opfuse.grad(lambda x: x**4)))(opfuse.tensor(2.0)).item() == 48.0
    assert opfuse.hessian(cube)(x).tolist() == [[6.0, 0.0], [0.0, 12.0]]
    square = lambda x: x * x  # noqa: E731
    for matrix in (opfuse.jacrev, opfuse.jacfwd):
        assert matrix(square)(x).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    rows = opfuse.vmap(opfuse.grad(lambda w, x: (w * x).sum()), in_dims=(None, 0))(x, opfuse.ones(3, 2))
    assert rows.tolist() == [[1.0, 1.0]] * 3
    compiled = opfuse.compile(opfuse.hessian(cube))
    assert compiled(x).tolist() == compiled(x).tolist() == [[6.0, 0.0], [0.0, 12.0]]


def test_products_with_jacobians():
    x, y = opfuse.tensor([1.0, 2.0]), opfuse.tensor([3.0, 4.0])
    value, pullback = opfuse.vjp(lambda x, y: {"p": x * y}, x, y)
    assert value["p"].tolist() == [3.0, 8.0]
    assert [one.tolist() for one in pullback({"p": opfuse.ones(2)})] == [[3.0, 4.0], [1.0, 2.0]]
    value, along = opfuse.jvp(lambda x, y: x * y, (x, y), (opfuse.ones(2), opfuse.zeros(2)))
    assert (value.tolist(), along.tolist()) == ([3.0, 8.0], [3.0, 4.0])
    with pytest.raises(ValueError, match="tangents"):
        opfuse.jvp(lambda x: x, (x,), ())
    with pytest.raises(ValueError, match="must return a tensor"):
        opfuse.jacrev(lambda x: (x, x))(x)


def test_mapped_dims_of_structures():
    found = opfuse.vmap(lambda d, s: d["x"] * d["y"].sum() * s, in_dims=({"x": 0, "y": 1}, None))(
        {"x": opfuse.ones(3), "y": opfuse.ones(2, 3)}, opfuse.tensor(2.0)
    )
    assert found.tolist() == [4.0, 4.0, 4.0]
    first, second = opfuse.vmap(lambda x: (x, x * 2), out_dims=(0, 1))(opfuse.ones(2, 3))
    assert (first.shape, second.shape) == ((2, 3), (3, 2))
