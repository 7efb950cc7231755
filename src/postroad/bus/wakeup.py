"""Waiting for messages: one task wakes all waiters.

Notifications come from the process's LISTEN hub if there is one; positions are polled as well.
Behind a transaction-mode pooler there is no hub, and polling alone wakes the waiters.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import CancelledError
from datetime import timedelta

from postroad.bus.polling import CHANNEL, POLL_INTERVAL_DEFAULT, PollSchedule
from postroad.bus.reconnect import SURVIVABLE
from postroad.postgres.listen import ListenHub, Notice
from postroad.service import LoopThread, Service

logger = logging.getLogger(__name__)


class AsyncWakeup(Service):
    """Wakes the waiters of a set of queues."""

    def __init__(
        self,
        positions: Callable[[list[str]], Awaitable[list[int]]],
        queues: Iterable[str],
        *,
        hub: ListenHub | None = None,
        poll_interval: timedelta = POLL_INTERVAL_DEFAULT,
        owns_hub: bool = False,
    ) -> None:
        super().__init__("wakeup")
        self._owns_hub = owns_hub
        self._positions = positions
        self._queues = sorted(set(queues))
        self._hub = hub
        self._poll_seconds = poll_interval.total_seconds()
        self._schedule = PollSchedule()
        self._events = {queue: asyncio.Event() for queue in self._queues}
        self._epochs = dict.fromkeys(self._queues, 0)

    def epoch(self, queue: str) -> int:
        """Return the number to pass to `wait`; read it before taking from the queue."""
        return self._epochs[queue]

    async def wait(self, queue: str, epoch: int) -> None:
        """Wait until the queue should be polled again after the take that began at `epoch`."""
        while self._epochs[queue] == epoch and not self.stopping.is_set():
            await self._events[queue].wait()

    def wake(self, queues: Iterable[str]) -> None:
        """Wake the waiters of these queues."""
        for queue in queues:
            event = self._events.get(queue)
            if event is not None:
                self._epochs[queue] += 1
                event.set()
                # Current waiters are woken; later ones compare epochs.
                self._events[queue] = asyncio.Event()

    def request_stop(self) -> None:
        """Ask the task to end and wake all waiters."""
        super().request_stop()
        self.wake(self._queues)

    async def run(self) -> None:
        """Poll until stopped, even while the database is unavailable."""
        subscription = None
        if self._hub is not None:
            await self._hub.start()
            subscription = self._hub.subscribe(CHANNEL, self._on_notice)
        self.announce_ready()
        try:
            while not self.stopping.is_set():
                await self._probe()
                await self.pause(self._poll_seconds)
        finally:
            if subscription is not None:
                subscription.cancel()
            if self._hub is not None and self._owns_hub:
                await self._hub.stop()

    async def _probe(self) -> None:
        try:
            positions = await self._positions(self._queues)
        except SURVIVABLE as failure:
            logger.warning("probe_failed", extra={"reason": str(failure).strip()})
            self.wake(self._queues)
            return
        now = asyncio.get_running_loop().time()
        self.wake(self._schedule.due(now, dict(zip(self._queues, positions, strict=True))))

    def _on_notice(self, notice: Notice) -> None:
        self.wake(self._queues if notice.payload is None else (notice.payload,))


class Wakeup(LoopThread):
    """Wakes the waiters of a set of queues, which wait in threads."""

    def __init__(
        self,
        positions: Callable[[list[str]], Awaitable[list[int]]],
        queues: Iterable[str],
        *,
        dsn: str | None = None,
        poll_interval: timedelta = POLL_INTERVAL_DEFAULT,
    ) -> None:
        hub = None if dsn is None else ListenHub(dsn)
        self._wakeup = AsyncWakeup(
            positions, queues, hub=hub, poll_interval=poll_interval, owns_hub=True
        )
        super().__init__(self._wakeup)
        self.epoch = self._wakeup.epoch

    def wait(self, queue: str, epoch: int) -> None:
        """Wait until the queue should be polled again after the take that began at `epoch`."""
        # If the loop is closed, the wakeup has ended, which its caller checks.
        with contextlib.suppress(RuntimeError, CancelledError):
            self.call(self._wakeup.wait(queue, epoch))
