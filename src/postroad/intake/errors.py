"""Errors of the intake.

```
IntakeError
├── ServerNotFound      IN001   ├── SourceError                   the SFTP server
├── FileNotFound        IN002   │   ├── SourceUnreachable         retryable
├── LeaseLost           IN003   │   ├── LoginRefused
├── StepUnknown         IN004   │   ├── HostKeyChanged
├── HostKeyUnknown      IN005   │   ├── HostKeyUnpinned
├── ServerExists                │   ├── SourceForbidden
├── CredentialsInvalid          │   └── MoveFolderInvalid
├── CredentialsNeeded           ├── RemoteFileError               one file of it
│                               │   ├── FileVanished
├── TemporaryFolderFull retryable   ├── FileChanged
└── StoreError                  │   ├── FileForbidden
    ├── StoreUnavailable retryable  └── FileUnreadable            retryable
    ├── StoreFull        retryable
    ├── StoreRefused
    ├── UploadLost       retryable
    ├── ObjectDiffers    retryable
    └── KeyRefused
```

A `SourceError` or a `StoreError` concerns everything that goes there: files wait and lose no try. A
`RemoteFileError` concerns one file and counts as a try of it; so do UploadLost, ObjectDiffers and
KeyRefused, with which nothing is wrong but that one object.
"""

from __future__ import annotations

from typing import ClassVar

import psycopg

from postroad.errors import Kind, PostroadError
from postroad.postgres.errors import raised_by

__all__ = [
    "CredentialsInvalid",
    "CredentialsNeeded",
    "FileChanged",
    "FileForbidden",
    "FileNotFound",
    "FileUnreadable",
    "FileVanished",
    "HostKeyChanged",
    "HostKeyUnknown",
    "HostKeyUnpinned",
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
    "translate",
]


class IntakeError(PostroadError, code="intake"):
    """Something that the intake refuses or cannot do."""


class ServerNotFound(IntakeError, code="IN001", kind="not_found"):
    """No SFTP server has this id or name."""


class FileNotFound(IntakeError, code="IN002", kind="not_found"):
    """No imported file has this id."""


class LeaseLost(IntakeError, code="IN003", kind="refused"):
    """The lease of a file has ended; somebody else may have it now."""


class StepUnknown(IntakeError, code="IN004", kind="usage"):
    """A step is neither transfer, upload nor notify."""


class HostKeyUnknown(IntakeError, code="IN005", kind="refused"):
    """There is no new host key to trust: the server has shown none."""


class ServerExists(IntakeError, kind="refused"):
    """The name is taken, or the folder is watched already."""


class CredentialsInvalid(IntakeError, kind="usage"):
    """The credentials cannot be used: a key that does not parse, or a wrong passphrase."""


class CredentialsNeeded(IntakeError, kind="usage"):
    """A change of the login must bring the credentials with it."""


class TemporaryFolderFull(IntakeError, kind="unavailable", retryable=True):
    """The temporary folder of this machine has no room left; its files wait and lose no try."""


class SourceError(IntakeError, code="intake_source"):
    """The SFTP server cannot be used."""

    kind: ClassVar[Kind] = "unavailable"
    status = "error"


class SourceUnreachable(SourceError, retryable=True):
    """The SFTP server does not answer, or the connection broke."""

    status = "unreachable"


class LoginRefused(SourceError):
    """The SFTP server refuses the credentials."""

    status = "login_refused"


class HostKeyUnpinned(SourceError):
    """The SFTP server has no pinned host key, and a password is not sent to an unknown host."""

    status = "login_refused"


class HostKeyChanged(SourceError):
    """The SFTP server shows another host key than the pinned one."""

    status = "host_key_changed"


class SourceForbidden(SourceError):
    """The watched folder is not there or may not be read."""

    status = "forbidden"


class MoveFolderInvalid(SourceError, kind="usage"):
    """Imported files cannot be moved into the watched folder itself: they would come in again."""


class RemoteFileError(IntakeError, code="intake_file"):
    """One file at the source cannot be imported as it was seen."""


class FileVanished(RemoteFileError, kind="not_found"):
    """The file is gone from the source."""


class FileChanged(RemoteFileError, kind="refused"):
    """The file at the source is not the version that was discovered."""


class FileForbidden(RemoteFileError, kind="refused"):
    """The file at the source may not be read."""


class FileUnreadable(RemoteFileError, retryable=True):
    """Reading the file failed at the source."""


class StoreError(IntakeError, code="intake_store", kind="unavailable"):
    """The store cannot be used."""


class StoreUnavailable(StoreError, retryable=True):
    """The store does not answer, or answers with a failure of its own."""


class StoreFull(StoreError, retryable=True):
    """The store has no room left."""


class StoreRefused(StoreError):
    """The store refuses: wrong keys, no such bucket, or not allowed."""


class UploadLost(StoreError, retryable=True):
    """The store does not know the upload any more, or cannot go on with it; it begins anew."""


class ObjectDiffers(StoreError, retryable=True):
    """The object in the store is not what was sent; it is sent again."""


class KeyRefused(StoreError):
    """The store works and cannot keep an object under this key: a folder is there, or a file."""


def translate(error: psycopg.Error) -> IntakeError | None:
    """Return the component's error for one that schema intake raised, else None."""
    return raised_by(IntakeError, error)
