"""The heartbeat of leases: one call extends all that are held."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from postroad.bus.async_client import AsyncBus
from postroad.bus.message import LeasedMessage
from postroad.bus.reconnect import SURVIVABLE
from postroad.service import Service

__all__ = ["AsyncHeartbeat"]

logger = logging.getLogger(__name__)

BEATS_PER_LEASE = 3


class AsyncHeartbeat(Service):
    """Extends what is held three times a lease; tells `lost` which messages are gone.

    While the database is away nothing can be extended; a lease counts as lost when its time is up
    on this machine's clock.
    """

    def __init__(self, bus: AsyncBus, ttl: timedelta, lost: Callable[[str], None]) -> None:
        super().__init__("heartbeat")
        self._bus = bus
        self._ttl = ttl
        self._lost = lost
        self._held: dict[str, tuple[LeasedMessage, float]] = {}

    def hold(self, message: LeasedMessage) -> None:
        """Keep extending this message's lease."""
        self._held[message.iid] = (message, self._now() + self._ttl.total_seconds())

    def release(self, message: LeasedMessage) -> None:
        """Extend it no more; unknown messages are ignored."""
        self._held.pop(message.iid, None)

    async def run(self) -> None:
        """Beat until stopped."""
        self.announce_ready()
        while not await self.pause(self._ttl.total_seconds() / BEATS_PER_LEASE):
            if self._held:
                await self._beat()

    async def _beat(self) -> None:
        held = [message for message, _ in list(self._held.values())]
        deadline = self._now() + self._ttl.total_seconds()
        try:
            lost = await self._bus.extend_many(held, self._ttl)
        except SURVIVABLE as failure:
            logger.warning("heartbeat_failed", extra={"reason": str(failure).strip()})
            lost = [iid for iid, (_, end) in list(self._held.items()) if end <= self._now()]
        else:
            for message in held:
                if message.iid in self._held:
                    self._held[message.iid] = (message, deadline)
        self.signals.emit("beat", held)
        for iid in lost:
            # Done meanwhile, perhaps: then nobody misses it.
            if self._held.pop(iid, None) is not None:
                logger.warning("lease_lost", extra={"iid": iid})
                self._lost(iid)

    @staticmethod
    def _now() -> float:
        return time.monotonic()
