"""Writes the stub files of the package, from the registered schemas and the texts in this folder.

    python stubs/generate.py            writes opfuse/_opfuse.pyi and opfuse/__init__.pyi
    python stubs/generate.py --check    fails if one of them is out of date

It is not beside the sources of the package: Python looks there first, and they lack the compiled module.
"""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path
from typing import Any

import opfuse
from opfuse import _opfuse

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "opfuse"
MARK = "# Operators: made from their schemas.\n"

# Parameters that take more than the type in their schema.
WIDER = {
    "DType": "_DType",
    "DType | None": "_DType | None",
    "Device | str": "_Device",
    "Device | str | None": "_Device | None",
    "float | int | bool": "_Number",
    "float | int | bool | None": "_Number | None",
}
# Operands that a number can stand for.
OPERANDS = ("other", "exponent", "end", "weight")

Row = dict[str, Any]


def unhidden(kind: str) -> str:
    """Python's `bool`, `int` and `float` as the stubs name them: here dtypes and methods have these names."""
    return re.sub(r"\b(bool|int|float)\b", r"_\1", kind)


def parameter(name: str, kind: str, default: str | None) -> str:
    kind = "Tensor | _Number" if kind == "Tensor" and name in OPERANDS else unhidden(WIDER.get(kind, kind))
    name = f"{name}_" if keyword.iskeyword(name) else name
    return f"{name}: {kind}" if default is None else f"{name}: {kind} = ..."


def forms(row: Row, is_method: bool) -> list[str]:
    """The parameters of the forms of one schema."""
    first = ["self"] if is_method else ["self: Tensor"] if row["is_method"] else []
    own = row["arguments"][len(first) :]
    positional = [parameter(name, kind, default) for name, kind, default, by_name in own if not by_name]
    named = [parameter(name, kind, default) for name, kind, default, by_name in own if by_name]
    texts = [", ".join([*first, *positional, *(["*"] if named else []), *named])]
    lists = [name for name, kind, _, by_name in own if not by_name and kind in ("Sequence[int]", "Sequence[Tensor]")]
    # Sizes that are the only positional parameter can be given one by one, and so can tensors that come last.
    last = [(name, kind) for name, kind, _, by_name in own if not by_name][-1:]
    if lists and last and last[0][0] == lists[-1] and (len(positional) == 1 or last[0][1] == "Sequence[Tensor]"):
        kind = "_int" if last[0][1] == "Sequence[int]" else "Tensor"
        texts.append(", ".join([*first, *positional[:-1], f"*{last[0][0]}: {kind}", *named]))
    # NumPy's names.
    renamed = [re.sub(r"\bkeepdim:", "keepdims:", re.sub(r"\bdim:", "axis:", text)) for text in texts]
    return [*texts, *(text for text in renamed if text not in texts)]


def result(row: Row) -> str:
    kinds = [unhidden(kind.replace("Sequence[Tensor]", "tuple[Tensor, ...]")) for _, kind in row["results"]]
    return kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds)}]" if kinds else "None"


def declared(rows: list[Row], is_method: bool) -> list[str]:
    """The declarations of one name."""
    rows = [row for row in rows if row["is_method"] or not is_method]
    texts = dict.fromkeys(f"({form}) -> {result(row)}: ..." for row in rows for form in forms(row, is_method))
    name, indent = rows[0]["name"], "    " if is_method else ""
    over = [f"{indent}@overload"] if len(texts) > 1 else []
    return [line for text in texts for line in (*over, f"{indent}def {name}{text}")]


def texts() -> dict[Path, str]:
    """The files and what belongs into them."""
    by_name: dict[str, list[Row]] = {}
    for row in _opfuse._schemas():
        if not keyword.iskeyword(row["name"]) and not row["name"].startswith("__"):
            by_name.setdefault(row["name"], []).append(row)
    made = {}
    for stub, is_method in (("_opfuse.pyi", True), ("__init__.pyi", False)):
        head = (HERE / stub).read_text()
        own = set(re.findall(r"\bdef (\w+)|\bimport \w+ as (\w+)", head))
        own = {name for pair in own for name in pair}

        def belongs(name: str, own: set[str] = own, is_method: bool = is_method) -> bool:
            place: object = opfuse.Tensor if is_method else opfuse
            is_there = hasattr(place, name) and name not in own
            return is_there and (any(row["is_method"] for row in by_name[name]) if is_method else name[0] != "_")

        lines = [line for name, rows in by_name.items() if belongs(name) for line in declared(rows, is_method)]
        made[PACKAGE / stub] = head.replace(MARK, "\n".join(lines) + "\n")
    return made


def main() -> int:
    is_current = True
    for path, text in texts().items():
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.name} is out of date: run python/stubs/generate.py in an environment that has the package")
            is_current = False
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main())
