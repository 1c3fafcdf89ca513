#!/usr/bin/env bash
# Runs under Miri what it can run: unit tests of the parts that share memory between threads, and of caches and graphs.
# Needs a nightly toolchain with the components miri and rust-src.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    printf 'skipped: Miri is not there (rustup component add miri rust-src --toolchain nightly)\n'
    exit 0
fi
printf 'left out: machine code, vector instructions of the processor and foreign functions, which Miri cannot run;\n'
printf 'so no kernel of any tier runs, no product, nothing of CUDA, no integration test, and no request for all memory\n'
# Threads of the pool do not end, which Miri takes for a leak. Backtraces of expected panics take it minutes.
export RUST_BACKTRACE=0 MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks ${MIRIFLAGS:-}"
cargo +nightly miri test --no-default-features --lib -- \
    device::shared device::readers device::region device::size_class device::shared_cache device::thread_cache \
    device::last_cache device::storage lru scope --skip too_much_is_none "$@"
