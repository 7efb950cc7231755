#!/bin/sh
# Writes the versions installed in .venv to constraints/all.txt, as plain name==version lines.
set -eu
cd "$(dirname "$0")/.."
{
    echo "# Every package that Postroad is installed and tested with, direct or not. Refresh: make constraints"
    .venv/bin/python -m pip freeze --exclude-editable
} >constraints/all.txt.new
mv constraints/all.txt.new constraints/all.txt
