"""Runs one kind of load at a fixed rate and prints its latencies per window as JSON.

Arguments: kind, DSN, number of windows, seconds per window, time at which they begin. Kinds:
`lease`, `delay`, `retry`, `dedup`. The latency of a message is from the moment at which it was due
until its handler began: posted, delay over, or retry due. It counts in the window in which the
handler began.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.harness.histogram import Histogram
from postroad.bus import AsyncBus, AsyncWorker, Message, Retry, WorkerSettings

INTERVAL_SECONDS = 0.1
DELAY = timedelta(seconds=2)
RETRY = timedelta(seconds=1)
# Messages per interval.
AMOUNTS = {"lease": 20, "delay": 10, "retry": 5, "dedup": 10}
GRACE_SECONDS = 60.0


class Kind:
    """One kind: what is posted, and when a delivery was due."""

    def __init__(
        self, name: str, dsn: str, windows: int, window_seconds: float, began: float
    ) -> None:
        self._name, self._dsn, self._queue = name, dsn, f"held_{name}"
        self._seconds = windows * window_seconds
        self._window_seconds = window_seconds
        self._began = began
        self._histograms = [Histogram() for _ in range(windows)]
        self._counts = [0] * windows
        self._due: dict[str, float] = {}
        self._posted: set[str] = set()
        self._handled: set[str] = set()
        self._is_twice = False
        self._numbers = itertools.count()

    async def run(self) -> dict[str, Any]:
        """Post and handle, then wait until nothing is left."""
        settings = WorkerSettings(maintenance_interval=None)
        worker = AsyncWorker(self._dsn, settings)
        mode = "lease" if self._name == "lease" else "transaction"
        # A retry rolls the batch back, and every message of it would be handled again.
        size: dict[str, Any] = {"concurrency": 16}
        if self._name == "retry":
            size = {"concurrency": 4, "prefetch": 1}
        worker.handler(self._queue, mode=mode, **size)(self._handler(mode))
        async with AsyncBus(self._dsn) as bus:
            await worker.start()
            await self._post(bus)
            deadline = time.time() + GRACE_SECONDS
            while self._handled != self._posted and time.time() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(INTERVAL_SECONDS)
            await worker.stop()
        parts = [each.percentiles(0.5, 0.99) for each in self._histograms]
        return {
            "posted": len(self._posted),
            "handled": len(self._handled & self._posted),
            "is_twice": self._is_twice,
            "windows": [
                {"messages": count, "p50_ms": p50, "p99_ms": p99}
                for count, (p50, p99) in zip(self._counts, parts, strict=True)
            ],
        }

    def _handler(self, mode: str) -> Callable[..., Any]:
        async def leased(message: Message) -> None:
            self._handle(message)

        async def transactional(message: Message, _connection: object) -> None:
            self._handle(message)

        return leased if mode == "lease" else transactional

    def _handle(self, message: Message) -> None:
        now = time.time()
        if self._name == "retry" and message.attempts == 0:
            self._due[message.iid] = now + RETRY.total_seconds()
            raise Retry(after=RETRY)
        due = self._due.pop(message.iid, None) or float(message.data)
        if message.iid in self._handled:
            self._is_twice = True
        self._handled.add(message.iid)
        window = min(len(self._counts) - 1, int((now - self._began) / self._window_seconds))
        self._counts[window] += 1
        self._histograms[window].add((now - due) * 1000)

    async def _post(self, bus: AsyncBus) -> None:
        amount = AMOUNTS[self._name]
        for number in range(round(self._seconds / INTERVAL_SECONDS)):
            ahead = self._began + number * INTERVAL_SECONDS - time.time()
            if ahead > 0:
                await asyncio.sleep(ahead)
            now = time.time()
            given: dict[str, Any] = {}
            if self._name == "delay":
                now += DELAY.total_seconds()
                given["delayed_until"] = datetime.fromtimestamp(now, UTC)
            if self._name == "dedup":
                keys = [str(next(self._numbers) // 2) for _ in range(amount)]
                given["headers"] = [{"dedup_key": k, "dedup_window": "30 seconds"} for k in keys]
            self._posted.update(await bus.post_many(self._queue, [repr(now)] * amount, **given))


def main(name: str, dsn: str, windows: str, window_seconds: str, began: str) -> None:
    kind = Kind(name, dsn, int(windows), float(window_seconds), float(began))
    print(json.dumps(asyncio.run(kind.run())))


if __name__ == "__main__":
    main(*sys.argv[1:])
