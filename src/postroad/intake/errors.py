"""Errors of the intake.

A `SourceError` or a `StoreError` affects every file of that server or store: files wait and no
attempt is counted. A `RemoteFileError` affects one file and counts as an attempt, and so do
UploadLost, ObjectDiffers and KeyRefused, which concern a single object.
"""

from __future__ import annotations

from typing import ClassVar

from postroad.errors import PostroadError


class IntakeError(PostroadError, code="intake"):
    """The intake refuses a request or cannot import files."""


class ServerNotFound(IntakeError, code="IN001", kind="not_found"):
    """No SFTP server has this id or name."""


class FileNotFound(IntakeError, code="IN002", kind="not_found"):
    """No imported file has this id."""


class LeaseLost(IntakeError, code="IN003", kind="refused"):
    """The lease of a file has expired; another worker may hold it now."""


class StepUnknown(IntakeError, code="IN004", kind="usage"):
    """The step is not transfer, upload or notify."""


class HostKeyUnknown(IntakeError, code="IN005", kind="refused"):
    """The server has presented no new host key to trust."""


class ServerExists(IntakeError, kind="refused"):
    """The name is taken, or the folder is already watched."""


class CredentialsInvalid(IntakeError, kind="usage"):
    """The credentials are invalid: a malformed key or a wrong passphrase."""


class CredentialsNeeded(IntakeError, kind="usage"):
    """Changing the login requires new credentials."""


class TemporaryFolderFull(IntakeError, kind="unavailable", retryable=True):
    """The temporary folder is full; its files wait and no attempt is counted."""


class SourceError(IntakeError, code="intake_source", kind="unavailable"):
    """The SFTP server cannot be used."""

    status: ClassVar[str] = "error"


class SourceUnreachable(SourceError, retryable=True, status="unreachable"):
    """The SFTP server does not answer, or the connection was lost."""


class LoginRefused(SourceError, status="login_refused"):
    """The SFTP server refuses the credentials."""


class HostKeyUnpinned(SourceError, status="login_refused"):
    """No host key is pinned, and a password is not sent to an unknown host."""


class HostKeyChanged(SourceError, status="host_key_changed"):
    """The host key of the SFTP server differs from the pinned one."""


class SourceForbidden(SourceError, status="forbidden"):
    """The watched folder does not exist or cannot be read."""


class MoveFolderInvalid(SourceError, kind="usage"):
    """Files moved into the watched folder would be imported again."""


class RemoteFileError(IntakeError, code="intake_file"):
    """One file at the source cannot be imported."""

    # The status of a file that ends with this error.
    status: ClassVar[str]


class FileVanished(RemoteFileError, kind="not_found", status="vanished"):
    """The file no longer exists at the source."""


class FileChanged(RemoteFileError, kind="refused", status="superseded"):
    """The file at the source is not the version that was discovered."""


class FileForbidden(RemoteFileError, kind="refused"):
    """The file at the source must not be read by this user."""


class FileUnreadable(RemoteFileError, retryable=True):
    """Reading the file failed at the source."""


class StoreError(IntakeError, code="intake_store", kind="unavailable"):
    """The store cannot be used."""


class StoreUnavailable(StoreError, retryable=True):
    """The store does not answer, or reports an internal error."""


class StoreFull(StoreError, retryable=True):
    """The store is full."""


class StoreRefused(StoreError):
    """The store refuses access: wrong keys, no such bucket, or no permission."""


class UploadLost(StoreError, retryable=True):
    """The store cannot continue the multipart upload; it is restarted."""


class ObjectDiffers(StoreError, retryable=True):
    """The stored object differs from what was sent; it is sent again."""


class KeyRefused(StoreError):
    """The store cannot use this key: a folder or a file is in the way."""
