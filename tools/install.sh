#!/bin/sh
# Creates .venv and installs Postroad into it with the given extras, versions pinned by constraints.
# usage: tools/install.sh server|all,dev
# Needs Python 3.11+ and pip, nothing else: uv is used where present, and a Python without ensurepip
# (Debian without python3-venv) gets its pip from the pip that is there.
set -eu
cd "$(dirname "$0")/.."
extras=$1
python=${PYTHON:-python3}

"$python" - <<'PYTHON_TOO_OLD' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit("Postroad needs Python 3.11 or newer, this is %d.%d; name another one with "
             "make PYTHON=python3.12 ..." % sys.version_info[:2])
PYTHON_TOO_OLD

pins="-c constraints/all.txt"
# The build backend is pinned like everything else, hence installed first and used in place.
backend="hatchling editables"

if command -v uv >/dev/null 2>&1; then
    [ -x .venv/bin/python ] || uv venv --quiet --python "$python" .venv
    # shellcheck disable=SC2086 # lists of words on purpose
    if uv pip install --quiet --python .venv/bin/python $pins $backend &&
        uv pip install --quiet --python .venv/bin/python --no-build-isolation $pins -e ".[$extras]"
    then
        exit 0
    fi
    echo "uv could not install; trying pip" >&2
fi

if [ ! -x .venv/bin/python ]; then
    "$python" -m venv .venv >/dev/null 2>&1 || {
        rm -rf .venv
        "$python" -m venv --without-pip .venv
    }
fi
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    "$python" -m pip --python .venv/bin/python install --quiet pip
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1
# shellcheck disable=SC2086 # lists of words on purpose
.venv/bin/python -m pip install --quiet $pins $backend
# shellcheck disable=SC2086 # lists of words on purpose
exec .venv/bin/python -m pip install --quiet --no-build-isolation $pins -e ".[$extras]"
