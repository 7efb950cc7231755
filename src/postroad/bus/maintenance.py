"""Maintenance; any number of processes may run it concurrently."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from postroad.bus import calls
from postroad.bus.polling import maintenance_pause_seconds
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.session import run_async
from postroad.postgres.connections import connect_async
from postroad.service import LoopThread, Service

logger = logging.getLogger(__name__)

MAINTENANCE_INTERVAL_DEFAULT = timedelta(milliseconds=500)


class AsyncMaintenance(Service):
    """Calls mbus.maintain from one session, twice a second or more often, and reconnects."""

    def __init__(
        self,
        dsn: str,
        interval: timedelta = MAINTENANCE_INTERVAL_DEFAULT,
        *,
        is_pooled: bool = False,
    ) -> None:
        super().__init__("maintenance")
        self._dsn = dsn
        self._is_pooled = is_pooled
        self._interval_seconds = interval.total_seconds()

    async def run(self) -> None:
        """Maintain until stopped."""
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                async with await connect_async(
                    self._dsn,
                    application_name="postroad maintenance",
                    autocommit=True,
                    is_pooled=self._is_pooled,
                ) as connection:
                    while not self.stopping.is_set():
                        began = time.monotonic()
                        done = await run_async(connection, calls.maintain())
                        call_seconds = time.monotonic() - began
                        backoff.reset()
                        self.announce_ready()
                        logger.debug("maintained", extra={"queues": [each.queue for each in done]})
                        await self.pause(
                            maintenance_pause_seconds(
                                self._interval_seconds,
                                len(done),
                                max((max(d.released, d.ended, d.expired) for d in done), default=0),
                                call_seconds,
                            )
                        )
            except SURVIVABLE as failure:
                logger.warning("maintenance_failed", extra={"reason": str(failure).strip()})
                await self.pause(backoff.next_seconds())


class Maintenance(LoopThread):
    """Calls mbus.maintain from one session, twice a second or more often, and reconnects."""

    def __init__(
        self,
        dsn: str,
        interval: timedelta = MAINTENANCE_INTERVAL_DEFAULT,
        *,
        is_pooled: bool = False,
    ) -> None:
        super().__init__(AsyncMaintenance(dsn, interval, is_pooled=is_pooled))
