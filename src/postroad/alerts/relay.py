"""Carries reports from other databases of the house to the one whose sender tells people.

```
report there ──raised or cleared here, committed──> removed there
```

A relay that dies in between carries the report again: it counts up, or clears what is clear. Each
database is carried from on its own, so that one that is away holds up its own reports only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection

from postroad.alerts import calls
from postroad.bus.reconnect import Backoff
from postroad.postgres.connections import connect_async
from postroad.postgres.errors import DatabaseUnavailable
from postroad.service import Service

logger = logging.getLogger(__name__)

INTERVAL_DEFAULT = timedelta(seconds=1)
BATCH = 500


class AlertRelay(Service):
    """Moves what is reported in `sources` to `target`, in order; any number may run."""

    def __init__(
        self, sources: Sequence[str], target: str, *, interval: timedelta = INTERVAL_DEFAULT
    ) -> None:
        super().__init__("alert relay")
        # A database that is the target itself has its sender.
        self._sources = [source for source in dict.fromkeys(sources) if source != target]
        self._target = target
        self._interval_seconds = interval.total_seconds()

    async def run(self) -> None:
        """Carry until stopped, whatever happens to the databases."""
        self.announce_ready()
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(self._carry_from(source))
            await self.stopping.wait()

    async def _carry_from(self, dsn: str) -> None:
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                async with AsyncExitStack() as stack:
                    source = await self._open(stack, dsn)
                    target = await self._open(stack, self._target)
                    while not self.stopping.is_set():
                        carried = await self._carry(source, target)
                        backoff.reset()
                        self.signals.emit("carried", carried)
                        if carried < BATCH:
                            await self.pause(self._interval_seconds)
            except (psycopg.Error, DatabaseUnavailable, OSError) as failure:
                logger.warning("alert_relay_interrupted", extra={"reason": str(failure).strip()})
                await self.pause(backoff.next_seconds())

    async def _open(self, stack: AsyncExitStack, dsn: str) -> AsyncConnection[Any]:
        connection = await connect_async(
            dsn, application_name=f"postroad {self.name}", autocommit=True
        )
        stack.push_async_callback(connection.close)
        return connection

    async def _carry(self, source: AsyncConnection[Any], target: AsyncConnection[Any]) -> int:
        async with source.transaction():
            cursor = await source.execute(calls.TRY_LOCK_REPORTS)
            row = await cursor.fetchone()
            if not (row and row[0]):
                return 0
            cursor = await source.execute(calls.REPORTS, (BATCH,))
            reports = await cursor.fetchall()
            if not reports:
                return 0
            async with target.transaction():
                for _, is_raise, key, *told in reports:
                    await target.execute(
                        calls.RAISE if is_raise else calls.CLEAR,
                        (key, *told) if is_raise else (key,),
                    )
            await source.execute(calls.FORGET_REPORTS, ([report[0] for report in reports],))
        return len(reports)
