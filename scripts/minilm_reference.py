#!/usr/bin/env python3
"""Writes examples/minilm/reference.json: what another framework says all-MiniLM-L6-v2 answers.

Needs `pip install torch transformers` and the model folder of scripts/fetch_minilm.sh.
Run from the repository root: python3 scripts/minilm_reference.py [MODEL_FOLDER]

The encoder runs in f32 on the CPU, all sentences in one batch padded to the longest; the embedding is the mean over
real tokens, divided by its length. `tokens` are further texts whose token ids alone are recorded.
"""

import json
import sys

import numpy
import tokenizers
import torch
import transformers

MAX_LENGTH = 256

SENTENCES = [
    "That is a happy person",
    "That is a very happy person!",
    "Today is a sunny day.",
    "A naïve tourist ordered a crème brûlée at the café; déjà vu, señor?",
    "东京是日本的首都 (Tokyo is Japan's capital).",
    "I saw a \U0001f9ff and a ꙮ, then 2+2=4 -- \"really\"?",
    "Fusing a chain of elementwise operations into one kernel saves memory traffic: every intermediate value stays in "
    "a register instead of being written to memory by one loop and read back by the next, so a softmax, a layer "
    "normalisation or a residual connection costs one pass over its data, and the time of the whole model approaches "
    "the time of its matrix products.",
    "",
]

TOKENS = [
    "Hello, World! don't stop-believing U.S.A. 3.14",
    "ÀÉÎÕÜ ñ ç ø ł ß İstanbul ŻÓŁĆ",
    "e\u0301te\u0301 q\u0323\u0307 combining",
    "Привет, ёжик и йод!",
    "Ελληνικά ΣΊΣΥΦΟΣ ᾳ ΐ",
    "Tiếng Việt đẹp lắm",
    "한국어 형태소 분석",
    "日本語テキスト: ガギグ が ｶﾞ ー「かな」、漢字。",
    "हिन्दी में लिखा है",
    "שָׁלוֹם عَرَبِيّ",
    "\u3400\u4e00\U00020000\uf900 mixed漢字word",
    "tab\tnewline\nreturn\rnbsp\u00a0ideographic\u3000space",
    "soft\u00adhyphen zero\u200bwidth \u200ejoin\u200d \ufeffbom nul\x00 bell\x07 \ufffd",
    "«quotes» “curly” ‘single’ – — … ¿qué? ¡ya! § ¶ † • ‰ €5 £6 ¥7 ©®™ °C ½ x² ª º",
    "😀 👩‍👩‍👧 🇩🇪 ☃ ♥ → ∑ √ ≠ π µ Ω Å ﬁ Ⅷ ①",
    "antidisestablishmentarianism floccinaucinihilipilification supercalifragilisticexpialidocious",
    "a" * 100,
    "a" * 101,
    "short " + "x" * 150 + " tail",
    "$^`+|~<>= a_b {c} [d] \\e #f @g %h &i *j",
    "word " * 300,
    "unaffable " * 100,
    "   leading and trailing   ",
    "\u1e9e \u0130 \u01c5 \u2126 \u212b \u1fbe \u0344 \u1100\u1161\u11a8",
]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "models/all-MiniLM-L6-v2"
    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_LENGTH)
    encode = lambda text: tokenizer.encode(text).ids

    model = transformers.BertModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = [encode(text) for text in SENTENCES]
    longest = max(map(len, ids))
    padded = torch.tensor([row + [0] * (longest - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
    with torch.no_grad():
        hidden = model(input_ids=padded, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).float()
        pooled = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        unit = torch.nn.functional.normalize(pooled, dim=1).numpy()

    lines = ['{"model": "all-MiniLM-L6-v2",']
    by = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}"
    lines.append(f'"by": {json.dumps(by)},')
    rows = []
    for text, row, vector in zip(SENTENCES, ids, unit):
        floats = ",".join(numpy.format_float_scientific(x, unique=True, trim="-") for x in vector)
        rows.append(f'{{"text": {json.dumps(text)},\n "ids": {json.dumps(row)},\n "embedding": [{floats}]}}')
    lines.append('"sentences": [\n' + ",\n".join(rows) + "],")
    rows = [f'{{"text": {json.dumps(text)}, "ids": {json.dumps(encode(text))}}}' for text in TOKENS]
    lines.append('"tokens": [\n' + ",\n".join(rows) + "]}")
    with open("examples/minilm/reference.json", "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
