"""Waiting for messages in threads: the wakeup of an event loop in its own thread."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta

from postroad.bus.async_wakeup import AsyncWakeup
from postroad.bus.polling import POLL_INTERVAL_DEFAULT
from postroad.postgres.listen import ListenHub
from postroad.service import LoopThread


class _Notifying(AsyncWakeup):
    """Wakes threads as well; its hub ends with it."""

    changed: threading.Condition

    def wake(self, queues: Iterable[str]) -> None:
        super().wake(queues)
        with self.changed:
            self.changed.notify_all()

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            if self._hub is not None:
                await self._hub.stop()


class Wakeup(LoopThread):
    """Wakes the waiters of a set of queues."""

    def __init__(
        self,
        positions: Callable[[list[str]], Awaitable[list[int]]],
        queues: Iterable[str],
        *,
        dsn: str | None = None,
        poll_interval: timedelta = POLL_INTERVAL_DEFAULT,
    ) -> None:
        hub = None if dsn is None else ListenHub(dsn)
        self._wakeup = _Notifying(positions, queues, hub=hub, poll_interval=poll_interval)
        self._changed = self._wakeup.changed = threading.Condition()
        super().__init__(self._wakeup)
        self.epoch = self._wakeup.epoch

    def request_stop(self) -> None:
        """Ask the thread to end and wake all waiters."""
        super().request_stop()
        with self._changed:
            self._changed.notify_all()

    def wait(self, queue: str, epoch: int) -> None:
        """Wait until the queue should be polled again after the take that began at `epoch`."""
        with self._changed:
            self._changed.wait_for(lambda: self.epoch(queue) != epoch or self.stopping.is_set())
