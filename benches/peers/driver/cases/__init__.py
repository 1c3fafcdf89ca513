"""The calls of the sweep: every operator with a counterpart in PyTorch, in sizes, layouts and dtypes.

A case is a call as text (`benches/peers/src/sweep/text.rs`). The files of this folder have a family each. `coverage`
says which operators no case calls, and why.
"""

from . import factories, indexing, layers, movement, pointwise, reductions
from .expand import Case

FAMILIES = (pointwise, reductions, movement, indexing, layers, factories)


def all_cases():
    """Every case once, in the order of the families."""
    found = {}
    for family in FAMILIES:
        for case in family.cases():
            found.setdefault(case.text, case)
    return list(found.values())


__all__ = ["Case", "all_cases"]
