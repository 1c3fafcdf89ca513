#!/usr/bin/env python3
"""Compiles generated CUDA with NVRTC for several devices, without one: no error, registers suffice, vectors are moved whole.

    mkdir texts && OPFUSE_CUDA_TEXTS=$PWD/texts cargo test --test cuda_emulator -- --skip mutants
    pip install --target wheel --no-deps nvidia-cuda-nvrtc
    scripts/nvrtc.py texts wheel/nvidia/cu13/lib

The folder of the library may be left out where the system finds it.
"""
import ctypes
import pathlib
import re
import sys

ARCHITECTURES = (80, 90, 100, 120)
# Bytes that an entry may keep outside its registers; a call of the compiler's own saves one or two.
MAX_LOCAL = 16
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


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    nvrtc = library(sys.argv[2] if len(sys.argv) > 2 else None)
    paths = sorted(pathlib.Path(sys.argv[1]).glob("*.cu"), key=lambda path: int(path.stem))
    if not paths:
        sys.exit(f"no texts in {sys.argv[1]}")
    for architecture in ARCHITECTURES:
        kernels, registers, wide = 0, 0, 0
        for path in paths:
            good, log, ptx = compiled(nvrtc, path, architecture)
            if not good:
                sys.exit(f"{path} for sm_{architecture}:\n{log}")
            for entry, *local in re.findall(ENTRY, log):
                if max(map(int, local)) > MAX_LOCAL:
                    sys.exit(f"{entry} of {path} for sm_{architecture} keeps {' and '.join(local)} bytes outside its registers")
            used = [int(n) for n in re.findall(r"Used (\d+) registers", log)]
            kernels, registers = kernels + len(used), max([registers, *used])
            wide += len(re.findall(r"(?:ld|st)\.(?:global\.)?v4", ptx))
        if wide == 0:
            sys.exit(f"no access of 16 bytes for sm_{architecture}")
        print(f"sm_{architecture}: {kernels} kernels, at most {registers} registers, {wide} accesses of 16 bytes")


if __name__ == "__main__":
    main()
