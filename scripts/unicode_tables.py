#!/usr/bin/env python3
"""Writes examples/minilm/unicode.rs, the Unicode facts the tokenizer needs and `std` lacks.

Run from the repository root: python3 scripts/unicode_tables.py
"""

import unicodedata

HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic, see the tokenizer
SURROGATES = range(0xD800, 0xE000)
POINTS = [c for c in range(0x110000) if c not in SURROGATES]


def ranges(wanted):
    out = []
    for point in POINTS:
        if not wanted(unicodedata.category(chr(point))):
            continue
        if out and out[-1][1] == point - 1:
            out[-1][1] = point
        else:
            out.append([point, point])
    return out


def stripped(char):
    """The canonical decomposition without its nonspacing marks."""
    return "".join(c for c in unicodedata.normalize("NFD", char) if unicodedata.category(c) != "Mn")


def literal(text):
    """Letters as they are, anything that may not show up as an escape."""
    plain = lambda c: c.isascii() or unicodedata.category(c)[0] == "L"
    return "".join((c if c not in '"\\\\' else "\\\\" + c) if plain(c) else "\\u{%x}" % ord(c) for c in text)


def row(cells, width=116):
    lines, line = [], "   "
    for cell in cells:
        if len(line) + 1 + len(cell) > width:
            lines.append(line)
            line = "   "
        line += " " + cell
    return "\n".join(lines + [line])


def table(name, doc, kind, cells):
    # rustfmt would put one pair per line.
    return f"/// {doc}\n#[rustfmt::skip]\npub(crate) const {name}: &[{kind}] = &[\n{row(cells)}\n];\n"


def main():
    single, several = [], []
    for point in POINTS:
        char = chr(point)
        text = stripped(char)
        if point in HANGUL or unicodedata.category(char) == "Mn" or text == char:
            continue
        (single if len(text) == 1 else several).append((point, text))

    # Neighbours share one string of images; no run is longer than a line.
    runs = []
    for point, text in single:
        if runs and runs[-1][0] + len(runs[-1][1]) == point and len(runs[-1][1]) < 80:
            runs[-1][1] += text
        else:
            runs.append([point, text])

    pairs = lambda found: [f"({a:#x}, {b:#x})," for a, b in found]
    with open("examples/minilm/unicode.rs", "w", encoding="utf-8") as out:
        out.write(
            "//! Facts about Unicode that the tokenizer needs and `std` lacks, as sorted tables.\n//!\n"
            f"//! Written by `scripts/unicode_tables.py` from Unicode {unicodedata.unidata_version}; do not edit.\n"
            "//! Hangul syllables are absent: arithmetic decomposes them. So are unassigned code points.\n\n"
        )
        parts = [
            table("NONSPACING_MARK", "General category Mn.", "(u32, u32)", pairs(ranges(lambda c: c == "Mn"))),
            table("PUNCTUATION", "General categories P*.", "(u32, u32)", pairs(ranges(lambda c: c[0] == "P"))),
            table(
                "OTHER",
                "General categories Cc, Cf and Co: characters that are not text.",
                "(u32, u32)",
                pairs(ranges(lambda c: c in ("Cc", "Cf", "Co"))),
            ),
            table(
                "UNACCENTED",
                "Canonical decompositions without marks, where they are one character, of neighbouring code points.",
                "(u32, &str)",
                [f'({first:#x}, "{literal(images)}"),' for first, images in runs],
            ),
            table(
                "UNACCENTED_LONG",
                "The decompositions of several characters.",
                "(u32, &str)",
                [f'({point:#x}, "{literal(text)}"),' for point, text in several],
            ),
        ]
        out.write("\n".join(parts))


if __name__ == "__main__":
    main()
