#!/usr/bin/env bash
# Runs the conformance suite of the Python array API standard on `opfuse.array_api`.
#
#   ARRAY_API_TESTS=FOLDER scripts/array_api.sh PYTHON
#
# FOLDER is a checkout of data-apis/array-api-tests with its submodule; it is copied and stays as it is. PYTHON is an
# interpreter that has opfuse installed; pytest and hypothesis are installed into its environment. The tests that
# cannot pass are in python/tests/array_api/expected.py, with reasons. OPFUSE_ARRAY_API_EXAMPLES is the number of
# examples of a property, 10 if it is not said.
set -euo pipefail

if [ -z "${ARRAY_API_TESTS:-}" ]; then
    printf 'skipped: ARRAY_API_TESTS names no checkout of data-apis/array-api-tests\n'
    exit 0
fi
python=$1
plugin=$(cd "$(dirname "${BASH_SOURCE[0]}")/../python/tests/array_api" && pwd)
copy=$(mktemp -d)
trap 'rm -r "$copy"' EXIT
cp -r "$ARRAY_API_TESTS/." "$copy"
"$python" -m pip install --quiet --disable-pip-version-check pytest pytest-json-report 'hypothesis>=6.151' ndindex

# The suite supposes that a library has complex numbers. These lines let it start where there are none.
cd "$copy/array_api_tests"
sed -i 's/\(for dt in complex_dtypes\], key=lambda x: x\[1\]\)$/\1, default=(None, 0)/' dtype_helpers.py
sed -i 's/^\( *\)cmplx_name = .*/\1cmplx_name = "complex128"/' test_signatures.py
cd ..

export ARRAY_API_TESTS_MODULE=opfuse.array_api
export ARRAY_API_TESTS_SKIP_DTYPES=uint16,uint32,uint64,complex64,complex128
PYTHONPATH=$plugin "$python" -m pytest array_api_tests -q -p expected -p no:cacheprovider \
    --max-examples "${OPFUSE_ARRAY_API_EXAMPLES:-10}" --disable-extension fft
