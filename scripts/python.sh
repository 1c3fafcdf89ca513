#!/usr/bin/env bash
# Builds the Python package, installs it into a virtual environment, and runs its tests and mypy.
#
#   scripts/python.sh [--prepare|--wheel|--debug|--memcheck] [FOLDER]
#
# FOLDER is a virtual environment, made if it is not there. Without it, it is in the cache folder of the user, outside
# the repository. OPFUSE_PYTHON names the interpreter that makes it. OPFUSE_PYTHON_TORCH=1 installs PyTorch too; without
# it, tests that need it say that they were skipped.
#
#   --prepare     makes the environment, installs the tools that the rest needs, and stops
#   --wheel       builds the wheel to publish, which is smaller and takes twice the time, leaves it in target/wheels,
#                 and runs the tests with it
#   --debug       builds with assertions and checks of overflow, which takes minutes longer, and runs the tests
#   --memcheck    runs tests under valgrind, whose errors in code of this library fail them; 20 minutes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=test
case "${1:-}" in
--prepare | --wheel | --debug | --memcheck)
    mode=${1#--}
    shift
    ;;
esac
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
if [ "$mode" = prepare ]; then
    exit 0
fi
if [ "$mode" = memcheck ] && ! command -v valgrind >/dev/null 2>&1; then
    printf 'skipped: valgrind is not there\n'
    exit 0
fi

# Elsewhere than the sources, so that the package that was installed is imported.
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
profile=(--release)
if [ "$mode" = debug ]; then profile=(); fi
if [ "$mode" = wheel ]; then
    profile=(--profile wheel)
    install zopfli
fi
"$python" -m maturin build --quiet "${profile[@]}" --manifest-path python/Cargo.toml \
    --interpreter "$python" --compression-level 9 --out "$work"
if [ "$mode" = wheel ]; then
    mkdir -p target/wheels
    "$python" scripts/repack_wheel.py "$work"/*.whl target/wheels
    cp target/wheels/"$(cd "$work" && ls)" "$work"
fi
ls -l "$work" | awk 'NR > 1 { printf "%s has %.2f MB; 8 MB are the aim\n", $NF, $5 / 1e6 }'
install --force-reinstall --no-deps "$work"/*.whl

tests=$PWD/python/tests
if [ "$mode" = memcheck ]; then
    # Processes that tests start are not followed. Errors in code of Python alone are Python's. Valgrind knows neither
    # AVX-512 nor every instruction of the tier x64 (scripts/memcheck.sh).
    cd "$work"
    export PYTHONMALLOC=malloc OPFUSE_ISA=baseline OPFUSE_NUM_THREADS=1
    valgrind --quiet --smc-check=all-non-file --max-stackframe=8388608 --num-callers=40 --log-file="$work/memcheck" \
        "$python" -m pytest -q -p no:cacheprovider "$tests"/test_{tensor,exchange,functions,captures}.py \
        -k 'not ends_cleanly and not needs_neither and not threads and not many_plain and not interrupt'
    awk -v RS='==[0-9]+== \n' '/_opfuse|opfuse::/ { print; found = 1 } END { exit found }' "$work/memcheck"
    exit
fi
(cd "$work" && "$python" "$tests/../stubs/generate.py" --check)
(cd "$work" && "$python" -m pytest -q -p no:cacheprovider -rs "$tests")
(cd python && "$python" -m mypy --no-error-summary --cache-dir "$work/mypy")
