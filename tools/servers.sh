#!/bin/sh
# Makes sure that the real servers and programs that tests need are there beside the embedded
# PostgreSQL. Installs only what is missing, starts nothing: each test runs its own instance in a
# temporary folder. POSTROAD_TEST_SYSTEM_BIN names a PostgreSQL that lies elsewhere.
# `servers.sh cluster` installs what `make cluster` and `make proof` need in addition, `servers.sh container` what
# `make container` needs.
set -eu

# A program or file that shows that a package is there, and the package. Some lie outside an ordinary PATH.
NEEDED="
pgbouncer        pgbouncer
rabbitmq-server  rabbitmq-server
redis-server     redis-server
sshd             openssh-server
firebird         firebird3.0-server
isql-fb          firebird3.0-utils
faketime         faketime
strace           strace
haproxy          haproxy
nginx            nginx
chromium         chromium
promtool         prometheus
/usr/share/java/postgresql.jar  libpostgresql-jdbc-java
node             nodejs
npm              npm
javac            default-jdk-headless
systemd-analyze  systemd
logrotate        logrotate
curl             curl
jq               jq
go               golang-go
/usr/share/gocode/src/github.com/jackc/pgx/v4/conn.go  golang-github-jackc-pgx-v4-dev
"

if [ "${1:-}" = cluster ]; then
    NEEDED="$NEEDED
etcd             etcd-server
patroni          patroni
nft              nftables
ip               iproute2
"
elif [ "${1:-}" = container ]; then
    NEEDED="$NEEDED
buildah          buildah
debootstrap      debootstrap
"
fi

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
missing=

has_postgresql() {
    [ -z "${POSTROAD_TEST_SYSTEM_BIN:-}" ] || return 0
    for initdb in /usr/lib/postgresql/*/bin/initdb; do
        [ -x "$initdb" ] && return 0
    done
    return 1
}

has_postgresql || missing=postgresql
while read -r program package; do
    [ -z "$program" ] || [ -r "$program" ] || command -v "$program" >/dev/null 2>&1 || missing="$missing $package"
done <<LIST
$NEEDED
LIST
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "Tests need these Debian packages or their like, and there is no apt-get:$missing" >&2
    echo "hint: install them; POSTROAD_TEST_SYSTEM_BIN names the folder of another PostgreSQL's initdb" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1; then
    as_root=sudo
else
    echo "Tests need packages that are missing, and neither root nor sudo is there to install them." >&2
    echo "hint: ask an administrator for: apt-get install --no-install-recommends $missing" >&2
    exit 1
fi

echo "installing with apt-get (needed by tests only): $missing"
# Without a cluster of its own: tests run their own servers in temporary folders.
$as_root mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] ||
    echo "create_main_cluster = false" | $as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
# Nor are the services of the other packages started: a policy that says so, for this call only.
policy=/usr/sbin/policy-rc.d
made_policy=
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod +x "$policy"
    made_policy=yes
fi
trap '[ -z "$made_policy" ] || $as_root rm -f "$policy"' EXIT
$as_root apt-get update -qq
# shellcheck disable=SC2086 # a list of words on purpose
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
