#!/usr/bin/env bash
# Builds the example of a service (examples/server), and runs its tests with 64 clients on the loopback.
# Its crates (axum, tokio) are downloaded; the library needs none of them, so .ci/run leaves it out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../examples/server"

cargo build --release
cargo test --release
cargo clippy --release --all-targets -- -D warnings
