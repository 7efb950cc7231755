"""What an operator may do, at the Coordinator's database unless it says otherwise."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from postroad import trace
from postroad.coordination import calls
from postroad.coordination.calls import translated
from postroad.coordination.polling import notify
from postroad.coordination.snapshot import take_snapshot

__all__ = ["cancel", "purge", "remove_reader", "retry", "set_voter", "skip", "take_snapshot"]

CANCEL = "select coordination.cancel(%s, %s)" + trace.FOLLOWED
RETRY = "select coordination.retry(%s, %s)" + trace.FOLLOWED
SKIP = "select coordination.skip(%s, %s)" + trace.FOLLOWED


async def cancel(
    connection: AsyncConnection[Any], event_id: int, reason: str = "cancelled by an operator"
) -> None:
    """Cancel an event that is not committed anywhere: readers drop it, the Writer restores.

    In the caller's transaction. Raises EventNotFound, EventCommitted.
    """
    with translated():
        await connection.execute(CANCEL, (event_id, reason, trace.line()))
    await _wake(connection)


async def retry(connection: AsyncConnection[Any], event_id: int, reader: str | None = None) -> None:
    """Try a parked event again, or a rollback that the Writer refused. Raises EventNotFound."""
    with translated():
        await connection.execute(RETRY, (event_id, reader, trace.line()))
    await _wake(connection)


async def skip(connection: AsyncConnection[Any], event_id: int, reader: str) -> None:
    """Drop a parked event at one reader, for good. Raises EventNotFound if it is not parked."""
    with translated():
        await connection.execute(SKIP, (event_id, reader, trace.line()))
    await _wake(connection)


async def set_voter(connection: AsyncConnection[Any], reader: str, *, is_voter: bool) -> None:
    """Give a reader its say, or take it while it is away. Raises ReaderNotFound."""
    with translated():
        await connection.execute("select coordination.set_voter(%s, %s)", (reader, is_voter))
    await _wake(connection)


async def remove_reader(connection: AsyncConnection[Any], reader: str) -> None:
    """Forget a reader; nothing waits for it any more. Raises ReaderNotFound."""
    with translated():
        await connection.execute("select coordination.remove_reader(%s)", (reader,))
    await _wake(connection)


async def purge(connection: AsyncConnection[Any], keep: object, limit: int = 10_000) -> int:
    """Remove finished events older than `keep` from this database; return how many."""
    return int(await calls.fetch_value(connection, calls.PURGE, keep, limit) or 0)


async def _wake(connection: AsyncConnection[Any]) -> None:
    if connection.autocommit:
        await notify(connection, calls.DECISIONS)
