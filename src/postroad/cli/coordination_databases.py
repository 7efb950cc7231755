"""The databases of coordination: named in the settings, or created beside the main database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from postroad.cli.components import SCHEMAS
from postroad.cli.context import Application
from postroad.coordination.calls import BECOME, translated
from postroad.postgres import connect, install

NAMES = {
    "writer": "coordination_writer",
    "coordinator": "coordination_main",
    "reader": "coordination_reader",
}


@dataclass(frozen=True, slots=True)
class Databases:
    """Connection strings of the databases, by role."""

    writer: str
    coordinator: str
    reader: str


@contextmanager
def coordination_databases(application: Application) -> Iterator[Databases]:
    """Yield the three connection strings; the embedded server runs if one needs it."""
    settings = application.settings.coordination
    named = {
        "writer": settings.writer_url,
        "coordinator": settings.coordinator_url,
        "reader": settings.reader_url,
    }
    if all(named.values()):
        yield Databases(**{part: _secret(url) for part, url in named.items()})
        return
    with application.database() as dsn:
        beside = databases_beside(dsn)
        yield Databases(
            **{
                part: _secret(url) if url is not None else getattr(beside, part)
                for part, url in named.items()
            }
        )


def databases_beside(dsn: str) -> Databases:
    """Return the names of the sample's databases on the same server as this one."""
    return Databases(**{part: make_conninfo(dsn, dbname=name) for part, name in NAMES.items()})


def prepare_database(dsn: str, role: str, name: str | None = None) -> None:
    """Create the database if it is missing, install the schemas, and set its role.

    Blocks; may be repeated. Raises RoleTaken.
    """
    database = str(psycopg.conninfo.conninfo_to_dict(dsn).get("dbname") or "")
    if database in NAMES.values():
        _create(dsn, database)
    with connect(dsn) as connection:
        for schema in SCHEMAS:
            install(connection, schema)
    with connect(dsn) as connection, translated():
        connection.execute(BECOME, (role, name))


def _create(dsn: str, database: str) -> None:
    with connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as connection:
        found = connection.execute("select from pg_database where datname = %s", (database,))
        if found.rowcount == 0:
            try:
                connection.execute(
                    sql.SQL("create database {} template template0").format(
                        sql.Identifier(database)
                    )
                )
            except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                # Another service created it first.
                return


def _secret(url: SecretStr | None) -> str:
    return url.get_secret_value() if url is not None else ""
