"""Prepares the other systems that a page moves messages from, or that it runs beside the bus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.harness.arms import PG_BOSS
from benchmarks.peers.install import NotInstalled, installed_node_peer, installed_peer
from tests.docs.snippets import ROOT
from tests.fixtures.processes import free_port
from tests.fixtures.s3 import ACCESS_KEY, SECRET_KEY
from tests.programs import refuse_missing


@dataclass
class Prepared:
    """What a page finds: variables of its commands, and what its names stand for here."""

    variables: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where a page runs: its database, its folder, and a function that returns a fixture."""

    dsn: str
    folder: Path
    fixture: Callable[[str], Any]


Prepare = Callable[[Place], Prepared]


def _pgmq(place: Place) -> Prepared:
    sql = installed_peer(ROOT, "pgmq", ("pgmq",)) / "pgmq" / "sql" / "pgmq.sql"
    with psycopg.connect(place.dsn) as connection:
        connection.execute(sql.read_bytes())
    return Prepared()


def _procrastinate(_place: Place) -> Prepared:
    folder = installed_peer(ROOT, "procrastinate", ("procrastinate", "psycopg[binary,pool]"))
    return Prepared({"PYTHONPATH": str(folder)})


def _pg_boss(place: Place) -> Prepared:
    peer = installed_node_peer(ROOT, "pgboss", PG_BOSS)
    (place.folder / "node_modules").symlink_to(peer / "node_modules")
    part = conninfo_to_dict(place.dsn)
    # A URL cannot hold the folder of a socket as its host.
    address = f"postgresql://{part['user']}@/{part['dbname']}?host={part['host']}"
    return Prepared({"DATABASE_URL": f"{address}&port={part['port']}"})


def _exchange(_place: Place) -> Prepared:
    return Prepared({"POSTROAD_EXCHANGE__PORT": str(free_port())})


def _partner(_place: Place) -> Prepared:
    return Prepared({"PARTNER_PORT": str(free_port())})


def _sftp(place: Place) -> Prepared:
    """A login at a partner's server with one file, and a bucket."""
    sshd, s3 = place.fixture("sshd"), place.fixture("s3")
    outgoing = sshd.new_folder()
    (outgoing / "report.csv").write_text("bread;1.20\n", encoding="utf-8")
    return Prepared(
        {
            "POSTROAD_DATA_FOLDER": str(place.folder / "data"),
            "POSTROAD_INTAKE__DISCOVER_INTERVAL": "1s",
        },
        {
            "--host sftp.example.com --user acme": (
                f"--host 127.0.0.1 --port {sshd.port} --user {sshd.username}"
            ),
            "~/.ssh/acme": str(sshd.folder / "userkey"),
            "--directory outgoing": f"--directory {outgoing}",
            "s3://incoming/": f"s3://{s3.new_bucket()}/",
            **_store(place, s3),
        },
    )


def _store(place: Place, s3: Any) -> dict[str, str]:
    """The names of the pages for the address and the keys of a store."""
    keys = {"access-key": ACCESS_KEY, "secret-key": SECRET_KEY}
    for name, key in keys.items():
        (place.folder / name).write_text(key, encoding="utf-8")
    return {
        "https://s3.example.com": s3.endpoint,
        **{f"/etc/postroad/{name}": str(place.folder / name) for name in keys},
    }


def _exchange_store(place: Place) -> Prepared:
    s3 = place.fixture("s3")
    port = str(free_port())
    return Prepared(
        {"POSTROAD_EXCHANGE__PORT": port, "POSTROAD_DATA_FOLDER": str(place.folder / "data")},
        {
            "s3://exchange/": f"s3://{s3.new_bucket()}/",
            "/tmp/exported": str(place.folder / "exported"),
            "http://127.0.0.1:8420": f"http://127.0.0.1:{port}",
            **_store(place, s3),
        },
    )


def _served(place: Place, port: str) -> Prepared:
    """Another port and another data folder than those that the page names."""
    data = place.folder / "data"
    return Prepared(
        {"POSTROAD_DATA_FOLDER": str(data)},
        {"/var/lib/postroad": str(data), port: str(free_port())},
    )


def _console(place: Place) -> Prepared:
    found = _served(place, "8080")
    found.variables["POSTROAD_HTTP__PORT"] = found.replaced["8080"]
    return found


def _rabbitmq(place: Place) -> Prepared:
    """A virtual host of its own: the page gives its queues plain names."""
    rabbitmq = place.fixture("rabbitmq")
    host = rabbitmq.unique("page")
    rabbitmq.control("add_vhost", host)
    rabbitmq.control("set_permissions", "-p", host, "guest", ".*", ".*", ".*")
    url = rabbitmq.tls_url.replace("/?", f"/{host}?")
    return Prepared(
        {"POSTROAD_DATA_FOLDER": str(place.folder / "data")},
        {"amqps://postroad:secret@rabbit.example:5671/?cafile=/etc/ssl/rabbit-ca.pem": url},
    )


PREPARE: dict[str, Prepare] = {
    "tutorials/orders-to-erp.md": _exchange,
    "tutorials/partner-files-into-the-lake.md": _partner,
    "components/console.md": _console,
    "components/exchange.md": lambda place: _served(place, "8420"),
    "components/intake.md": lambda place: _served(place, "8140"),
    "howto/sftp-intake.md": _sftp,
    "howto/bridge-rabbitmq.md": _rabbitmq,
    "operate/exchange-object-store.md": _exchange_store,
    "howto/migrate-from-pgmq.md": _pgmq,
    "howto/migrate-from-procrastinate.md": _procrastinate,
    "howto/migrate-from-pg-boss.md": _pg_boss,
}


def prepare(page: str, place: Place) -> Prepared:
    """Prepare what a page needs. Skips the test, or fails it in CI, if a system is missing."""
    if page not in PREPARE:
        return Prepared()
    try:
        return PREPARE[page](place)
    except NotInstalled as reason:
        refuse_missing(str(reason))
