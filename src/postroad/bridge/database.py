"""From a queue of one database to a queue of another, each message exactly once.

The source's transaction takes a batch and stays open. One transaction of the target notes the
batch in its ledger and posts it. Then the source commits. A crash between the two commits makes the
batch come again, and the ledger drops what it holds; a crash before them changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection

from postroad.bridge import calls
from postroad.bridge.calls import Batch, Delivery
from postroad.bridge.ends import open_inlet, open_outlet
from postroad.bridge.pump import Pump, PumpSettings
from postroad.bus import calls as bus_calls
from postroad.bus.notifier import AsyncNotifier
from postroad.bus.session import run_async
from postroad.postgres.connections import connect_async

__all__ = ["DatabaseBridge"]

logger = logging.getLogger(__name__)


class DatabaseBridge(Pump):
    """Carries messages from one database to another; `await install()` once, then run it."""

    def __init__(
        self,
        name: str,
        *,
        source: str,
        target: str,
        queue: str,
        queue_at_target: str | None = None,
        selector: str | None = None,
        settings: PumpSettings | None = None,
    ) -> None:
        super().__init__(name, queue, source, settings)
        self._target_dsn = target
        self.queue_at_target = queue_at_target or queue
        self._selector = selector
        self._target: AsyncConnection[Any] | None = None
        self._notifier: AsyncNotifier | None = None
        self._there = ("", "")
        self._here = ""

    async def install(self) -> None:
        """Open both ends: a consumer at the source, an inlet (and the queue) at the target.

        Repeatable. Raises QueueNotFound, InvalidSelector, PayloadMismatch, BridgeExists.
        """
        await open_outlet(
            self._source, self.bridge, self.queue, self._target_dsn, selector=self._selector
        )
        await open_inlet(
            self._source, self._target_dsn, self.bridge, self.queue, self.queue_at_target
        )

    @asynccontextmanager
    async def reach(self, source: AsyncConnection[Any]) -> AsyncIterator[None]:
        """Connect to the target and settle what the last holder of the bridge left open."""
        database, node = await calls.hello(source)
        self._here = f"{database}@{node}"
        target = await self._connect_target("post")
        try:
            bell = await self._connect_target("bell")
            try:
                self._target = target
                self._there = await calls.hello(target)
                await self._settle_open(source, target)

                async def send(queues: list[str]) -> None:
                    await run_async(bell, bus_calls.notify(*queues))

                self._notifier = AsyncNotifier(send)
                try:
                    yield
                finally:
                    await self._notifier.close()
                    self._target = None
            finally:
                await bell.close()
        finally:
            await target.close()

    async def take(self, hand: AsyncConnection[Any], amount: int) -> Batch:
        """Take a batch as text, without what the target has seen before."""
        return await calls.take(hand, self.bridge, amount, *self._there)

    async def deliver(self, batch: Batch) -> Delivery:
        """Post the batch at the target in one transaction with its ledger."""
        assert self._target is not None  # noqa: S101 - hands live inside reach()
        delivery = await calls.receive(self._target, self.bridge, self._here, batch)
        self.signals.emit("delivered", batch.number)
        if self._notifier is not None:
            self._notifier.announce(self.queue_at_target)
        return delivery

    async def settle(self, source: AsyncConnection[Any], committed: list[int]) -> None:
        """Let the target merge what is committed here."""
        del source
        if self._target is not None:
            await calls.settle(
                self._target, self.bridge, self._here, committed, [], self.settings.keep
            )

    async def _settle_open(
        self, source: AsyncConnection[Any], target: AsyncConnection[Any]
    ) -> None:
        # The locks of all hands are ours: no transaction of a former holder is open any more.
        open_ones = await calls.open_batches(target, self.bridge, self._here)
        if not open_ones:
            return
        done = await calls.committed(source, self.bridge, open_ones)
        lost = sorted(set(open_ones) - set(done))
        await calls.settle(target, self.bridge, self._here, done, lost, self.settings.keep)
        logger.info(
            "bridge_settled",
            extra={"bridge": self.bridge, "committed": len(done), "coming_again": lost},
        )

    async def _connect_target(self, part: str) -> AsyncConnection[Any]:
        return await connect_async(
            self._target_dsn,
            application_name=f"postroad bridge {self.bridge} {part}",
            autocommit=True,
        )
