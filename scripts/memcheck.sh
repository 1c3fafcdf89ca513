#!/usr/bin/env bash
# Runs tests under valgrind's memcheck, which follows machine code too: scripts/memcheck.sh [FILTER...].
# Kernels run in the vm for 128-bit vectors, on one thread: valgrind runs one thread at a time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v valgrind >/dev/null 2>&1; then
    printf 'skipped: valgrind is not there\n'
    exit 0
fi
printf 'left out: the tier x64, some of whose instructions valgrind refuses (3.19 does), and leaks (scripts/soak.sh)\n'
# The tests are built first, so that only they run under valgrind.
binary=$(cargo test --no-run --test dispatch --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\/dispatch-[^"]*\)".*/\1/p' | tail -n 1)
if [ $# = 0 ]; then set -- freed:: table:: views:: meta:: matmul::; fi
export OPFUSE_ISA=baseline OPFUSE_NUM_THREADS=1
valgrind --quiet --error-exitcode=1 --smc-check=all-non-file --max-stackframe=8388608 "$binary" --test-threads=1 "$@"
