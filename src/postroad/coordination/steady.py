"""What all services of the room share: a connection that comes back, and being woken.

```
connecting ──> working ──nothing to do──> waiting ──woken, or the pause is over──> working
    ▲             └── connection lost, server away: logged, backoff ──┐
    └─────────────────────────────────────────────────────────────────┘
```
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection

from postroad.bus import calls as bus_calls
from postroad.bus.async_wakeup import AsyncWakeup
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.session import run_async
from postroad.coordination.errors import CoordinationError, translate
from postroad.postgres.connections import connect_async
from postroad.postgres.listen import ListenHub
from postroad.service import Service

__all__ = ["SteadyService", "notify", "run_together"]

logger = logging.getLogger(__name__)


class SteadyService(Service):
    """Calls `work()` again and again on a connection; a subclass writes `work()`."""

    def __init__(
        self,
        name: str,
        dsn: str,
        *,
        queues: Sequence[str] = (),
        pause: timedelta,
        listen: bool = True,
    ) -> None:
        super().__init__(name)
        self.dsn = dsn
        self._queues = list(queues)
        self._pause_seconds = pause.total_seconds()
        self._listens = listen
        self._nudged = asyncio.Event()

    async def prepare(self, connection: AsyncConnection[Any]) -> None:
        """Do what must be done once per connection."""

    async def work(self, connection: AsyncConnection[Any]) -> bool:
        """Do a piece of work; return whether to go on at once. Written by the subclass."""
        raise NotImplementedError

    def nudge(self) -> None:
        """Let the service look now instead of after its pause."""
        self._nudged.set()

    async def run(self) -> None:
        """Work until stopped, whatever happens to the database."""
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                async with AsyncExitStack() as stack:
                    await self._serve(stack, backoff)
            except CoordinationError as refusal:
                if not refusal.retryable:
                    raise
                await self._interrupted(refusal, backoff)
            except SURVIVABLE as failure:
                own = translate(failure) if isinstance(failure, psycopg.Error) else None
                if own is not None:
                    raise own from failure
                await self._interrupted(failure, backoff)

    async def _serve(self, stack: AsyncExitStack, backoff: Backoff) -> None:
        connection = await connect_async(
            self.dsn, application_name=f"postroad {self.name}", autocommit=True
        )
        stack.push_async_callback(connection.close)
        await self.prepare(connection)
        wakeup = await self._open_wakeup(stack) if self._queues else None
        self.announce_ready()
        while not self.stopping.is_set():
            epochs = {queue: wakeup.epoch(queue) for queue in self._queues} if wakeup else {}
            self._nudged.clear()
            again = await self.work(connection)
            backoff.reset()
            self.signals.emit("worked", again)
            if not again:
                await self._wait(wakeup, epochs)

    async def _open_wakeup(self, stack: AsyncExitStack) -> AsyncWakeup:
        probe = await self._open_probe(stack)

        async def positions(queues: list[str]) -> list[int]:
            nonlocal probe
            if probe.closed:
                # Lost by itself: otherwise every tick would fail, and wake everybody for nothing.
                probe = await self._open_probe(stack)
            return await run_async(probe, bus_calls.positions(*queues))

        hub = ListenHub(self.dsn) if self._listens else None
        if hub is not None:
            stack.push_async_callback(hub.stop)
        return await stack.enter_async_context(AsyncWakeup(positions, self._queues, hub=hub))

    async def _open_probe(self, stack: AsyncExitStack) -> AsyncConnection[Any]:
        probe = await connect_async(self.dsn, application_name="postroad probe", autocommit=True)
        stack.push_async_callback(probe.close)
        return probe

    async def _wait(self, wakeup: AsyncWakeup | None, epochs: dict[str, int]) -> None:
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(self.stopping.wait()),
            asyncio.create_task(self._nudged.wait()),
        ]
        if wakeup is not None:
            waits += [
                asyncio.create_task(wakeup.wait(queue, epoch)) for queue, epoch in epochs.items()
            ]
        try:
            await asyncio.wait(
                waits, timeout=self._pause_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()

    async def _interrupted(self, failure: BaseException, backoff: Backoff) -> None:
        logger.warning(
            "coordination_interrupted",
            extra={"service": self.name, "reason": str(failure).strip()},
        )
        self.signals.emit("interrupted", str(failure))
        await self.pause(backoff.next_seconds())


async def run_together(owner: Service, services: Sequence[Service]) -> None:
    """Run services until their owner is to stop; one that fails ends all, and is raised."""
    async with AsyncExitStack() as running:
        for service in services:
            await running.enter_async_context(service)
        owner.announce_ready()
        ends = [asyncio.create_task(service.join()) for service in services]
        stopping = asyncio.create_task(owner.stopping.wait())
        try:
            await asyncio.wait({stopping, *ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (stopping, *ends):
                task.cancel()
            # What a service failed with is raised by its own end, below.
            await asyncio.gather(*ends, return_exceptions=True)


async def notify(connection: AsyncConnection[Any], *queues: str) -> None:
    """Wake who waits for these queues, after the commit of what was posted to them."""
    with contextlib.suppress(psycopg.DatabaseError):
        await run_async(connection, bus_calls.notify(*queues))
