"""The Coordinator's service: knows events and readers, collects votes, decides once.

```
event heard ──> Activated ──every reader has finished──────────────> Committed      (replicate)
                    │
                    ├──all voters said yes──> decision commit ──> … ──> Committed    (two-phase)
                    └──a no, or the deadline──> decision cancel ──> … ──> Canceled
```

The decision is one row, written in the transaction that posts it. No row means: not committed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

from postroad.coordination import calls
from postroad.coordination.inbox import Inbox
from postroad.coordination.steady import SteadyService, notify, run_together
from postroad.coordination.upkeep import Upkeep
from postroad.coordination.writer_service import KEEP_DEFAULT
from postroad.service import Service

__all__ = ["Coordinator", "Watch"]

DEADLINE_DEFAULT = timedelta(seconds=30)
ASK_DEFAULT = timedelta(seconds=10)
ALARM_DEFAULT = timedelta(minutes=5)
WATCH_INTERVAL_DEFAULT = timedelta(seconds=1)


class Watch(SteadyService):
    """Cancels what has passed its deadline and asks readers that are silent."""

    def __init__(self, dsn: str, *, ask: timedelta, alarm: timedelta, interval: timedelta) -> None:
        super().__init__("coordination watch", dsn, pause=interval)
        self._ask = ask
        self._alarm = alarm

    async def work(self, connection: AsyncConnection[Any]) -> bool:
        """Look once."""
        await connection.execute(calls.WATCH, (self._ask, self._alarm))
        await notify(connection, calls.DECISIONS)
        return False


class Coordinator(Service):
    """Everything that runs beside the Coordinator's database."""

    def __init__(
        self,
        dsn: str,
        *,
        deadline: timedelta = DEADLINE_DEFAULT,
        ask: timedelta = ASK_DEFAULT,
        alarm: timedelta = ALARM_DEFAULT,
        watch_interval: timedelta = WATCH_INTERVAL_DEFAULT,
        keep: timedelta = KEEP_DEFAULT,
        listen: bool = True,
    ) -> None:
        super().__init__("coordination coordinator")
        self.inboxes = [
            Inbox(
                f"coordination {queue} inbox",
                dsn,
                queue=queue,
                consumer="coordinator",
                call="coordination.receive({}, %s)",
                parameters=(deadline,),
                posts_to=(calls.DECISIONS,),
                listen=listen,
            )
            for queue in (calls.EVENTS, calls.VOTES)
        ]
        self.watch = Watch(dsn, ask=ask, alarm=alarm, interval=watch_interval)
        self.upkeep = Upkeep(dsn, keep=keep)

    async def run(self) -> None:
        """Receive, watch and tidy up until stopped."""
        await run_together(self, (*self.inboxes, self.watch, self.upkeep))
