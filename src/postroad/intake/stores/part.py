"""Parts of uploads."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

MIN_PART_BYTES = 5 * 1024 * 1024
MAX_PARTS = 10_000
Data = bytes | bytearray


class Part(NamedTuple):
    """A stored part; only the journal has its digest."""

    number: int
    size: int
    etag: str
    sha256: bytes = b""


class OpenUpload(NamedTuple):
    """An upload that was begun but not ended."""

    key: str
    upload_id: str
    begun_at: datetime


def part_size_for(filesize: int, part_bytes: int) -> int:
    """Return the part size of a file: the configured one, or larger for at most 10,000 parts."""
    size = max(part_bytes, MIN_PART_BYTES)
    while filesize > size * MAX_PARTS:
        size *= 2
    return size
