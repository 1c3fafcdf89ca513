#!/usr/bin/env bash
# Builds the Python package, installs it into a virtual environment, and runs its tests and mypy.
#
#   scripts/python.sh [--prepare] [FOLDER]     FOLDER is a virtual environment, made if it is not there
#
# With --prepare it makes the environment, installs the tools that the rest needs, and stops. Without a folder it is in
# the cache folder of the user, outside the repository. OPFUSE_PYTHON names the interpreter that makes it.
# OPFUSE_PYTHON_TORCH=1 installs PyTorch too; without it, tests that need it say that they were skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

only_prepare=0
if [ "${1:-}" = --prepare ]; then
    only_prepare=1
    shift
fi
environment=${1:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/opfuse/python}
if [ ! -x "$environment/bin/python" ]; then
    "${OPFUSE_PYTHON:-python3}" -m venv "$environment"
fi
python=$environment/bin/python

install() {
    "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

install 'maturin>=1.9,<2' pytest mypy numpy nbclient ipykernel matplotlib
if [ "${OPFUSE_PYTHON_TORCH:-0}" != 0 ]; then
    install torch
fi
if [ "$only_prepare" = 1 ]; then
    exit 0
fi

# Elsewhere than the sources, so that the package that was installed is imported.
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
"$python" -m maturin build --quiet --release --manifest-path python/Cargo.toml --interpreter "$python" --out "$work"
ls -l "$work" | awk 'NR > 1 { printf "%s has %.1f MB\n", $NF, $5 / 1e6 }'
install --force-reinstall --no-deps "$work"/*.whl

tests=$PWD/python/tests
(cd "$work" && "$python" "$tests/../stubs/generate.py" --check)
(cd "$work" && "$python" -m pytest -q -p no:cacheprovider -rs "$tests")
(cd python && "$python" -m mypy --no-error-summary --cache-dir "$work/mypy")
