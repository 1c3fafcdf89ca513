"""The table as a picture: hands the rows to the program of `benches/peers/src/bin/chart.rs`, which draws them.

Left, how many times as fast as the best peer a compiled row is, with a mark where a perfect kernel would be; right, how
many times as fast as PyTorch's eager calls the eager row is. Both axes are logarithmic.
"""

import subprocess

from table import CALLS, ONE_OP, geometric_mean


def svg(rows, target):
    threads = sorted({row.threads for row in rows})
    whole = [row for row in rows if row.row not in CALLS]
    lines = [
        ("title", "opfuse beside other libraries"),
        *(("series", f"{count} thread{'s' * (count > 1)}") for count in threads),
        ("slower", "slower"),
        ("mark", "where a perfect kernel would be"),
        ("panel", "compiled, times as fast as the best library" + mean(whole, lambda row: row.ratio)),
        ("panel", "eager, times as fast as PyTorch's eager calls" + mean(rows, lambda row: row.eager_ratio)),
    ]
    last = None
    for row in rows:
        if row.row != last:
            lines.append(("row", row.row, row.what))
            last = row.row
        place = threads.index(row.threads)
        lines.append(bar(0, place, None if row.row in ONE_OP else row.ratio, row.room))
        lines.append(bar(1, place, row.eager_ratio))
    return drawn(lines, target)


def mean(rows, ratio):
    """The geometric means, per number of threads, as in the summary of the table."""
    means = []
    for threads in sorted({row.threads for row in rows}):
        ratios = [ratio(row) for row in rows if row.threads == threads and ratio(row)]
        if ratios:
            means.append(f"{geometric_mean(ratios):.2f}")
    return f" (mean {', '.join(means)})" if means else ""


def bar(panel, series, ratio, mark=None):
    """The line of a bar: how many times as fast, and where its mark is."""
    return ("bar", panel, series, *("-" if value is None else f"{value:.4g}" for value in (ratio, mark)))


def drawn(lines, target):
    """The SVG of the lines, or nothing if the program that draws it is not built."""
    program = target / "release" / "chart"
    text = "".join("\t".join(map(str, line)) + "\n" for line in lines)
    try:
        run = subprocess.run([program], input=text, capture_output=True, encoding="utf-8", check=True)
    except OSError as error:
        build = "cargo build --release -p opfuse-peers --bin chart"
        print(f"no chart: {program} does not run ({error.strerror}); build it by `{build}`")
        return None
    except subprocess.CalledProcessError as error:
        print(f"no chart: {error.stderr.strip()}")
        return None
    return run.stdout
