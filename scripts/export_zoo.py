#!/usr/bin/env python3
"""Exports many models and single calls of PyTorch, to find what a program may contain and opfuse lacks.

    export_zoo.py FOLDER [PART_OF_A_NAME]

Writes NAME.pt2 and NAME.npz for each, and NAME.d.pt2 after `run_decompositions()`, in the form that `opfuse check`
reads. Weights and inputs are random, with a fixed seed; nothing is downloaded. What cannot be exported is printed.
Needs torch, transformers, timm and numpy, and several gigabytes. scripts/zoo.sh checks the folder.
"""

import logging
import os
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import numpy as np  # noqa: E402
import timm  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import transformers  # noqa: E402
from torch import linalg, special  # noqa: E402

# Architectures of timm by the size of their images.
TIMM = {
    64: """convnext_atto mobilenetv3_small_050 efficientnet_b0 regnetx_002 resnet10t resnest14d poolformer_s12
        mobilevit_xxs edgenext_xx_small ghostnet_050 mnasnet_small densenet121 dpn48b hrnet_w18_small nfnet_l0 repvgg_a0
        res2net50_14w_8s resnetv2_50 skresnet18 tinynet_e vgg11 fastvit_t8 pvt_v2_b0 hgnet_tiny starnet_s1
        mambaout_femto tresnet_m selecsls42 lcnet_050 rexnet_100 cspresnet50 darknet53 gernet_s convmixer_768_32""",
    96: "xception41",
    128: "inception_v3",
    224: """vit_tiny_patch16_224 deit3_small_patch16_224 swin_tiny_patch4_window7_224 mixer_s32_224 gmlp_ti16_224
        levit_128s coat_lite_tiny cait_xxs24_224 volo_d1_224 xcit_nano_12_p16_224 twins_svt_small pit_ti_224
        efficientformer_l1 focalnet_tiny_srf davit_tiny sequencer2d_s beit_base_patch16_224 eva02_tiny_patch14_224
        visformer_tiny resmlp_12_224 nest_tiny tnt_s_patch16_224""",
    240: "crossvit_tiny_240",
    256: "maxvit_rmlp_pico_rw_256 halonet26t lambda_resnet26t botnet26t_256 eca_botnext26ts_256",
}
TEXT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100,
            max_position_embeddings=64)
IMAGE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8)
SPEECH = dict(TEXT, conv_dim=[16] * 3, conv_kernel=[4, 3, 3], conv_stride=[4, 2, 2], num_feat_extract_layers=3,
              num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)
# Encoders and decoders of transformers, by the stem of their classes, with what their configurations need besides.
ENCODERS = {
    "Bert": {}, "Roberta": {}, "Electra": {}, "Camembert": {}, "XLMRoberta": {}, "Albert": dict(embedding_size=16),
    "MPNet": {}, "LayoutLM": {}, "MegatronBert": {}, "ConvBert": {}, "DebertaV2": {}, "Deberta": {}, "MobileBert": {},
    "Nystromformer": {}, "RoFormer": {}, "FNet": {}, "Ernie": {}, "BigBird": {}, "Yoso": {},
    "ModernBert": dict(pad_token_id=0, eos_token_id=1, bos_token_id=2, cls_token_id=3, sep_token_id=4),
    "Esm": dict(pad_token_id=0, mask_token_id=1),
}
DECODERS = {
    "Llama": {}, "Mistral": {}, "Qwen2": {}, "Qwen3": {}, "Gemma": dict(head_dim=8), "Gemma2": dict(head_dim=8),
    "Phi": {}, "Phi3": {}, "StableLm": {}, "Starcoder2": {}, "Olmo": {}, "Olmo2": {}, "Cohere": {}, "Granite": {},
    "Glm": dict(head_dim=8), "Mixtral": dict(num_local_experts=4), "Nemotron": {}, "Helium": dict(head_dim=8),
    "SmolLM3": {}, "GPTNeoX": {}, "Falcon": {}, "Persimmon": {}, "Exaone4": {}, "Ernie4_5": {}, "Lfm2": {},
    "Qwen2Moe": dict(num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=16),
    "GptOss": dict(num_local_experts=4), "Bloom": dict(n_layer=2, n_head=4), "Mamba": dict(state_size=4),
    "GPT2": dict(n_embd=32, n_layer=2, n_head=4, n_positions=64), "OPT": dict(ffn_dim=64, word_embed_proj_dim=32),
    "GPTJ": dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4), "Rwkv": dict(context_length=32),
    "Mpt": dict(d_model=32, n_layers=2, n_heads=4, max_seq_len=64),
}
VISION = ["ViT", "DeiT", "Beit", "Dinov2", "SiglipVision", "CLIPVision", "IJepa", "Data2VecVision", "ViTMSN", "DINOv3ViT"]
# Single calls of a tensor `q` of shape (2, 4, 5, 8), as Python.
CALLS = """
F.scaled_dot_product_attention(q, q, q, is_causal=True) | torch.fft.rfft(q).abs() | linalg.svdvals(q)
linalg.inv(q @ q.mT + 5 * torch.eye(5)) | linalg.cholesky(q @ q.mT + 5 * torch.eye(5)) | linalg.det(q @ q.mT)
linalg.qr(q)[1].abs() | linalg.eigvalsh(q @ q.mT) | linalg.pinv(q) | linalg.matrix_norm(q) | q * torch.hann_window(8)
q.unfold(-1, 4, 2) | q.cumprod(-1) | q.logcumsumexp(-1) | q.renorm(2, 0, 1.0) | torch.trapezoid(q, dim=-1)
torch.vander(q[0, 0, 0]) | linalg.multi_dot([q[0, 0], q[0, 0].T, q[0, 0]]) | torch.bucketize(q, torch.tensor([-1.0, 0, 1]))
q.nanmedian(-1)[0] | F.pdist(q[0, 0]) | F.interpolate(q, size=(3, 4), mode="bilinear", antialias=True)
F.interpolate(q, scale_factor=2.0, mode="bicubic") | F.interpolate(q[None], scale_factor=2.0, mode="trilinear")
F.interpolate(q, size=(7, 9), mode="nearest-exact") | F.local_response_norm(q, 2) | F.lp_pool2d(q, 2, 2)
F.adaptive_max_pool2d(q, (2, 3)) | F.pixel_unshuffle(q[..., :4, :], 2) | F.kl_div(q.log_softmax(-1), q.softmax(-1))
torch.tensordot(q, q, ([1, 2, 3], [1, 2, 3])) | torch.einsum("bhld,bhmd->bhlm", q, q) | q.roll((1, 2), (2, 3))
q.rot90(1, (2, 3)) | torch.erfinv(q.tanh()) | special.i0e(q) | special.xlog1py(q, q.abs()) | special.ndtri(q.sigmoid())
torch.digamma(q.abs() + 1) + torch.polygamma(1, q.abs() + 1) | special.bessel_j0(q) | special.gammainc(q.abs() + 1, q.abs())
torch.frexp(q)[0] | torch.nextafter(q, q + 1) | torch.heaviside(q, q) | torch.cartesian_prod(q[0, 0, 0], q[0, 0, 1])
torch.combinations(q[0, 0, 0], 2) | torch.block_diag(q[0, 0], q[0, 1]) | torch.diag_embed(q) | q.kthvalue(2, -1)[0]
q.msort() | torch.aminmax(q, dim=-1)[0] | torch.logaddexp(q, q + 1) | torch.hypot(q, q) | torch.fmod(q, 0.7)
F.celu(q) + F.selu(q) + F.hardswish(q) + F.mish(q) + F.softshrink(q) + F.rrelu(q) + F.logsigmoid(q) | F.glu(q)
F.conv3d(q[None], torch.ones(2, 2, 2, 2, 2)) | F.conv_transpose3d(q[None], torch.ones(2, 2, 2, 2, 2))
F.max_pool3d(q[None], 2) | F.avg_pool3d(q[None], 2) | F.adaptive_max_pool3d(q[None], 2)
F.pad(q[None], (1, 1, 1, 1, 1, 1), mode="replicate") | F.pad(q, (1, 1, 1, 1), mode="circular")
F.bilinear(q, q, torch.ones(3, 8, 8)) | F.cosine_similarity(q, q + 1, -1) | torch.fake_quantize_per_tensor_affine(q, 0.1, 0, -128, 127)
q.take_along_dim(q.argsort(-1), -1) | q.index_reduce(0, torch.tensor([1]), q[:1], "amax") | torch.baddbmm(q[0], q[0], q[0].mT @ q[0])
torch.addbmm(q[0, 0] @ q[0, 0].T, q[0], q[0].mT) | torch.addr(q[0, 0], q[0, 0, :, 0], q[0, 0, 0]) | torch.gradient(q, dim=-1)[0]
q.as_strided_scatter(torch.zeros(2, 2), (2, 2), (1, 3)) | torch.gcd(q.int(), q.int() + 2) | torch.cdist(q, q) | F.rms_norm(q, (8,))
torch.hstack([q, q]) | torch.atleast_3d(q[0, 0, 0]) | torch.multiply(q, q) | torch.mvlgamma(q.abs() + 3, 2)
F.one_hot(q.argmax(-1), 8) | F.multi_margin_loss(q[0, 0], torch.tensor([1] * 5)) | F.huber_loss(q, q * 2)
F.cross_entropy(q, torch.zeros(2, 5, 8, dtype=torch.long)) | torch.view_as_real(torch.polar(q.abs(), q))
"""


class Plain(torch.nn.Module):
    """A model of transformers whose result is its first tensor."""

    def __init__(self, model, **fixed):
        super().__init__()
        self.model, self.fixed = model, fixed

    def forward(self, x):
        result = self.model(x, **self.fixed)
        return result[0] if isinstance(result, tuple) else result.to_tuple()[0]


class Call(torch.nn.Module):
    """One call."""

    def __init__(self, text):
        super().__init__()
        self.code = compile(text, text, "eval")

    def forward(self, q):
        return eval(self.code, globals(), {"q": q})


def of_transformers(stem, ending, arguments, **fixed):
    config = getattr(transformers, f"{stem}Config")(**arguments)
    return Plain(getattr(transformers, f"{stem}{ending}")(config).eval(), **fixed)


def zoo():
    """Names, what makes the model, and its input."""
    for size, names in TIMM.items():
        for name in names.split():
            yield f"timm_{name}", lambda name=name: timm.create_model(name, num_classes=10).eval(), torch.randn(1, 3, size, size)
    words = torch.randint(1, 90, (2, 12))
    for stem, extra in ENCODERS.items():
        yield f"hf_{stem}", lambda stem=stem, extra=extra: of_transformers(stem, "Model", TEXT | extra), words
    for stem, extra in DECODERS.items():
        arguments = TEXT | dict(num_key_value_heads=2, pad_token_id=0) | extra
        ending = "LMHeadModel" if stem == "GPT2" else "ForCausalLM"
        make = lambda stem=stem, ending=ending, arguments=arguments: of_transformers(stem, ending, arguments, use_cache=False)
        yield f"hf_{stem}", make, words
    for stem in VISION:
        yield f"hf_{stem}", lambda stem=stem: of_transformers(stem, "Model", IMAGE), torch.randn(2, 3, 32, 32)
    for stem in ("Wav2Vec2", "Hubert"):
        yield f"hf_{stem}", lambda stem=stem: of_transformers(stem, "Model", SPEECH), torch.randn(2, 800)
    calls = [text.strip() for line in CALLS.strip().splitlines() for text in line.split(" | ")]
    for at, text in enumerate(calls):
        name = "".join(letter if letter.isalnum() else "_" for letter in text)[:40]
        yield f"call_{at:03}_{name}", lambda text=text: Call(text), torch.randn(2, 4, 5, 8)


def main():
    folder, part = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    os.makedirs(folder, exist_ok=True)
    torch.set_num_threads(1)
    n_exported = n_failed = 0
    for name, make, x in zoo():
        if part not in name:
            continue
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                model = make()
                y = model(x)
                program = torch.export.export(model, (x,), strict=False)
            arrays = {"0.in.0": x.numpy(), "0.out.0": y.detach().numpy()}
            for ending, form in (("", program), (".d", program.run_decompositions())):
                torch.export.save(form, f"{folder}/{name}{ending}.pt2")
                np.savez(f"{folder}/{name}{ending}.npz", **arrays)
            n_exported += 1
        except Exception as error:
            n_failed += 1
            print(f"not exported: {name}: {type(error).__name__}: {str(error).splitlines()[0][:100]}", flush=True)
    print(f"{n_exported} exported, {n_failed} not")


main()
