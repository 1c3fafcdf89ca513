"""PyTorch: `torch-eager` calls each row as it is, `torch-compile` through torch.compile, `torch-graphs` also with CUDA graphs."""

import atexit
import os
import shutil
import tempfile

import worker  # first: it says how many threads there are

COMPILES = worker.OPTIONS.peer != "torch-eager"
MODE = "reduce-overhead" if worker.OPTIONS.peer == "torch-graphs" else None
DEVICE = worker.OPTIONS.device
if COMPILES:
    # First calls are to be cold: nothing on disk from other runs, nothing looked up from this one.
    folder = tempfile.mkdtemp(prefix="peers-torch-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] = os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "0"
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from formulas import Formulas  # noqa: E402
from rows import ROWS, Scale  # noqa: E402

torch.set_num_threads(worker.OPTIONS.threads)


class Torch(Formulas):
    def gelu(self, x):
        return F.gelu(x, approximate="tanh")

    def softmax(self, x):
        return F.softmax(x, -1)

    def layer_norm(self, x, weight, bias):
        return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)

    def rms_norm(self, x, weight):
        return F.rms_norm(x, x.shape[-1:], weight, 1e-6)

    def stored(self, x):
        return x.contiguous()

    def linear(self, x, weight, bias):
        return torch.addmm(bias, x, weight) if x.dim() == 2 else x @ weight + bias

    def sum(self, x, axis, keep=False):
        return x.sum(axis, keepdim=keep)

    def mean_and_variance(self, x):
        variance, mean = torch.var_mean(x, 1, correction=0)
        return mean, variance

    def argmin(self, x):
        return x.argmin(1)

    def copy(self, x):
        return x.clone()


FORMULAS = Torch(
    exp=torch.exp, log=torch.log, sqrt=torch.sqrt, rsqrt=torch.rsqrt, erf=torch.erf, tanh=torch.tanh,
    relu=torch.relu, sigmoid=torch.sigmoid, silu=F.silu, minimum=torch.clamp_max, maximum=torch.clamp_min,
)  # fmt: skip


def compiled(function):
    return torch.compile(function, mode=MODE) if COMPILES else function


def training(x, *rest):
    """A call that updates the parameters and gives the loss."""
    *parameters, targets = rest
    for parameter in parameters:
        parameter.requires_grad_()

    def loss(x, targets, *parameters):
        return -(targets * F.log_softmax(FORMULAS.perceptron(x, *parameters), -1)).sum(-1).mean()

    def update(parameters, gradients):
        for parameter, gradient in zip(parameters, gradients):
            parameter.sub_(gradient, alpha=0.01)

    loss, update = compiled(loss), compiled(update)

    def call():
        with torch.enable_grad():
            value = loss(x, targets, *parameters)
            value.backward()
        update(parameters, [parameter.grad for parameter in parameters])
        for parameter in parameters:
            parameter.grad = None
        return value.detach()

    return call


def check(outputs):
    if isinstance(outputs, tuple):
        return sum(check(output) for output in outputs)
    # In f64 where the outputs are.
    values = outputs.double()
    return float((values.abs() + values * values).mean())


def make(name):
    torch.compiler.reset()
    if not worker.ON_CPU:
        torch.cuda.empty_cache()
    name, scale = Scale.of_name(name)
    row = ROWS[name]
    inputs = [torch.from_numpy(array).to(DEVICE, getattr(torch, row.dtype)) for array in scale.parts(row.inputs())]
    sets = scale.sets(inputs, lambda x, times: x.repeat(times))
    if row.formula == "training_step":
        return training(*sets[0]), check
    function = compiled(getattr(FORMULAS, row.formula))
    return worker.in_turns(function, sets), check


def wait(_outputs):
    if not worker.ON_CPU:
        torch.cuda.synchronize()


torch.set_grad_enabled(False)
# The first calls of a process start threads and look for a toolchain; that is no row's first call.
compiled(lambda x: F.relu(x @ x) + 1)(torch.ones(64, 64, device=DEVICE))
worker.serve(make, f"{worker.OPTIONS.peer} {torch.__version__}", wait)
