"""Running calls on connections, in both colours.

Each call has a cursor with the adapters that the calls rely on. The caller's connection keeps its
own adapters, row factory and cursor factory.
"""

from __future__ import annotations

import select
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, tuple_row
from psycopg.types.json import JsonbLoader
from psycopg.types.string import StrDumperUnknown
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from postroad.bus.call import Call
from postroad.bus.decoding import NOT_DECODED, Undecodable, read_rows
from postroad.bus.errors import InvalidArgument, translate
from postroad.postgres.connections import network_parameters

T = TypeVar("T")
C = TypeVar("C")

POOL_MAX_SIZE_DEFAULT = 10
POOL_TIMEOUT_SECONDS = 10.0


def parameters(
    dsn: str, *, is_pooled: bool, application_name: str = "postroad bus"
) -> dict[str, Any]:
    """Return the connection parameters; no prepared statements behind a transaction-mode pooler."""
    return {
        **network_parameters(dsn),
        # Each call is one statement, so autocommit makes it one transaction and one round trip.
        "autocommit": True,
        "application_name": application_name,
        **({"prepare_threshold": None} if is_pooled else {}),
    }


def run(connection: Connection[Any], call: Call[T]) -> T:
    """Run a call in the connection's current transaction; raise the bus's errors."""
    if _needs_transaction(connection, call):
        with connection.transaction():
            return run(connection, call)
    if call.parts:
        with connection.transaction():
            return call.read([run(connection, part) for part in call.parts])
    cursor: Cursor[TupleRow] = Cursor(connection, row_factory=tuple_row)
    adapt(cursor)
    try:
        cursor.execute(call.text, call.parameters)
    except psycopg.Error as error:
        translated = translate(error, queue=call.queue, consumer=call.consumer)
        if translated is None:
            raise
        raise translated from error
    try:
        found = fetch(cursor)
    except Undecodable as error:
        for removal in call.removals(error):
            run(connection, removal)
        found = error.rows
    return call.read(found)


async def run_async(connection: AsyncConnection[Any], call: Call[T]) -> T:
    """Run a call in the connection's current transaction; raise the bus's errors."""
    if _needs_transaction(connection, call):
        async with connection.transaction():
            return await run_async(connection, call)
    if call.parts:
        async with connection.transaction():
            return call.read([await run_async(connection, part) for part in call.parts])
    cursor: AsyncCursor[TupleRow] = AsyncCursor(connection, row_factory=tuple_row)
    adapt(cursor)
    try:
        await cursor.execute(call.text, call.parameters)
    except psycopg.Error as error:
        translated = translate(error, queue=call.queue, consumer=call.consumer)
        if translated is None:
            raise
        raise translated from error
    try:
        found = await fetch_async(cursor)
    except Undecodable as error:
        for removal in call.removals(error):
            await run_async(connection, removal)
        found = error.rows
    return call.read(found)


def required(connection: C | None) -> C:
    """Return the caller's connection. Raises InvalidArgument without one."""
    if connection is None:
        raise InvalidArgument(
            "a temporary queue belongs to a session, and a pool has several sessions",
            hint="use bus.using(connection), and keep the connection as long as the queue",
        )
    return connection


def _needs_transaction(connection: Connection[Any] | AsyncConnection[Any], call: Call[Any]) -> bool:
    """Check whether the call would be committed before its result is read."""
    return (
        call.is_atomic
        and connection.autocommit
        and connection.pgconn.transaction_status == TransactionStatus.IDLE
    )


def fetch(cursor: Cursor[Any]) -> list[Any]:
    """Read a result. Raises Undecodable if some of its rows cannot be read."""
    try:
        return cursor.fetchall()
    except NOT_DECODED:
        return read_rows(cursor)


async def fetch_async(cursor: AsyncCursor[Any]) -> list[Any]:
    """Read a result. Raises Undecodable if some of its rows cannot be read."""
    try:
        return await cursor.fetchall()
    except NOT_DECODED:
        return read_rows(cursor)


def open_pool(dsn: str, *, is_pooled: bool = False) -> ConnectionPool:
    """Open a pool whose connections run each call in its own transaction."""
    return ConnectionPool(dsn, check=_check, open=True, **_pool_options(dsn, is_pooled))


def make_async_pool(dsn: str, *, is_pooled: bool = False) -> AsyncConnectionPool:
    """Create a pool whose connections run each call in its own transaction; its user opens it."""
    return AsyncConnectionPool(dsn, check=_check_async, open=False, **_pool_options(dsn, is_pooled))


def _pool_options(dsn: str, is_pooled: bool) -> dict[str, Any]:
    return {
        "kwargs": parameters(dsn, is_pooled=is_pooled),
        "min_size": 1,
        "max_size": POOL_MAX_SIZE_DEFAULT,
        "timeout": POOL_TIMEOUT_SECONDS,
        "name": "postroad bus",
    }


def adapt(cursor: Cursor[Any] | AsyncCursor[Any]) -> None:
    """Register the adapters that the calls rely on with a cursor, not with its connection."""
    cursor.adapters.register_dumper(str, StrDumperUnknown)
    cursor.adapters.register_loader("jsonb", JsonbLoader)


def is_disconnecting(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Check an idle connection for a pending disconnect, without a round trip."""
    # An idle server sends nothing except when it ends the session.
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _check(connection: Connection[Any]) -> None:
    if is_disconnecting(connection):
        ConnectionPool.check_connection(connection)


async def _check_async(connection: AsyncConnection[Any]) -> None:
    if is_disconnecting(connection):
        await AsyncConnectionPool.check_connection(connection)
