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

from postroad.postgres.calls import Connection, call, value
from postroad.postgres.connected_service import ConnectedService

INTERVAL_DEFAULT = timedelta(seconds=1)
BATCH = 500
# The lock of folding: reports are removed by one process at a time, or a clear could overtake its
# raise.
TRY_LOCK_REPORTS = "select pg_try_advisory_xact_lock(hashtextextended('alerts.fold', 0))"
# A relay belongs to the owner of the schema.
REPORTS = (
    "select id, is_raise, key, room, severity, title, body from alerts.report order by id limit %s"
)


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
                ends, event = (source, self._target), "alert_relay_interrupted"
                group.create_task(self.repeat(self._carry, *ends, event=event))
            await self.stopping.wait()

    async def _carry(self, source: Connection, target: Connection) -> None:
        reports = []
        async with source.transaction():
            if await value(source, TRY_LOCK_REPORTS):
                reports = await (await source.execute(REPORTS, (BATCH,))).fetchall()
            if reports:
                async with target.transaction():
                    for _, is_raise, key, *report in reports:
                        if is_raise:
                            await call(target, "alerts.raise", key, *report)
                        else:
                            await call(target, "alerts.clear", key)
                forgotten = [row[0] for row in reports]
                await source.execute("delete from alerts.report where id = any (%s)", (forgotten,))
        self.signals.emit("carried", len(reports))
        if len(reports) < BATCH:
            await self.pause(self._interval.total_seconds())
