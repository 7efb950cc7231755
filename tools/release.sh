#!/bin/sh
# Builds wheel and sdist into dist/ and checks them. Beside them it writes what an installation with
# every extra consists of: postroad.cdx.json (CycloneDX) and licences.md. It uploads nothing.
set -eu
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
rm -rf dist build/release
"$bin/hatchling" build --directory dist
"$bin/twine" check --strict dist/*

# In an environment of its own, because .venv has the tools of developers as well.
"$bin/python" -m venv --without-pip build/release
"$bin/python" -m pip --python build/release/bin/python install --quiet -c constraints/all.txt \
    "$(ls dist/*.whl)[all,django-tasks,sqlalchemy]"
# It names the folder of this build.
rm -f build/release/lib/python*/site-packages/postroad-*.dist-info/direct_url.json
"$bin/cyclonedx-py" environment --output-reproducible --of JSON -o dist/postroad.cdx.json build/release/bin/python
"$bin/pip-licenses" --python build/release/bin/python --format markdown --with-urls \
    --output-file dist/licences.md
ls -l dist
