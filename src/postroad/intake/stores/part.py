"""Parts of uploads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

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


def part_size_for(filesize: int, part_bytes: int) -> int:
    """Return the part size of a file: the configured one, or larger for at most 10,000 parts."""
    size = max(part_bytes, MIN_PART_BYTES)
    while filesize > size * MAX_PARTS:
        size *= 2
    return size
