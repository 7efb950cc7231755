"""File locks of the data folder. The kernel drops them with the process that held them.

- `control.lock`, exclusive: held while the server is made, started or stopped.
- `users.lock`, shared: held by everyone who uses the server, for as long as they use it. It is
  taken and released only under the control lock, so a process that gets it exclusively is the
  last one.

`flock` and not `fcntl` locks: these belong to the open file, so that several users inside one
process count as several, and closing an unrelated file drops nothing.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroad.postgres.errors import ServerNotStarted


@contextmanager
def control_lock(path: Path, timeout_seconds: float) -> Iterator[None]:
    """Hold the control lock. Raises ServerNotStarted when others keep it for too long."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ServerNotStarted(
                        f"another process has been starting or stopping the server for "
                        f"{timeout_seconds:.0f} s",
                        hint=f"find the process that holds {path}",
                    ) from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


class UserLock:
    """This user's share of the users' lock."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def hold(self) -> None:
        """Count as a user. Only under the control lock."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def is_last(self) -> bool:
        """Whether there is no other user. Only under the control lock, when leaving."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """No longer count as a user; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
