"""The three kinds of ERP database, with one business table, behind one small face."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.fixtures.firebird import Firebird

__all__ = ["ENGINES", "Erp", "connect"]

ENGINES = ("postgres", "sqlite", "firebird")


def connect(engine: str, dsn: str) -> Any:
    """Open a connection to an ERP's database, as any program would."""
    if engine == "postgres":
        return psycopg.connect(dsn)
    if engine == "sqlite":
        return sqlite3.connect(dsn, timeout=2)
    return Firebird.connect(dsn)


@dataclass
class Erp:
    """One ERP database."""

    engine: str
    dsn: str

    def connect(self) -> Any:
        return connect(self.engine, self.dsn)

    def run(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own."""
        return self.on(lambda connection: execute(self.engine, connection, statement, parameters))

    def on(self, work: Callable[[Any], Any]) -> Any:
        connection = self.connect()
        try:
            result = work(connection)
            connection.commit()
        finally:
            connection.close()
        return result

    def install(self) -> None:
        self.run("create table orders (id varchar(64) not null, process_id varchar(64))")

    def orders(self) -> list[str]:
        return sorted(row[0] for row in self.run("select id from orders"))

    def markers(self) -> dict[str, str]:
        return dict(self.run("select process_id, outcome from exchange_marker"))


def execute(
    engine: str, connection: Any, statement: str, parameters: tuple[Any, ...] = ()
) -> list[tuple[Any, ...]]:
    """Run a statement in the transaction that the connection is in."""
    cursor = connection.cursor()
    try:
        sign = "%s" if engine == "postgres" else "?"
        cursor.execute(statement.replace("?", sign), parameters)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
    finally:
        cursor.close()
