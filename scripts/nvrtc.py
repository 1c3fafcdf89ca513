#!/usr/bin/env python3
"""Compiles generated CUDA with NVRTC for several devices, without one: no error, registers suffice, vectors are moved whole.

    mkdir texts && export OPFUSE_CUDA_TEXTS=$PWD/texts
    cargo test --test cuda_emulator -- --skip mutants      # kernels of every form, products
    cargo test --test cuda -- matrix golden products       # what the library makes of every op and of golden calls
    pip install --target wheel --no-deps nvidia-cuda-nvrtc
    scripts/nvrtc.py texts wheel/nvidia/cu13/lib

The folder of the library may be left out where the system finds it; `--every N` takes each Nth text, `--architectures 90` one
architecture.
"""
import argparse
import ctypes
import multiprocessing
import pathlib
import re
import statistics
import sys

ARCHITECTURES = (80, 90, 100, 120)
# Bytes that an entry may keep outside its registers; a call of the compiler's own saves one or two.
MAX_LOCAL = 16
# Registers that half and nearly all kernels of the library's own forms may need: a multiprocessor holds 65536, and hides
# the latency of memory with some thousand threads.
MEDIAN_REGISTERS, MOST_REGISTERS, NEARLY_ALL = 48, 128, 0.95
# Name, stack frame and spilled bytes of an entry in the log.
ENTRY = r"entry function '(\w+)'[^\n]*\n[^\n]*\n\D*(\d+) bytes stack frame, (\d+) bytes spill stores"
# As `codegen::cuda::OPTIONS`, and what tells of registers.
OPTIONS = ("--std=c++17", "--ftz=false", "--fmad=false", "--diag-suppress=177", "--ptxas-options=-v")


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


def compiled(nvrtc, path, architecture):
    """Whether it compiles, what is said about it, and its PTX."""
    program = ctypes.c_void_p()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), path.read_bytes(), path.name.encode(), 0, None, None) != 0:
        sys.exit("NVRTC makes no program")
    options = [f"--gpu-architecture=sm_{architecture}", *OPTIONS]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*(o.encode() for o in options)))
    log = text_of(nvrtc, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
    ptx = "" if failed else text_of(nvrtc, program, "nvrtcGetPTXSize", "nvrtcGetPTX")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return not failed, log, ptx


def judged(task):
    """Complaints about a text for an architecture, registers of its entries, and accesses of 16 bytes."""
    path, architecture = task
    good, log, ptx = compiled(NVRTC, path, architecture)
    if not good:
        return [f"{path} for sm_{architecture}:\n{log}"], [], 0
    complaints = [
        f"{entry} of {path} for sm_{architecture} keeps {' and '.join(local)} bytes outside its registers"
        for entry, *local in re.findall(ENTRY, log)
        if max(map(int, local)) > MAX_LOCAL
    ]
    used = [int(n) for n in re.findall(r"Used (\d+) registers", log)]
    return complaints, used, len(re.findall(r"(?:ld|st)\.(?:global\.)?v4", ptx))


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
    options = parser.parse_args()
    paths = sorted(options.texts.glob("*.cu"))[:: options.every]
    if not paths:
        sys.exit(f"no texts in {options.texts}")
    complaints = []
    with multiprocessing.Pool(options.processes, begin, (options.library,)) as pool:
        for architecture in options.architectures:
            registers, wide = [], 0
            tasks = [(path, architecture) for path in paths]
            for path, (found, used, accesses) in zip(paths, pool.imap(judged, tasks, chunksize=4)):
                complaints += found
                registers += used
                wide += accesses
            registers.sort()
            nearly_all = registers[int(NEARLY_ALL * (len(registers) - 1))] if registers else 0
            median = statistics.median(registers or [0])
            print(
                f"sm_{architecture}: {len(paths)} texts, {len(registers)} kernels, registers: half {median:.0f}, "
                f"{NEARLY_ALL:.0%} {nearly_all}, most {registers[-1]}; {wide} accesses of 16 bytes",
                flush=True,
            )
            if wide == 0:
                complaints.append(f"no access of 16 bytes for sm_{architecture}")
            if median > MEDIAN_REGISTERS or nearly_all > MOST_REGISTERS:
                complaints.append(f"kernels for sm_{architecture} need more registers than was agreed")
    if complaints:
        sys.exit(f"{len(complaints)} complaints; the first:\n" + "\n".join(complaints[:10]))


if __name__ == "__main__":
    main()
