"""Maintenance; any number of processes may run it concurrently."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from psycopg import AsyncConnection

from postroad.bus import calls
from postroad.bus.polling import maintenance_pause_seconds
from postroad.bus.session import run_async
from postroad.postgres.connected_service import ConnectedService
from postroad.service import LoopThread

logger = logging.getLogger(__name__)

MAINTENANCE_INTERVAL_DEFAULT = timedelta(milliseconds=500)
# The time since it last ran, of any process; many years if it never did.
MAINTENANCE_AGE = (
    "select make_interval(secs => extract(epoch from mbus.now()) - last_value) from mbus.attended"
)


class AsyncMaintenance(ConnectedService):
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
        event, is_pooled = "maintenance_failed", self._is_pooled
        await self.repeat(self._maintain, self._dsn, event=event, is_pooled=is_pooled)

    async def _maintain(self, connection: AsyncConnection) -> None:
        began = time.monotonic()
        done = await run_async(connection, calls.maintain())
        call_seconds = time.monotonic() - began
        self.announce_ready()
        logger.debug("maintained", extra={"queues": [each.queue for each in done]})
        moved = max((max(each.released, each.ended, each.expired) for each in done), default=0)
        await self.pause(
            maintenance_pause_seconds(self._interval_seconds, len(done), moved, call_seconds)
        )


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
