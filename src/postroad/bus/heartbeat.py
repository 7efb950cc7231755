"""The heartbeat of leases: one call extends all that are held."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from postroad.bus.client import Bus
from postroad.bus.message import LeasedMessage
from postroad.bus.reconnect import SURVIVABLE
from postroad.bus.thread import ThreadService
from postroad.bus.worker import lost_leases

__all__ = ["Heartbeat"]

logger = logging.getLogger(__name__)

BEATS_PER_LEASE = 3


class Heartbeat(ThreadService):
    """Extends what is held three times a lease; tells `lost` which messages are gone.

    While the database is away nothing can be extended; a lease counts as lost when its time is up
    on this machine's clock.
    """

    def __init__(self, bus: Bus, ttl: timedelta, lost: Callable[[LeasedMessage], None]) -> None:
        super().__init__("heartbeat")
        self._bus = bus
        self._ttl = ttl
        self._lost = lost
        self._held: dict[int, tuple[LeasedMessage, float]] = {}

    def hold(self, message: LeasedMessage) -> None:
        """Keep extending this message's lease."""
        self._held[message.token] = (message, self._now() + self._ttl.total_seconds())

    def release(self, message: LeasedMessage) -> None:
        """Extend it no more; unknown messages are ignored."""
        self._held.pop(message.token, None)

    def run(self) -> None:
        """Beat until stopped."""
        self.announce_ready()
        while not self.pause(self._ttl.total_seconds() / BEATS_PER_LEASE):
            if self._held:
                self._beat()

    def _beat(self) -> None:
        held = [message for message, _ in list(self._held.values())]
        deadline = self._now() + self._ttl.total_seconds()
        try:
            iids = self._bus.extend_many(held, self._ttl)
        except SURVIVABLE as failure:
            logger.warning("heartbeat_failed", extra={"reason": str(failure).strip()})
            lost = [message for message, end in list(self._held.values()) if end <= self._now()]
        else:
            lost = lost_leases(held, iids)
            for message in held:
                if message.token in self._held:
                    self._held[message.token] = (message, deadline)
        for message in lost:
            # Done meanwhile, perhaps: then nobody misses it.
            if self._held.pop(message.token, None) is not None:
                logger.warning("lease_lost", extra={"iid": message.iid})
                self._lost(message)

    @staticmethod
    def _now() -> float:
        return time.monotonic()
