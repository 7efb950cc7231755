"""The Writer's service: publishes captured events, and handles their outcomes.

```
transaction commits ──publish()──> position, message ──…──> decision or acknowledgement
   AppEvent Created                 Saving                   Committed, or restored and Canceled
```

Two Writers may run on one database: the publisher's lock lets one publish at a time, and is
released with the session that held it. After a crash the next Writer continues from the rows.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

from postroad.coordination import calls
from postroad.coordination.inbox import Inbox
from postroad.coordination.polling import KEEP_DEFAULT, PollingService, Upkeep, notify

POLL_INTERVAL_DEFAULT = timedelta(milliseconds=10)
BUSY_FACTOR = 3
RESEND_DEFAULT = timedelta(seconds=30)


class Writer(PollingService):
    """Runs beside the Writer's database: publisher, inbox and upkeep.

    The publisher polls. A NOTIFY in the transactions that write would serialise their commits.
    """

    def __init__(
        self,
        dsn: str,
        *,
        poll_interval: timedelta = POLL_INTERVAL_DEFAULT,
        resend: timedelta = RESEND_DEFAULT,
        keep: timedelta = KEEP_DEFAULT,
        listen: bool = True,
    ) -> None:
        inbox = Inbox(
            "coordination writer inbox",
            dsn,
            queue=calls.DECISIONS,
            consumer="writer",
            call="coordination.finish({})",
            posts_to=(calls.EVENTS,),
            listen=listen,
        )
        super().__init__("coordination writer", dsn, inbox, Upkeep(dsn, keep), pause=poll_interval)
        self._resend = resend
        self._poll_seconds = poll_interval.total_seconds()

    async def work(self, connection: AsyncConnection[Any]) -> bool:
        """Give captured events positions and post them."""
        count = await calls.fetch_value(connection, calls.PUBLISH, self._resend)
        if count:
            await notify(connection, calls.EVENTS)
            self.signals.emit("published", count)
        # A longer interval under load: more events share a message, which costs the same.
        self._pause_seconds = self._poll_seconds * (BUSY_FACTOR if count else 1)
        return False
