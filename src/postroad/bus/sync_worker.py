"""`Worker`: runs handlers in threads and reconnects when the database fails."""

from __future__ import annotations

import signal

from postroad.bus.async_worker import AsyncWorker
from postroad.bus.runners import ThreadRunners
from postroad.bus.worker import HandlerRegistry, WorkerSettings
from postroad.service import LoopThread


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
