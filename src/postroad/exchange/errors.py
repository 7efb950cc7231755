"""Errors of the exchange: one class per SQLSTATE of schema exchange, and those of the files.

```
ExchangeError
├── TakenOver          MX001   another server serves this journal
├── RootForeign        MX002   the folder belongs to another journal
├── ClientExists       MX010   ├── ClientNotFound     MX011
├── DatabaseByCase     MX020   ├── DatabaseNotFound   MX021
├── AttemptReused      MX030   ├── ReplyNotUploaded   MX040
├── NotRestored        MX050   ├── RouteQueueMissing  MX060
├── RootLocked         exchange_root_locked
├── ContentInvalid     exchange_content_invalid
├── MessageConflict    exchange_message_conflict
├── IdByCase           exchange_id_by_case
├── MessageNotFound    exchange_message_not_found
├── ProcessNotFound    exchange_process_not_found
├── ProcessContradiction exchange_process_contradiction
├── OutcomeNeeded      exchange_outcome_needed
├── FileNotInProcess   exchange_file_not_in_process
├── FileMissing        exchange_file_missing
├── NotAllowed         exchange_not_allowed
├── FileUnsafe         exchange_file_unsafe
├── FileCorrupt        exchange_file_corrupt
├── StorageFull        exchange_storage_full    retryable
└── StorageFailed      exchange_storage_failed  retryable
```
"""

from __future__ import annotations

import errno
from typing import ClassVar

import psycopg

from postroad.errors import PostroadError
from postroad.postgres.errors import raised_by

__all__ = [
    "AttemptReused",
    "ClientExists",
    "ClientNotFound",
    "ContentInvalid",
    "DatabaseByCase",
    "DatabaseNotFound",
    "ExchangeError",
    "FileCorrupt",
    "FileMissing",
    "FileNotInProcess",
    "FileUnsafe",
    "IdByCase",
    "MessageConflict",
    "MessageNotFound",
    "NotAllowed",
    "NotRestored",
    "OutcomeNeeded",
    "ProcessContradiction",
    "ProcessNotFound",
    "ReplyNotUploaded",
    "RootForeign",
    "RootLocked",
    "RouteQueueMissing",
    "StorageFailed",
    "StorageFull",
    "TakenOver",
    "storage_failure",
    "translate",
    "was_refused",
]


class ExchangeError(PostroadError, code="exchange"):
    """Something that the exchange refuses, cannot find or cannot do."""


class TakenOver(ExchangeError, code="MX001", kind="unavailable"):
    """Another server has taken over; this one must not go on."""


class RootForeign(ExchangeError, code="MX002", kind="refused"):
    """The root folder belongs to another journal, or the journal to another folder."""


class ClientExists(ExchangeError, code="MX010", kind="refused"):
    """There is a client of this name already."""


class ClientNotFound(ExchangeError, code="MX011", kind="not_found"):
    """No client has this name."""


class DatabaseByCase(ExchangeError, code="MX020", kind="usage"):
    """The name of another database differs only by case."""


class DatabaseNotFound(ExchangeError, code="MX021", kind="not_found"):
    """No database has this name."""


class AttemptReused(ExchangeError, code="MX030", kind="refused"):
    """The attempt began a process for another database or recipient."""


class ReplyNotUploaded(ExchangeError, code="MX040", kind="refused"):
    """A reply that was to be uploaded before is not there with this digest."""


class NotRestored(ExchangeError, code="MX050", kind="refused"):
    """The database was not seen to be restored, so there is nothing to replay."""


class RouteQueueMissing(ExchangeError, code="MX060", kind="not_found"):
    """The route names a queue that does not exist."""


class RootLocked(ExchangeError, kind="refused"):
    """Another server uses the root folder or the journal."""


class ContentInvalid(ExchangeError, kind="usage"):
    """The content cannot be stored: not base64, not finite, or not text that can be written."""


class MessageConflict(ExchangeError, kind="refused"):
    """The sender has used this id for other content."""


class IdByCase(ExchangeError, kind="usage"):
    """An id of this sender differs only by case."""


class MessageNotFound(ExchangeError, kind="not_found"):
    """There is no such message for this caller."""


class ProcessNotFound(ExchangeError, kind="not_found"):
    """There is no such process."""


class ProcessContradiction(ExchangeError, kind="refused"):
    """The call contradicts what was decided; nothing was changed."""


class OutcomeNeeded(ExchangeError, kind="usage"):
    """A process that is ready to commit or in doubt is released with an outcome only."""


class FileNotInProcess(ExchangeError, kind="usage"):
    """A file that is named is not one of the process."""


class FileMissing(ExchangeError):
    """A file is neither where it was nor where it belongs."""


class NotAllowed(ExchangeError, kind="refused"):
    """The caller is known and may not do this."""

    status: ClassVar[int] = 403


class FileUnsafe(ExchangeError, kind="unavailable"):
    """Something else than a plain file or folder lies where one is expected."""


class FileCorrupt(ExchangeError, kind="error"):
    """A file is not what was taken in."""


class StorageFull(ExchangeError, kind="unavailable", retryable=True):
    """There is no room on the disk; nothing was changed."""

    status: ClassVar[int] = 507


class StorageFailed(ExchangeError, kind="unavailable", retryable=True):
    """The folders cannot be written or read; nothing was acknowledged."""


_FULL = {errno.ENOSPC, errno.EDQUOT}


def translate(error: psycopg.Error) -> ExchangeError | None:
    """Return the component's error for one that schema exchange raised, else None."""
    return raised_by(ExchangeError, error)


def was_refused(failure: BaseException) -> bool:
    """Return whether a failed call of the journal certainly committed nothing.

    TakenOver may answer the repetition of a call whose first COMMIT succeeded without an answer.
    """
    return isinstance(failure, ExchangeError) and not isinstance(failure, TakenOver)


def storage_failure(failure: OSError, what: str) -> ExchangeError:
    """Say what the disk refused."""
    reason = failure.strerror or str(failure)
    kind = StorageFull if failure.errno in _FULL else StorageFailed
    return kind(
        f"{what}: {reason}",
        hint="send the same request again when the disk is well; repeating it is harmless",
    )
