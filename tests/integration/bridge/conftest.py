"""Several databases at once, and quick bridges between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from postroad.cli.components import SCHEMAS
from postroad.testing import TestServer

Databases = Callable[[int], list[str]]


@pytest.fixture
def databases(server: TestServer) -> Iterator[Databases]:
    """Give a function that makes so many fresh databases with the schemas installed."""
    with ExitStack() as stack:
        yield lambda count: [stack.enter_context(server.clone(*SCHEMAS)) for _ in range(count)]


@pytest.fixture
def one_version(_servers: Callable[[Path | None], TestServer]) -> Iterator[Databases]:
    """Give the same on the embedded version alone, where PostgreSQL's version is not the matter."""
    with ExitStack() as stack:
        server = _servers(None)
        yield lambda count: [stack.enter_context(server.clone(*SCHEMAS)) for _ in range(count)]


def name_of(dsn: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])


def run(dsn: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Run a statement in a transaction of its own and return its rows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def queue(dsn: str, name: str = "orders", payload: str = "hstore") -> None:
    run(dsn, "select mbus.create_queue(%s, payload => %s::regtype)", name, payload)


def taken(dsn: str, name: str = "orders", amount: int = 1000) -> list[Any]:
    """Consume what is there, as rows with names."""
    with psycopg.connect(dsn, row_factory=psycopg.rows.namedtuple_row) as connection:
        return connection.execute(
            f"select * from mbus.consumen_{name}_by_default(%s)".encode(), (amount,)
        ).fetchall()


def depth(dsn: str, consumer: str, name: str = "orders") -> int:
    ((found,),) = run(
        dsn, "select depth from mbus.status where queue = %s and consumer = %s", name, consumer
    )
    return int(found)


def register_hstore(connection: Connection) -> None:
    from psycopg.types import TypeInfo
    from psycopg.types.hstore import register_hstore as register

    info = TypeInfo.fetch(connection, "hstore")
    assert info is not None
    register(info, connection)
