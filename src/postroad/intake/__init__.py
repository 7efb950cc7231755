"""The intake: files from SFTP servers into a store, each version once, each with one notice.

**What it guarantees.** Each version of a remote file, identified by path, size and mtime, is
imported once: the complete object is in the store under its own key, its sha256 is recorded,
and one notice is posted to the bus queue `file_events` in the transaction of its final status. A
killed transfer resumes after its last stored part. A file that is still being written is not
imported before it is complete by the rules of its server. While a server or store is down its files
wait without losing an attempt; others are not affected.

**States of a file.**

```
discovered ──> downloading ──────────────────────────> uploaded_to_minio ──> notifying ──> completed
   ▲  ▲            │  └─> downloaded ─> uploading_to_minio ─┘
   │  └── lease expired, source or store down, failed attempt
   │               └──> failed (after the last attempt) · vanished · superseded
   └── retried by an operator · seen again               skipped (by an operator)
```

**What happens when a process dies.** A worker holds its files by a lease with a heartbeat. When it
is killed, its leases expire within seconds; the stored parts and the row from which to continue
stay. Every step checks the token of its lease, so a slow worker does no harm. Versions recorded by
a discoverer stay, and concurrent discoverers record each version once. While PostgreSQL is down
steps wait for it, and no notice is posted before it is durable. While the store is down transfers
stop, and one transfer at a time is tried. While RabbitMQ is down notices stay in the outbox.

**Modules.** `discovery`, `transfer`, `notice`, `cleanup` and `work` are the steps, coroutines over
an `Engine`; `tasks` are the Celery tasks, `sql/` is the journal. Console and command line use
`status` and `operations`.
"""

from postroad.intake.credentials import Credentials
from postroad.intake.engine import Engine, open_engine
from postroad.intake.errors import *  # noqa: F403 - every error is public

__all__ = ["Credentials", "Engine", "open_engine"]
