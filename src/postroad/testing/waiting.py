"""Waiting for facts instead of for seconds: the only loops of the test suite that poll."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from psycopg import Connection

Found = TypeVar("Found")

# For a machine that does much else: who waits in vain is a failure, and may take long to say so.
TIMEOUT_SECONDS_DEFAULT = 45.0
# Looks are paced by the time that has passed, so that a long wait takes little from what it waits
# for, and a tenth more than it must at most.
_PACE_SECONDS_LEAST = 0.005
_PACE_SECONDS_MOST = 0.2


def _pace(waited_seconds: float) -> float:
    return min(max(waited_seconds / 10, _PACE_SECONDS_LEAST), _PACE_SECONDS_MOST)


def wait_until(
    look: Callable[[], Found], *, what: str, timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
) -> Found:
    """Look again and again until something true is seen, and return it. Raises TimeoutError."""
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        if waited > timeout_seconds:
            raise TimeoutError(f"waited {timeout_seconds:g} s in vain: {what}")
        time.sleep(_pace(waited))
    return found


async def wait_until_async(
    look: Callable[[], Awaitable[Found]],
    *,
    what: str,
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
) -> Found:
    """Do what `wait_until` does without blocking the event loop."""
    began = time.monotonic()
    while not (found := await look()):
        waited = time.monotonic() - began
        if waited > timeout_seconds:
            raise TimeoutError(f"waited {timeout_seconds:g} s in vain: {what}")
        await asyncio.sleep(_pace(waited))
    return found


def wait_until_blocked(
    observer: Connection, pid: int, *, timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
) -> None:
    """Wait until another backend waits for a lock. The observer is a connection of its own."""

    def blocked() -> bool:
        row = observer.execute("select cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchone()
        if not observer.autocommit:
            observer.rollback()
        return bool(row and row[0])

    wait_until(blocked, what=f"backend {pid} blocked", timeout_seconds=timeout_seconds)
