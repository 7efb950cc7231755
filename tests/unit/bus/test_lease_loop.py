"""How many messages the lease loop asks for, with a bus that always has more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from postroad.bus import HeldMessage, LeasedMessage, WorkerSettings
from postroad.bus.call import OfQueue
from postroad.bus.handlers import Handler
from postroad.bus.lease_loop import LeaseLoop
from postroad.bus.runners import TaskRunners

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ALL = 2_600
SLOW_SECONDS = 0.003


class EndlessBus:
    """Leases as many messages as are asked for; `is_busy` once these are many."""

    def __init__(self) -> None:
        self.is_busy = False
        self.amounts: list[int] = []
        self._numbers = count(1)

    async def _run(self, call: Any) -> list[Any]:
        if not isinstance(call, OfQueue):
            return []
        amount, ttl = call.build("text").parameters
        self.amounts.append(amount)
        self.is_busy = self.is_busy or amount > 200
        until = NOW + ttl
        return [
            HeldMessage(n, NOW, f"{call.queue}.{n}@x", None, None, (), {}, {}, "", n, 1, until)
            for n, _ in zip(self._numbers, range(amount), strict=False)
        ]

    async def nack(self, *_: object) -> list[str]:
        return []

    release_many = nack


class Waker:
    """Never lets anybody wait: there is always a message."""

    def epoch(self, _: str) -> int:
        return 0

    def wake(self, _: Sequence[str]) -> None:
        pass

    async def wait(self, *_: object) -> None:
        pass


async def test_handlers_that_become_slow_do_not_make_it_ask_for_less_than_one() -> None:
    handled, late_seconds = 0, 0.0
    bus: Any = EndlessBus()
    waker: Any = Waker()

    async def handle(_: LeasedMessage) -> None:
        nonlocal handled, late_seconds
        handled += 1
        if bus.is_busy:
            late_seconds += SLOW_SECONDS
        if handled == ALL:
            loop.request_stop()

    handler = Handler("q", "c", handle, "lease", 1, 300, timedelta(seconds=30))
    loop = LeaseLoop(bus, handler, waker, WorkerSettings(), TaskRunners)
    loop._holder.now = lambda: time.monotonic() + late_seconds
    await loop.start()
    await loop.join()
    assert handled >= ALL
    assert bus.is_busy
    assert min(bus.amounts) >= 1
