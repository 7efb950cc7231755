"""From a queue of one database to a queue of another, each message exactly once.

The source's transaction takes a batch and stays open. One transaction of the target records the
batch in its ledger and posts it. Then the source commits. After a crash between the two commits the
batch is sent again, and the ledger drops the messages that it contains; a crash before them changes
nothing.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

from postroad.bridge.calls import Batch, Delivery, call, receive, transact
from postroad.bridge.pump import Pump
from postroad.bridge.service import PumpSettings, notifier_on
from postroad.postgres.calls import Connection

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
        super().__init__(name, queue, source, selector=selector, settings=settings)
        self.source = source
        self._target_dsn = target
        self.queue_at_target = queue_at_target or queue

    async def install(self) -> None:
        """Create a consumer at the source, an inlet and the queue at the target.

        Repeatable. Raises QueueNotFound, InvalidSelector, PayloadMismatch, BridgeExists.
        """
        await self.open_outlet(self._target_dsn)
        async with transact(self._dsn) as connection:
            here = "@".join(await call(connection, "hello"))
            payload = await call(connection, "_payload", self.queue)
        async with transact(self._target_dsn) as connection:
            await call(connection, "open_inlet", self.bridge, here, self.queue_at_target, payload)

    async def reach(self, stack: AsyncExitStack, source: Connection) -> None:
        """Connect to the target and confirm the batches that an earlier process left open."""
        self._here = "@".join(await call(source, "hello"))
        self._target, notices = [
            await stack.enter_async_context(self.connect(part, self._target_dsn, autocommit=True))
            for part in ("post", "bell")
        ]
        self._there = await call(self._target, "hello")
        self._notifier = notifier_on(notices)
        stack.push_async_callback(self._notifier.close)
        # The locks of all connections are ours: no transaction of an earlier process is open.
        if batches := await call(self._target, "open_batches", self.bridge, self._here):
            done = await call(source, "committed", self.bridge, batches)
            lost = sorted(set(batches) - set(done))
            await self.confirm(done, lost)
            extra = {"bridge": self.bridge, "committed": len(done), "coming_again": lost}
            logger.info("bridge_batches_confirmed", extra=extra)

    async def deliver(self, batch: Batch) -> Delivery:
        """Post the batch at the target in one transaction with its ledger."""
        delivery = await receive(self._target, self.bridge, self._here, batch)
        self.signals.emit("delivered", batch.number)
        self._notifier.announce(self.queue_at_target)
        return delivery

    async def confirm(self, committed: list[int], lost: list[int] | None = None) -> None:
        """Let the target merge the ledger rows of batches that are committed here."""
        keep = self.settings.keep
        await call(self._target, "settle", self.bridge, self._here, committed, lost or [], keep)
