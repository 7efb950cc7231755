"""The log file of each service, limited in size.

```
writing ──larger than MAX_LOG_BYTES──> renamed to .old.log, writing a new one
   └──error (a full disk)──> dropping, each write retried ──> writing, the gap is reported
```

Nothing here raises: a log that cannot be written must not stop a service. All services share a
process; `log_to` sets the log of the current task and of the tasks that it starts.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from contextvars import ContextVar
from pathlib import Path

MAX_LOG_BYTES = 20_000_000


class LogFile:
    """The log of one service; without a path, the error stream of the process."""

    def __init__(self, path: Path | None, max_bytes: int = MAX_LOG_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._descriptor: int | None = None
        self._size = 0
        self._dropped = 0

    def write(self, piece: bytes) -> None:
        """Append some bytes, or count them as dropped."""
        try:
            self._open()
            if self._path is not None and self._size + len(piece) > self._max_bytes:
                self._rotate(self._path)
            if self._dropped:
                self._append(f"… {self._dropped} bytes of this log could not be written\n".encode())
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
            self._descriptor = os.open(self._path, flags, 0o640)
            self._size = os.fstat(self._descriptor).st_size
        return self._descriptor

    def _rotate(self, path: Path) -> None:
        self.close()
        path.replace(path.with_suffix(".old.log"))

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor, self._size = None, 0


_CURRENT: ContextVar[LogFile | None] = ContextVar("postroad_service_log", default=None)


def log_to(log: LogFile) -> None:
    """Let the current task, and the tasks that it starts from now on, write to a log."""
    _CURRENT.set(log)


def current_log() -> LogFile:
    """Return the log of the current task; the error stream if none was set."""
    return _CURRENT.get() or LogFile(None)


class ServiceLogStream(io.StringIO):
    """A text stream for log handlers: each line goes to the log of the task that writes it."""

    def write(self, text: str) -> int:
        """Write one line."""
        current_log().write(text.encode(errors="replace"))
        return len(text)
