"""Housekeeping of one database: finished events are removed when they are old enough."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

from postroad.bus import calls as bus_calls
from postroad.bus.session import run_async
from postroad.coordination import calls
from postroad.coordination.steady import SteadyService

__all__ = ["Upkeep"]

PURGE_EVENTS = 5_000
PAUSE_DEFAULT = timedelta(seconds=1)


class Upkeep(SteadyService):
    """Purges old events in small transactions, and maintains the queues of the bus."""

    def __init__(self, dsn: str, *, keep: timedelta, pause: timedelta = PAUSE_DEFAULT) -> None:
        super().__init__("coordination upkeep", dsn, pause=pause)
        self._keep = keep

    async def work(self, connection: AsyncConnection[Any]) -> bool:
        """Purge once; return whether there may be more."""
        await run_async(connection, bus_calls.maintain(None))
        cursor = await connection.execute(calls.PURGE, (self._keep, PURGE_EVENTS))
        row = await cursor.fetchone()
        count = int(row[0]) if row else 0
        if count:
            self.signals.emit("purged", count)
        return count >= PURGE_EVENTS
