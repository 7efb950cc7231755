"""Errors of the exchange: one class per SQLSTATE of schema exchange, and those of the files."""

from __future__ import annotations

import errno

from postroad.errors import PostroadError


class ExchangeError(PostroadError, code="exchange"):
    """Something that the exchange refuses, cannot find or cannot do."""


class TakenOver(ExchangeError, code="MX001", kind="unavailable"):
    """The server did not respond and was removed from the running servers; it must be restarted."""


class RootForeign(ExchangeError, code="MX002", kind="refused"):
    """The root folder belongs to another journal, or the journal to another folder."""


class ClientExists(ExchangeError, code="MX010", kind="refused"):
    """A client of this name already exists."""


class ClientNotFound(ExchangeError, code="MX011", kind="not_found"):
    """No client has this name."""


class DatabaseByCase(ExchangeError, code="MX020", kind="usage"):
    """The name of another database differs only by case."""


class DatabaseNotFound(ExchangeError, code="MX021", kind="not_found"):
    """No database has this name."""


class AttemptReused(ExchangeError, code="MX030", kind="refused"):
    """The attempt began a process for another database or recipient."""


class ReplyNotUploaded(ExchangeError, code="MX040", kind="refused"):
    """A reply with this digest has to be uploaded first."""


class NotRestored(ExchangeError, code="MX050", kind="refused"):
    """No restore of the database was detected, so there is nothing to replay."""


class RouteQueueMissing(ExchangeError, code="MX060", kind="not_found"):
    """The route names a queue that does not exist."""


class RootLocked(ExchangeError, kind="refused"):
    """The root folder or the journal is used by a server that does not share it."""


class ContentInvalid(ExchangeError, kind="usage"):
    """The content cannot be stored: not base64, not finite, or not text that can be written."""


class MessageConflict(ExchangeError, kind="refused"):
    """The sender has already used this id for other content."""


class IdByCase(ExchangeError, kind="usage"):
    """An id of this sender differs only by case."""


class MessageNotFound(ExchangeError, kind="not_found"):
    """There is no such message for this caller."""


class ProcessNotFound(ExchangeError, kind="not_found"):
    """There is no such process."""


class ProcessContradiction(ExchangeError, kind="refused"):
    """The call contradicts the recorded outcome; nothing was changed."""


class OutcomeNeeded(ExchangeError, kind="usage"):
    """Releasing a process that is ready to commit or in doubt requires an outcome."""


class FileNotInProcess(ExchangeError, kind="usage"):
    """The file does not belong to the process."""


class FileMissing(ExchangeError):
    """A file is in neither its old nor its new folder."""


class NotAllowed(ExchangeError, kind="refused", status=403):
    """The client is not permitted to do this."""


class FileUnsafe(ExchangeError, kind="unavailable"):
    """The path is not a regular file or folder."""


class FileCorrupt(ExchangeError, kind="error"):
    """The digest of a stored file has changed."""


class StorageFull(ExchangeError, kind="unavailable", retryable=True, status=507):
    """The disk is full; nothing was changed."""


class StorageFailed(ExchangeError, kind="unavailable", retryable=True):
    """A folder cannot be read or written; nothing was acknowledged."""


_FULL = {errno.ENOSPC, errno.EDQUOT}


def was_refused(failure: BaseException) -> bool:
    """Return whether a failed call of the journal certainly committed nothing.

    A call that raises TakenOver may be a repetition whose first COMMIT succeeded without an answer.
    """
    return isinstance(failure, ExchangeError) and not isinstance(failure, TakenOver)


def storage_failure(failure: OSError, what: str) -> ExchangeError:
    """Return the error for a failed file operation."""
    reason = failure.strerror or str(failure)
    kind = StorageFull if failure.errno in _FULL else StorageFailed
    return kind(
        f"{what}: {reason}",
        hint="repair the disk or the store and repeat the request, which is idempotent",
    )
