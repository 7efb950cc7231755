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
]


class ExchangeError(PostroadError):
    """Something that the exchange refuses, cannot find or cannot do."""

    code = "exchange"


class TakenOver(ExchangeError):
    """Another server has taken over; this one must not go on."""

    code = "MX001"
    kind = "unavailable"


class RootForeign(ExchangeError):
    """The root folder belongs to another journal, or the journal to another folder."""

    code = "MX002"
    kind = "refused"


class ClientExists(ExchangeError):
    """There is a client of this name already."""

    code = "MX010"
    kind = "refused"


class ClientNotFound(ExchangeError):
    """No client has this name."""

    code = "MX011"
    kind = "not_found"


class DatabaseByCase(ExchangeError):
    """The name of another database differs only by case."""

    code = "MX020"
    kind = "usage"


class DatabaseNotFound(ExchangeError):
    """No database has this name."""

    code = "MX021"
    kind = "not_found"


class AttemptReused(ExchangeError):
    """The attempt began a process for another database or recipient."""

    code = "MX030"
    kind = "refused"


class ReplyNotUploaded(ExchangeError):
    """A reply that was to be uploaded before is not there with this digest."""

    code = "MX040"
    kind = "refused"


class NotRestored(ExchangeError):
    """The database was not seen to be restored, so there is nothing to replay."""

    code = "MX050"
    kind = "refused"


class RouteQueueMissing(ExchangeError):
    """The route names a queue that does not exist."""

    code = "MX060"
    kind = "not_found"


class RootLocked(ExchangeError):
    """Another server uses the root folder or the journal."""

    code = "exchange_root_locked"
    kind = "refused"


class ContentInvalid(ExchangeError):
    """The content cannot be stored: not base64, not finite, or not text that can be written."""

    code = "exchange_content_invalid"
    kind = "usage"


class MessageConflict(ExchangeError):
    """The sender has used this id for other content."""

    code = "exchange_message_conflict"
    kind = "refused"


class IdByCase(ExchangeError):
    """An id of this sender differs only by case."""

    code = "exchange_id_by_case"
    kind = "usage"


class MessageNotFound(ExchangeError):
    """There is no such message for this caller."""

    code = "exchange_message_not_found"
    kind = "not_found"


class ProcessNotFound(ExchangeError):
    """There is no such process."""

    code = "exchange_process_not_found"
    kind = "not_found"


class ProcessContradiction(ExchangeError):
    """The call contradicts what was decided; nothing was changed."""

    code = "exchange_process_contradiction"
    kind = "refused"


class OutcomeNeeded(ExchangeError):
    """A process that is ready to commit or in doubt is released with an outcome only."""

    code = "exchange_outcome_needed"
    kind = "usage"


class FileNotInProcess(ExchangeError):
    """A file that is named is not one of the process."""

    code = "exchange_file_not_in_process"
    kind = "usage"


class FileMissing(ExchangeError):
    """A file is neither where it was nor where it belongs."""

    code = "exchange_file_missing"


class NotAllowed(ExchangeError):
    """The caller is known and may not do this."""

    code = "exchange_not_allowed"
    kind = "refused"
    status: ClassVar[int] = 403


class FileUnsafe(ExchangeError):
    """Something else than a plain file or folder lies where one is expected."""

    code = "exchange_file_unsafe"
    kind = "unavailable"


class FileCorrupt(ExchangeError):
    """A file is not what was taken in."""

    code = "exchange_file_corrupt"
    kind = "error"


class StorageFull(ExchangeError):
    """There is no room on the disk; nothing was changed."""

    code = "exchange_storage_full"
    kind = "unavailable"
    retryable = True
    status: ClassVar[int] = 507


class StorageFailed(ExchangeError):
    """The folders cannot be written or read; nothing was acknowledged."""

    code = "exchange_storage_failed"
    kind = "unavailable"
    retryable = True


_BY_CODE: dict[str, type[ExchangeError]] = {
    leaf.code: leaf for leaf in ExchangeError.__subclasses__() if leaf.code.startswith("MX")
}
_FULL = {errno.ENOSPC, errno.EDQUOT}


def translate(error: psycopg.Error) -> ExchangeError | None:
    """Give the exchange's error for the driver's, to be raised from it; None if it has none."""
    leaf = _BY_CODE.get(error.sqlstate or "")
    if leaf is None:
        return None
    return leaf(error.diag.message_primary or str(error), hint=error.diag.message_hint)


def storage_failure(failure: OSError, what: str) -> ExchangeError:
    """Say what the disk refused."""
    reason = failure.strerror or str(failure)
    kind = StorageFull if failure.errno in _FULL else StorageFailed
    return kind(
        f"{what}: {reason}",
        hint="send the same request again when the disk is well; repeating it is harmless",
    )
