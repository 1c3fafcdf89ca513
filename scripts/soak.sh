#!/usr/bin/env bash
# Runs changing shapes, closures, registrations and threads for some minutes (60 by default), and fails if memory grows
# after the first third: scripts/soak.sh [MINUTES [PART,PART...]]. Draws target/soak.svg.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo run --release --quiet --example soak -- "${@:-60}"
