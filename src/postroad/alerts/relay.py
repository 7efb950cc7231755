"""Carries reports from other databases to the one whose sender delivers them.

```
report there ──raised or cleared here, committed──> removed there
```

After a crash between the two the report is carried again, which is idempotent: it increments the
count, or clears a cleared alert. Each database has a separate task, so that an unavailable one
delays only its own reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from postroad.postgres.calls import Connection, call, value
from postroad.postgres.connected_service import ConnectedService

INTERVAL_DEFAULT = timedelta(seconds=1)
BATCH = 500
TRY_LOCK_REPORTS = "select pg_try_advisory_xact_lock(hashtextextended('alerts.fold', 0))"
# A relay runs as the owner of the schema.
REPORTS = (
    "select id, is_raise, key, room, severity, title, body from alerts.report order by id limit %s"
)


class AlertRelay(ConnectedService):
    """Moves the reports in `sources` to `target`, in order; any number may run."""

    def __init__(
        self, sources: Sequence[str], target: str, *, interval: timedelta = INTERVAL_DEFAULT
    ) -> None:
        super().__init__("alert relay")
        # The target database has its own sender.
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
