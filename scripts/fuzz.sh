#!/usr/bin/env bash
# Fuzzes what reads texts and files from outside, by coverage: scripts/fuzz.sh [SECONDS [TARGET...]].
# SECONDS are per target, 60 by default; all targets run if none is named. A finding is written to fuzz/artifacts, and
# belongs into fuzz/seeds once it is mended. Needs a nightly toolchain and a C++ compiler (for libFuzzer), and no clang.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../fuzz"

seconds=${1:-60}
shift || true
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    for file in fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi
if ! cargo +nightly --version >/dev/null 2>&1; then
    printf 'skipped: no nightly toolchain is there (rustup toolchain install nightly)\n'
    exit 0
fi

# What cargo-fuzz passes: counters of edges, traced comparisons, and AddressSanitizer. With a target named, the flags
# are not for build scripts.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address --cfg fuzzing"
host=$(rustc -vV | sed -n 's/^host: //p')
for target in "${targets[@]}"; do
    cargo +nightly build --quiet --release --target "$host" --bin "$target"
    mkdir -p "corpus/$target" "artifacts/$target"
    # A case is stopped after 10 s or at 2 GiB, which is a finding too.
    "target/$host/release/$target" "corpus/$target" "seeds/$target" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -max_len=4096 -artifact_prefix="artifacts/$target/" -print_final_stats=1
done
