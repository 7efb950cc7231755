"""How a call meets a connection: in both colours, without a trace on the connection.

A cursor of the call's own carries the adapters that the calls rely on, whatever the caller has
registered on the connection, and whatever row or cursor factory the caller prefers.
"""

from __future__ import annotations

import select
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import TupleRow, tuple_row
from psycopg.types.json import JsonbLoader
from psycopg.types.string import StrDumperUnknown
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from postroad.bus.calls import Call
from postroad.bus.errors import translate

__all__ = ["adapt", "has_word", "make_async_pool", "open_pool", "parameters", "run", "run_async"]

T = TypeVar("T")

POOL_MAX_SIZE_DEFAULT = 10
POOL_TIMEOUT_SECONDS = 10.0

# Each call is one statement, so autocommit makes it one transaction and one round trip.
_PARAMETERS: dict[str, Any] = {
    "autocommit": True,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}


def parameters(*, is_pooled: bool, application_name: str = "postroad bus") -> dict[str, Any]:
    """Give the connection parameters; behind a transaction-mode pooler nothing is prepared."""
    pooled = {"prepare_threshold": None} if is_pooled else {}
    return {**_PARAMETERS, "application_name": application_name, **pooled}


def run(connection: Connection[Any], call: Call[T]) -> T:
    """Run a call in whatever transaction the connection is in; raise the bus's errors."""
    cursor: Cursor[TupleRow] = Cursor(connection, row_factory=tuple_row)
    adapt(cursor)
    try:
        return call.read(cursor.execute(call.text, call.parameters).fetchall())
    except psycopg.Error as error:
        translated = translate(error, queue=call.queue, consumer=call.consumer)
        if translated is None:
            raise
        raise translated from error


async def run_async(connection: AsyncConnection[Any], call: Call[T]) -> T:
    """Run a call in whatever transaction the connection is in; raise the bus's errors."""
    cursor: AsyncCursor[TupleRow] = AsyncCursor(connection, row_factory=tuple_row)
    adapt(cursor)
    try:
        await cursor.execute(call.text, call.parameters)
        return call.read(await cursor.fetchall())
    except psycopg.Error as error:
        translated = translate(error, queue=call.queue, consumer=call.consumer)
        if translated is None:
            raise
        raise translated from error


def open_pool(dsn: str, *, is_pooled: bool = False) -> ConnectionPool:
    """Open a pool whose connections give each call its own transaction."""
    return ConnectionPool(
        dsn,
        kwargs=parameters(is_pooled=is_pooled),
        min_size=1,
        max_size=POOL_MAX_SIZE_DEFAULT,
        timeout=POOL_TIMEOUT_SECONDS,
        check=_check,
        open=True,
        name="postroad bus",
    )


def make_async_pool(dsn: str, *, is_pooled: bool = False) -> AsyncConnectionPool:
    """Make a pool whose connections give each call its own transaction; its user opens it."""
    return AsyncConnectionPool(
        dsn,
        kwargs=parameters(is_pooled=is_pooled),
        min_size=1,
        max_size=POOL_MAX_SIZE_DEFAULT,
        timeout=POOL_TIMEOUT_SECONDS,
        check=_check_async,
        open=False,
        name="postroad bus",
    )


def adapt(cursor: Cursor[Any] | AsyncCursor[Any]) -> None:
    """Give a cursor the adapters that the calls rely on; its connection keeps its own."""
    cursor.adapters.register_dumper(str, StrDumperUnknown)
    cursor.adapters.register_loader("jsonb", JsonbLoader)


def has_word(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Tell, without asking it, whether an idle server has said something: that it goes away."""
    # An idle server says nothing until it goes away. Looking at the socket finds a restarted
    # server without the round trip that asking would cost each call.
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _check(connection: Connection[Any]) -> None:
    if has_word(connection):
        ConnectionPool.check_connection(connection)


async def _check_async(connection: AsyncConnection[Any]) -> None:
    if has_word(connection):
        await AsyncConnectionPool.check_connection(connection)
