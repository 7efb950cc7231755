"""Waiting until the Reader has finished an event, or the Coordinator has received one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from postroad.coordination.errors import CoordinationError, EventNotFound, ReaderBehind
from postroad.postgres.calls import value
from postroad.postgres.connections import Pool

FIRST_PAUSE_SECONDS = 0.005
MAX_PAUSE_SECONDS = 0.1

_FINISHED = (
    'select exists (select from coordination."AppEvent" e where e."Id" = %s)'
    " or coordination._finished_to() >= %s"
)
_POSITION = 'select array[e."Position"] from coordination."AppEvent" e where e."Id" = %s'


async def poll(
    check: Callable[[], Awaitable[bool]], timeout: timedelta, late: CoordinationError
) -> None:
    """Repeat a check until it is true; raise `late` when it takes too long."""
    pause = FIRST_PAUSE_SECONDS
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            while not await check():
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, MAX_PAUSE_SECONDS)
    except TimeoutError as elapsed:
        raise late from elapsed


async def wait_for_event(event_id: int, writer: Pool, reader: Pool, timeout: timedelta) -> None:
    """Return once the Reader has applied or dropped the event.

    Raises EventNotFound when the Writer has no such event, ReaderBehind when it takes too long.
    """
    position: int | None = None

    async def is_finished() -> bool:
        nonlocal position
        async with reader.connection() as connection:
            if await value(connection, _FINISHED, event_id, position):
                return True
        if position is None:
            async with writer.connection() as connection:
                found = await value(connection, _POSITION, event_id)
            if found is None:
                raise EventNotFound(
                    f"the Writer has no event {event_id}",
                    hint="use the event_id of a command's response",
                    event=event_id,
                )
            # None until the event is published.
            position = found[0]
        return False

    late = ReaderBehind(
        f"the reader did not have event {event_id} within {timeout.total_seconds():g} s",
        hint="retry, or leave out ?after to read the present state",
        event=event_id,
    )
    await poll(is_finished, timeout, late)
