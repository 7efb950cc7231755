"""What requests and answers look like. No answer has a place for a secret."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from postroad.intake.credentials import Credentials

__all__ = [
    "CredentialsIn",
    "Entry",
    "FileOut",
    "FilesIn",
    "HistoryOut",
    "HostKeyIn",
    "ServerChange",
    "ServerIn",
    "ServerOut",
    "TestOut",
    "TransferOut",
]

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^/\x00-\x1f\x7f]+$")]
Text = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
Patterns = Annotated[list[Text], Field(max_length=100)]
Port = Annotated[int, Field(ge=1, le=65535)]


class CredentialsIn(BaseModel):
    """A password, or a private key with passphrase and certificate."""

    model_config = ConfigDict(extra="forbid")

    password: SecretStr | None = None
    private_key: SecretStr | None = None
    passphrase: SecretStr | None = None
    certificate: SecretStr | None = None

    def opened(self) -> Credentials:
        """Return them as the engine takes them. Raises CredentialsInvalid."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return Credentials(
            **{name: one.get_secret_value() if one else None for name, one in given.items()}
        )


class ServerChange(BaseModel):
    """What can be changed about a server; what is not given stays."""

    model_config = ConfigDict(extra="forbid")

    name: Name | None = None
    host: Annotated[Text, Field(min_length=1)] | None = None
    port: Port | None = None
    username: Annotated[Text, Field(min_length=1)] | None = None
    credentials: CredentialsIn | None = None
    directory: Annotated[Text, Field(min_length=1)] | None = None
    is_active: bool | None = None
    host_key: Text | None = None
    trusts_first_key: bool | None = None
    scan_interval: Annotated[timedelta, Field(gt=timedelta(0), le=timedelta(days=365))] | None = (
        None
    )
    include: Patterns | None = None
    exclude: Patterns | None = None
    ignore: Patterns | None = None
    is_case_sensitive: bool | None = None
    max_depth: Annotated[int, Field(ge=0, le=100)] | None = None
    follows_links: bool | None = None
    looks: Annotated[int, Field(ge=1, le=10)] | None = None
    minimum_age: Annotated[timedelta, Field(ge=timedelta(0), le=timedelta(days=365))] | None = None
    done_suffix: Annotated[Text, Field(min_length=1, pattern=r"^[^/\x00]+$")] | None = None
    after_import: Literal["leave", "delete", "move"] | None = None
    move_to: Annotated[Text, Field(min_length=1)] | None = None
    way: Literal["stream", "temporary_file"] | None = None
    max_connections: Annotated[int, Field(ge=1, le=64)] | None = None

    def values(self) -> dict[str, Any]:
        """Return what was said, without credentials and without what was left out."""
        given = self.model_dump(exclude_unset=True, exclude={"credentials"})
        nullable = {"host_key", "scan_interval", "done_suffix", "move_to"}
        return {key: one for key, one in given.items() if one is not None or key in nullable}


class ServerIn(ServerChange):
    """A new server."""

    host: Annotated[Text, Field(min_length=1)]
    username: Annotated[Text, Field(min_length=1)]
    credentials: CredentialsIn


class ServerOut(BaseModel):
    """A server, how it stands, and its files by status."""

    id: int
    name: str
    host: str
    port: int
    username: str
    directory: str
    is_active: bool
    status: str
    problem: str | None
    failures: int
    retry_at: datetime | None
    last_scan_at: datetime | None
    last_scan: dict[str, Any] | None
    next_scan_at: datetime
    waiting: int
    moving: int
    completed: int
    failed: int
    host_key: str | None
    seen_host_key: str | None
    trusts_first_key: bool
    scan_interval: timedelta | None
    include: list[str]
    exclude: list[str]
    ignore: list[str]
    is_case_sensitive: bool
    max_depth: int
    follows_links: bool
    looks: int
    minimum_age: timedelta
    done_suffix: str | None
    after_import: str
    move_to: str | None
    way: str
    max_connections: int
    created_at: datetime
    updated_at: datetime


class HostKeyIn(BaseModel):
    """The key to trust; without one, that which the server showed."""

    model_config = ConfigDict(extra="forbid")

    host_key: Text | None = None


class TestOut(BaseModel):
    """Whether a login works."""

    __test__ = False

    works: bool
    problem: str | None = None
    hint: str | None = None
    host_key: str | None = None
    is_empty: bool | None = None


class Entry(BaseModel):
    """One entry of a folder at a server."""

    name: str
    kind: str
    size: int
    modified_at: datetime | None
    mode: str | None


class FileOut(BaseModel):
    """One version of a remote file."""

    id: int
    server_id: int
    server: str
    filename: str
    path_hex: str
    filesize: int
    mtime: int
    version: int
    file_hash: str | None
    status: str
    error_message: str | None
    attempts: int
    next_try_at: datetime
    worker: str | None
    lease_until: datetime | None
    bytes_done: int
    store: str | None
    object_key: str | None
    cleanup: str | None
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None


class HistoryOut(BaseModel):
    """One thing that happened to a file."""

    at: datetime
    status: str
    note: str | None


class TransferOut(BaseModel):
    """A transfer that runs, with its progress."""

    id: int
    server: str
    filename: str
    status: str
    bytes_done: int
    filesize: int
    worker: str
    updated_at: datetime
    attempts: int


class FilesIn(BaseModel):
    """Files by their ids."""

    model_config = ConfigDict(extra="forbid")

    ids: Annotated[
        list[Annotated[int, Field(ge=1, lt=2**63)]], Field(min_length=1, max_length=1000)
    ]
