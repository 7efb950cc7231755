"""Emptying an outlet: batches are taken ahead, delivered in order, and committed afterwards.

Several connections to the source work in parallel. Each takes a batch and keeps its transaction
open, waits until the batches taken before are delivered, delivers its own, and commits. While one
batch is being sent, the next one is being taken and the previous one committed. A failure cancels
all of them: their transactions roll back, the messages stay in the queue, and batches that were
already delivered are dropped at the target when they are sent again.

Only one process empties an outlet: each connection holds an advisory lock of the source. Another
process that runs the same bridge stands by, and takes over when those sessions have ended.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import AsyncExitStack

from postroad.bridge.calls import Batch, Delivery, call, take, transact
from postroad.bridge.service import STATE_SECONDS, BridgeService, PumpSettings
from postroad.bus import calls as bus_calls
from postroad.bus.session import run_async
from postroad.bus.spans import carried
from postroad.bus.wakeup import AsyncWakeup
from postroad.postgres.calls import Connection, value
from postroad.postgres.listen import ListenHub
from postroad.settings.values import masked_database_url

FIRST_BATCH_MESSAGES = 100
CONFIRM_SECONDS = 10.0


class Pump(BridgeService):
    """Empties one outlet of one database; a subclass delivers its messages."""

    stop_grace_seconds = 10.0

    def __init__(
        self,
        bridge: str,
        queue: str,
        source: str,
        *,
        selector: str | None = None,
        settings: PumpSettings | None = None,
    ) -> None:
        super().__init__(bridge, queue, source, settings)
        self._selector = selector
        self._amount = min(FIRST_BATCH_MESSAGES, self.settings.batch_messages)
        self._state = "running"
        self._state_changed = asyncio.Event()
        self._committed: list[int] = []
        self._wakeup: AsyncWakeup | None = None
        # Database and node of the target, if it is a database.
        self._there: tuple[str, ...] = ()

    @abstractmethod
    async def reach(self, stack: AsyncExitStack, source: Connection) -> None:
        """Connect to the other end; the stack closes what was opened."""

    @abstractmethod
    async def deliver(self, batch: Batch) -> Delivery:
        """Deliver the batch; when this returns it is durable at the other end."""

    async def confirm(self, committed: list[int]) -> None:
        """Report to the other end which batches are committed here."""

    async def open_outlet(self, target: str, consumer: str | None = None) -> None:
        """Create the outlet and its consumer at the source; repeatable.

        Raises QueueNotFound, ConsumerNotFound, InvalidSelector, BridgeExists.
        """
        label = target if target.startswith("rabbitmq:") else masked_database_url(target)
        async with transact(self._dsn) as connection:
            await call(
                connection, "open_outlet", self.bridge, self.queue, label, self._selector, consumer
            )

    def request_stop(self) -> None:
        """Ask the service to stop, also while it waits."""
        super().request_stop()
        self._state_changed.set()
        if self._wakeup is not None:
            self._wakeup.wake([self.queue])

    async def transfer(self) -> None:
        """Empty the outlet until the service is to stop."""
        async with AsyncExitStack() as stack:
            watch = await stack.enter_async_context(self.connect("watch", autocommit=True))
            connections = [
                await stack.enter_async_context(self.connect(f"hand {number}"))
                for number in range(self.settings.connections)
            ]
            for number, connection in enumerate(connections):
                is_held = await call(connection, "hold", self.bridge, number)
                await connection.commit()
                if not is_held:
                    await self.stand_by("standby")
                    return
            await self.reach(stack, watch)
            await self._follow_state(watch)
            hub = ListenHub(self._dsn) if self.settings.listen else None
            if hub is not None:
                stack.push_async_callback(hub.stop)

            async def positions(queues: list[str]) -> list[int]:
                return await run_async(watch, bus_calls.positions(*queues))

            poll = self.settings.poll_interval
            wakeup = AsyncWakeup(positions, [self.queue], hub=hub, poll_interval=poll)
            self._wakeup = await stack.enter_async_context(wakeup)
            self._taking = asyncio.Lock()
            self._last_delivery = asyncio.Event()
            self._last_delivery.set()
            self.announce_ready()
            self.signals.emit("pumping")
            async with asyncio.TaskGroup() as group:
                keeper = group.create_task(self._keep(watch))
                tasks = [
                    group.create_task(self._transfer_batches(connection, wakeup))
                    for connection in connections
                ]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                keeper.cancel()
            await self._follow_state(watch)
            await self._confirm(watch)

    async def _transfer_batches(self, connection: Connection, wakeup: AsyncWakeup) -> None:
        while not self.stopping.is_set():
            # Critical section: one connection at a time takes, so deliveries are in order of takes.
            async with self._taking:
                batch = await self._take_or_wait(connection, wakeup)
                if batch is None:
                    continue
                before, self._last_delivery = self._last_delivery, asyncio.Event()
                mine = self._last_delivery
            await before.wait()
            delivery = Delivery(0)
            if batch.messages:
                with carried(self.bridge, batch.headers):
                    delivery = await self.deliver(batch)
            # Not after a failure: then all connections are cancelled.
            mine.set()
            if delivery.refused:
                # They are written to the dead message queue in the transaction that took them.
                refused = list(delivery.refused), list(delivery.errors)
                arrays = (batch.iids, batch.data, batch.headers, batch.properties, batch.expires)
                await call(connection, "bury", self.bridge, *refused, *arrays)
            await connection.commit()
            self.succeed()
            if batch.number is not None:
                self._committed.append(batch.number)
            self.delivered += delivery.posted
            self.dropped += delivery.dropped
            self.refused += len(delivery.refused)
            self.signals.emit("committed", batch.number)

    async def _take_or_wait(self, connection: Connection, wakeup: AsyncWakeup) -> Batch | None:
        if self._state in ("paused", "drained"):
            self.succeed()
            self._state_changed.clear()
            if not self.stopping.is_set():
                await self._state_changed.wait()
            return None
        if self.stopping.is_set():
            return None
        epoch = wakeup.epoch(self.queue)
        batch = await take(connection, self.bridge, self._amount, *self._there)
        if batch.messages + batch.looped:
            if batch.messages:
                fitting = int(self.settings.batch_bytes / max(1.0, batch.size / batch.messages))
                limit = min(self.settings.batch_messages, fitting, self._amount * 10)
                self._amount = max(1, limit)
            return batch
        await connection.rollback()
        if self._state == "draining" and await self._is_drained(connection):
            return None
        self.succeed()
        self.signals.emit("idle")
        await wakeup.wait(self.queue, epoch)
        return None

    async def _is_drained(self, connection: Connection) -> bool:
        """Check whether nothing is left, delayed, blocked and leased messages included."""
        lag = "select lag from bridge.status where name = %s and direction = 'out'"
        is_drained = not await value(connection, lag, self.bridge)
        if is_drained:
            await call(connection, "set_state", self.bridge, "drained")
            self._state = "drained"
        await connection.commit()
        return is_drained

    async def _keep(self, watch: Connection) -> None:
        loop = asyncio.get_running_loop()
        confirmed_at = loop.time()
        while True:
            await self._follow_state(watch)
            if loop.time() - confirmed_at >= CONFIRM_SECONDS:
                await self._confirm(watch)
                confirmed_at = loop.time()
            await asyncio.sleep(STATE_SECONDS)

    async def _follow_state(self, watch: Connection) -> None:
        state = await self.read_state(watch)
        if state != self._state:
            self._state = state
            self._state_changed.set()

    async def _confirm(self, watch: Connection) -> None:
        committed, self._committed = self._committed, []
        await self.confirm(committed)
        if committed:
            await call(watch, "forget", self.bridge, max(committed))
