"""Acks of finished leases, gathered: one call for many, within a bounded delay."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from postroad.bus.client import Bus
from postroad.bus.message import LeasedMessage
from postroad.bus.reconnect import SURVIVABLE, Backoff
from postroad.bus.thread import ThreadService

__all__ = ["Acknowledger"]

logger = logging.getLogger(__name__)

LAST_TRIES = 3


class Acknowledger(ThreadService):
    """Acks what is finished; tells `done` for each message that it has dealt with.

    A call that failed is repeated: a lease is acked once at most, whoever asks how often.
    """

    def __init__(
        self,
        bus: Bus,
        delay: timedelta,
        batch: int,
        done: Callable[[LeasedMessage], None],
    ) -> None:
        super().__init__("acknowledger")
        self._bus = bus
        self._delay_seconds = delay.total_seconds()
        self._batch = batch
        self._done = done
        self._pending: list[LeasedMessage] = []
        self._some = threading.Event()
        self._enough = threading.Event()
        self._lock = threading.Lock()

    def finish(self, message: LeasedMessage) -> None:
        """Ack this message soon."""
        with self._lock:
            self._pending.append(message)
            self._some.set()
            if len(self._pending) >= self._batch:
                self._enough.set()

    def stop(self) -> None:
        """Ack what is pending and end."""
        self.stopping.set()
        self._some.set()
        self._enough.set()
        super().stop()

    def run(self) -> None:
        """Ack until stopped and nothing is pending."""
        self.announce_ready()
        while self._pending or not self.stopping.is_set():
            self._some.wait()
            if not self.stopping.is_set():
                self._enough.wait(self._delay_seconds)
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            messages, self._pending = self._pending, []
            if not self.stopping.is_set():
                self._some.clear()
                self._enough.clear()
        backoff, failures = Backoff(), 0
        while messages:
            try:
                lost = self._bus.ack_many(messages)
            except SURVIVABLE as failure:
                logger.warning("ack_failed", extra={"reason": str(failure).strip()})
                failures += 1
                if self.stopping.is_set() and failures >= LAST_TRIES:
                    # The leases end by themselves; the messages will be handled again.
                    return
                time.sleep(backoff.next_seconds())
                continue
            for iid in lost:
                logger.warning("lease_lost", extra={"iid": iid})
            for message in messages:
                self._done(message)
            return
