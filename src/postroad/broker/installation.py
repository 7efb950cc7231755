"""The schemas that the broker needs, installed by the first client."""

from __future__ import annotations

import threading
from typing import Any

from psycopg import Connection

from postroad.postgres.connections import connect
from postroad.postgres.manifest import Schema
from postroad.postgres.migrator import install

SCHEMAS = (
    Schema("mbus", "postroad.bus", ("hstore",)),
    Schema("broker", "postroad.broker", ("hstore",)),
)

_known: set[str] = set()
_guard = threading.Lock()


def ensure_installed(dsn: str, connection: Connection[Any]) -> None:
    """Install the bus and the broker if they are missing; an upgrade is left to the operator."""
    if dsn in _known:
        return
    row = connection.execute("select to_regclass('broker.chord_part') is not null").fetchone()
    if not (row and row[0]):
        with _guard, connect(dsn, application_name="postroad install") as installing:
            for schema in SCHEMAS:
                install(installing, schema)
    _known.add(dsn)
