"""Maintenance: due messages, expired leases, expired queues. Any consuming process may run it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from postroad.broker.link import Link
from postroad.bus import calls
from postroad.bus.measures import Measures
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.service import ThreadService

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.25
SWEEP_SECONDS = 10.0


class Upkeep(ThreadService):
    """Calls broker.maintain as long as the connection consumes.

    One process at a time does the work; the calls of the others return immediately. An elected
    leader would stop maintenance when its network fails.
    """

    def __init__(self, dsn: str, measures: Mapping[str, Measures]) -> None:
        super().__init__("broker upkeep")
        self._dsn = dsn
        self._measures = measures

    def run(self) -> None:
        """Maintain until stopped; reconnect after errors."""
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                link = Link(self._dsn, "broker upkeep")
                try:
                    self._maintain(link, backoff)
                finally:
                    link.close()
            except SURVIVABLE as failure:
                logger.warning("upkeep_failed", extra={"reason": str(failure).strip()})
                self.pause(backoff.next_seconds())

    def _maintain(self, link: Link, backoff: Backoff) -> None:
        self.announce_ready()
        swept = 0.0
        while not self.stopping.is_set():
            link.run("select broker.maintain()")
            if time.monotonic() - swept > SWEEP_SECONDS:
                swept = time.monotonic()
                link.run("select broker.clear_queues()")
                link.run("select broker.clear_results()")
                self._send_measures(link)
            backoff.reset()
            self.pause(INTERVAL_SECONDS)
        self._send_measures(link)

    def _send_measures(self, link: Link) -> None:
        for measures in list(self._measures.values()):
            if (taken := measures.take()) is not None:
                call = calls.measure(*taken)
                link.run(call.text, call.parameters)
