"""Calls of the functions of schema bridge, and the batches that they return and accept.

`take` returns the arrays of a batch as the text of their literals; `receive` accepts them in that
form. A bridge between two databases therefore never parses a message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import AsyncCursor
from psycopg.rows import tuple_row

from postroad.bridge.errors import translate
from postroad.postgres.calls import Connection, invocation, run
from postroad.postgres.connections import connect_async

_TAKE = (
    "select batch, messages, looped, iids::text, ids::text, data::text, headers::text,"
    " properties::text, expires::text, delayed::text from bridge.take(%s, %s, %s, %s)"
)
_TAKE_PARSED = (
    "select batch, messages, looped, iids, ids, data, headers, properties,"
    # The latest time that Python can represent; such a message never expires in practice.
    " array(select case when e < '9999-12-31' then e end from unnest(expires) e), delayed"
    " from bridge.take(%s, %s)"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one take. The arrays are literals, or lists of texts, times and None."""

    number: int | None
    messages: int
    looped: int
    iids: Any
    ids: Any
    data: Any
    headers: Any
    properties: Any
    expires: Any
    delayed: Any

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        arrays = (self.data or "", self.headers or "")
        return sum(len(each) if isinstance(each, str) else sum(map(len, each)) for each in arrays)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result at the target; `refused` are places in the batch from 1, with their errors."""

    posted: int
    dropped: int = 0
    refused: tuple[int, ...] = ()
    errors: tuple[str, ...] = ()


async def call(connection: Connection, function: str, *parameters: Any) -> Any:
    """Call a function of schema bridge; return its value, or a tuple of its columns."""
    text = f"select * from {invocation(f'bridge.{function}', len(parameters))}"  # noqa: S608 - own names
    (row,) = await run(AsyncCursor(connection, row_factory=tuple_row), text, *parameters)
    return row[0] if len(row) == 1 else row


@asynccontextmanager
async def transact(dsn: str) -> AsyncIterator[Connection]:
    """Connect for one transaction, committed at the end. Raises the bridge's and bus's errors."""
    connection = await connect_async(dsn, application_name="postroad bridge")
    try:
        async with connection:
            yield connection
    except psycopg.Error as error:
        raise (translate(error) or error) from error


async def take(connection: Connection, outlet: str, amount: int, *target: str) -> Batch:
    """Take a batch in the connection's transaction.

    `target` is the database and node of the target. Without it the batch is parsed: its arrays are
    lists.
    """
    text = _TAKE if target else _TAKE_PARSED
    cursor = AsyncCursor(connection, row_factory=tuple_row)
    (row,) = await run(cursor, text, outlet, amount, *target)
    return Batch(*row)


async def receive(
    connection: Connection, inlet: str, source: str, batch: Batch, position: int | None = None
) -> Delivery:
    """Post a batch, each message once, in the connection's transaction."""
    arrays = (batch.ids, batch.data, batch.headers, batch.properties, batch.expires, batch.delayed)
    posted, dropped, refused, errors = await call(
        connection, "receive", inlet, source, batch.number, *arrays, position
    )
    return Delivery(posted, dropped, tuple(refused), tuple(errors))
