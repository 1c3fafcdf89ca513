#!/usr/bin/env bash
# Compares linear algebra with PyTorch and NumPy. PEERS_PYTHON names a Python that has both.
#
#     PEERS_PYTHON=peers/bin/python scripts/linalg.sh [SECONDS]
#
# prints a table. With one second per measurement it takes about ten minutes. NumPy has threads of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
built=$(cargo build --release --bench linalg --message-format=json)
worker=$(grep -o '"executable":"[^"]*/linalg-[^"]*"' <<<"$built" | tail -n 1 | cut -d '"' -f 4)
"${PEERS_PYTHON:-python3}" benches/linalg.py "$worker" "$@"
