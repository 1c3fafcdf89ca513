"""Why cells are slow, as far as it is known: the first row whose pattern is found in the key of a cell counts."""

import re

UNKNOWN = "not looked into"

PRODUCTS = "mm|bmm|addmm|baddbmm|matmul|linear|mv|addmv|dot|outer|einsum|scaled_dot_product_attention"
READS = "index_select|index.Tensor|gather|take|take_along_dim|embedding"
WRITES = "scatter|scatter_add|index_add|index_copy|index_put|put"

REASONS = [
    (re.compile(pattern), why)
    for pattern, why in (
        (rf"::({PRODUCTS})\(.*\b(bf16|f16)\[", "16-bit products are computed in f32; PyTorch uses AMX"),
        (r"::topk\(", "whole lines are sorted"),
        (r"::(cumsum|cumprod)\(", "elements are added one after the other, and in f64"),
        (r"::(cummax|cummin)\(", "elements are compared one after the other, then gathered"),
        (rf"^aten::({READS})\(", "gathers run in the vm"),
        (rf"^aten::({WRITES})(_?\.\w+|_)?\(", "writes go one after the other, in the order of the index"),
    )
]


def reason_of(key):
    return next((why for pattern, why in REASONS if pattern.search(key)), UNKNOWN)
