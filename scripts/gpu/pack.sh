#!/usr/bin/env bash
# Packs what a machine with a GPU and no Rust needs to test and measure opfuse: programs, stripped, the peers' workers,
# and test data, in one folder and one archive of it.
#
#   scripts/gpu/pack.sh                     into target/gpu and target/gpu.tar.gz
#   scripts/gpu/pack.sh FOLDER              into FOLDER and FOLDER.tar.gz
#   GPU_PROFILE=dev scripts/gpu/pack.sh     programs that are built faster and run slower, to try the scripts
#
# There: tar xf gpu.tar.gz && python3 gpu/run.py OUT (`run.py --help` says the rest). Back here, `scripts/gpu/report.py`
# makes docs/benchmarks/gpu.md of the results.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=${1:-${CARGO_TARGET_DIR:-target}/gpu}
profile=${GPU_PROFILE:-release}
# The programs that cargo says it has built, by the names of their targets.
built() {
    cargo "$@" --profile "$profile" --message-format=json | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable"):
        print(message["target"]["name"], message["executable"])
'
}

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/tests"
{
    built test --no-run --test cuda
    built build -p opfuse-peers --bin opfuse-peers
} | while read -r name program; do
    strip -o "$folder/bin/$name" "$program"
done
for program in cuda opfuse-peers; do
    test -x "$folder/bin/$program"
done
cp -r benches/peers/driver benches/peers/python "$folder/"
find "$folder" -name __pycache__ -prune -exec rm -r {} +
cp scripts/gpu/*.py "$folder/"
cp -r tests/golden "$folder/tests/golden"
git rev-parse HEAD >"$folder/commit"
tar -C "$(dirname "$folder")" -czf "$folder.tar.gz" "$(basename "$folder")"
du -sh "$folder" "$folder.tar.gz"
