#!/usr/bin/env bash
# Exports many models of PyTorch, and checks each with the command line: results, and compiled bits against eager ones.
#
#   PEERS_PYTHON=/path/to/python scripts/zoo.sh FOLDER [PART_OF_A_NAME]
#
# The folder takes several gigabytes, and the whole zoo half an hour. The interpreter needs torch, transformers, timm
# and numpy. Files that are there are checked, and not exported again. It fails if a program does not load or differs.
set -euo pipefail
folder=$(realpath -m "${1:?name a folder outside the repository}")
part=${2:-}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! ls "$folder"/*"$part"*.pt2 >/dev/null 2>&1; then
    "${PEERS_PYTHON:-python3}" scripts/export_zoo.py "$folder" "$part"
fi
cargo build --quiet --release --package opfuse-cli
target=$(cargo metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
passed=0
failed=0
for model in "$folder"/*"$part"*.pt2; do
    if said=$(timeout 120 "$target/release/opfuse" check "$model" --data "${model%.pt2}.npz" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s: %s\n' "$(basename "$model")" "$(printf '%s' "$said" | grep -v '^$' | head -n 3 | cut -c 1-240)"
    fi
done
printf 'zoo: %d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
