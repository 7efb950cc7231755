"""Waiting for messages in threads: one background thread wakes all waiters.

It listens on channel `mbus`, on a connection of its own, and polls positions. When the connection
is lost it wakes all waiters once and connects again. Behind a transaction-mode pooler there is no
DSN to listen on, and polling alone wakes the waiters.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

from psycopg import Connection

from postroad.bus.polling import CHANNEL, POLL_INTERVAL_DEFAULT, PollSchedule
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.postgres.connections import connect
from postroad.service import ThreadService

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.2


class Wakeup(ThreadService):
    """Wakes the waiters of a set of queues."""

    def __init__(
        self,
        positions: Callable[[list[str]], list[int]],
        queues: Iterable[str],
        *,
        dsn: str | None = None,
        poll_interval: timedelta = POLL_INTERVAL_DEFAULT,
    ) -> None:
        super().__init__("postroad-wakeup")
        self._positions = positions
        self._queues = sorted(set(queues))
        self._dsn = dsn
        self._poll_seconds = poll_interval.total_seconds()
        self._schedule = PollSchedule()
        self._changed = threading.Condition()
        self._epochs = dict.fromkeys(self._queues, 0)

    def request_stop(self) -> None:
        """Ask the thread to end and wake all waiters."""
        super().request_stop()
        self.wake(self._queues)

    def epoch(self, queue: str) -> int:
        """Return the number to pass to `wait`; read it before taking from the queue."""
        with self._changed:
            return self._epochs[queue]

    def wait(self, queue: str, epoch: int) -> None:
        """Wait until the queue should be polled again after the take that began at `epoch`."""
        with self._changed:
            self._changed.wait_for(lambda: self._epochs[queue] != epoch or self.stopping.is_set())

    def wake(self, queues: Iterable[str]) -> None:
        """Wake the waiters of these queues."""
        with self._changed:
            for queue in queues:
                if queue in self._epochs:
                    self._epochs[queue] += 1
            self._changed.notify_all()

    def run(self) -> None:
        """Listen and poll until stopped, also while the database is away."""
        self.announce_ready()
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                with self._listening() as connection:
                    while not self.stopping.is_set():
                        self._probe()
                        backoff.reset()
                        self._rest(connection)
            except SURVIVABLE as failure:
                if self.stopping.is_set():
                    return
                logger.warning("wakeup_interrupted", extra={"reason": str(failure).strip()})
                self.wake(self._queues)
                self.stopping.wait(backoff.next_seconds())

    def _listening(self) -> Connection[Any] | nullcontext[None]:
        if self._dsn is None:
            return nullcontext()
        connection = connect(self._dsn, application_name="postroad listen", autocommit=True)
        connection.execute(f"listen {CHANNEL}")
        return connection

    def _probe(self) -> None:
        positions = dict(zip(self._queues, self._positions(self._queues), strict=True))
        self.wake(self._schedule.due(time.monotonic(), positions))

    def _rest(self, connection: Connection[Any] | None) -> None:
        if connection is None:
            self.stopping.wait(self._poll_seconds)
            return
        end = time.monotonic() + self._poll_seconds
        while not self.stopping.is_set() and (left := end - time.monotonic()) > 0:
            # In slices, because nothing but a notice ends the wait on the connection.
            for notice in connection.notifies(timeout=min(left, SLICE_SECONDS)):
                self.wake((notice.payload,))
