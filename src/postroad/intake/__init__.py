"""The intake: files from SFTP servers into a store, each version once, each with one notice.

**What it promises.** Each version of a remote file, known by path, size and mtime, is imported
once: whole in the store under a key of its own, its sha256 recorded, and told exactly once on the
bus queue `file_events` in the transaction of its final status. A transfer that is killed goes on
from its last stored part. A file that is still being written is left alone until it is whole by the
server's rules. A server or store that is away keeps its files waiting and costs them no try; others
go on.

**States of a file.**

```
discovered ──> downloading ──────────────────────────> uploaded_to_minio ──> notifying ──> completed
   ▲  ▲            │  └─> downloaded ─> uploading_to_minio ─┘
   │  └── lease ended, source or store away, failed try
   │               └──> failed (after the last try) · vanished · superseded
   └── retry by hand · seen again                          skipped (by hand)
```

**What happens when it dies half-way.** A worker holds its files by a lease with a heartbeat;
killed, it leaves leases that end within seconds, parts that stay stored, and a row that says where
to go on. Every step asks for the token of its lease, so a worker that was only slow can do no harm.
A discoverer leaves what it wrote; two at once write each version once. PostgreSQL away: steps wait
for it, and nothing is told before it is durable. The store away: transfers stop, and one probe at a
time finds out when it is back. RabbitMQ away: notices wait in the outbox.

**Pieces.** `discovery`, `transfer`, `temporary`, `notice`, `cleanup` and `work` are the steps,
plain coroutines over an `Engine`; `tasks` are Celery tasks over them, `api` is the
web API, `stores` are the stores, `sql/` is the journal. Console and command line use `status` and
`operations`.
"""

from __future__ import annotations

from postroad.intake.credentials import Credentials
from postroad.intake.engine import Engine, open_engine
from postroad.intake.errors import (
    CredentialsInvalid,
    FileChanged,
    FileForbidden,
    FileNotFound,
    FileUnreadable,
    FileVanished,
    HostKeyChanged,
    HostKeyUnknown,
    IntakeError,
    KeyRefused,
    LeaseLost,
    LoginRefused,
    MoveFolderInvalid,
    ObjectDiffers,
    RemoteFileError,
    ServerExists,
    ServerNotFound,
    SourceError,
    SourceForbidden,
    SourceUnreachable,
    StepUnknown,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TemporaryFolderFull,
    UploadLost,
)

__all__ = [
    "Credentials",
    "CredentialsInvalid",
    "Engine",
    "FileChanged",
    "FileForbidden",
    "FileNotFound",
    "FileUnreadable",
    "FileVanished",
    "HostKeyChanged",
    "HostKeyUnknown",
    "IntakeError",
    "KeyRefused",
    "LeaseLost",
    "LoginRefused",
    "MoveFolderInvalid",
    "ObjectDiffers",
    "RemoteFileError",
    "ServerExists",
    "ServerNotFound",
    "SourceError",
    "SourceForbidden",
    "SourceUnreachable",
    "StepUnknown",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "TemporaryFolderFull",
    "UploadLost",
    "open_engine",
]
