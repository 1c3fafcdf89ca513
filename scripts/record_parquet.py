#!/usr/bin/env python3
"""Writes the Parquet files of tests/data/parquet, which tests/training/parquet.rs reads.

    python scripts/record_parquet.py

Needs pyarrow and numpy. Schemas of Arrow are left out, so that the files hold Parquet's own types alone.
"""

import datetime
import decimal
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "parquet"

FLOWERS = pa.table(
    {
        "length": pa.array([5.1, 6.2, 4.7, 5.9, 6.0], pa.float64()),
        "count": pa.array([1, -2, 3, 2**40, 5], pa.int64()),
        "small": pa.array([1, 2, 250, 4, 255], pa.uint8()),
        "ratio": pa.array([0.5, None, -1.5, 2.25, None], pa.float32()),
        "species": pa.array(["setosa", "virginica", "setosa", "é", "versicolor"]),
        "ripe": pa.array([True, False, True, True, False]),
    }
)

# Most of them are no numbers and no texts.
OTHERS = pa.table(
    {
        "big": pa.array([2**64 - 1, 1], pa.uint64()),
        "u32": pa.array([2**32 - 1, 7], pa.uint32()),
        "list": pa.array([[1], [2, 3]]),
        "day": pa.array([datetime.date(2020, 1, 1)] * 2),
        "price": pa.array([decimal.Decimal("1.25")] * 2),
        "raw": pa.array([b"a", b"b"]),
        "word": pa.array(["a", None]),
        "half": pa.array(np.array([1, 2], np.float16)),
    }
)

EMPTY = pa.table({"a": pa.array([], pa.float32()), "w": pa.array([], pa.string())})


def write(name, table, compression, **options):
    pq.write_table(table, FOLDER / f"{name}.parquet", compression=compression, store_schema=False, **options)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for codec in ("none", "snappy", "gzip", "brotli", "lz4", "zstd"):
        # Several groups of rows, both versions of pages, with and without dictionaries.
        version = "2.0" if codec == "gzip" else "1.0"
        options = {"row_group_size": 2, "use_dictionary": codec != "lz4", "data_page_version": version}
        write(f"flowers_{codec}", FLOWERS, codec, **options)
    write("others", OTHERS, "none")
    write("empty", EMPTY, "none")
