"""The table as a picture: one SVG without outside parts, for light and dark pages.

Left, how many times as fast as the best peer a compiled row is, with a mark where a perfect kernel would be; right, how
many times as fast as PyTorch's eager calls the eager row is. Both axes are logarithmic.
"""

import math
from html import escape

from table import CALLS, ONE_OP, geometric_mean

WIDTH, TOP, BAR, GAP = 1120, 96, 9, 7
LEFT, RIGHT = (250, 660), (720, 1090)
LEAST, MOST, TICKS = 0.2, 40.0, (0.25, 0.5, 1, 2, 4, 8, 16, 32)
STYLE = """
  svg { background: #ffffff; font: 12px system-ui, sans-serif; fill: #1f2328; }
  .quiet { fill: #656d76; } .grid { stroke: #d0d7de; } .one { stroke: #1f2328; }
  .t1 { fill: #8ab4f8; } .t2 { fill: #1a5fb4; } .behind { fill: #d1242f; } .floor { stroke: #bf5700; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; fill: #e6edf3; }
    .quiet { fill: #8d96a0; } .grid { stroke: #30363d; } .one { stroke: #e6edf3; }
    .t1 { fill: #1f4f94; } .t2 { fill: #6cb0ff; } .behind { fill: #f85149; } .floor { stroke: #ffa657; }
  }
"""


def svg(rows):
    ids = list(dict.fromkeys(row.row for row in rows))
    threads = sorted({row.threads for row in rows})
    step = BAR * max(1, len(threads)) + GAP
    bottom = TOP + step * len(ids)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 20}"'
        f' viewBox="0 0 {WIDTH} {bottom + 20}">',
        f"<style>{STYLE}</style>",
        text(12, 26, "opfuse beside other libraries", size=17),
        *legend(threads),
        *axis(LEFT, bottom, "compiled, times as fast as the best peer" + mean(rows, lambda row: row.ratio)),
        *axis(RIGHT, bottom, "eager, times as fast as torch eager" + mean(rows, lambda row: row.eager_ratio)),
    ]
    for row in rows:
        place = threads.index(row.threads)
        y = TOP + step * ids.index(row.row) + BAR * place
        if place == 0:
            parts += [text(12, y + BAR + 3, row.row), text(60, y + BAR + 3, row.what, "quiet")]
        against = row.best_peer or ""
        ratio = None if row.row in ONE_OP else row.ratio
        parts += bar(LEFT, y, ratio, place, f"{row.row}, {row.threads} thr, against {against}")
        parts += bar(RIGHT, y, row.eager_ratio, place, f"{row.row}, {row.threads} thr, eager")
        if row.room:
            x = across(LEFT, row.room)
            parts.append(line("floor", x, y - 0.5, x, y + BAR - 0.5))
    return "\n".join([*parts, "</svg>\n"])


def mean(rows, ratio):
    """The geometric means, per number of threads, of rows that are more than a call."""
    means = []
    for threads in sorted({row.threads for row in rows}):
        chosen = [row for row in rows if row.threads == threads and row.row not in CALLS]
        ratios = [ratio(row) for row in chosen if ratio(row)]
        if ratios:
            means.append(f"{geometric_mean(ratios):.2f}")
    return f" (mean {', '.join(means)})" if means else ""


def across(panel, ratio):
    share = math.log(min(max(ratio, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return panel[0] + share * (panel[1] - panel[0])


def legend(threads):
    parts, x = [], LEFT[0]
    for place, count in enumerate(threads):
        name = f"{count} thread{'s' * (count > 1)}"
        parts += [rect(shade(place), x, 18, 18), text(x + 24, 26, name)]
        x += 100
    parts += [rect("behind", x, 18, 18), text(x + 24, 26, "behind")]
    return parts + [line("floor", x + 100, 17, x + 100, 27), text(x + 108, 26, "where a perfect kernel would be")]


def axis(panel, bottom, title):
    parts = [text(panel[0], 58, title, "quiet")]
    for tick in TICKS:
        x = across(panel, tick)
        parts.append(line("one" if tick == 1 else "grid", x, TOP - 12, x, bottom))
        parts.append(text(x, TOP - 18, f"{tick:g}", "quiet middle"))
    return parts


def bar(panel, y, ratio, place, title):
    if not ratio:
        return []
    start, end = sorted((across(panel, 1), across(panel, ratio)))
    shown = f"{title}: {ratio:.2f} times as fast"
    return [rect("behind" if ratio < 1 else shade(place), start, y, max(end - start, 0.5), shown)]


def shade(place):
    return f"t{place % 2 + 1}"


def text(x, y, words, kind="", size=12):
    anchor = ' text-anchor="middle"' if "middle" in kind else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" font-size="{size}"{anchor}>{escape(words)}</text>'


def line(kind, x1, y1, x2, y2):
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def rect(kind, x, y, width, title=""):
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR - 1}">'
        f"<title>{escape(title)}</title></rect>"
    )
