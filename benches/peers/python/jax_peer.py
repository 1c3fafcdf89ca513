"""jax.jit: each row is compiled as one function, a training step with its parameters donated."""

import os

import worker  # first: it says how many threads there are

os.environ["JAX_PLATFORMS"] = worker.OPTIONS.device
# Others use the device's memory too.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
# XLA makes as many threads as the process has cores when it starts.
cores = sorted(os.sched_getaffinity(0))
if worker.ON_CPU:
    os.sched_setaffinity(0, cores[: worker.OPTIONS.threads])

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from formulas import Formulas  # noqa: E402
from rows import ROWS, Scale  # noqa: E402

# On devices f32 would be rounded to less before it is multiplied.
jax.config.update("jax_default_matmul_precision", "highest")
(jnp.ones(8) + 1).block_until_ready()
for thread in os.listdir("/proc/self/task"):
    os.sched_setaffinity(int(thread), cores)


class Jax(Formulas):
    def layer_norm(self, x, weight, bias):
        return jax.nn.standardize(x, axis=-1, epsilon=1e-5) * weight + bias


FORMULAS = Jax(
    exp=jnp.exp, log=jnp.log, sqrt=jnp.sqrt, rsqrt=jax.lax.rsqrt, erf=jax.scipy.special.erf, tanh=jnp.tanh,
    relu=jax.nn.relu, sigmoid=jax.nn.sigmoid, silu=jax.nn.silu, gelu=jax.nn.gelu, softmax=jax.nn.softmax,
    minimum=jnp.minimum, maximum=jnp.maximum,
)  # fmt: skip


def training(x, *rest):
    """A call that goes on from the parameters that the last one left, and gives the loss."""
    *parameters, targets = rest

    def loss(parameters):
        scores = FORMULAS.perceptron(x, *parameters)
        return -(targets * jax.nn.log_softmax(scores)).sum(-1).mean()

    def step(parameters):
        value, gradients = jax.value_and_grad(loss)(parameters)
        return value, [parameter - 0.01 * gradient for parameter, gradient in zip(parameters, gradients)]

    step = jax.jit(step, donate_argnums=0)

    def call():
        nonlocal parameters
        value, parameters = done(step(parameters))
        return value

    return call


def make(name):
    jax.clear_caches()
    name, scale = Scale.of_name(name)
    row = ROWS[name]
    inputs = [jnp.asarray(array, dtype=row.dtype) for array in scale.parts(row.inputs())]
    sets = scale.sets(inputs, lambda x, times: jnp.array(jnp.tile(x, times), copy=True))
    if row.formula == "training_step":
        return training(*sets[0]), check
    call = worker.in_turns(jax.jit(getattr(FORMULAS, row.formula)), sets)
    return (lambda: done(call())), check


def done(outputs):
    """On a device calls go on before results are there."""
    return jax.block_until_ready(outputs) if worker.ON_CPU else outputs


def check(outputs):
    """On a device where they are, by its tree of sums."""
    if worker.ON_CPU:
        return worker.check(outputs)
    leaves = [leaf.astype(jnp.float32) for leaf in jax.tree_util.tree_leaves(outputs)]
    return sum(float((jnp.abs(leaf) + leaf * leaf).mean()) for leaf in leaves)


worker.serve(make, f"jax.jit {jax.__version__}", lambda outputs: None if worker.ON_CPU else jax.block_until_ready(outputs))
