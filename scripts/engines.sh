#!/usr/bin/env bash
# Runs opfuse under torchrun, Dask and Ray, with several processes on this machine.
#
#   scripts/engines.sh [FOLDER]     FOLDER is a virtual environment, made if it is not there
#
# It takes several gigabytes, so no other script calls it. python/engines/requirements.txt has the versions. The package
# is built if the environment has none: after a change, uninstall it there first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

environment=${1:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/opfuse/engines}
if [ ! -x "$environment/bin/python" ]; then
    "${OPFUSE_PYTHON:-python3}" -m venv "$environment"
fi
python=$environment/bin/python
"$python" -m pip install --quiet --disable-pip-version-check -r python/engines/requirements.txt
if ! "$python" -c 'import opfuse' 2>/dev/null; then
    "$python" -m pip install --quiet --disable-pip-version-check ./python
fi
engines=$PWD/python/engines
# Elsewhere than the sources, so that the package that was installed is imported.
cd "$(mktemp -d)"
exec "$python" -m pytest -q -p no:cacheprovider -rs "$engines"
