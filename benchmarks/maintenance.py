"""Maintenance beside every load, from one session, as a product would run it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg

__all__ = ["Maintainer"]

BUSY_SECONDS = 0.05
IDLE_SECONDS = 0.5


@dataclass(slots=True)
class Tally:
    """How often it was called and what it did."""

    calls: int = 0
    rotated: int = 0
    reclaimed: int = 0
    settled: int = 0
    is_busy: bool = False
    failures: list[str] = field(default_factory=list)


class Maintainer:
    """Calls mbus.maintain() soon after a call that moved something, else twice a second."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
        self._failure: Exception | None = None
        self.tally = Tally()
        self.backend_pid = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise what ended the maintenance, if anything did."""
        if self._failure is not None:
            raise RuntimeError("maintenance failed under load") from self._failure

    def _run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                self.backend_pid = connection.info.backend_pid
                self._ready.set()
                while not self._stopping.is_set():
                    self._stopping.wait(BUSY_SECONDS if self._try(connection) else IDLE_SECONDS)
        except psycopg.Error as failure:
            self._failure = failure
        finally:
            self._ready.set()

    def _try(self, connection: psycopg.Connection[Any]) -> bool:
        """Call once. A failed call is told in the report, and the next one follows as usual."""
        try:
            return self._call(connection)
        except psycopg.Error as failure:
            if connection.closed:
                raise
            self.tally.failures.append(str(failure).partition("\n")[0])
            return False

    def _call(self, connection: psycopg.Connection[Any]) -> bool:
        done = connection.execute(
            "select coalesce(sum(rotated), 0), coalesce(sum(reclaimed), 0),"
            " coalesce(sum(settled), 0) from mbus.maintain()"
        ).fetchone()
        rotated, reclaimed, settled = map(int, done or (0, 0, 0))
        self.tally.calls += 1
        self.tally.rotated += rotated
        self.tally.reclaimed += reclaimed
        self.tally.settled += settled
        self.tally.is_busy = settled + reclaimed > 0
        return self.tally.is_busy
