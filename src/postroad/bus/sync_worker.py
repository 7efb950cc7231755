"""`Worker`: handlers in threads, kept running whatever happens to the database."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from postroad.bus.async_worker import AsyncWorker
from postroad.bus.runners import ThreadRunners
from postroad.bus.worker import HandlerRegistry, WorkerSettings
from postroad.service import ThreadService


class _ThreadedWorker(AsyncWorker):
    """The worker itself: an event loop that owns the connections, and threads for the handlers."""

    awaits = False
    _runners = ThreadRunners


class Worker(HandlerRegistry, ThreadService):
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
        ThreadService.__init__(self, "worker")
        self._dsn = dsn
        self._worker = _ThreadedWorker(dsn, settings)
        self._worker._handlers = self._handlers
        self._loop: asyncio.AbstractEventLoop | None = None

    def request_stop(self) -> None:
        """Ask the worker to stop gracefully, without waiting for it."""
        super().request_stop()
        if self._loop is not None:
            # Without its loop it has ended.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._worker.request_stop)

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

    def run(self) -> None:
        """Serve all handlers until stopped."""
        asyncio.run(self._run_worker())

    async def _run_worker(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self.stopping.is_set():
            # Requested before there was a loop.
            return
        try:
            async with self._worker:
                self.announce_ready()
                await self._worker.join()
        except BaseException as error:  # noqa: BLE001 - already logged, and raised by `join`
            self.fail(error)
