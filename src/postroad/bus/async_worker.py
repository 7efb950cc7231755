"""`AsyncWorker`: handlers in an event loop, kept running whatever happens to the database."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from collections.abc import Callable
from typing import Any, TypeVar

from postroad.bus.async_client import AsyncBus
from postroad.bus.async_lease_loop import AsyncLeaseLoop
from postroad.bus.async_maintenance import AsyncMaintenance
from postroad.bus.async_transaction_loop import AsyncTransactionLoop
from postroad.bus.async_wakeup import AsyncWakeup
from postroad.bus.calls import LEASE_DEFAULT
from postroad.bus.errors import InvalidArgument
from postroad.bus.parameters import Duration, length
from postroad.bus.payload import Payload, of_queue
from postroad.bus.reconnect import TRANSIENT, Backoff
from postroad.bus.worker import PREFETCH_DEFAULT, Handler, Handlers, Mode, WorkerSettings
from postroad.postgres.listen import ListenHub
from postroad.service import Service

__all__ = ["AsyncWorker"]

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


class AsyncWorker(Service):
    """Runs handlers for messages until it is stopped.

    ```python
    worker = AsyncWorker(dsn)

    @worker.handler("orders", consumer="billing")
    async def bill(message, connection):
        await connection.execute("insert into bill ...")   # committed with the message
    ```

    It owns its connections, reconnects by itself, and does the bus's maintenance besides.
    """

    def __init__(
        self, dsn: str, settings: WorkerSettings | None = None, hub: ListenHub | None = None
    ) -> None:
        super().__init__("worker")
        self._dsn = dsn
        self._settings = settings or WorkerSettings()
        self._handlers = Handlers()
        self._loops: list[AsyncTransactionLoop | AsyncLeaseLoop] = []
        self._hub = hub

    def handler(
        self,
        queue: str,
        consumer: str = "default",
        mode: Mode = "transaction",
        concurrency: int = 1,
        prefetch: int | None = None,
        ttl: Duration = LEASE_DEFAULT,
    ) -> Callable[[F], F]:
        """Register a function for the messages of a consumer.

        In mode `transaction` it is called with the message and the connection whose commit
        consumes it; up to `prefetch` messages (default 300) share a transaction, fewer while the
        function is slow: a transaction is to last a tenth of a second. In mode `lease` it is called
        with the message, which is leased for `ttl` and extended while the function runs;
        `prefetch` more (default 10) wait leased. `concurrency` of them run at once.

        What the function raises counts as a failed attempt; `Retry` and `Park` say more; after a
        deadlock it is called again. What it returns, unless None, answers a message that was
        posted with `request`: in its transaction, or before its ack.
        Raises InvalidArgument.
        """

        def register(function: F) -> F:
            if not inspect.iscoroutinefunction(function):
                raise InvalidArgument(
                    f"{function!r} is not a coroutine function",
                    hint="write `async def`, or use Worker for functions that block",
                    queue=queue,
                )
            most = PREFETCH_DEFAULT.get(mode, 1) if prefetch is None else prefetch
            self._handlers.add(
                Handler(queue, consumer, function, mode, concurrency, most, length("ttl", ttl))
            )
            return function

        return register

    def request_stop(self) -> None:
        """Ask the worker to stop gracefully, without waiting for it."""
        super().request_stop()
        for loop in self._loops:
            loop.request_stop()

    async def serve(self) -> None:
        """Run until SIGTERM or SIGINT, then stop gracefully; only for the main thread."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.request_stop)
        try:
            await self.start()
            await self.join()
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    async def run(self) -> None:
        """Serve all handlers until stopped."""
        async with AsyncBus(self._dsn, notify=False, listen=self._settings.listen) as bus:
            payloads = await self._prepare(bus)
            if payloads is None:
                return
            hub = self._hub
            services: list[Service] = []
            if hub is None and self._settings.listen:
                hub = ListenHub(self._dsn)
                services.append(hub)
            wakeup = self._make_wakeup(bus, hub)
            services.insert(0, wakeup)
            if self._settings.maintenance_interval is not None:
                services.append(
                    AsyncMaintenance(
                        self._dsn,
                        self._settings.maintenance_interval,
                        is_pooled=not self._settings.listen,
                    )
                )
            self._loops = self._make_loops(bus, payloads, wakeup)
            await self.supervise(*services, *self._loops)
            try:
                for loop in self._loops:
                    await loop.ready()
                self.announce_ready()
                await self.stopping.wait()
            finally:
                await self._drain()
                await self.stop_supervised()

    async def _prepare(self, bus: AsyncBus) -> dict[str, Payload] | None:
        """Look the queues up, once the database is there; None when stopped before.

        Raises ConsumerNotFound for a handler that is for nobody.
        """
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                self._handlers.check(await bus.consumers())
                known = {each.queue: each.payload for each in await bus.queues()}
            except TRANSIENT as failure:
                logger.warning("database_unavailable", extra={"reason": str(failure).strip()})
                await self.pause(backoff.next_seconds())
            else:
                return {queue: of_queue(queue, known[queue]) for queue in self._handlers.queues()}
        return None

    def _make_wakeup(self, bus: AsyncBus, hub: ListenHub | None) -> AsyncWakeup:
        return AsyncWakeup(
            lambda queues: bus.positions(*queues),
            self._handlers.queues(),
            hub=hub,
            poll_interval=self._settings.poll_interval,
        )

    def _make_loops(
        self, bus: AsyncBus, payloads: dict[str, Payload], wakeup: AsyncWakeup
    ) -> list[AsyncTransactionLoop | AsyncLeaseLoop]:
        loops: list[AsyncTransactionLoop | AsyncLeaseLoop] = []
        for handler in self._handlers:
            if handler.mode == "lease":
                loops.append(AsyncLeaseLoop(bus, handler, wakeup, self._settings))
                continue
            payload = payloads[handler.queue]
            loops.extend(
                AsyncTransactionLoop(self._dsn, handler, payload, wakeup, self._settings)
                for _ in range(handler.concurrency)
            )
        return loops

    async def _drain(self) -> None:
        """Stop taking, let handlers finish within the grace time, then give back the rest."""
        ends = [asyncio.create_task(loop.stop()) for loop in self._loops]
        if not ends:
            return
        _, late = await asyncio.wait(ends, timeout=self._settings.grace.total_seconds())
        if late:
            logger.warning("grace_time_over", extra={"loops": len(late)})
            for loop in self._loops:
                loop.abandon()
        await asyncio.gather(*ends, return_exceptions=True)
