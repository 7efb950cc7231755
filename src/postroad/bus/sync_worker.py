"""`Worker`: handlers in threads, kept running whatever happens to the database."""

from __future__ import annotations

import logging
import signal
import time

from postroad.bus.client import Bus
from postroad.bus.lease_loop import LeaseLoop
from postroad.bus.maintenance import Maintenance
from postroad.bus.payload import Payload, of_queue
from postroad.bus.reconnect import TRANSIENT, Backoff
from postroad.bus.transaction_loop import TransactionLoop
from postroad.bus.wakeup import Wakeup
from postroad.bus.worker import HandlerRegistry, WorkerSettings
from postroad.service import ThreadService

logger = logging.getLogger(__name__)


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
        self._settings = settings or WorkerSettings()
        self._loops: list[TransactionLoop | LeaseLoop] = []

    def request_stop(self) -> None:
        """Ask the worker to stop gracefully, without waiting for it."""
        super().request_stop()
        for loop in self._loops:
            loop.request_stop()

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
        with Bus(self._dsn, notify=False, listen=self._settings.listen) as bus:
            payloads = self._prepare(bus)
            if payloads is None:
                return
            wakeup = Wakeup(
                lambda queues: bus.positions(*queues),
                self._queues,
                dsn=self._dsn if self._settings.listen else None,
                poll_interval=self._settings.poll_interval,
            )
            services: list[ThreadService] = [wakeup]
            if self._settings.maintenance_interval is not None:
                services.append(
                    Maintenance(
                        self._dsn,
                        self._settings.maintenance_interval,
                        is_pooled=not self._settings.listen,
                    )
                )
            self._loops = self._loops_for(
                lambda handler: LeaseLoop(bus, handler, wakeup, self._settings),
                lambda handler: TransactionLoop(
                    self._dsn, handler, payloads[handler.queue], wakeup, self._settings
                ),
            )
            self.supervise(*services, *self._loops)
            try:
                for loop in self._loops:
                    loop.ready()
                self.announce_ready()
                self.stopping.wait()
            finally:
                self._drain()
                self.stop_supervised()

    def _prepare(self, bus: Bus) -> dict[str, Payload] | None:
        """Read the queues' payload types once the database is available; None when stopped before.

        Raises ConsumerNotFound.
        """
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                self._check_consumers(bus.consumers())
                known = {each.queue: each.payload for each in bus.queues()}
            except TRANSIENT as failure:
                logger.warning("database_unavailable", extra={"reason": str(failure).strip()})
                self.pause(backoff.next_seconds())
            else:
                return {queue: of_queue(queue, known[queue]) for queue in self._queues}
        return None

    def _drain(self) -> None:
        """Stop taking, let handlers finish within the grace time, then give back the rest."""
        for loop in self._loops:
            loop.request_stop()
        end = time.monotonic() + self._settings.grace.total_seconds()
        late = [
            loop for loop in self._loops if not loop.wait_for_end(max(0.0, end - time.monotonic()))
        ]
        if late:
            logger.warning("grace_time_over", extra={"loops": len(late)})
        for loop in late:
            loop.abandon()
