# Written by `make generate` from bus/async_maintenance.py; edit that file.
"""Maintenance from a thread; any number of processes may run it concurrently."""

from __future__ import annotations

import logging
from datetime import timedelta

from postroad.bus import calls
from postroad.bus.polling import maintenance_pause_seconds
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.session import run
from postroad.postgres.connections import connect
from postroad.service import ThreadService

logger = logging.getLogger(__name__)

MAINTENANCE_INTERVAL_DEFAULT = timedelta(milliseconds=500)


class Maintenance(ThreadService):
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

    def run(self) -> None:
        """Maintain until stopped."""
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                with connect(
                    self._dsn,
                    application_name="postroad maintenance",
                    autocommit=True,
                    is_pooled=self._is_pooled,
                ) as connection:
                    while not self.stopping.is_set():
                        done = run(connection, calls.maintain())
                        backoff.reset()
                        self.announce_ready()
                        logger.debug("maintained", extra={"queues": [each.queue for each in done]})
                        self.pause(maintenance_pause_seconds(self._interval_seconds, len(done)))
            except SURVIVABLE as failure:
                logger.warning("maintenance_failed", extra={"reason": str(failure).strip()})
                self.pause(backoff.next_seconds())
