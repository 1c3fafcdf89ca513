#!/usr/bin/env python3
"""Compiles generated CUDA with NVRTC for several devices, without one, and judges the result.

A source must compile without error, its registers must suffice, and vectors must be moved whole.

    mkdir texts && export OPFUSE_CUDA_TEXTS=$PWD/texts
    cargo test --test cuda_emulator -- --skip mutants --skip planted      # kernels of every form, products
    cargo test --test cuda -- matrix golden products procedures           # every op, and golden calls
    pip install --target wheel --no-deps nvidia-cuda-nvrtc
    scripts/nvrtc.py texts wheel/nvidia/cu13/lib

A source whose kernels begin with a line like `// For sm_90a alone.` is compiled for that target only, in the round of
sm_90, because it has instructions of no other device. A remark that ptxas makes by itself is a complaint, for example
that it makes asynchronous products wait for each other.

The folder of the library may be left out where the system finds it. `--every N` takes each Nth source, and
`--architectures 90` one architecture. `--times N` judges nothing. It compiles each source N times in one process, in
turns with the others, and prints how long that takes and which registers come out.
"""
import argparse
import ctypes
import multiprocessing
import pathlib
import re
import statistics
import sys
import time

ARCHITECTURES = (80, 90, 100, 120)
# Bytes that an entry may keep outside its registers; a call of the compiler's own saves one or two.
MAX_LOCAL = 16
# Registers of a multiprocessor, which a warp takes in pieces, and the threads that it holds at most.
REGISTERS, PIECE = 65536, 256
RESIDENT = {80: 2048, 90: 2048, 100: 2048, 120: 1536}
# Parts of those threads that are to fit with their registers: for half, nearly all, and all kernels. Memory keeps a
# multiprocessor busy with 58 KB on their way (twice what latency and speed ask for), which are 28 bytes of each of 2048
# threads: kernels that wait for memory ask for 16 to 64 per thread, so half of the threads do with all they ask for.
# The least are products on tensor cores, which hold sums in their registers and copy past them. Measured with NVRTC 13
# on all 13,948 sources of the full matrix: half the kernels fit with all threads, 95 % with seven eighths of them, and
# each with three sixteenths.
SHARES = {"half": 0.75, "95 %": 0.5, "all": 0.1875}
NEARLY_ALL = 0.95
# Name, stack frame, spilled bytes and registers of an entry in the log, and threads and name of one in the text.
ENTRY = (
    r"entry function '(\w+)'[^\n]*\n[^\n]*\n\D*(\d+) bytes stack frame, (\d+) bytes spill stores"
    r"[^\n]*\n[^\n]*Used (\d+) registers"
)
# The only target of a source, with the number of its round.
ALONE = r"^// For (sm_(\d+)\w*) alone\.$"
# What ptxas says of a source besides what it was asked for.
REMARK = r"^ptxas (?:info\s*: \(C\d+\)|warning).*$"
THREADS = r"KERNEL\((\d+)[^)]*\)\s*(\w+)\("
# As `codegen::cuda` has them for NVRTC 13, and what tells of registers.
OPTIONS = ("--std=c++17", "--ftz=false", "--fmad=false", "--diag-suppress=177", "--minimal", "--ptxas-options=-v")


def library(folder):
    """NVRTC, from a folder or from where the system looks; the wheel does not find its own built-in functions."""
    if folder is None:
        return ctypes.CDLL("libnvrtc.so")
    for name in ("libnvrtc-builtins.so.*", "libnvrtc.so.*"):
        found = ctypes.CDLL(str(sorted(pathlib.Path(folder).glob(name))[0]), mode=ctypes.RTLD_GLOBAL)
    return found


def text_of(nvrtc, program, size_of, take):
    size = ctypes.c_size_t()
    getattr(nvrtc, size_of)(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, take)(program, buffer)
    return buffer.value.decode()


def target(path, architecture):
    """The target of a source in a round, or nothing if it has none there."""
    alone = re.search(ALONE, path.read_text(), re.M)
    if alone is None:
        return f"sm_{architecture}"
    return alone[1] if int(alone[2]) == architecture else None


def compiled(nvrtc, path, name):
    """Whether it compiles, what is said about it, and its PTX."""
    program = ctypes.c_void_p()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), path.read_bytes(), path.name.encode(), 0, None, None) != 0:
        sys.exit("NVRTC makes no program")
    options = [f"--gpu-architecture={name}", *OPTIONS]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*(o.encode() for o in options)))
    log = text_of(nvrtc, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
    ptx = "" if failed else text_of(nvrtc, program, "nvrtcGetPTXSize", "nvrtcGetPTX")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return not failed, log, ptx


def judged(task):
    """Complaints about a source for an architecture, registers and threads of its entries, and accesses of 16 bytes."""
    path, architecture = task
    name = target(path, architecture)
    if name is None:
        return [], [], 0
    good, log, ptx = compiled(NVRTC, path, name)
    if not good:
        return [f"{path} for {name}:\n{log}"], [], 0
    threads = {entry: int(n) for n, entry in re.findall(THREADS, path.read_text())}
    complaints, used = [f"{path} for {name}: {remark}" for remark in re.findall(REMARK, log, re.M)], []
    for entry, stack, spilled, registers in re.findall(ENTRY, log):
        if max(int(stack), int(spilled)) > MAX_LOCAL:
            complaints.append(f"{entry} of {path} for {name} keeps {stack} and {spilled} bytes outside its registers")
        # Groups of warps hand registers to each other, so threads have others than the compiler says, and one block is
        # what fits.
        if name == f"sm_{architecture}":
            used.append((int(registers), threads[entry]))
    return complaints, used, len(re.findall(r"(?:ld|st)\.(?:global\.)?v4", ptx))


def timed(paths, folder, architecture, rounds):
    """Prints how long each source takes to compile. The first compilation of the process takes longer and does not count."""
    nvrtc, taken, registers = library(folder), {path: [] for path in paths}, {}
    names = {path: target(path, architecture) for path in paths}
    paths = [path for path in paths if names[path]]
    compiled(nvrtc, paths[0], names[paths[0]])
    for _ in range(rounds):
        for path in paths:
            begun = time.perf_counter()
            _, log, _ = compiled(nvrtc, path, names[path])
            taken[path].append(1e3 * (time.perf_counter() - begun))
            registers[path] = max((int(entry[3]) for entry in re.findall(ENTRY, log)), default=0)
    for path in paths:
        least, median = min(taken[path]), statistics.median(taken[path])
        print(f"{path.name} for {names[path]}: {least:.0f} ms at least, {median:.0f} in the median, {registers[path]} registers")


def share(registers, threads, architecture):
    """Which part of the threads of a multiprocessor fits with so many registers, in blocks of so many."""
    of_warp = (32 * registers + PIECE - 1) // PIECE * PIECE
    blocks = min(REGISTERS // (of_warp * (threads // 32)), RESIDENT[architecture] // threads)
    return blocks * threads / RESIDENT[architecture]


def begin(folder):
    global NVRTC
    NVRTC = library(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("library", nargs="?")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--architectures", type=lambda text: [int(n) for n in text.split(",")], default=ARCHITECTURES)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--times", type=int)
    options = parser.parse_args()
    paths = sorted(options.texts.glob("*.cu"))[:: options.every]
    if not paths:
        sys.exit(f"no sources in {options.texts}")
    if options.times:
        for architecture in options.architectures:
            timed(paths, options.library, architecture, options.times)
        return
    complaints = []
    with multiprocessing.Pool(options.processes, begin, (options.library,)) as pool:
        for architecture in options.architectures:
            used, wide = [], 0
            tasks = [(path, architecture) for path in paths]
            for found, of_text, accesses in pool.imap(judged, tasks, chunksize=4):
                complaints += found
                used += of_text
                wide += accesses
            if not used:
                print(f"sm_{architecture}: no kernels", flush=True)
                continue
            registers = sorted(registers for registers, _ in used)
            shares = sorted((share(*entry, architecture) for entry in used), reverse=True)
            last = len(used) - 1
            found = {"half": shares[last // 2], "95 %": shares[int(NEARLY_ALL * last)], "all": shares[last]}
            print(
                f"sm_{architecture}: {len(paths)} sources, {len(used)} kernels, registers: half {registers[last // 2]}, "
                f"95 % {registers[int(NEARLY_ALL * last)]}, most {registers[last]}; threads that fit: "
                + ", ".join(f"{kernels} {part:.0%}" for kernels, part in found.items())
                + f"; {wide} accesses of 16 bytes",
                flush=True,
            )
            for kernels, least in SHARES.items():
                if found[kernels] < least:
                    complaints.append(f"sm_{architecture}: {found[kernels]:.0%} of the threads fit for {kernels} of the kernels")
            if wide == 0:
                complaints.append(f"no access of 16 bytes for sm_{architecture}")
    if complaints:
        sys.exit(f"{len(complaints)} complaints; the first:\n" + "\n".join(complaints[:10]))


if __name__ == "__main__":
    main()
