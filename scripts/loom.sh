#!/usr/bin/env bash
# Runs the models of `loom/`, then plants each of its bugs, which a model must find.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../loom"

export RUST_BACKTRACE=0
cargo test --quiet
n_mutants=$(sed -n '/^const MUTANTS/,/^];/p' build.rs | grep -cE '^    (\(| {4})"(shared|readers)",')
for ((mutant = 0; mutant < n_mutants; mutant++)); do
    # A model that fails says so on its own; it must compile, and be the only thing that fails.
    OPFUSE_LOOM_MUTANT=$mutant cargo test --quiet --no-run
    if OPFUSE_LOOM_MUTANT=$mutant cargo test --quiet >/dev/null 2>&1; then
        printf 'the planted bug %s was not found\n' "$mutant" >&2
        exit 1
    fi
    printf 'found the planted bug %s\n' "$mutant"
done
