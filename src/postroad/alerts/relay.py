"""Relays reports from other databases to the one whose sender delivers them.

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

from postroad.postgres.calls import Connection, call, select
from postroad.postgres.connected_service import ConnectedService

INTERVAL_DEFAULT = timedelta(seconds=1)
BATCH = 500
RAISED = "key", "room", "severity", "title", "body"


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
        """Relay reports until stopped."""
        self.announce_ready()
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                ends, event = (source, self._target), "alert_relay_interrupted"
                group.create_task(self.repeat(self._carry, *ends, event=event))
            await self.stopping.wait()

    async def _carry(self, source: Connection, target: Connection) -> None:
        async with source.transaction():
            # The relay runs as the owner of the schema.
            reports = await select(source, "alerts.take_reports", BATCH)
            if reports:
                async with target.transaction():
                    for report in reports:
                        if report["is_raise"]:
                            await call(target, "alerts.raise", *(report[name] for name in RAISED))
                        else:
                            await call(target, "alerts.clear", report["key"])
        self.signals.emit("carried", len(reports))
        if len(reports) < BATCH:
            await self.pause(self._interval.total_seconds())
