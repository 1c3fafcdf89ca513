#!/usr/bin/env bash
# Compares opfuse with other libraries and writes docs/benchmarks/peers.md and peers.svg.
#
#   scripts/peers.sh                                    everything, with the libraries that are installed
#   scripts/peers.sh --rows W01m,W03 --threads 1        these rows again; the others stay as they were
#   scripts/peers.sh --missing --seconds 200            goes on where an earlier run stopped, for so long
#   scripts/peers.sh --rows W04 --peers opfuse-compile,jax-jit    a look: printed and not kept
#   scripts/peers.sh --help                             what else there is
#
# PEERS_PYTHON   the interpreter that finds torch, jax, onnxruntime with onnx, numpy with scipy, numexpr and numba
#                (python3); what it does not find is left out
# PEERS_RUST     "candle burn": builds these libraries' workers too, which takes minutes
# PEERS_BUILD=0  takes the programs as they are
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-target}
if [ "${PEERS_BUILD:-1}" = 1 ]; then
    # Incremental code is cut into more pieces and is slower.
    export CARGO_INCREMENTAL=0
    cargo build --release --quiet -p opfuse-peers
    for library in ${PEERS_RUST:-}; do
        cargo build --release --quiet --manifest-path "benches/peers/$library/Cargo.toml" --target-dir "$target/peers/$library"
    done
fi
exec python3 -B benches/peers/driver/compare.py \
    --target "$target" --docs docs/benchmarks "$@"
