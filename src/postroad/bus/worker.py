"""Workers run handlers: `AsyncWorker` in its event loop, `Worker` in threads beside one."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Any

from postroad.bus.client import AsyncBus
from postroad.bus.handlers import HandlerRegistry, WorkerSettings
from postroad.bus.lease_loop import LeaseLoop
from postroad.bus.maintenance import AsyncMaintenance
from postroad.bus.payload import Payload, of_queue
from postroad.bus.reconnect import TRANSIENT, Backoff
from postroad.bus.runners import Runners, TaskRunners, ThreadRunners
from postroad.bus.transaction_loop import TransactionLoops
from postroad.bus.wakeup import AsyncWakeup
from postroad.bus.worker_reports import WorkerReports
from postroad.postgres.listen import ListenHub
from postroad.service import LoopThread, Service

logger = logging.getLogger(__name__)


class AsyncWorker(HandlerRegistry, Service):
    """`Worker` for code that awaits: its handlers are coroutine functions."""

    awaits = True
    _runners: type[Runners[Any]] = TaskRunners

    def __init__(self, dsn: str, settings: WorkerSettings | None = None) -> None:
        HandlerRegistry.__init__(self)
        Service.__init__(self, "worker")
        self._dsn = dsn
        self._settings = settings or WorkerSettings()
        self._loops: list[TransactionLoops | LeaseLoop] = []

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
            settings = self._settings
            hub = ListenHub(self._dsn) if settings.listen else None
            wakeup = AsyncWakeup(
                lambda queues: bus.positions(*queues),
                self._queues,
                hub=hub,
                poll_interval=settings.poll_interval,
            )
            services: list[Service] = [wakeup, *([hub] if hub is not None else [])]
            if (interval := settings.maintenance_interval) is not None:
                is_pooled = not settings.listen
                services.append(AsyncMaintenance(self._dsn, interval, is_pooled=is_pooled))
            shared = (wakeup, settings, self._runners)
            self._loops = [
                LeaseLoop(bus, handler, *shared)
                if handler.mode == "lease"
                else TransactionLoops(self._dsn, handler, payloads[handler.queue], *shared)
                for handler in self._handlers
            ]
            services.append(WorkerReports(bus, self._loops))
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
        """Read the queues' payload types once the database is available; None if stopped before.

        Raises ConsumerNotFound, InvalidArgument.
        """
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                self._use_consumers(await bus.consumers())
                known = {each.queue: each.payload for each in await bus.queues()}
            except TRANSIENT as failure:
                logger.warning("database_unavailable", extra={"reason": str(failure).strip()})
                await self.pause(backoff.next_seconds())
            else:
                return {queue: of_queue(queue, known[queue]) for queue in self._queues}
        return None

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


class _ThreadedWorker(AsyncWorker):
    """The worker itself: an event loop that owns the connections, and threads for the handlers."""

    awaits = False
    _runners = ThreadRunners


class Worker(HandlerRegistry, LoopThread):
    """Runs handlers for messages until it is stopped.

    ```python
    worker = Worker(dsn)

    @worker.handler("orders", consumer="billing")
    def bill(message, connection):
        connection.execute("insert into bill ...")   # committed with the message
    ```

    It owns its connections, reconnects after failures, and runs the bus's maintenance. When one of
    its parts fails it stops, and `join` raises the error.
    """

    awaits = False

    def __init__(self, dsn: str, settings: WorkerSettings | None = None) -> None:
        HandlerRegistry.__init__(self)
        self._dsn = dsn
        worker = _ThreadedWorker(dsn, settings)
        worker._handlers = self._handlers
        LoopThread.__init__(self, worker)

    def serve(self) -> None:
        """Run until SIGTERM or SIGINT, then stop gracefully; only for the main thread."""
        signals = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.getsignal(number) for number in signals}
        for number in signals:
            signal.signal(number, lambda *_: self.request_stop())
        try:
            self.start()
            self.join()
        finally:
            for number in signals:
                signal.signal(number, before[number])
