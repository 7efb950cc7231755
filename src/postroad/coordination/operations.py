"""What an operator may do, at the Coordinator's database, in the caller's transaction."""

from __future__ import annotations

from typing import Annotated

from postroad.postgres.calls import Connection, call, change


async def cancel(
    connection: Connection,
    event_id: int,
    *,
    reason: Annotated[str, "Why."] = "cancelled by an operator",
) -> None:
    """Cancel an event that no reader has committed: readers drop it, the Writer restores.

    Raises EventNotFound, EventCommitted.

    Example: postroad coordination cancel 42 --reason "wrong prices"
    """
    await change(connection, "coordination.cancel", event_id, reason)


async def retry(
    connection: Connection,
    event_id: int,
    *,
    reader: Annotated[str | None, "Only at this reader."] = None,
) -> None:
    """Try a parked event again, or a rollback that the Writer refused. Raises EventNotFound.

    Example: postroad coordination retry 42 --reader lists
    """
    await change(connection, "coordination.retry", event_id, reader)


async def skip(
    connection: Connection,
    event_id: int,
    *,
    reader: Annotated[str, "The reader where it is parked."],
) -> None:
    """Drop a parked event at one reader, which then lacks what the event changed.

    Later changes of the same rows, or a snapshot, bring it up to date. Raises EventNotFound if it
    is not parked.

    Example: postroad coordination skip 42 --reader lists
    """
    await change(connection, "coordination.skip", event_id, reader)


async def set_voter(
    connection: Connection,
    reader: str,
    *,
    is_voter: Annotated[bool, "Whether events wait for its vote."],
) -> None:
    """Let a reader vote, or not while it is away for long. Raises ReaderNotFound.

    Example: postroad coordination voter lists --no-voter
    """
    await call(connection, "coordination.set_voter", reader, is_voter)
