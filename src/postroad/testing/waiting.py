"""Waiting for conditions instead of sleeping: the only polling loops of the test suite."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from psycopg import Connection

Found = TypeVar("Found")

# Long enough for a busy machine; only a failing test waits this long.
TIMEOUT_SECONDS_DEFAULT = 45.0
# The polling interval grows with the time waited, so that a long wait costs little.
MIN_INTERVAL_SECONDS = 0.005
MAX_INTERVAL_SECONDS = 0.2


def _pauses(what: str, timeout_seconds: float) -> Iterator[float]:
    began = time.monotonic()
    while (waited := time.monotonic() - began) <= timeout_seconds:
        yield min(max(waited / 10, MIN_INTERVAL_SECONDS), MAX_INTERVAL_SECONDS)
    raise TimeoutError(f"waited {timeout_seconds:g} s in vain: {what}")


def wait_until(
    probe: Callable[[], Found], *, what: str, timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
) -> Found:
    """Call `probe` until it returns something true, and return that. Raises TimeoutError."""
    pauses = _pauses(what, timeout_seconds)
    while not (found := probe()):
        time.sleep(next(pauses))
    return found


async def wait_until_async(
    probe: Callable[[], Awaitable[Found]],
    *,
    what: str,
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
) -> Found:
    """Do what `wait_until` does without blocking the event loop."""
    pauses = _pauses(what, timeout_seconds)
    while not (found := await probe()):  # noqa: ASYNC110 - a condition has no event
        await asyncio.sleep(next(pauses))
    return found


def wait_until_blocked(
    observer: Connection, pid: int, *, timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
) -> None:
    """Wait until another backend waits for a lock. `observer` is a separate connection."""

    def blocked() -> bool:
        row = observer.execute("select cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchone()
        if not observer.autocommit:
            observer.rollback()
        return bool(row and row[0])

    wait_until(blocked, what=f"backend {pid} blocked", timeout_seconds=timeout_seconds)
