"""Records what PyTorch's modules, losses, optimizers and schedules compute: the data of tests/training.

    python scripts/record_training.py            # needs torch, numpy and safetensors

Writes tests/training/recorded/{modules,losses,optim,layers,trajectories,images}.safetensors, and images beside them.
Names are `case/kind.name`. Names of functions after the script run those alone.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

OUT = pathlib.Path(__file__).parent.parent / "tests/training/recorded"
torch.manual_seed(7)
torch.set_num_threads(1)


def record(all_tensors, case, run, inputs, module=None):
    """Inputs, weights, outputs, and the gradients of all for fixed cotangents."""
    leaves = [x.clone().requires_grad_(True) if x.is_floating_point() else x for x in inputs]
    for name, tensor in module.state_dict().items() if module else []:
        all_tensors[f"{case}/weight.{name}"] = tensor.clone()
    outputs = run(*leaves)
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    loss = 0
    for at, output in enumerate(outputs):
        cotangent = torch.randn(output.shape)
        loss = loss + (output * cotangent).sum()
        all_tensors[f"{case}/output.{at}"] = output.detach().contiguous()
        all_tensors[f"{case}/cotangent.{at}"] = cotangent
    loss.backward()
    for at, (given, leaf) in enumerate(zip(inputs, leaves)):
        all_tensors[f"{case}/input.{at}"] = given.contiguous()
        if leaf.grad is not None:
            all_tensors[f"{case}/input_grad.{at}"] = leaf.grad.contiguous()
    for name, parameter in module.named_parameters() if module else []:
        if parameter.grad is not None:
            all_tensors[f"{case}/weight_grad.{name}"] = parameter.grad.contiguous()
    for name, buffer in module.named_buffers() if module else []:
        all_tensors[f"{case}/buffer.{name}"] = buffer.clone()


def modules():
    out = {}

    def one(case, module, *inputs, run=None):
        record(out, case, run or module, inputs, module)

    r, ids = torch.randn, lambda *sizes: torch.randint(0, 7, sizes)
    one("linear", nn.Linear(4, 3), r(2, 4))
    one("linear_no_bias", nn.Linear(4, 3, bias=False), r(2, 4))
    one("bilinear", nn.Bilinear(3, 4, 5), r(2, 3), r(2, 4))
    one("conv1d", nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), r(2, 4, 9))
    one("conv2d", nn.Conv2d(3, 4, 3, padding=1, dilation=2), r(2, 3, 7, 6))
    one("conv3d", nn.Conv3d(2, 3, 2), r(1, 2, 4, 3, 5))
    one("conv_transpose1d", nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2), r(2, 4, 5))
    one("conv_transpose2d", nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1, output_padding=1), r(2, 3, 4, 3))
    one("embedding", nn.Embedding(7, 4, padding_idx=2), ids(2, 5))
    for mode in ["sum", "mean", "max"]:
        one(f"embedding_bag_{mode}", nn.EmbeddingBag(7, 4, mode=mode), ids(9), torch.tensor([0, 3, 3, 7]))
    one("layer_norm", nn.LayerNorm([3, 4]), r(2, 3, 4))
    one("rms_norm", nn.RMSNorm(4), r(2, 3, 4))
    one("group_norm", nn.GroupNorm(2, 4), r(2, 4, 5))
    one("instance_norm", nn.InstanceNorm1d(3, affine=True), r(2, 3, 5))
    one("batch_norm1d", nn.BatchNorm1d(3), r(4, 3, 5))
    one("batch_norm2d", nn.BatchNorm2d(3), r(2, 3, 4, 5))
    one("batch_norm2d_eval", nn.BatchNorm2d(3).eval(), r(2, 3, 4, 5))
    attention = nn.MultiheadAttention(8, 2)
    one("attention", attention, r(3, 2, 8), r(4, 2, 8), r(4, 2, 8))
    causal = nn.MultiheadAttention(8, 2, batch_first=True)
    mask = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
    one("attention_causal", causal, r(2, 4, 8), run=lambda x: causal(x, x, x, attn_mask=mask, need_weights=False)[0])
    sized = nn.MultiheadAttention(8, 2, kdim=5, vdim=6, batch_first=True)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    one("attention_sized", sized, r(2, 4, 8), r(2, 3, 5), r(2, 3, 6),
        run=lambda q, k, v: sized(q, k, v, key_padding_mask=padding, need_weights=False)[0])
    one("encoder_layer", nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), r(3, 2, 8))
    one("encoder", nn.TransformerEncoder(nn.TransformerEncoderLayer(
        8, 2, 12, dropout=0.0, activation="gelu", batch_first=True, norm_first=True), 2, nn.LayerNorm(8),
        enable_nested_tensor=False), r(2, 3, 8))
    one("decoder_layer", nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), r(3, 2, 8), r(4, 2, 8))
    for name in ["LSTM", "GRU", "RNN"]:
        layer = getattr(nn, name)(3, 4, num_layers=2, bidirectional=True)
        flat = lambda x, layer=layer, name=name: (
            lambda y, s: (y, *s) if name == "LSTM" else (y, s))(*layer(x))
        one(name.lower(), layer, r(5, 2, 3), run=flat)
    one("prelu", nn.PReLU(3), r(2, 3, 4))
    one("glu", nn.GLU(), r(2, 6))
    one("max_pool2d", nn.MaxPool2d(3, stride=2, padding=1), r(2, 3, 7, 6))
    one("avg_pool1d", nn.AvgPool1d(3), r(2, 3, 7))
    one("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((2, 3)), r(2, 3, 7, 6))
    one("upsample", nn.Upsample(scale_factor=2, mode="bilinear"), r(1, 2, 3, 4))
    one("pixel_shuffle", nn.PixelShuffle(2), r(1, 8, 3, 2))
    one("unfold", nn.Unfold((2, 3), dilation=(1, 2), padding=(1, 0), stride=(2, 1)), r(2, 3, 5, 7))
    one("fold", nn.Fold((5, 7), (2, 3), dilation=(1, 2), padding=(1, 0), stride=(2, 1)), r(2, 18, 9))
    one("sequential", nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2), nn.LogSoftmax(-1)),
        r(3, 4))
    save_file(out, OUT / "modules.safetensors")


def losses():
    out = {}
    r = torch.randn

    def one(case, run, *inputs):
        record(out, case, run, inputs)

    sign = torch.tensor([1, -1, 1, -1, 1])
    for reduction in ["none", "mean", "sum"]:
        one(f"cosine_embedding_{reduction}",
            lambda a, b: F.cosine_embedding_loss(a, b, sign, 0.1, reduction=reduction), r(5, 3), r(5, 3))
    one("margin_ranking", lambda a, b: F.margin_ranking_loss(a, b, sign, 0.3), r(5), r(5))
    one("hinge_embedding", lambda x: F.hinge_embedding_loss(x, sign, 0.8), r(5))
    one("soft_margin", lambda x: F.soft_margin_loss(x, sign), r(5))
    one("triplet", lambda a, p, n: F.triplet_margin_loss(a, p, n, 1.5), r(5, 3), r(5, 3), r(5, 3))
    one("multi_margin", lambda x: F.multi_margin_loss(x, torch.tensor([0, 2, 1, 1]), margin=0.7), r(4, 3))
    one("gaussian_nll", lambda x, t, v: F.gaussian_nll_loss(x, t, v, full=True), r(5), r(5), torch.rand(5) + 0.1)
    one("poisson_nll", lambda x: F.poisson_nll_loss(x, torch.tensor([0.0, 1.0, 2.0, 5.0, 3.0]), full=True), r(5))
    one("poisson_nll_rates",
        lambda x: F.poisson_nll_loss(x, torch.tensor([0.0, 1.0, 2.0, 5.0, 3.0]), log_input=False), torch.rand(5) + 0.2)
    targets = torch.tensor([[1, 1, 2, 4], [3, 2, 0, 0], [4, 0, 0, 0]])
    lengths = (torch.tensor([9, 7, 5]), torch.tensor([4, 2, 0]))
    for reduction in ["none", "mean", "sum"]:
        one(f"ctc_{reduction}",
            lambda x: F.ctc_loss(x.log_softmax(-1), targets, *lengths, reduction=reduction), r(9, 3, 5))
    save_file(out, OUT / "losses.safetensors")


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.02),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.05, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.05, weight_decay=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.02),
    "rmsprop_centered": lambda p: torch.optim.RMSprop(p, lr=0.02, momentum=0.8, centered=True, weight_decay=0.01),
}


def optimizers():
    out = {}
    for case, make in OPTIMIZERS.items():
        parameters = [torch.randn(4, 3).requires_grad_(True), torch.randn(5).requires_grad_(True)]
        gradients = [torch.randn(20, *p.shape) for p in parameters]
        after = [[], []]
        for at, p in enumerate(parameters):
            out[f"{case}/start.{at}"] = p.detach().clone()
            out[f"{case}/gradient.{at}"] = gradients[at]
        optimizer = make(parameters)
        for step in range(20):
            for at, p in enumerate(parameters):
                p.grad = gradients[at][step].clone()
            optimizer.step()
            for at, p in enumerate(parameters):
                after[at].append(p.detach().clone())
        for at in range(2):
            out[f"{case}/after.{at}"] = torch.stack(after[at])
    matrix = torch.randn(6, 6, dtype=torch.float64)
    matrix = matrix @ matrix.T / 6 + torch.eye(6, dtype=torch.float64)
    x = torch.zeros(6, dtype=torch.float64).requires_grad_(True)
    optimizer, losses = torch.optim.LBFGS([x], lr=0.5, max_iter=4, history_size=3), []

    def closure():
        optimizer.zero_grad()
        loss = (x @ matrix @ x) / 2 - x.sum() + (x**4).sum() / 10
        loss.backward()
        return loss

    for _ in range(6):
        losses.append(optimizer.step(closure).detach())
    out |= {"lbfgs/matrix": matrix, "lbfgs/losses": torch.stack(losses), "lbfgs/after": x.detach().clone()}
    for name, make in {
        "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 30, eta_min=0.01),
        "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 7, 0.3),
        "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
        "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.5, 1.0, 12),
        "one_cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.4, 31, cycle_momentum=False),
    }.items():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
        schedule, rates = make(optimizer), []
        for _ in range(30):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        out[f"schedule/{name}"] = torch.tensor(rates, dtype=torch.float64)
    # A run: a small network, its data, and its losses.
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    inputs, labels = torch.randn(32, 6), torch.randint(0, 4, (32,))
    out |= {f"run/weight.{name}": tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
    for _ in range(100):
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.detach())
    out |= {"run/input": inputs, "run/labels": labels, "run/losses": torch.stack(losses), "run/norm": norm}
    save_file({name: tensor.contiguous() for name, tensor in out.items()}, OUT / "optim.safetensors")


def layers():
    """Modules that came later, in a file and from a seed of their own."""
    out = {}
    torch.manual_seed(8)
    r = torch.randn

    def one(case, module, *inputs, run=None):
        record(out, case, run or module, inputs, module)

    one("conv_transpose3d", nn.ConvTranspose3d(2, 3, 2, stride=2, padding=1, output_padding=1), r(1, 2, 3, 2, 4))
    one("batch_norm3d", nn.BatchNorm3d(3), r(2, 3, 2, 4, 3))
    for cell in ["LSTM", "GRU", "RNN"]:
        module = getattr(nn, f"{cell}Cell")(3, 4)
        if cell == "LSTM":
            one("lstm_cell", module, r(5, 3), r(5, 4), r(5, 4), run=lambda x, h, c, m=module: m(x, (h, c)))
        else:
            one(f"{cell.lower()}_cell", module, r(5, 3), r(5, 4))
    for case, module in {
        "selu": nn.SELU(),
        "celu": nn.CELU(1.5),
        "hardtanh": nn.Hardtanh(-0.5, 0.75),
        "hardsigmoid": nn.Hardsigmoid(),
        "log_sigmoid": nn.LogSigmoid(),
        "softsign": nn.Softsign(),
        "tanhshrink": nn.Tanhshrink(),
        "softshrink": nn.Softshrink(0.3),
        "hardshrink": nn.Hardshrink(0.3),
        "threshold": nn.Threshold(0.1, -2.0),
        "softmin": nn.Softmin(-1),
        "unflatten": nn.Unflatten(1, (2, 3)),
        "constant_pad": nn.ConstantPad2d((1, 0, 2, 1), 0.5),
        "reflection_pad": nn.ReflectionPad2d((1, 2, 0, 1)),
        "adaptive_max_pool2d": nn.AdaptiveMaxPool2d((2, 3)),
    }.items():
        one(case, module, r(2, 6, 5, 4))
    one("adaptive_max_pool1d", nn.AdaptiveMaxPool1d(3), r(2, 3, 7))
    one("adaptive_avg_pool3d", nn.AdaptiveAvgPool3d((2, 3, 2)), r(1, 2, 5, 4, 3))
    one("max_pool3d", nn.MaxPool3d(3, stride=2, padding=1), r(1, 2, 5, 4, 3))
    one("avg_pool3d", nn.AvgPool3d(2, padding=1, count_include_pad=False), r(1, 2, 5, 4, 3))
    one("adaptive_max_pool3d", nn.AdaptiveMaxPool3d((2, 3, 2)), r(1, 2, 5, 4, 3))
    save_file(out, OUT / "layers.safetensors")


class LastOfLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.output = nn.LSTM(3, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, x):
        return self.output(self.lstm(x)[0][:, -1])


class MeanOfTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
        self.output = nn.Linear(16, 4)

    def forward(self, x):
        return self.output(self.encoder(x).mean(1))


def trajectories():
    """The losses of 300 steps, in f32 and in f64 from the same weights.

    Eight more runs in f32 have the samples of each batch in other orders. The sums are the same but for rounding, so
    `gap`, the largest distance of any of these runs from the one in f64, is how far f32 is from exact in PyTorch.
    """
    out = {}
    torch.manual_seed(9)
    cnn = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(32, 4))
    sgd = lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3)
    adamw = lambda p: torch.optim.AdamW(p, lr=2e-3)
    for case, model, x, optimizer in [
        ("mlp", nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 4)), torch.randn(4, 16, 6), sgd),
        ("cnn", cnn, torch.randn(4, 8, 1, 8, 8), sgd),
        ("transformer", MeanOfTransformer(), torch.randn(4, 8, 5, 16), adamw),
        ("lstm", LastOfLstm(), torch.randn(4, 8, 7, 3), adamw),
    ]:
        labels = torch.randint(0, 4, x.shape[:2])
        out |= {f"{case}/weight.{name}": tensor.clone() for name, tensor in model.state_dict().items()}
        out |= {f"{case}/input": x, f"{case}/labels": labels}
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}

        def run(dtype, order):
            model.load_state_dict(start)
            model.to(dtype)
            model.load_state_dict(start)
            rule, losses = optimizer(model.parameters()), []
            for step in range(300):
                loss = F.cross_entropy(model(x[step % 4, order].to(dtype)), labels[step % 4, order])
                rule.zero_grad()
                loss.backward()
                rule.step()
                losses.append(loss.detach())
            return torch.stack(losses)

        given = torch.arange(x.shape[1])
        single, double = run(torch.float32, given), run(torch.float64, given)
        others = [run(torch.float32, torch.randperm(len(given))) for _ in range(8)]
        gaps = [(losses.double() - double).abs() / double for losses in [single, *others]]
        out |= {f"{case}/losses.f32": single, f"{case}/losses.f64": double, f"{case}/gap": torch.stack(gaps).amax(0)}
    save_file({name: tensor.contiguous() for name, tensor in out.items()}, OUT / "trajectories.safetensors")


def images():
    """Small files of images, and what Pillow reads in them."""
    import numpy
    from PIL import Image

    torch.manual_seed(10)
    pixels = lambda *sizes: torch.randint(0, 256, sizes, dtype=torch.uint8).numpy()
    smooth = numpy.stack([numpy.add.outer(8 * numpy.arange(8), 4 * numpy.arange(16)) + 20 * c for c in range(3)], -1)
    out = {}
    for name, image in {
        "color.png": Image.fromarray(pixels(4, 5, 4), "RGBA"),
        "gray.png": Image.fromarray(pixels(3, 2), "L"),
        "smooth.jpg": Image.fromarray(smooth.astype(numpy.uint8), "RGB"),
    }.items():
        image.save(OUT / name)
        read = torch.from_numpy(numpy.array(Image.open(OUT / name))).float() / 255
        out[f"{name}/pixels"] = (read if read.dim() == 3 else read[..., None]).permute(2, 0, 1).contiguous()
    save_file(out, OUT / "images.safetensors")


WRITES = [modules, losses, optimizers, layers, trajectories, images]
for write in WRITES:
    if len(sys.argv) == 1 or write.__name__ in sys.argv[1:]:
        write()
