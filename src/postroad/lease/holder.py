"""Runs a keeper: one task makes the calls that are due, another one watches deadlines."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, TypeVar

from postroad.backoff import Backoff
from postroad.lease.keeper import Keeper
from postroad.service import Service

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
L = TypeVar("L")

# Attempts of the last acks after `stop`; then the leases expire and the work is done again.
MAX_LAST_ACKS = 3


class Deadlines(Service, Generic[K, L]):
    """The timer: reports leases that were not extended in time, whatever the calls wait for."""

    def __init__(self, keeper: Keeper[K, L], on_lost: Callable[[L], None]) -> None:
        super().__init__("lease deadlines")
        self._keeper = keeper
        self._on_lost = on_lost

    async def run(self) -> None:
        """Report passed deadlines until stopped."""
        self.announce_ready()
        while not self.stopping.is_set():
            for lease in self._keeper.expire():
                logger.warning("lease_lost", extra={"reason": "it was not extended in time"})
                self._on_lost(lease)
            await self.changed.wait(self._keeper.seconds_to_deadline())


class Holder(Service, Generic[K, L]):
    """Extends leases while they are held and acks them in batches once they are finished.

    `extend` is called with leases by key and returns the keys that are lost; `ack` acks the leases
    and logs those that were lost. Their `transient` errors are logged and the call is repeated;
    any other error ends the holder, and with it the supervisor. `on_lost` is called
    for each held lease that is lost; it must not block.
    """

    def __init__(
        self,
        keeper: Keeper[K, L],
        extend: Callable[[dict[K, L]], Awaitable[Iterable[K]]],
        on_lost: Callable[[L], None],
        *,
        transient: tuple[type[Exception], ...],
        ack: Callable[[dict[K, L]], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__("lease holder")
        self._keeper = keeper
        self._extend_call = extend
        self._ack_call = ack
        self._on_lost = on_lost
        self._transient = transient
        self._deadlines = Deadlines(keeper, on_lost)
        self._backoff = Backoff()
        # The time for `claim`, to be read before the leases are requested.
        self.now = keeper.clock
        self.holds = keeper.holds
        self.keys = keeper.keys
        self.release = keeper.release

    def claim(self, leases: Iterable[tuple[K, L]], since: float) -> None:
        """Hold new leases."""
        if self._keeper.claim(leases, since):
            self._deadlines.changed.set()

    def finish(self, key: K) -> None:
        """Ack a lease with the next batch; one that was lost is ignored."""
        if self._keeper.finish(key):
            self.changed.set()

    def request_stop(self) -> None:
        """Ask the holder to ack the finished leases and end, without waiting for it."""
        self._keeper.flush()
        super().request_stop()

    async def run(self) -> None:
        """Run the calls that are due until stopped and nothing is left to ack."""
        await self.supervise(self._deadlines)
        self.announce_ready()
        last_acks = 0
        try:
            while not self.stopping.is_set() or self._keeper.has_finished:
                if leases := self._keeper.to_extend():
                    await self._extend(leases)
                elif leases := self._keeper.to_ack():
                    last_acks += self.stopping.is_set()
                    if not await self._ack(leases) and last_acks >= MAX_LAST_ACKS:
                        break
                else:
                    await self.changed.wait(self._keeper.rest_seconds())
        finally:
            await self.stop_supervised()

    async def _extend(self, leases: dict[K, L]) -> None:
        since = self.now()
        try:
            lost = await self._extend_call(leases)
        except self._transient as failure:
            logger.warning("heartbeat_failed", extra={"reason": str(failure).strip()})
            return
        for lease in self._keeper.extended(leases, since, lost):
            logger.warning("lease_lost", extra={"reason": "the server has released it"})
            self._on_lost(lease)

    async def _ack(self, leases: dict[K, L]) -> bool:
        try:
            if self._ack_call is not None:
                await self._ack_call(leases)
        except self._transient as failure:
            logger.warning("ack_failed", extra={"reason": str(failure).strip()})
            self._keeper.ack_failed(leases, self._backoff.next_seconds())
            return False
        self._backoff.reset()
        self._keeper.acked(leases)
        return True
