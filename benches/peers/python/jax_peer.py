"""jax.jit on the CPU: each row is compiled as one function, a training step with its parameters donated."""

import os

import worker  # first: it says how many threads there are

os.environ["JAX_PLATFORMS"] = "cpu"
# XLA makes as many threads as the process has cores when it starts.
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, cores[: worker.OPTIONS.threads])

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from formulas import Formulas  # noqa: E402
from rows import ROWS  # noqa: E402

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
        value, parameters = jax.block_until_ready(step(parameters))
        return value

    return call


def make(name):
    jax.clear_caches()
    row = ROWS[name]
    inputs = [jnp.asarray(array, dtype=row.dtype) for array in row.inputs()]
    if row.formula == "training_step":
        return training(*inputs), worker.check
    function = jax.jit(getattr(FORMULAS, row.formula))
    return (lambda: jax.block_until_ready(function(*inputs))), worker.check


worker.serve(make, f"jax.jit {jax.__version__}")
