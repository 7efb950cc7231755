"""The statements of the bridge, each written once. Arrays travel as the text of their literals.

Whoever carries a batch need not understand it: what `bridge.take` gives as text is handed to
`bridge.receive` as it is, and only the servers look inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import tuple_row

__all__ = ["Batch", "Delivery", "ParsedBatch", "committed", "receive", "take", "take_parsed"]

_TAKE_TEXT = (
    "select batch, messages, looped, iids::text, ids::text, data::text, headers::text,"
    " properties::text, expires::text, delayed::text from bridge.take(%s, %s, %s, %s)"
)
_TAKE_PARSED = (
    "select batch, messages, looped, iids, ids, data, headers, properties,"
    # Moments that Python cannot hold are as good as never.
    " array(select case when e < '9999-12-31' then e end from unnest(expires) e), delayed"
    " from bridge.take(%s, %s)"
)
_RECEIVE = (
    "select posted, dropped, refused, errors from bridge.receive(%s, %s, %s, %s::text[],"
    " %s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s)"
)
_BURY = (
    "select bridge.bury(%s, %s::integer[], %s::text[], %s::text[], %s::text[], %s::text[],"
    " %s::text[], %s::timestamptz[])"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one take gave; the arrays are literals."""

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
        """How much it is, roughly, in bytes."""
        return len(self.data or "") + len(self.headers or "") + len(self.properties or "")

    @property
    def is_empty(self) -> bool:
        """Whether nothing was taken at all."""
        return self.messages + self.looped == 0


@dataclass(frozen=True, slots=True)
class ParsedBatch(Batch):
    """The same with arrays as lists: of texts, and of moments or None."""

    iids: list[str]
    ids: list[str | None]
    data: list[str]
    headers: list[str]
    properties: list[str | None]
    expires: list[datetime | None]
    delayed: list[datetime | None]

    @property
    def size(self) -> int:
        """How much it is, roughly, in bytes."""
        return sum(map(len, self.data or ())) + sum(map(len, self.headers or ()))


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a batch at the other end; `refused` are places from 1, with their errors."""

    posted: int
    dropped: int = 0
    refused: tuple[int, ...] = ()
    errors: tuple[str, ...] = ()


async def _row(connection: AsyncConnection[Any], text: str, parameters: tuple[Any, ...]) -> Any:
    cursor = AsyncCursor(connection, row_factory=tuple_row)
    await cursor.execute(text.encode(), parameters)
    return await cursor.fetchone()


async def guard(connection: AsyncConnection[Any]) -> None:
    """Let the server notice soon when this session's process is gone, and free what it holds.

    A host that lost its power says no goodbye: without this its locks would stay for two hours.
    """
    await _row(
        connection,
        "select set_config('tcp_keepalives_idle', '20', false),"
        " set_config('tcp_keepalives_interval', '5', false),"
        " set_config('tcp_keepalives_count', '3', false),"
        " set_config('idle_in_transaction_session_timeout', '5min', false)",
        (),
    )
    if not connection.autocommit:
        await connection.commit()


async def take(
    connection: AsyncConnection[Any], outlet: str, amount: int, database: str, node: str
) -> Batch:
    """Take a batch in the connection's transaction."""
    return Batch(*await _row(connection, _TAKE_TEXT, (outlet, amount, database, node)))


async def take_parsed(connection: AsyncConnection[Any], outlet: str, amount: int) -> ParsedBatch:
    """Take a batch in the connection's transaction, to be looked at."""
    return ParsedBatch(*await _row(connection, _TAKE_PARSED, (outlet, amount)))


async def receive(
    connection: AsyncConnection[Any],
    inlet: str,
    source: str,
    batch: Batch,
    position: int | None = None,
) -> Delivery:
    """Post a batch, each message once, in the connection's transaction."""
    posted, dropped, refused, errors = await _row(
        connection,
        _RECEIVE,
        (
            inlet,
            source,
            batch.number,
            batch.ids,
            batch.data,
            batch.headers,
            batch.properties,
            batch.expires,
            batch.delayed,
            position,
        ),
    )
    return Delivery(posted, dropped, tuple(refused), tuple(errors))


async def bury(
    connection: AsyncConnection[Any], outlet: str, batch: Batch, delivery: Delivery
) -> None:
    """Write what was refused for ever into the dmq, in the transaction that took it."""
    await _row(
        connection,
        _BURY,
        (
            outlet,
            list(delivery.refused),
            list(delivery.errors),
            batch.iids,
            batch.data,
            batch.headers,
            batch.properties,
            batch.expires,
        ),
    )


async def hold(connection: AsyncConnection[Any], outlet: str, hand: int) -> bool:
    """Ask for the right to empty an outlet with this session."""
    return bool((await _row(connection, "select bridge.hold(%s, %s)", (outlet, hand)))[0])


async def hello(connection: AsyncConnection[Any]) -> tuple[str, str]:
    """Ask a database for its name and its node."""
    database, node = await _row(connection, "select database, node from bridge.hello()", ())
    return database, node


async def state(connection: AsyncConnection[Any], outlet: str) -> str:
    """Ask for the state of an outlet."""
    return str((await _row(connection, "select bridge.state(%s)", (outlet,)))[0])


async def left(connection: AsyncConnection[Any], outlet: str) -> int:
    """Tell what an outlet still has to send: ready, delayed, leased or waiting for another."""
    text = "select lag from bridge.status where name = %s and direction = 'out'"
    row = await _row(connection, text, (outlet,))
    return int(row[0] or 0) if row else 0


async def set_state(connection: AsyncConnection[Any], outlet: str, wanted: str) -> str:
    """Set the state of an outlet and return the one it had."""
    return str((await _row(connection, "select bridge.set_state(%s, %s)", (outlet, wanted)))[0])


async def note_problem(connection: AsyncConnection[Any], outlet: str, problem: str | None) -> None:
    """Note what keeps a bridge from working; None when it works."""
    await _row(connection, "select bridge.note_problem(%s, %s)", (outlet, problem))


async def open_batches(connection: AsyncConnection[Any], inlet: str, source: str) -> list[int]:
    """At the target: the batches whose fate at the source is not known there."""
    return list((await _row(connection, "select bridge.open_batches(%s, %s)", (inlet, source)))[0])


async def committed(connection: AsyncConnection[Any], outlet: str, batches: list[int]) -> list[int]:
    """At the source: which of these batches it has committed."""
    text = "select bridge.committed(%s, %s::bigint[])"
    return list((await _row(connection, text, (outlet, batches)))[0])


async def settle(
    connection: AsyncConnection[Any],
    inlet: str,
    source: str,
    done: list[int],
    lost: list[int],
    keep: Any,
) -> int:
    """At the target: merge what is settled, forget what is old. Returns the rows that are left."""
    text = "select bridge.settle(%s, %s, %s::bigint[], %s::bigint[], %s)"
    return int((await _row(connection, text, (inlet, source, done, lost, keep)))[0])


async def forget(connection: AsyncConnection[Any], outlet: str, settled: int) -> None:
    """At the source: forget batches of long ago."""
    await _row(connection, "select bridge.forget(%s, %s)", (outlet, settled))


async def refuse(
    connection: AsyncConnection[Any],
    inlet: str,
    source: str,
    message_id: str | None,
    error: str,
    headers: str,
    body: bytes,
) -> None:
    """Keep a message of a broker that cannot be posted."""
    text = "select bridge.refuse(%s, %s, %s, %s, %s, %s)"
    await _row(connection, text, (inlet, source, message_id, error, headers, body))


async def position(connection: AsyncConnection[Any], inlet: str, source: str) -> int | None:
    """Ask for the offset of a stream up to which everything has arrived."""
    found = (await _row(connection, "select bridge.position(%s, %s)", (inlet, source)))[0]
    return None if found is None else int(found)


async def note_waiting(
    connection: AsyncConnection[Any], inlet: str, source: str, waiting: int
) -> None:
    """Note how many messages wait at the broker."""
    await _row(connection, "select bridge.note_waiting(%s, %s, %s)", (inlet, source, waiting))
