"""Writes a wheel anew with zopfli, whose deflate streams are 3 % smaller than those of other compressors.

    repack_wheel.py WHEEL FOLDER

It takes a minute, and the package `zopfli`.
"""

import sys
import zipfile
from pathlib import Path

import zopfli.zlib


class Deflate:
    """A compressor as `zipfile` uses them: of bare deflate streams, without the head and the tail of zlib."""

    def __init__(self, *_):
        self.parts = []

    def compress(self, data):
        self.parts.append(data)
        return b""

    def flush(self):
        return zopfli.zlib.compress(b"".join(self.parts), numiterations=5)[2:-4]


zipfile._get_compressor = Deflate
given, folder = map(Path, sys.argv[1:])
with zipfile.ZipFile(given) as old, zipfile.ZipFile(folder / given.name, "w", zipfile.ZIP_DEFLATED) as new:
    for part in old.infolist():
        new.writestr(part, old.read(part.filename), zipfile.ZIP_DEFLATED)
