"""Prepares the other systems that a page moves messages from, or that it runs beside the bus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.harness.arms import PG_BOSS
from benchmarks.peers.install import NotInstalled, installed_node_peer, installed_peer
from tests.docs.snippets import ROOT
from tests.fixtures.processes import free_port
from tests.programs import refuse_missing

Prepare = Callable[[str, Path], dict[str, str]]


def _pgmq(dsn: str, _folder: Path) -> dict[str, str]:
    sql = installed_peer(ROOT, "pgmq", ("pgmq",)) / "pgmq" / "sql" / "pgmq.sql"
    with psycopg.connect(dsn) as connection:
        connection.execute(sql.read_bytes())
    return {}


def _procrastinate(_dsn: str, _folder: Path) -> dict[str, str]:
    folder = installed_peer(ROOT, "procrastinate", ("procrastinate", "psycopg[binary,pool]"))
    return {"PYTHONPATH": str(folder)}


def _pg_boss(dsn: str, folder: Path) -> dict[str, str]:
    peer = installed_node_peer(ROOT, "pgboss", PG_BOSS)
    (folder / "node_modules").symlink_to(peer / "node_modules")
    part = conninfo_to_dict(dsn)
    # A URL cannot hold the folder of a socket as its host.
    address = f"postgresql://{part['user']}@/{part['dbname']}?host={part['host']}"
    return {"DATABASE_URL": f"{address}&port={part['port']}"}


def _exchange(_dsn: str, _folder: Path) -> dict[str, str]:
    return {"POSTROAD_EXCHANGE__PORT": str(free_port())}


def _partner(_dsn: str, folder: Path) -> dict[str, str]:
    return {
        "POSTROAD_DATA_FOLDER": str(folder / "data"),
        "POSTROAD_INTAKE__DISCOVER_INTERVAL": "1s",
        "POSTROAD_INTAKE__LEASE": "3s",
        "PARTNER_PORT": str(free_port()),
    }


PREPARE: dict[str, Prepare] = {
    "tutorials/orders-to-erp.md": _exchange,
    "tutorials/partner-files-into-the-lake.md": _partner,
    "howto/migrate-from-pgmq.md": _pgmq,
    "howto/migrate-from-procrastinate.md": _procrastinate,
    "howto/migrate-from-pg-boss.md": _pg_boss,
}


def prepare(page: str, dsn: str, folder: Path) -> dict[str, str]:
    """Prepare what a page needs and return what it adds to the environment of its commands."""
    if page not in PREPARE:
        return {}
    try:
        return PREPARE[page](dsn, folder)
    except NotInstalled as reason:
        refuse_missing(str(reason))
