"""A steady load at a fixed rate, with the latency of every delivery as the consumers see it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

__all__ = ["Delivery", "Load", "Shape", "percentile"]

PAUSE_WHEN_EMPTY_SECONDS = 0.005
BATCH = 50
RATE = 5_000


@dataclass(frozen=True, slots=True)
class Shape:
    """How a storage posts a batch, and takes one for good.

    `take` returns rows of id and time of posting, in seconds of the epoch; `finish` gets their ids
    in a transaction of its own, where the storage has a second one.
    """

    post: str
    take: str
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """When a message was delivered, in seconds since the load began, and how late."""

    second: float
    latency: float


@dataclass(slots=True)
class Load:
    """One producer and two consumers; ends by itself, then drains what is left."""

    dsn: str
    shape: Shape
    seconds: float
    drain_seconds: float
    posted: int = 0
    ids: list[int] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    _began: float = 0.0
    _is_posted: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Carry the load. Raises the first failure of a client."""
        self._began = time.time()
        threads = [
            threading.Thread(target=self._guard, args=(work,))
            for work in (self._produce, self._consume, self._consume)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def _guard(self, work: Callable[[psycopg.Connection[Any]], None]) -> None:
        try:
            with psycopg.connect(self.dsn, autocommit=True, prepare_threshold=0) as connection:
                work(connection)
        except Exception as failure:  # noqa: BLE001 - raised again by run()
            self.failures.append(failure)
        finally:
            if work == self._produce:
                self._is_posted.set()

    def _produce(self, connection: psycopg.Connection[Any]) -> None:
        interval = BATCH / RATE
        for number in range(round(self.seconds / interval)):
            ahead = self._began + number * interval - time.time()
            if ahead > 0:
                time.sleep(ahead)
            connection.execute(self.shape.post.encode())
            self.posted += BATCH

    def _consume(self, connection: psycopg.Connection[Any]) -> None:
        deadline = self._began + self.seconds + self.drain_seconds
        while time.time() < deadline:
            is_last = self._is_posted.is_set()
            rows = connection.execute(self.shape.take.encode(), binary=True).fetchall()
            now = time.time()
            if not rows:
                if is_last:
                    return
                time.sleep(PAUSE_WHEN_EMPTY_SECONDS)
                continue
            ids = [row[0] for row in rows]
            if self.shape.finish is not None:
                connection.execute(self.shape.finish.encode(), (ids,))
            self.ids += ids
            self.deliveries += [Delivery(now - self._began, now - row[1]) for row in rows]


def percentile(values: list[float], part: float) -> float:
    """Return the value that this part of the values does not exceed; nothing gives infinity."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("inf")
