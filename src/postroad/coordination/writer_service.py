"""The Writer's service: publishes what was captured, and hears what became of it.

```
transaction commits ──publish()──> position, message ──…──> decision or acknowledgement
   AppEvent Created                 Saving                   Committed, or restored and Canceled
```

Two Writers may run on one database: the publisher's lock lets one publish at a time, and frees
itself with the session that held it. Killed anywhere, the next one goes on from the rows.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

from postroad.coordination import calls
from postroad.coordination.inbox import Inbox
from postroad.coordination.steady import SteadyService, notify, run_together
from postroad.coordination.upkeep import Upkeep
from postroad.service import Service

__all__ = ["Publisher", "Writer"]

POLL_INTERVAL_DEFAULT = timedelta(milliseconds=10)
BUSY_FACTOR = 3
RESEND_DEFAULT = timedelta(seconds=30)
KEEP_DEFAULT = timedelta(days=7)


class Publisher(SteadyService):
    """Looks for captured events, gives them positions and posts them.

    It looks instead of being told: a NOTIFY in the transactions that write would make their commits
    wait for each other.
    """

    def __init__(
        self,
        dsn: str,
        *,
        poll_interval: timedelta = POLL_INTERVAL_DEFAULT,
        resend: timedelta = RESEND_DEFAULT,
    ) -> None:
        super().__init__("coordination publisher", dsn, pause=poll_interval)
        self._resend = resend
        self._poll_seconds = poll_interval.total_seconds()

    async def work(self, connection: AsyncConnection[Any]) -> bool:
        """Publish what is there."""
        cursor = await connection.execute(calls.PUBLISH, (self._resend,))
        row = await cursor.fetchone()
        count = int(row[0]) if row else 0
        if count:
            await notify(connection, calls.EVENTS)
            self.signals.emit("published", count)
        # While events keep coming, a few more share a message: what follows it costs the same.
        self._pause_seconds = self._poll_seconds * (BUSY_FACTOR if count else 1)
        return False


class Writer(Service):
    """Everything that runs beside the Writer's database."""

    def __init__(
        self,
        dsn: str,
        *,
        poll_interval: timedelta = POLL_INTERVAL_DEFAULT,
        resend: timedelta = RESEND_DEFAULT,
        keep: timedelta = KEEP_DEFAULT,
        listen: bool = True,
    ) -> None:
        super().__init__("coordination writer")
        self.publisher = Publisher(dsn, poll_interval=poll_interval, resend=resend)
        self.inbox = Inbox(
            "coordination writer inbox",
            dsn,
            queue=calls.DECISIONS,
            consumer="writer",
            call="coordination.finish({})",
            posts_to=(calls.EVENTS,),
            listen=listen,
        )
        self.upkeep = Upkeep(dsn, keep=keep)

    async def run(self) -> None:
        """Publish, listen and tidy up until stopped."""
        await run_together(self, (self.publisher, self.inbox, self.upkeep))
