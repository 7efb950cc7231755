"""`Worker`: handlers in threads, kept running whatever happens to the database."""

from __future__ import annotations

import inspect
import logging
import signal
import time
from collections.abc import Callable
from typing import Any, TypeVar

from postroad.bus.calls import LEASE_DEFAULT
from postroad.bus.client import Bus
from postroad.bus.errors import InvalidArgument
from postroad.bus.lease_loop import LeaseLoop
from postroad.bus.maintenance import Maintenance
from postroad.bus.parameters import Duration, length
from postroad.bus.payload import Payload, of_queue
from postroad.bus.reconnect import TRANSIENT, Backoff
from postroad.bus.transaction_loop import TransactionLoop
from postroad.bus.wakeup import Wakeup
from postroad.bus.worker import PREFETCH_DEFAULT, Handler, Handlers, Mode, WorkerSettings
from postroad.service import ThreadService

__all__ = ["Worker"]

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


class Worker(ThreadService):
    """Runs handlers for messages until it is stopped.

    ```python
    worker = Worker(dsn)

    @worker.handler("orders", consumer="billing")
    def bill(message, connection):
        connection.execute("insert into bill ...")   # committed with the message
    ```

    It owns its connections, reconnects by itself, and does the bus's maintenance besides.
    """

    def __init__(self, dsn: str, settings: WorkerSettings | None = None) -> None:
        super().__init__("worker")
        self._dsn = dsn
        self._settings = settings or WorkerSettings()
        self._handlers = Handlers()
        self._loops: list[TransactionLoop | LeaseLoop] = []

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
            if inspect.iscoroutinefunction(function):
                raise InvalidArgument(
                    f"{function!r} is a coroutine function",
                    hint="write `def`, or use AsyncWorker for functions that await",
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
            wakeup = self._make_wakeup(bus)
            services: list[ThreadService] = [wakeup]
            if self._settings.maintenance_interval is not None:
                services.append(
                    Maintenance(
                        self._dsn,
                        self._settings.maintenance_interval,
                        is_pooled=not self._settings.listen,
                    )
                )
            self._loops = self._make_loops(bus, payloads, wakeup)
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
        """Look the queues up, once the database is there; None when stopped before.

        Raises ConsumerNotFound for a handler that is for nobody.
        """
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                self._handlers.check(bus.consumers())
                known = {each.queue: each.payload for each in bus.queues()}
            except TRANSIENT as failure:
                logger.warning("database_unavailable", extra={"reason": str(failure).strip()})
                self.pause(backoff.next_seconds())
            else:
                return {queue: of_queue(queue, known[queue]) for queue in self._handlers.queues()}
        return None

    def _make_wakeup(self, bus: Bus) -> Wakeup:
        return Wakeup(
            lambda queues: bus.positions(*queues),
            self._handlers.queues(),
            dsn=self._dsn if self._settings.listen else None,
            poll_interval=self._settings.poll_interval,
        )

    def _make_loops(
        self, bus: Bus, payloads: dict[str, Payload], wakeup: Wakeup
    ) -> list[TransactionLoop | LeaseLoop]:
        loops: list[TransactionLoop | LeaseLoop] = []
        for handler in self._handlers:
            if handler.mode == "lease":
                loops.append(LeaseLoop(bus, handler, wakeup, self._settings))
                continue
            payload = payloads[handler.queue]
            loops.extend(
                TransactionLoop(self._dsn, handler, payload, wakeup, self._settings)
                for _ in range(handler.concurrency)
            )
        return loops

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
