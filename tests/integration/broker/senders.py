"""Programs that send a task in the transaction that stores a row, each with another library."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from celery import Celery

from postroad.broker.transaction import TransactionConnection

NEXT = "select nextval('shop_order_number')"
STORE = "insert into shop_order values ({})"
# One transaction: stores a row, sends its task, and commits or rolls back.
Order = Callable[[bool], int]
app = Celery(broker="mbus://nobody@nowhere/nothing")


class RolledBack(Exception):
    """Ends a transaction by a rollback."""


def send(number: int, source: Any, **options: Any) -> Any:
    """Send the task of an order in the transaction of a connection or session."""
    connection = TransactionConnection(source)
    return app.send_task("record", (str(number),), connection=connection, **options)


@contextlib.contextmanager
def with_psycopg(dsn: str) -> Iterator[Order]:
    with psycopg.connect(dsn, autocommit=True) as connection:

        def order(commits: bool) -> int:
            [number] = connection.execute(NEXT).fetchone() or (0,)
            with contextlib.suppress(RolledBack), connection.transaction():
                connection.execute(STORE.format(number).encode())
                send(number, connection)
                if not commits:
                    raise RolledBack
            return int(number)

        yield order


def sqlalchemy_url(dsn: str, driver: str) -> Any:
    from psycopg.conninfo import conninfo_to_dict
    from sqlalchemy import URL

    part = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    query = {"host": part["host"], "port": part["port"]}
    return URL.create(
        f"postgresql+{driver}", username=part["user"], database=part["dbname"], query=query
    )


@contextlib.contextmanager
def with_sqlalchemy(dsn: str) -> Iterator[Order]:
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import Session

    engine = create_engine(sqlalchemy_url(dsn, "psycopg"))

    def order(commits: bool) -> int:
        with Session(engine) as session:
            number = int(session.scalar(text(NEXT)) or 0)
            session.execute(text(STORE.format(number)))
            send(number, session)
            session.commit() if commits else session.rollback()
            return number

    yield order
    engine.dispose()


@contextlib.contextmanager
def with_sqlalchemy_async(dsn: str, driver: str = "psycopg") -> Iterator[Order]:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    engine = create_async_engine(sqlalchemy_url(dsn, driver))

    async def order(commits: bool) -> int:
        async with AsyncSession(engine) as session:
            number = int(await session.scalar(text(NEXT)) or 0)
            await session.execute(text(STORE.format(number)))
            await session.run_sync(lambda blocking: send(number, blocking))
            await (session.commit() if commits else session.rollback())
            return number

    with asyncio.Runner() as runner:
        yield lambda commits: runner.run(order(commits))
        runner.run(engine.dispose())


def with_asyncpg(dsn: str) -> AbstractContextManager[Order]:
    return with_sqlalchemy_async(dsn, "asyncpg")


@contextlib.contextmanager
def with_django(dsn: str) -> Iterator[Order]:
    from django.db import connection, transaction

    from tests.integration.frameworks.django_settings import configure

    configure(dsn)

    def order(commits: bool) -> int:
        with contextlib.suppress(RolledBack), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(NEXT)
            [number] = cursor.fetchone()
            cursor.execute(STORE.format(number))
            send(number, connection)
            if not commits:
                raise RolledBack
        return int(number)

    yield order
    connection.close()


SENDERS: dict[str, Callable[[str], AbstractContextManager[Order]]] = {
    "psycopg": with_psycopg,
    "SQLAlchemy": with_sqlalchemy,
    "SQLAlchemy async": with_sqlalchemy_async,
    "asyncpg": with_asyncpg,
    "Django": with_django,
}


if __name__ == "__main__":
    name, dsn, last = sys.argv[1:]
    number = 0
    with SENDERS[name](dsn) as order:
        while number < int(last):
            # By the parity of the number to come, as long as one process runs.
            number = order(number % 2 == 1)
