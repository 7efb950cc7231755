"""The Writer's service: publishes captured events, and handles their outcomes.

```
transaction commits ──publish()──> position, message ──…──> decision or acknowledgement
   AppEvent Created                 Saving                   Committed, or restored and Canceled
```

Two Writers may run on one database: the publisher's lock lets one publish at a time, and is
released with the session that held it. After a crash the next Writer continues from the rows.
"""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta

import psycopg

from postroad.coordination import calls
from postroad.coordination.inbox import Inbox
from postroad.coordination.service import KEEP_DEFAULT, PollingService, Upkeep
from postroad.postgres.calls import Connection, call

POLL_INTERVAL_DEFAULT = timedelta(milliseconds=10)
# A fallback: a transaction that commits while the publisher begins to wait sends no notice.
NOTICE_FACTOR = 10
# The publisher pauses longer after more events, so that more of them share a message.
BUSY_FACTOR = 2
MAX_BUSY_SECONDS = 0.05
RESEND_DEFAULT = timedelta(seconds=30)


class Writer(PollingService):
    """Serves the Writer's database: publisher, inbox and upkeep.

    A transaction that writes sends a notice only if the publisher waits for one, because a NOTIFY
    in each transaction would serialise their commits.
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
        inbox = Inbox("writer", dsn, calls.DECISIONS, "coordination.finish({})", listen=listen)
        super().__init__(
            "coordination writer",
            dsn,
            inbox,
            Upkeep(dsn, keep),
            notice=(dsn, calls.CHANNEL, calls.CAPTURED),
            pause=poll_interval,
            listen=listen,
        )
        self._resend = resend
        self._idle_seconds = poll_interval.total_seconds() * (NOTICE_FACTOR if listen else 1)

    async def work(self, connection: Connection) -> bool:
        """Give captured events positions and post them."""
        began = time.perf_counter()
        count = await call(connection, "coordination.publish", self._resend)
        if count:
            # Sent after the commit of the events. Readers that miss the notice poll.
            with contextlib.suppress(psycopg.DatabaseError):
                await call(connection, "pg_notify", calls.CHANNEL, calls.PUBLISHED)
        busy_seconds = BUSY_FACTOR * count * (time.perf_counter() - began)
        self._pause_seconds = min(busy_seconds, MAX_BUSY_SECONDS) if count else self._idle_seconds
        return False
