#!/usr/bin/env bash
# Finds operators that are slow beside PyTorch, and writes docs/benchmarks/sweep.md.
#
#   scripts/sweep.sh                              every case with one thread, an hour or more
#   scripts/sweep.sh --quick                      one size, layout and dtype of each operator: four minutes
#   scripts/sweep.sh --only 'sort|topk' --look    some cases, printed and not kept
#   scripts/sweep.sh --missing --seconds 500      goes on where an earlier run stopped, for so long
#   scripts/sweep.sh --slow 0.9                   cases again that were slow
#   scripts/sweep.sh --threads 1,2                with both
#   scripts/sweep.sh --coverage                   operators that are in no case; fails if there are any
#   scripts/sweep.sh --help                       what else there is
#
# Figures are kept in target/peers/sweep.json.
#
# PEERS_PYTHON   the interpreter that finds torch and numpy (python3)
# PEERS_BUILD=0  takes the programs as they are
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-target}
if [ "${PEERS_BUILD:-1}" = 1 ]; then
    # Incremental code is cut into more pieces and is slower.
    CARGO_INCREMENTAL=0 cargo build --release --quiet -p opfuse-peers
fi
exec python3 -B benches/peers/driver/sweep.py --target "$target" --docs docs/benchmarks "$@"
