"""Why cells are slow, as far as it is known: the first row whose pattern is found in the key of a cell counts."""

import re

UNKNOWN = "not looked into"

REASONS = [
    (re.compile(pattern), why)
    for pattern, why in (
        # (pattern of `CALL/THREADS`, reason)
    )
]


def reason_of(key):
    return next((why for pattern, why in REASONS if pattern.search(key)), UNKNOWN)
