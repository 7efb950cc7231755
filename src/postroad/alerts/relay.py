"""Carries reports from other databases to the one whose sender delivers them.

```
report there ──raised or cleared here, committed──> removed there
```

A relay that dies in between carries the report again, which is idempotent: it counts up, or clears
a cleared alert. Each database has a task of its own, so that one that is down delays only its own
reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

from postroad.alerts import calls
from postroad.alerts.connected_service import ConnectedService

INTERVAL_DEFAULT = timedelta(seconds=1)
BATCH = 500


class AlertRelay(ConnectedService):
    """Moves the reports in `sources` to `target`, in order; any number may run."""

    def __init__(
        self, sources: Sequence[str], target: str, *, interval: timedelta = INTERVAL_DEFAULT
    ) -> None:
        super().__init__("alert relay")
        # A database that is the target itself has its sender.
        self._sources = [source for source in dict.fromkeys(sources) if source != target]
        self._target = target
        self._interval = interval

    async def run(self) -> None:
        """Carry reports until stopped."""
        self.announce_ready()
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(
                    self.repeat(
                        self._carry,
                        source,
                        self._target,
                        interval=self._interval,
                        event="alert_relay_interrupted",
                    )
                )
            await self.stopping.wait()

    async def _carry(self, source: AsyncConnection[Any], target: AsyncConnection[Any]) -> bool:
        carried = await self._carry_batch(source, target)
        self.signals.emit("carried", carried)
        return carried == BATCH

    async def _carry_batch(self, source: AsyncConnection[Any], target: AsyncConnection[Any]) -> int:
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
                for _, is_raise, key, *report in reports:
                    await target.execute(
                        calls.RAISE if is_raise else calls.CLEAR,
                        (key, *report) if is_raise else (key,),
                    )
            await source.execute(calls.FORGET_REPORTS, ([row[0] for row in reports],))
        return len(reports)
