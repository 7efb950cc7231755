"""The log of a service: what it says on its error stream, in a file that stays small.

```
writing ──larger than LOG_BYTES_MOST──> renamed to .old.log, writing a new one
   └──error (a full disk)──> dropping, each piece tried anew ──> writing, what was dropped is told
```

Nothing here raises: whoever reads a service's stream must go on reading, or the service would wait
for its own log.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Self

__all__ = ["LogFile"]

LOG_BYTES_MOST = 20_000_000


class LogFile:
    """Where the lines of one service go; without a path to our own error stream."""

    def __init__(self, path: Path | None, bytes_most: int = LOG_BYTES_MOST) -> None:
        self._path = path
        self._bytes_most = bytes_most
        self._descriptor: int | None = None
        self._size = 0
        self._dropped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def write(self, piece: bytes) -> None:
        """Append a piece, or count it as dropped."""
        try:
            self._open()
            if self._path is not None and self._size + len(piece) > self._bytes_most:
                self._make_room(self._path)
            if self._dropped:
                told = f"… {self._dropped} bytes of this log could not be written\n".encode()
                self._append(told)
                self._dropped = 0
            self._append(piece)
        except OSError:
            self._dropped += len(piece)

    def _append(self, piece: bytes) -> None:
        descriptor = self._open()
        rest = memoryview(piece)
        while rest:
            written = os.write(descriptor, rest)
            self._size += written
            rest = rest[written:]

    def _open(self) -> int:
        if self._path is None:
            return sys.stderr.fileno()
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o644)
            self._size = os.fstat(self._descriptor).st_size
        return self._descriptor

    def _make_room(self, path: Path) -> None:
        self._close()
        path.replace(path.with_suffix(".old.log"))

    def _close(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor, self._size = None, 0
