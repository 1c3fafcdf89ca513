"""Which operators are in no case, and why.

An operator is left out by a rule that reads its schema, or it stands in `LEFT_OUT` with a reason. `missing` finds those
for which neither holds, so a new operator needs a case or a reason.
"""

import re

RANDOM = re.compile(r"aten::(rand|bernoulli|uniform_|normal_|random_|dropout|native_dropout|empty|new_empty)")
# PyTorch adds 4096 ones up to 256 in bf16.
ROUGH = re.compile(r"grad:aten::layer_norm\(bf16")

NAME, ALIAS, WRITE = re.compile(r"([\w:.]+)\("), re.compile(r"Tensor\(\w+( -> \*)?\)"), re.compile(r"\(\w!\)")

OURS = "ours alone: what other operators are made of"
LEFT_OUT = {
    "aten::_arange": OURS,
    "aten::_binary_cross_entropy": OURS,
    "aten::_convert": OURS,
    "aten::_convolution_weight": OURS,
    "aten::_cummax_indices": OURS,
    "aten::_cummin_indices": OURS,
    "aten::_flat_index": OURS,
    "aten::_full": OURS,
    "aten::_max_pool": OURS,
    "aten::_max_pool_index": OURS,
    "aten::_overlay": OURS,
    "aten::_pad_circular": "measured as pad",
    "aten::_random_bernoulli": OURS,
    "aten::_random_bits": OURS,
    "aten::_random_normal": OURS,
    "aten::_random_range": OURS,
    "aten::_random_scale": OURS,
    "aten::_random_uniform": OURS,
    "aten::_recurrence": OURS,
    "aten::_unsafe_view": "a view",
    "aten::bmm.dtype": "PyTorch has it on GPUs alone",
    "aten::mm.dtype": "PyTorch has it on GPUs alone",
    "aten::linspace.Scalar_Tensor": "reads a number and is linspace",
    "aten::linspace.Tensor_Scalar": "reads a number and is linspace",
    "aten::linspace.Tensor_Tensor": "reads numbers and is linspace",
    "aten::meshgrid": "measured as meshgrid.indexing",
}
ENDINGS = {
    "_generator": "measured without a generator",
    ".generator": "measured without a generator",
}


def is_compared(case):
    """Whether results are the same wherever the operator is right: not random, nor without a value."""
    is_random = RANDOM.match(case.operator) and case.operator != "aten::native_dropout_backward"
    return not is_random and not ROUGH.match(case.text)


def reason(schema, measured):
    """Why no case calls the operator, if there is a reason."""
    name = NAME.match(schema)[1]
    base, _, overload = name.partition(".")
    if name in LEFT_OUT:
        return LEFT_OUT[name]
    for ending, why in ENDINGS.items():
        if name.endswith(ending):
            return why
    if ALIAS.search(schema) and not WRITE.search(schema):
        return "a view"
    if WRITE.search(schema):
        if base.endswith("_") and base.strip("_") in measured:
            return "writes what a measured operator returns"
        if "out" in overload and base in measured:
            return "writes what a measured operator returns"
        if VIEW_IN_PLACE.match(base):
            return "changes sizes and strides alone"
    return None


VIEW_IN_PLACE = re.compile(r"aten::(as_strided|resize|resize_as|set|squeeze|unsqueeze|swapaxes|swapdims|t|transpose)_$")


def missing(schemas, cases):
    """Operators without a case and without a reason, and names of `LEFT_OUT` that need none."""
    called = {case.operator for case in cases}
    measured = {operator.partition(".")[0] for operator in called}
    names = {NAME.match(schema)[1] for schema in schemas}
    absent = [
        NAME.match(schema)[1]
        for schema in schemas
        if NAME.match(schema)[1] not in called and reason(schema, measured) is None
    ]
    stale = [name for name in LEFT_OUT if name not in names or name in called]
    return absent, stale
