"""Running calls on connections, in both colours.

Each call has a cursor with the adapters that the calls rely on. The caller's connection keeps its
own adapters, row factory and cursor factory.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.json import JsonbLoader
from psycopg.types.string import StrDumperUnknown
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from postroad.blocking import entered
from postroad.bus.call import Call
from postroad.bus.decoding import NOT_DECODED, Undecodable, read_rows
from postroad.bus.errors import translate
from postroad.postgres import calls
from postroad.postgres.calls import AnyConnection
from postroad.postgres.connections import parameters

T = TypeVar("T")
P = TypeVar("P")

POOL_MAX_SIZE_DEFAULT = 10
POOL_TIMEOUT_SECONDS = 10.0


def open_cursor(connection: AnyConnection) -> Any:
    """Open a cursor for the calls, with methods that are awaited on either connection."""
    cursor = calls.open_cursor(connection, tuple_row)
    # The adapters are registered with the cursor, not with its connection.
    cursor.adapters.register_dumper(str, StrDumperUnknown)
    cursor.adapters.register_loader("jsonb", JsonbLoader)
    return cursor


async def run_async(connection: AnyConnection, call: Call[T]) -> T:
    """Run a call in the connection's current transaction; raise the bus's errors."""
    if (
        call.is_atomic
        and connection.autocommit
        and connection.pgconn.transaction_status == TransactionStatus.IDLE
    ):
        # The call would be committed before its result is read.
        async with entered(connection.transaction()):
            return await run_async(connection, call)
    if call.parts:
        async with entered(connection.transaction()):
            return call.read([await run_async(connection, part) for part in call.parts])
    cursor = open_cursor(connection)
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


async def fetch_async(cursor: Any) -> list[Any]:
    """Read a result. Raises Undecodable if some of its rows cannot be read."""
    try:
        return list(await cursor.fetchall())
    except NOT_DECODED:
        return read_rows(cursor)


def make_pool(kind: Callable[..., P], dsn: str, *, is_pooled: bool = False) -> P:
    """Create a pool whose connections run each call in its own transaction; the caller opens it."""
    return kind(
        dsn,
        check=_check if kind is ConnectionPool else _check_async,
        # Each call is one statement, so autocommit makes it one transaction and one round trip.
        kwargs=parameters(
            dsn, application_name="postroad bus", is_pooled=is_pooled, autocommit=True
        ),
        min_size=1,
        max_size=POOL_MAX_SIZE_DEFAULT,
        timeout=POOL_TIMEOUT_SECONDS,
        name="postroad bus",
        open=False,
    )


def is_disconnecting(connection: AnyConnection) -> bool:
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
