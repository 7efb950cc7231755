"""Read your writes: waiting until the Reader has finished an event."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from psycopg_pool import AsyncConnectionPool

from postroad.coordination.errors import EventNotFound, ReaderBehind

__all__ = ["wait_for_event"]

FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.1

_FINISHED = (
    'select exists (select from coordination."AppEvent" e where e."Id" = %s)'
    " or coordination._finished_to() >= %s"
)
_POSITION = 'select e."Position" from coordination."AppEvent" e where e."Id" = %s'


async def wait_for_event(
    event_id: int,
    writer: AsyncConnectionPool[Any],
    reader: AsyncConnectionPool[Any],
    timeout: timedelta,
) -> None:
    """Return once the Reader has applied or dropped the event.

    Raises EventNotFound when the Writer never wrote it, ReaderBehind when it takes too long.
    """
    position: int | None = None
    pause = FIRST_PAUSE_SECONDS
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            while True:
                async with reader.connection() as connection:
                    cursor = await connection.execute(_FINISHED, (event_id, position))
                    row = await cursor.fetchone()
                if row and row[0]:
                    return
                if position is None:
                    position = await _position(event_id, writer)
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
    except TimeoutError as late:
        raise ReaderBehind(
            f"the reader did not have event {event_id} within {timeout.total_seconds():g} s",
            hint="ask again, or without ?after for what it has",
            event=event_id,
        ) from late


async def _position(event_id: int, writer: AsyncConnectionPool[Any]) -> int | None:
    async with writer.connection() as connection:
        cursor = await connection.execute(_POSITION, (event_id,))
        row = await cursor.fetchone()
    if row is None:
        raise EventNotFound(
            f"the Writer has no event {event_id}",
            hint="give the event_id that a command answered with",
            event=event_id,
        )
    position: int | None = row[0]
    return position
