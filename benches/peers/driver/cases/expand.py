"""From a template to cases: sizes, layouts, dtypes, and backward passes.

A template is a call without `aten::` whose operands may be letters. `X`, `Y` and `Z` have the shape, `R` is a row of it,
`C` a column (the last size is 1), and `B` a mask. A range may follow a letter: `X:0.1..5`. A layout changes `X` alone.
Every template is a case in f32 at each shape, and with a backward pass at all but the smallest. One shape, the `main`
one, is also taken in other layouts and dtypes.
"""

import re
from dataclasses import dataclass

FLOATS, INTEGERS = ("f32", "f64", "bf16", "f16"), ("i64", "u8")
DTYPE, LAYOUT = re.compile(r"\b(\w+)\["), re.compile(r":(t|s|w|b|cl)\b")
LETTER = re.compile(r"\b([XYZRCB])\b((?::[-\w.]+)*)")


@dataclass(frozen=True)
class Case:
    text: str
    family: str
    size: str  # latency, cache or memory
    dtype: str = "f32"
    layout: str = ""
    is_quick: bool = False

    @property
    def operator(self):
        """Its name in schemas."""
        return self.text.removeprefix("grad:").split("(", 1)[0]


@dataclass(frozen=True)
class Shape:
    size: str
    sizes: tuple
    is_main: bool = False


def shape(size, *sizes, main=False):
    return Shape(size, sizes, main)


PLAIN = (shape("latency", 8, 8), shape("cache", 256, 512), shape("memory", 2048, 2048, main=True))


def expand(family, templates, shapes=PLAIN, dtypes=FLOATS, layouts=("", "t", "s", "b"), backward=True):
    """The cases of templates, which are lines."""
    first, quick = dtypes[0], quick_of(shapes)
    for template in lines(templates):
        for at in shapes:

            def case(dtype, layout="", prefix="", is_quick=False):
                text = f"{prefix}aten::{filled(template, at.sizes, dtype, layout)}"
                return Case(text, family, at.size, dtype, layout, is_quick)

            yield case(first, is_quick=at == quick)
            if at.is_main:
                yield from (case(first, layout) for layout in layouts[1:])
                yield from (case(dtype) for dtype in dtypes[1:])
            if backward and at.size != "latency":
                yield case(first, prefix="grad:")


def quick_of(shapes):
    """The shape of the quick run: where results fit into the cache, what an element costs shows best."""
    return next(at for at in shapes if at.size == "cache")


def lines(text):
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def filled(template, sizes, dtype, layout):
    """The call with its operands."""

    def operand(match):
        letter, words = match[1], match[2]
        its = {"R": sizes[-1:], "C": (*sizes[:-1], 1)}.get(letter, sizes)
        kind = "bool" if letter == "B" else dtype
        words += f":{layout}" if letter == "X" and layout else ""
        return f"{kind}[{','.join(map(str, its))}]{words}"

    return LETTER.sub(operand, template)


def fixed(family, text, dtypes=("f32",)):
    """Cases of lines that are complete: `SIZE CALL`. Lines that begin with `!` are part of the quick run."""
    for line in lines(text):
        size, call = line.removeprefix("!").split(" ", 1)
        size = {"l": "latency", "c": "cache", "m": "memory"}[size]
        prefix, call = ("grad:", call.removeprefix("grad:")) if call.startswith("grad:") else ("", call)
        first = DTYPE.search(call)
        layout = LAYOUT.search(call)
        about = {"layout": layout[1] if layout else "", "dtype": first[1] if first else "f32"}
        yield Case(f"{prefix}aten::{call}", family, size, **about, is_quick=line.startswith("!"))
        for dtype in dtypes[1:]:
            other = call.replace(f"{dtypes[0]}[", f"{dtype}[")
            if other != call and size != "latency":
                yield Case(f"{prefix}aten::{other}", family, size, **about | {"dtype": dtype})
