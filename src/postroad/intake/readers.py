"""Where the bytes of a transfer come from: an open remote file, or a local one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Protocol

from postroad.intake.errors import FileChanged, FileVanished
from postroad.intake.source import Source, answering

__all__ = ["LocalReader", "Reader", "RemoteReader"]


class Reader(Protocol):
    """Gives ranges of a file, several at once."""

    async def read(self, offset: int, size: int) -> bytearray:
        """Return exactly that range. Raises FileChanged when it is not there."""
        ...


class RemoteReader:
    """Reads ranges of a remote file by many requests in flight."""

    def __init__(self, source: Source, file: Any, shown: str) -> None:
        self._source = source
        self._file = file
        self._shown = shown
        self.bytes_fetched = 0

    async def read(self, offset: int, size: int) -> bytearray:
        """Return exactly that range."""
        buffer = bytearray(size)
        got = 0
        async with answering(self._shown, self._source):
            async for place, data in await self._file.read_parallel(size, offset):
                start = place - offset
                buffer[start : start + len(data)] = data
                got += len(data)
        self.bytes_fetched += got
        if got != size:
            raise FileChanged(f"{self._shown} is shorter than it was when it was discovered")
        return buffer


class LocalReader:
    """Reads ranges of a local file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self, offset: int, size: int) -> bytearray:
        """Return exactly that range."""
        return await asyncio.to_thread(self._read, offset, size)

    def _read(self, offset: int, size: int) -> bytearray:
        buffer = bytearray(size)
        try:
            with self._path.open("rb", buffering=0) as file:
                got = 0
                view = memoryview(buffer)
                while got < size and (
                    count := os.preadv(file.fileno(), [view[got:]], offset + got)
                ):
                    got += count
        except FileNotFoundError:
            raise FileVanished(f"the temporary file {self._path.name} is gone") from None
        if got != size:
            raise FileChanged(f"the temporary file {self._path.name} is shorter than its file")
        return buffer
