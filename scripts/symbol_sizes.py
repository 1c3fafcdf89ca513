#!/usr/bin/env python3
"""Prints where the bytes of a program are: its sections, and its code by part.

    symbol_sizes.py PROGRAM

The program must have symbols. Needs nm and readelf of binutils. A generic function counts for the crate that its type
arguments name, where the symbol has them, and else for the crate that it is in.
"""

import collections
import re
import subprocess
import sys

# Parts by the crates that they bring; what is in none of them is its own part.
PARTS = {
    "Cranelift": "cranelift regalloc2 target_lexicon wasmtime bumpalo",
    "linear algebra": "opfuse_linalg faer gemm nano_gemm pulp private_gemm generativity qd spindle dyn_stack equator",
    "Fourier transforms": "opfuse_fourier rustfft realfft primal strength_reduce transpose",
    "CUDA bindings": "cudarc libloading",
    "standard library, and generic code of any crate": "core alloc std smallvec hashbrown indexmap petgraph",
}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=True).stdout


def part(symbol):
    """The part that a demangled symbol belongs to."""
    crates = re.findall(r"(?:^|[^a-zA-Z0-9_:])([a-z_][a-z0-9_]*)::", re.sub(r"\[[0-9a-f]+\]", "", symbol))
    of_std = ("core", "alloc", "std")
    crate = next((crate for crate in crates if crate not in of_std), crates[0] if crates else "others")
    if crate == "opfuse":
        module = re.search(r"opfuse::([a-z0-9_]+)", symbol)
        return f"opfuse: {module[1]}"
    for name, stems in PARTS.items():
        if any(crate.startswith(stem) for stem in stems.split()):
            return name
    return "others"


def main():
    program = sys.argv[1]
    print("| section | MB |\n|---|---|")
    sizes = {}
    for line in output("readelf", "-SW", program).splitlines():
        found = re.match(r"\s*\[\s*\d+\]\s+(\.\S+)\s+(\S+)\s+[0-9a-f]+\s+[0-9a-f]+\s+([0-9a-f]+)\s+\S+\s+(\S*A)", line)
        if found and found[2] != "NOBITS":
            sizes[found[1]] = int(found[3], 16)
    for section, size in sorted(sizes.items(), key=lambda row: -row[1])[:9]:
        print(f"| `{section}` | {size / 1e6:.2f} |")
    code, seen = collections.Counter(), set()
    for line in output("nm", "-C", "-S", "--defined-only", program).splitlines():
        fields = line.split(None, 3)
        # Functions of equal code share an address.
        if len(fields) == 4 and fields[2] in "tTwW" and fields[0] not in seen:
            seen.add(fields[0])
            code[part(fields[3])] += int(fields[1], 16)
    print("\n| code | MB |\n|---|---|")
    for name, size in code.most_common(24):
        print(f"| {name} | {size / 1e6:.2f} |")
    print(f"| all | {sum(code.values()) / 1e6:.2f} |\n")


if __name__ == "__main__":
    main()
