#!/usr/bin/env python3
"""Exports small PyTorch models with recorded inputs and outputs.

    export_models.py FOLDER [NAME ...]

Writes NAME.pt2 and NAME.npz for each model. The arrays are called `0.in.0`, `0.out.0`, `1.in.0` and so on: the number
of the call, then that of the tensor. Weights and inputs are random, with fixed seeds. Gradients of the sum of cubes
of the first output are `0.grad.NAME` for up to four parameters. Needs torch 2.9 or later, transformers and numpy. Stack
traces keep file names and drop folders.
"""

import os
import re
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.export import Dim  # noqa: E402


class Flat(torch.nn.Module):
    """A model of transformers with a plain result."""

    def __init__(self, model, **fixed):
        super().__init__()
        self.model, self.fixed = model, fixed

    def forward(self, *inputs):
        return self.model(*inputs, **self.fixed)[0]


class Perceptron(torch.nn.Module):
    """Writes a buffer, computes with sizes, takes a dict and a number, and returns a dict."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16)
        self.batch_norm, self.last = torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, *, scale=3, extra=None):
        self.calls.add_(1)
        y = self.batch_norm(self.norm(torch.nn.functional.gelu(self.first(x))))
        n = x.shape[0]
        halves = (y.view(n * 2, 8) + n).chunk(2, 1)
        return {"out": self.last(y) * scale, "sum": halves[0] + halves[1], "calls": extra["k"] + self.calls}


class Layers(torch.nn.Module):
    """Layers whose operators no other model here has."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.lstm, self.gru, self.rnn = nn.LSTMCell(4, 4), nn.GRUCell(4, 4), nn.RNNCell(4, 4, nonlinearity="relu")
        modes = ("sum", "mean", "max")
        self.bags = nn.ModuleList(nn.EmbeddingBag(9, 4, mode=mode, padding_idx=2) for mode in modes)
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3, padding=1))
        self.pool = nn.AdaptiveAvgPool3d((2, 1, 2))

    def forward(self, x, ids, offsets, image):
        F = torch.nn.functional
        h, c = self.lstm(x, (x, x + 1))
        h = self.rnn(x, self.gru(x, h))
        bags = [bag(ids, offsets) for bag in self.bags]
        y = h + c + bags[0] + bags[1] + bags[2] + self.conv(x.T.unsqueeze(0))[0].T
        theta = torch.eye(2, 3).expand(2, 2, 3) + image.mean()
        largest, where = F.max_pool2d(image, 2, return_indices=True)
        resized = [
            F.interpolate(image[:, 0], scale_factor=1.5, mode="linear"),
            F.interpolate(image, size=(5, 9), mode="bicubic"),
            F.interpolate(image, scale_factor=1.3, mode="bicubic", align_corners=True),
            F.interpolate(image.unsqueeze(2), scale_factor=2, mode="trilinear"),
            F.interpolate(image, size=(4, 9), mode="nearest-exact"),
            F.interpolate(image[:, 0], size=9),
            F.affine_grid(theta, [2, 3, 5, 4], align_corners=False),
            F.affine_grid(theta, [2, 3, 5, 4], align_corners=True),
            F.max_unpool2d(largest, where, 2),
            self.pool(image.unsqueeze(2)),
        ]
        sign, target = torch.tensor([1, -1, 1]), torch.tensor([3, 0, 2])
        losses = [
            F.hinge_embedding_loss(y, sign[:, None].expand(3, 4)),
            F.margin_ranking_loss(y[:, 0], y[:, 1], sign, margin=0.1),
            F.cosine_embedding_loss(y, x, sign, margin=0.2),
            F.triplet_margin_loss(y, x, x + 1, swap=True),
            F.soft_margin_loss(y, sign[:, None].float().expand(3, 4)),
            F.multi_margin_loss(y, target, p=2),
            F.poisson_nll_loss(y, x.abs() * 3, full=True),
        ]
        others = [torch.special.ndtr(y), torch.special.entr(x.abs()), torch.ldexp(x, sign[0]), torch.dist(x, y)]
        others += [F.pairwise_distance(x, y), torch.fake_quantize_per_tensor_affine(y, 0.1, 3, -8, 7)]
        return y + sum(losses), *resized, *losses, *others, *bags


class Control(torch.nn.Module):
    """Branches and loops."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, n):
        from torch._higher_order_ops.associative_scan import associative_scan
        from torch._higher_order_ops.map import map as slices
        from torch._higher_order_ops.scan import scan
        from torch._higher_order_ops.while_loop import while_loop

        branch = torch.cond(x.sum() > 0, lambda x: self.layer(x).sin(), lambda x: (x * 2).cos(), (x,))
        start = (torch.zeros((), dtype=torch.long), x, n)
        count, state, _ = while_loop(
            lambda i, x, n: i < n, lambda i, x, n: (i + 1, torch.tanh(self.layer(x)), n.clone()), start
        )
        last, all = scan(lambda c, x: (torch.tanh(self.layer(c) + x), c * 2), torch.zeros(4), x, reverse=True)
        rows = slices(lambda row, n: (self.layer(row) + n, row.sum()), x, n)
        joined = associative_scan(lambda a, b: a * b + a, x, 0, combine_mode="generic")
        each = torch.vmap(lambda row, other: row * other.sum() + self.layer(row), in_dims=(0, 0))(x, x.flip(1))
        return branch, count, state, last, all, *rows, joined, each


class Transforms(torch.nn.Module):
    """Filters signals by their transforms."""

    def __init__(self):
        super().__init__()
        self.filter = torch.nn.Parameter(torch.randn(5) / 2)

    def forward(self, x, plane):
        waves = torch.fft.rfft(x, norm="ortho")
        again = torch.fft.irfft(waves * self.filter, n=8, norm="ortho")
        all = torch.fft.fft(torch.tanh(again))
        grid = torch.fft.ifft2(torch.fft.fft2(plane, norm="forward") * 2)
        both = torch.fft.irfftn(torch.fft.rfftn(plane), s=(4, 6))
        return again, all.abs(), torch.view_as_real(grid), grid.real + both, waves.angle()


class Complex(torch.nn.Module):
    """Takes, keeps and returns complex numbers, also as plain numbers."""

    def __init__(self):
        super().__init__()
        self.filter = torch.nn.Parameter(torch.randn(5, dtype=torch.complex64) / 2)

    def forward(self, x, z):
        waves = torch.fft.rfft(x) * self.filter * (1.5 - 0.5j) + 2j
        turned = z * z.flip(0).conj() - 1j / (z + (3 + 0j))
        return torch.fft.irfft(waves, n=8), turned, torch.exp(1j * z.angle()), torch.rsub(z, 0.5j), z ** (2 + 0j)


class Numbers(torch.nn.Module):
    """Takes a size, a factor, a flag and nested tensors, and returns numbers and None beside tensors."""

    def forward(self, x, n, factor, *, pair, flag=True, name=None):
        y = x.repeat(n, 1) * factor + pair[0]
        if flag:
            y = y - pair[1]["inner"]
        range = (torch.arange(n), torch.full((n, 2), n / 2))
        return {"repeated": y, "none": None, "n": n, "range": range, "name": name}


def transformer(name, **config):
    import transformers

    model = getattr(transformers, name)
    return model(model.config_class(**config))


def ids(*sizes):
    return torch.randint(0, 99, sizes)


SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
QUIET = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def models():
    """Name, model, calls, and dynamic shapes."""
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=2, max=32)
    text = ((({0: batch, 1: length}),),)
    yield "perceptron", Perceptron, [
        ((torch.randn(n, 8),), {"scale": 3, "extra": {"k": torch.ones(1)}}) for n in (4, 4, 7)
    ], {"x": {0: Dim("n", min=2, max=64)}, "scale": None, "extra": {"k": None}}
    yield "encoder", lambda: torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0), [
        ((torch.randn(n, m, 32),), {}) for n, m in ((2, 8), (3, 5))
    ], {"src": {0: batch, 1: length}}
    yield "bert", lambda: Flat(transformer("BertModel", vocab_size=99, **SMALL, **QUIET)), [
        ((ids(n, m),), {}) for n, m in ((2, 8), (3, 5))
    ], text
    yield "distilbert", lambda: Flat(
        transformer("DistilBertModel", vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
    ), [((ids(2, 8),), {})], None
    yield "gpt2", lambda: Flat(
        transformer("GPT2LMHeadModel", vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64), use_cache=False
    ), [((ids(n, m),), {}) for n, m in ((2, 8), (3, 5))], text
    yield "llama", lambda: Flat(
        transformer("LlamaForCausalLM", vocab_size=99, num_key_value_heads=2, max_position_embeddings=64, **SMALL),
        use_cache=False,
    ), [((ids(n, m),), {}) for n, m in ((2, 8), (3, 5))], text
    yield "qwen3", lambda: Flat(
        transformer("Qwen3ForCausalLM", vocab_size=99, num_key_value_heads=2, head_dim=8, max_position_embeddings=64, **SMALL),
        use_cache=False,
    ), [((ids(2, 8),), {})], None
    yield "vit", lambda: Flat(transformer("ViTModel", image_size=32, patch_size=8, **SMALL, **QUIET)), [
        ((torch.randn(n, 3, 32, 32),), {}) for n in (2, 3)
    ], (({0: batch},),)
    yield "resnet", lambda: Flat(
        transformer("ResNetModel", embedding_size=8, hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1])
    ), [((torch.randn(n, 3, 64, 64),), {}) for n in (2, 3)], (({0: batch},),)
    yield "convnext", lambda: Flat(
        transformer("ConvNextModel", hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], image_size=32)
    ), [((torch.randn(2, 3, 32, 32),), {})], None
    yield "t5", lambda: Flat(
        transformer("T5EncoderModel", vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    ), [((ids(2, 8),), {})], None
    yield "bert_bf16", lambda: Flat(transformer("BertModel", vocab_size=99, **SMALL, **QUIET)).bfloat16(), [
        ((ids(n, m),), {}) for n, m in ((2, 8), (3, 5))
    ], text
    yield "layers", Layers, [
        ((torch.randn(3, 4), ids(7) % 9, torch.tensor([0, 2, 2]), torch.randn(2, 3, 6, 6)), {}) for _ in range(2)
    ], None
    yield "control", Control, [
        ((x, torch.tensor(n)), {}) for x, n in ((torch.ones(5, 4), 3), (-torch.rand(5, 4), 0))
    ], None
    yield "numbers", Numbers, [
        ((torch.randn(2, 3), n, 1.5), {"pair": (torch.randn(3), {"inner": torch.randn(3)}), "flag": True, "name": None})
        for n in (4, 6)
    ], {"x": {}, "n": Dim.DYNAMIC, "factor": None, "pair": (None, {"inner": None}), "flag": None, "name": None}
    yield "transforms", Transforms, [((torch.randn(n, 8), torch.randn(4, 6)), {}) for n in (3, 3)], None
    yield "complex", Complex, [
        ((torch.randn(n, 8), torch.randn(3, dtype=torch.complex64)), {}) for n in (2, 2)
    ], None
    yield "lstm", lambda: torch.nn.LSTM(8, 16, num_layers=2, batch_first=True, bidirectional=True), [
        ((torch.randn(2, 5, 8),), {})
    ], None


def leaves(value):
    """Tensors and numbers, as tensors."""
    all = torch.utils._pytree.tree_leaves(value)
    return [torch.as_tensor(leaf) for leaf in all if isinstance(leaf, (torch.Tensor, bool, int, float))]


def array(tensor):
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy().copy()


def without_folders(program):
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", torch.fx.Graph()).nodes:
            if trace := node.meta.get("stack_trace"):
                node.meta["stack_trace"] = re.sub(r'File "[^"]*/', 'File "', trace)


def export(folder, name, make, calls, dynamic):
    torch.manual_seed(0)
    model = make()
    trains = name == "perceptron"
    model.train(trains)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    program = torch.export.export(model, *calls[0], dynamic_shapes=dynamic)
    if name == "transforms":
        program = program.run_decompositions()
    without_folders(program)
    torch.export.save(program, os.path.join(folder, f"{name}.pt2"))
    model.load_state_dict(state)
    arrays = {}
    for number, (args, kwargs) in enumerate(calls):
        model.zero_grad()
        outputs = leaves(model(*args, **kwargs))
        arrays |= {f"{number}.in.{at}": array(leaf) for at, leaf in enumerate(leaves((args, kwargs)))}
        arrays |= {f"{number}.out.{at}": array(leaf) for at, leaf in enumerate(outputs)}
        if number == 0 and outputs[0].requires_grad and name not in ("control", "bert_bf16"):
            outputs[0].pow(3).sum().backward()
            parameters = [(key, value.grad) for key, value in model.named_parameters() if value.grad is not None]
            step = max(1, len(parameters) // 4)
            arrays |= {f"0.grad.{key}": array(gradient) for key, gradient in parameters[::step]}
    np.savez(os.path.join(folder, f"{name}.npz"), **arrays)
    print(name, sum(len(array.shape) >= 0 for array in arrays.values()), "arrays")


def main():
    folder, *wanted = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(1)
    for name, make, calls, dynamic in models():
        if wanted and name not in wanted:
            continue
        try:
            export(folder, name, make, calls, dynamic)
        except Exception as error:  # noqa: BLE001
            print(f"{name}: {type(error).__name__}: {str(error)[:600]}")


if __name__ == "__main__":
    main()
