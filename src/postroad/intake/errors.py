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


class IntakeError(PostroadError):
    """Something that the intake refuses or cannot do."""

    code = "intake"


class ServerNotFound(IntakeError):
    """No SFTP server has this id or name."""

    code = "IN001"
    kind = "not_found"


class FileNotFound(IntakeError):
    """No imported file has this id."""

    code = "IN002"
    kind = "not_found"


class LeaseLost(IntakeError):
    """The lease of a file has ended; somebody else may have it now."""

    code = "IN003"
    kind = "refused"


class StepUnknown(IntakeError):
    """A step is neither transfer, upload nor notify."""

    code = "IN004"
    kind = "usage"


class HostKeyUnknown(IntakeError):
    """There is no new host key to trust: the server has shown none."""

    code = "IN005"
    kind = "refused"


class ServerExists(IntakeError):
    """The name is taken, or the folder is watched already."""

    code = "intake_server_exists"
    kind = "refused"


class CredentialsInvalid(IntakeError):
    """The credentials cannot be used: a key that does not parse, or a wrong passphrase."""

    code = "intake_credentials_invalid"
    kind = "usage"


class CredentialsNeeded(IntakeError):
    """A change of the login must bring the credentials with it."""

    code = "intake_credentials_needed"
    kind = "usage"


class TemporaryFolderFull(IntakeError):
    """The temporary folder of this machine has no room left; its files wait and lose no try."""

    code = "intake_temporary_folder_full"
    kind = "unavailable"
    retryable = True


class SourceError(IntakeError):
    """The SFTP server cannot be used."""

    code = "intake_source"
    kind: ClassVar[Kind] = "unavailable"
    status = "error"


class SourceUnreachable(SourceError):
    """The SFTP server does not answer, or the connection broke."""

    code = "intake_source_unreachable"
    retryable = True
    status = "unreachable"


class LoginRefused(SourceError):
    """The SFTP server refuses the credentials."""

    code = "intake_login_refused"
    status = "login_refused"


class HostKeyUnpinned(SourceError):
    """The SFTP server has no pinned host key, and a password is not sent to an unknown host."""

    code = "intake_host_key_unpinned"
    status = "login_refused"


class HostKeyChanged(SourceError):
    """The SFTP server shows another host key than the pinned one."""

    code = "intake_host_key_changed"
    status = "host_key_changed"


class SourceForbidden(SourceError):
    """The watched folder is not there or may not be read."""

    code = "intake_source_forbidden"
    status = "forbidden"


class MoveFolderInvalid(SourceError):
    """Imported files cannot be moved into the watched folder itself: they would come in again."""

    code = "intake_move_folder_invalid"
    kind = "usage"


class RemoteFileError(IntakeError):
    """One file at the source cannot be imported as it was seen."""

    code = "intake_file"


class FileVanished(RemoteFileError):
    """The file is gone from the source."""

    code = "intake_file_vanished"
    kind = "not_found"


class FileChanged(RemoteFileError):
    """The file at the source is not the version that was discovered."""

    code = "intake_file_changed"
    kind = "refused"


class FileForbidden(RemoteFileError):
    """The file at the source may not be read."""

    code = "intake_file_forbidden"
    kind = "refused"


class FileUnreadable(RemoteFileError):
    """Reading the file failed at the source."""

    code = "intake_file_unreadable"
    retryable = True


class StoreError(IntakeError):
    """The store cannot be used."""

    code = "intake_store"
    kind = "unavailable"


class StoreUnavailable(StoreError):
    """The store does not answer, or answers with a failure of its own."""

    code = "intake_store_unavailable"
    retryable = True


class StoreFull(StoreError):
    """The store has no room left."""

    code = "intake_store_full"
    retryable = True


class StoreRefused(StoreError):
    """The store refuses: wrong keys, no such bucket, or not allowed."""

    code = "intake_store_refused"


class UploadLost(StoreError):
    """The store does not know the upload any more, or cannot go on with it; it begins anew."""

    code = "intake_upload_lost"
    retryable = True


class ObjectDiffers(StoreError):
    """The object in the store is not what was sent; it is sent again."""

    code = "intake_object_differs"
    retryable = True


class KeyRefused(StoreError):
    """The store works and cannot keep an object under this key: a folder is there, or a file."""

    code = "intake_key_refused"


_BY_CODE: dict[str, type[IntakeError]] = {
    leaf.code: leaf
    for leaf in (ServerNotFound, FileNotFound, LeaseLost, StepUnknown, HostKeyUnknown)
}


def translate(error: psycopg.Error) -> IntakeError | None:
    """Give the intake's error for the driver's, to be raised from it; None if it has none."""
    leaf = _BY_CODE.get(error.sqlstate or "")
    if leaf is None:
        return None
    return leaf(error.diag.message_primary or str(error), hint=error.diag.message_hint)
