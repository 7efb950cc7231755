#!/bin/sh
# Makes sure that a PostgreSQL of the system is there beside the embedded one, so that tests run on
# two major versions. Installs only what is missing; POSTROAD_TEST_SYSTEM_BIN names one elsewhere.
set -eu

[ -z "${POSTROAD_TEST_SYSTEM_BIN:-}" ] || exit 0
for initdb in /usr/lib/postgresql/*/bin/initdb; do
    [ -x "$initdb" ] && exit 0
done

if ! command -v apt-get >/dev/null 2>&1; then
    echo "No PostgreSQL server of the system under /usr/lib/postgresql, and no apt-get to install it." >&2
    echo "hint: install PostgreSQL 15 or newer and set POSTROAD_TEST_SYSTEM_BIN to the folder of its initdb" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1; then
    as_root=sudo
else
    echo "No PostgreSQL server of the system, and neither root nor sudo to install it." >&2
    echo "hint: ask an administrator for: apt-get install postgresql" >&2
    echo "hint: or set POSTROAD_TEST_SYSTEM_BIN to the folder of another PostgreSQL's initdb" >&2
    exit 1
fi

echo "installing PostgreSQL with apt-get (needed by tests only)"
# Without a cluster of its own: tests run their own servers in temporary folders.
$as_root mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] ||
    echo "create_main_cluster = false" | $as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql
