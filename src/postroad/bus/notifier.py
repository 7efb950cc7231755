"""Notifications of waiting workers, sent after the producer's commit.

A NOTIFY inside the producer's transaction would make all commits of the server wait for one
lock. So it is sent after the commit, on another connection, at most once per queue and interval.
Workers that miss it find the message by polling, so failures are only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from postroad.bus.errors import BusError
from postroad.service import Service

logger = logging.getLogger(__name__)

NOTIFY_INTERVAL_DEFAULT = timedelta(milliseconds=10)

_FAILURES = (psycopg.Error, PoolClosed, PoolTimeout, BusError, OSError)


class Notifier(Service):
    """Sends what was announced since it last sent; any thread may announce."""

    def __init__(
        self,
        send: Callable[[list[str]], Awaitable[None]],
        interval: timedelta = NOTIFY_INTERVAL_DEFAULT,
    ) -> None:
        super().__init__("notifier")
        self._send = send
        self._interval = interval.total_seconds()
        self._pending: set[str] = set()

    def announce(self, queue: str) -> None:
        """Schedule a notification; never blocks, never fails."""
        self._pending.add(queue)
        self.changed.set()

    async def run(self) -> None:
        """Send until stopped and nothing is pending."""
        self.announce_ready()
        while self._pending or not self.stopping.is_set():
            await self.changed.wait()
            # Other threads may add to it meanwhile.
            queues = sorted([self._pending.pop() for _ in range(len(self._pending))])
            if queues:
                try:
                    await self._send(queues)
                except _FAILURES as failure:
                    logger.debug("notify_failed", extra={"reason": str(failure)})
                await self.pause(self._interval)
