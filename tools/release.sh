#!/bin/sh
# Builds wheel and sdist into a folder, dist/ if none is named, and checks them. Beside them it writes what an
# installation with every extra consists of: postroad.cdx.json (CycloneDX) and licences.md. It uploads nothing.
# usage: tools/release.sh [FOLDER]
set -eu
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
dist=${1:-dist}
rm -rf "$dist"
"$bin/hatchling" build --directory "$dist"
"$bin/twine" check --strict "$dist"/*

# In an environment of its own, because .venv has the tools of developers as well.
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"$bin/python" -m venv --without-pip "$environment"
python=$environment/bin/python
"$bin/python" -m pip --python "$python" install --quiet -c constraints/all.txt \
    "$(ls "$dist"/*.whl)[all,django-tasks,otel,sqlalchemy]"
# It names the folder of this build.
rm -f "$environment"/lib/python*/site-packages/postroad-*.dist-info/direct_url.json
"$bin/cyclonedx-py" environment --output-reproducible --of JSON -o "$dist/postroad.cdx.json" "$python"
# Otherwise it leaves out packages that it needs itself, such as wcwidth, which Celery needs too.
"$bin/pip-licenses" --with-system --python "$python" --format markdown --with-urls --output-file "$dist/licences.md"
ls -l "$dist"
