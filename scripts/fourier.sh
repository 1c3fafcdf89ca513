#!/usr/bin/env bash
# Compares Fourier transforms with PyTorch and SciPy. PEERS_PYTHON names a Python that has both.
#
#     PEERS_PYTHON=peers/bin/python scripts/fourier.sh [SECONDS]
#
# prints a table. With one second per measurement it takes about five minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
built=$(cargo build --release --bench fourier --message-format=json)
worker=$(grep -o '"executable":"[^"]*/fourier-[^"]*"' <<<"$built" | tail -n 1 | cut -d '"' -f 4)
"${PEERS_PYTHON:-python3}" benches/fourier.py "$worker" "$@"
