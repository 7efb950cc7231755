"""The Coordinator's service: records events and readers, collects votes, decides once.

```
event received ──> Activated ──every reader has finished──────────────> Committed   (replicate)
                       │
                       ├──all voters vote yes──> decision commit ──> … ──> Committed (two-phase)
                       └──a no, or the deadline──> decision cancel ──> … ──> Canceled
```

The decision is one row, written in the transaction that posts it. Without the row the event is not
committed.
"""

from __future__ import annotations

from datetime import timedelta

from postroad.coordination import calls
from postroad.coordination.inbox import Inbox
from postroad.coordination.service import KEEP_DEFAULT, PollingService, Upkeep
from postroad.postgres.calls import Connection, call

DEADLINE_DEFAULT = timedelta(seconds=30)
ASK_DEFAULT = timedelta(seconds=10)
ALARM_DELAY = timedelta(minutes=5)
WATCH_INTERVAL_DEFAULT = timedelta(seconds=1)


class Coordinator(PollingService):
    """Serves the Coordinator's database: inboxes, upkeep, and checks of deadlines and readers."""

    def __init__(
        self,
        dsn: str,
        *,
        deadline: timedelta = DEADLINE_DEFAULT,
        ask: timedelta = ASK_DEFAULT,
        watch_interval: timedelta = WATCH_INTERVAL_DEFAULT,
        keep: timedelta = KEEP_DEFAULT,
        listen: bool = True,
    ) -> None:
        inboxes = [
            Inbox(
                "coordinator", dsn, queue, "coordination.receive({}, %s)", deadline, listen=listen
            )
            for queue in (calls.EVENTS, calls.VOTES)
        ]
        super().__init__(
            "coordination coordinator", dsn, *inboxes, Upkeep(dsn, keep), pause=watch_interval
        )
        self._limits = (ask, ALARM_DELAY)

    async def work(self, connection: Connection) -> bool:
        """Check deadlines and readers once."""
        await call(connection, "coordination.watch", *self._limits)
        return False
