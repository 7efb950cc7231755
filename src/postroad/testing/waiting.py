"""Waiting for facts instead of for seconds: the only loops of the test suite that poll."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from psycopg import Connection

__all__ = ["wait_until", "wait_until_async", "wait_until_blocked"]

Found = TypeVar("Found")

TIMEOUT_SECONDS_DEFAULT = 20.0
_PACE_SECONDS = 0.01


def wait_until(
    look: Callable[[], Found], *, what: str, timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
) -> Found:
    """Look again and again until something true is seen, and return it. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_seconds:g} s in vain: {what}")
        time.sleep(_PACE_SECONDS)
    return found


async def wait_until_async(
    look: Callable[[], Awaitable[Found]],
    *,
    what: str,
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
) -> Found:
    """Do what `wait_until` does without blocking the event loop."""
    deadline = time.monotonic() + timeout_seconds
    while not (found := await look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_seconds:g} s in vain: {what}")
        await asyncio.sleep(_PACE_SECONDS)
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
