"""Acks of finished leases, gathered: one call for many, within a bounded delay."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import timedelta

from postroad.bus.async_client import AsyncBus
from postroad.bus.message import LeasedMessage
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.service import Service

__all__ = ["AsyncAcknowledger"]

logger = logging.getLogger(__name__)

LAST_TRIES = 3


class AsyncAcknowledger(Service):
    """Acks what is finished; tells `done` for each message that it has dealt with.

    A call that failed is repeated: a lease is acked once at most, whoever asks how often.
    """

    def __init__(
        self,
        bus: AsyncBus,
        delay: timedelta,
        batch: int,
        done: Callable[[LeasedMessage], None],
    ) -> None:
        super().__init__("acknowledger")
        self._bus = bus
        self._delay_seconds = delay.total_seconds()
        self._batch = batch
        self._done = done
        self._pending: list[LeasedMessage] = []
        self._some = asyncio.Event()
        self._enough = asyncio.Event()

    def finish(self, message: LeasedMessage) -> None:
        """Ack this message soon."""
        self._pending.append(message)
        self._some.set()
        if len(self._pending) >= self._batch:
            self._enough.set()

    async def stop(self) -> None:
        """Ack what is pending and end."""
        self.stopping.set()
        self._some.set()
        self._enough.set()
        await super().stop()

    async def run(self) -> None:
        """Ack until stopped and nothing is pending."""
        self.announce_ready()
        while self._pending or not self.stopping.is_set():
            await self._some.wait()
            if not self.stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._delay_seconds):
                        await self._enough.wait()
            await self._flush()

    async def _flush(self) -> None:
        messages, self._pending = self._pending, []
        self._some.clear()
        self._enough.clear()
        if self.stopping.is_set():
            self._some.set()
        backoff, failures = Backoff(), 0
        while messages:
            try:
                lost = await self._bus.ack_many(messages)
            except SURVIVABLE as failure:
                logger.warning("ack_failed", extra={"reason": str(failure).strip()})
                failures += 1
                if self.stopping.is_set() and failures >= LAST_TRIES:
                    # The leases end by themselves; the messages will be handled again.
                    return
                await asyncio.sleep(backoff.next_seconds())
                continue
            for iid in lost:
                logger.warning("lease_lost", extra={"iid": iid})
            for message in messages:
                self._done(message)
            return
