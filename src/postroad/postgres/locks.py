"""File locks of the data folder. The kernel drops them with the process that held them.

- `control.lock`, exclusive: held while the server is created, started or stopped.
- `users.lock`, shared: held by every process that uses the server. It is
  taken and released only under the control lock, so a process that gets it exclusively is the
  last one.

These are `flock` locks, not `fcntl` locks: they belong to the open file, so several users inside
one process count separately, and closing an unrelated file releases nothing.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroad.postgres.errors import ServerNotStarted


def open_lock(path: Path) -> int:
    """Open a lock file; closing it releases the lock."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int) -> bool:
    """Lock exclusively; return False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def share_lock(descriptor: int) -> None:
    """Hold the lock together with others."""
    fcntl.flock(descriptor, fcntl.LOCK_SH)


@contextmanager
def control_lock(path: Path, timeout_seconds: float) -> Iterator[None]:
    """Hold the control lock. Raises ServerNotStarted when others keep it for too long."""
    descriptor = open_lock(path)
    try:
        deadline = time.monotonic() + timeout_seconds
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise ServerNotStarted(
                    "another process has been starting or stopping the server for "
                    f"{timeout_seconds:.0f} s",
                    hint=f"find the process that holds {path}",
                )
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
