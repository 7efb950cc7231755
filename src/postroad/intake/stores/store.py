"""The interface of stores, and how one is opened by its address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from postroad.errors import ConfigurationError

__all__ = ["OpenUpload", "Part", "S3Options", "Store", "open_store"]

MIB = 1024 * 1024
MIN_PART_BYTES = 5 * MIB
MAX_PARTS = 10_000


@dataclass(frozen=True, slots=True)
class Part:
    """A part that the store has."""

    number: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An upload that was begun and not ended."""

    key: str
    upload_id: str
    begun_at: datetime


class Store(Protocol):
    """A store; every call may raise StoreUnavailable, StoreFull or StoreRefused."""

    name: str

    async def put(self, key: str, data: bytes | bytearray, sha256: str) -> None:
        """Store a small object whole."""
        ...

    async def begin(self, key: str) -> str:
        """Begin an upload in parts and return its id."""
        ...

    async def put_part(
        self, key: str, upload_id: str, number: int, offset: int, data: bytearray, sha256: bytes
    ) -> str:
        """Store one part and return its tag. Raises UploadLost."""
        ...

    async def parts(self, key: str, upload_id: str) -> list[Part] | None:
        """List the parts that the store has; None: those of the journal. Raises UploadLost."""
        ...

    async def complete(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """Make the object of its parts. Raises UploadLost."""
        ...

    async def abort(self, key: str, upload_id: str) -> None:
        """Drop an upload; a missing one is no error."""
        ...

    async def size(self, key: str) -> int | None:
        """Return the size of an object, None when there is none."""
        ...

    def read(self, key: str) -> AsyncIterator[bytes]:
        """Read an object piece by piece."""
        ...

    async def open_uploads(self) -> list[OpenUpload]:
        """List uploads that were begun and not ended."""
        ...

    async def close(self) -> None:
        """Close connections and end threads."""
        ...


@dataclass(frozen=True, slots=True)
class S3Options:
    """Options of an S3-compatible store."""

    endpoint: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    region: str = "us-east-1"
    checksums: str = "when_required"
    uploads: int = 4


def open_store(address: str, options: S3Options) -> Store:
    """Open the store of an address: `s3://bucket/prefix` or a folder (`file:///path`, `/path`)."""
    found = urlsplit(address)
    if found.scheme == "s3" and found.netloc:
        from postroad.intake.stores.s3 import S3Store

        return S3Store(found.netloc, found.path.strip("/"), options)
    if found.scheme in ("", "file") and found.path.startswith("/"):
        from postroad.intake.stores.folder import FolderStore

        return FolderStore(Path(found.path))
    raise ConfigurationError(
        f"a store is a folder or s3://bucket, not {found.scheme or address}",
        hint="for example POSTROAD_INTAKE__STORE=s3://incoming or /srv/incoming",
    )


def part_size_for(filesize: int, part_bytes: int) -> int:
    """Return the part size of a file: the configured one, or larger for at most 10,000 parts."""
    size = max(part_bytes, MIN_PART_BYTES)
    while filesize > size * MAX_PARTS:
        size *= 2
    return size
