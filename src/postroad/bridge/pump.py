"""Emptying an outlet: batches are taken ahead, delivered in order, and committed behind.

```
standby ──hold()──▶ settling ──▶ pumping ──failure──▶ waiting ──backoff──▶ standby
                                   │  ▲
                                   ▼  │ state of the outlet
                                 paused, drained
```

Several *hands* (sessions of the source) work in turn. A hand takes a batch and keeps its
transaction open; when its turn comes the batch is delivered; then the hand commits. So while one
batch travels the next one is being taken, and one before it is being committed. Deliveries are
strictly in order of takes. Whatever fails ends all hands at once: their transactions roll back,
the messages are in the queue as if nobody had touched them, and what had been delivered already is
dropped at the other end when it comes again.

Only one process pumps an outlet: each hand holds an advisory lock of the source. Another process
that runs the same bridge stands by, and takes over when the sessions of the first are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection, IsolationLevel

from postroad.bridge import calls
from postroad.bridge.calls import Batch, Delivery
from postroad.bridge.failures import log_failure, sentence
from postroad.bridge.turns import Turns
from postroad.bus import calls as bus_calls
from postroad.bus.async_wakeup import AsyncWakeup
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.session import run_async
from postroad.postgres.connections import connect_async
from postroad.postgres.listen import ListenHub
from postroad.service import Service

__all__ = ["Pump", "PumpSettings"]

BATCH_MESSAGES_DEFAULT = 4_000
BATCH_BYTES_DEFAULT = 4_000_000
HANDS_DEFAULT = 3
KEEP_DEFAULT = timedelta(days=1)
FIRST_AMOUNT = 100
STANDBY_SECONDS = 0.5
KEEPER_SECONDS = 0.5
SETTLE_SECONDS = 10.0
STOP_GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class PumpSettings:
    """How a bridge works.

    Attributes:
        batch_messages: messages carried at once, at most.
        batch_bytes: about how many bytes that may be.
        hands: sessions at the source; one less is the number of batches taken ahead.
        keep: how long arrived messages are remembered, to drop them when they come another way.
        poll_interval: how often to look when nobody says that something was posted.
        listen: be woken by the source's notices; needs a direct connection.
    """

    batch_messages: int = BATCH_MESSAGES_DEFAULT
    batch_bytes: int = BATCH_BYTES_DEFAULT
    hands: int = HANDS_DEFAULT
    keep: timedelta = KEEP_DEFAULT
    poll_interval: timedelta = timedelta(milliseconds=100)
    listen: bool = True


class Pump(Service):
    """Empties one outlet of one database; a subclass says where its messages go."""

    def __init__(
        self, bridge: str, queue: str, source: str, settings: PumpSettings | None = None
    ) -> None:
        super().__init__(f"bridge {bridge}")
        self.bridge = bridge
        self.queue = queue
        self._source = source
        self.settings = settings or PumpSettings()
        self.delivered = 0
        self.dropped = 0
        self.refused = 0
        self._amount = min(FIRST_AMOUNT, self.settings.batch_messages)
        self._state = "running"
        self._state_changed = asyncio.Event()
        self._committed: list[int] = []
        # Whether something went well since the last failure, and whether a problem may be noted.
        self._is_well = False
        self._has_problem = True

    # What a subclass writes.

    @abstractmethod
    def reach(self, source: AsyncConnection[Any]) -> contextlib.AbstractAsyncContextManager[None]:
        """Connect to the other end for as long as the context lasts."""

    @abstractmethod
    async def take(self, hand: AsyncConnection[Any], amount: int) -> Batch:
        """Take a batch in the hand's transaction."""

    @abstractmethod
    async def deliver(self, batch: Batch) -> Delivery:
        """Make the other end keep the batch; when this returns it is durable there."""

    async def settle(self, source: AsyncConnection[Any], committed: list[int]) -> None:
        """Tell the other end which batches are committed here."""

    # The life of the service.

    async def run(self) -> None:
        """Pump until stopped, whatever happens to either end."""
        backoff = Backoff()
        work = asyncio.create_task(self._work(backoff), name=self.name)
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self._state_changed.set()
            await asyncio.wait({work}, timeout=STOP_GRACE_SECONDS)
        finally:
            stopping.cancel()
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work

    async def _work(self, backoff: Backoff) -> None:
        while not self.stopping.is_set():
            try:
                await self._pump(backoff)
            except* Exception as failures:  # noqa: BLE001 - whatever it is, a bridge tries again
                # Whoever starts the bridge need not wait for the other end: it retries by itself.
                self.announce_ready()
                problem = sentence(failures.exceptions[0])
                log_failure(self.bridge, problem, failures)
                self._is_well, self._has_problem = False, True
                await self._note(problem)
                self.signals.emit("failed", problem)
                await self.pause(backoff.next_seconds())

    async def _pump(self, backoff: Backoff) -> None:
        async with AsyncExitStack() as stack:
            watch = await stack.enter_async_context(self._connect("watch", autocommit=True))
            hands = [
                await stack.enter_async_context(self._connect(f"hand {number}"))
                for number in range(self.settings.hands)
            ]
            if not await self._hold(hands):
                self.announce_ready()
                self.signals.emit("standby")
                await self.pause(STANDBY_SECONDS)
                return
            await stack.enter_async_context(self.reach(watch))
            await self._look(watch)
            wakeup = await stack.enter_async_context(self._wakeup(watch))
            turns = Turns()
            self.announce_ready()
            self.signals.emit("pumping")
            async with asyncio.TaskGroup() as group:
                keeper = group.create_task(self._keep(watch))
                tasks = [
                    group.create_task(self._hand(hand, turns, wakeup, backoff)) for hand in hands
                ]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                keeper.cancel()
            # In order, what is left undone is done.
            await self._look(watch)
            await self._settle(watch)

    async def _hold(self, hands: list[AsyncConnection[Any]]) -> bool:
        for number, hand in enumerate(hands):
            held = await calls.hold(hand, self.bridge, number)
            await hand.commit()
            if not held:
                return False
        return True

    # The hands.

    async def _hand(
        self,
        hand: AsyncConnection[Any],
        turns: Turns,
        wakeup: AsyncWakeup,
        backoff: Backoff,
    ) -> None:
        while not self.stopping.is_set():
            # Critical section: one hand at a time takes, so that turns are in order of takes.
            async with turns.taking:
                batch = await self._take_or_wait(hand, wakeup)
                if batch is None:
                    continue
                turn = turns.next()
            async with turn:
                delivery = await self.deliver(batch) if batch.messages else Delivery(0)
            if delivery.refused:
                await calls.bury(hand, self.bridge, batch, delivery)
            await hand.commit()
            backoff.reset()
            self._is_well = True
            if batch.number is not None:
                self._committed.append(batch.number)
            self.delivered += delivery.posted
            self.dropped += delivery.dropped
            self.refused += len(delivery.refused)
            self.signals.emit("committed", batch.number)

    async def _take_or_wait(self, hand: AsyncConnection[Any], wakeup: AsyncWakeup) -> Batch | None:
        if self._state in ("paused", "drained"):
            self._is_well = True
            self._state_changed.clear()
            if not self.stopping.is_set():
                await self._state_changed.wait()
            return None
        if self.stopping.is_set():
            return None
        epoch = wakeup.epoch(self.queue)
        batch = await self.take(hand, self._amount)
        if not batch.is_empty:
            self._pace(batch)
            return batch
        await hand.rollback()
        if self._state == "draining":
            # What is delayed, blocked or still with another hand counts: it has not left yet.
            is_empty = await calls.left(hand, self.bridge) == 0
            if is_empty:
                await calls.set_state(hand, self.bridge, "drained")
                self._state = "drained"
            await hand.commit()
            if is_empty:
                return None
        self._is_well = True
        self.signals.emit("idle")
        waiting = asyncio.create_task(wakeup.wait(self.queue, epoch))
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping.cancel()
        return None

    def _pace(self, batch: Batch) -> None:
        """Choose the next amount so that a batch keeps to its bytes."""
        if batch.messages:
            fitting = int(self.settings.batch_bytes / max(1.0, batch.size / batch.messages))
            # Never more than ten times the last one: the next messages may be much longer.
            self._amount = max(1, min(self.settings.batch_messages, fitting, self._amount * 10))

    # The keeper.

    async def _keep(self, watch: AsyncConnection[Any]) -> None:
        loop = asyncio.get_running_loop()
        settled_at = loop.time()
        while True:
            await self._look(watch)
            if loop.time() - settled_at >= SETTLE_SECONDS:
                await self._settle(watch)
                settled_at = loop.time()
            await asyncio.sleep(KEEPER_SECONDS)

    async def _look(self, watch: AsyncConnection[Any]) -> None:
        # Connecting alone proves nothing: what stopped the bridge may be the next message.
        if self._is_well and self._has_problem:
            await calls.note_problem(watch, self.bridge, None)
            self._has_problem = False
        state = await calls.state(watch, self.bridge)
        if state != self._state:
            self._state = state
            self._state_changed.set()

    async def _settle(self, watch: AsyncConnection[Any]) -> None:
        committed, self._committed = self._committed, []
        await self.settle(watch, committed)
        if committed:
            await calls.forget(watch, self.bridge, max(committed))

    async def _note(self, problem: str) -> None:
        with contextlib.suppress(*SURVIVABLE):
            async with self._connect("watch", autocommit=True) as connection:
                await calls.note_problem(connection, self.bridge, problem)

    # Connections.

    @asynccontextmanager
    async def _connect(
        self, part: str, *, autocommit: bool = False
    ) -> AsyncIterator[AsyncConnection[Any]]:
        connection = await connect_async(
            self._source,
            application_name=f"postroad bridge {self.bridge} {part}",
            autocommit=autocommit,
        )
        # Taking refuses higher levels, whatever the database's default may be.
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        try:
            await calls.guard(connection)
            yield connection
        finally:
            # Not `async with`: that would commit, and a hand that failed must not.
            await connection.close()

    @asynccontextmanager
    async def _wakeup(self, watch: AsyncConnection[Any]) -> AsyncIterator[AsyncWakeup]:
        async def positions(queues: list[str]) -> list[int]:
            return await run_async(watch, bus_calls.positions(*queues))

        hub = ListenHub(self._source) if self.settings.listen else None
        wakeup = AsyncWakeup(
            positions, [self.queue], hub=hub, poll_interval=self.settings.poll_interval
        )
        try:
            async with wakeup:
                yield wakeup
        finally:
            if hub is not None:
                await hub.stop()
