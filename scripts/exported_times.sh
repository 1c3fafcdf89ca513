#!/usr/bin/env bash
# Times exported models against torch eager and torch.compile, with one and two threads.
#
#   PEERS_PYTHON=/path/to/python scripts/exported_times.sh --state target/exported_times.json \
#       --docs docs/benchmarks/exported.md
#   PEERS_PYTHON=/path/to/python scripts/exported_times.sh --models bert,resnet --threads 1     # a look
#
# It takes about ten minutes, most of which torch.compile takes. scripts/exported_times.py says what is measured.
# PEERS_BUILD=0 takes the command line as it was built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "${PEERS_BUILD:-1}" = 1 ]; then
    # Incremental code is cut into more pieces and is slower.
    CARGO_INCREMENTAL=0 cargo build --quiet --release --package opfuse-cli
fi
target=$(cargo metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
exec "${PEERS_PYTHON:-python3}" -B scripts/exported_times.py --opfuse "$target/release/opfuse" "$@"
