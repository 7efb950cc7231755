"""Shared by the commands of the exchange: a connection to an installed journal, and the root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from psycopg import AsyncConnection, Connection

from postroad.cli.components import SCHEMAS
from postroad.cli.context import Application
from postroad.postgres import connect, install
from postroad.postgres.migrator import status

T = TypeVar("T")


def exchange_root(application: Application) -> Path | str:
    """Return the configured root, or the folder `exchange` in the data folder."""
    configured = application.settings.exchange.root
    if configured is not None:
        return configured
    return application.embedded_server().home.parent / "exchange"


def as_root(value: str) -> Path | str:
    """Parse an option: a folder, or `s3://bucket/prefix`."""
    return value if value.startswith("s3://") else Path(value)


def installed(application: Application, dsn: str) -> None:
    """Install missing schemas, so that the first command on a fresh database works.

    A configured database that has the schemas is not upgraded: that is the operator's decision.
    """
    with connect(dsn) as connection:
        for schema in SCHEMAS:
            is_there = status(connection, schema).is_installed
            connection.rollback()
            if application.named_database is None or not is_there:
                install(connection, schema)


@contextmanager
def exchange_connection(application: Application) -> Iterator[Connection]:
    """Yield a connection to an installed journal; commits at the end."""
    with application.database() as dsn:
        installed(application, dsn)
        with connect(dsn, is_pooled=application.settings.database.is_pooled) as connection:
            yield connection


def exchange_run(
    application: Application,
    do: Callable[[AsyncConnection[Any]], Awaitable[T]],
    /,
    *,
    is_dry_run: bool = False,
) -> T:
    """Run an operation on an installed journal."""
    with application.database() as dsn:
        installed(application, dsn)
        return application.run(do, is_dry_run=is_dry_run, dsn=dsn)
