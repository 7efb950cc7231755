"""The databases of coordination: named in the settings, or created beside the main database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from postroad.cli.components import install_all
from postroad.cli.context import Application
from postroad.postgres.calls import call
from postroad.postgres.connections import create_database, run_blocking
from postroad.settings import CoordinationSettings

NAMES = {
    "writer": "coordination_writer",
    "coordinator": "coordination_main",
    "reader": "coordination_reader",
}


class Databases(NamedTuple):
    """Connection strings of the databases, by role."""

    writer: str
    coordinator: str
    reader: str


@contextmanager
def coordination_databases(application: Application) -> Iterator[Databases]:
    """Yield the three connection strings; the embedded server runs if one needs it."""
    settings = application.settings.coordination
    if all((settings.writer_url, settings.coordinator_url, settings.reader_url)):
        yield find_databases(settings, "")
    else:
        with application.database() as dsn:
            yield find_databases(settings, dsn)


def find_databases(settings: CoordinationSettings, dsn: str) -> Databases:
    """Return the databases of the settings, and missing ones on the server of this database."""

    def find(url: SecretStr | None, default: str) -> str:
        return url.get_secret_value() if url else make_conninfo(dsn, dbname=default)

    return Databases(*(find(getattr(settings, f"{part}_url"), NAMES[part]) for part in NAMES))


def prepare_database(dsn: str, role: str, name: str | None = None) -> None:
    """Create the database if it is missing, install the schemas, and set its role.

    Blocks; may be repeated. Raises RoleTaken.
    """
    database = str(conninfo_to_dict(dsn).get("dbname") or "")
    if database in NAMES.values():
        create_database(dsn, database)
    install_all(dsn)
    run_blocking(dsn, call, "coordination.become", role, name)
