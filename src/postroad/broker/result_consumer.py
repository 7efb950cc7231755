"""Waiting for results: a session that is notified of them."""

from __future__ import annotations

import logging
import select
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

from celery import states
from celery.backends.asynchronous import BaseResultConsumer

from postroad.broker.link import Link
from postroad.bus.reconnect import TRANSIENT

if TYPE_CHECKING:
    from postroad.broker.results import ResultBackend

logger = logging.getLogger(__name__)

CHANNEL = "mbus_result"
BUCKETS = 64
# Only matters after a lost notice.
RECHECK_SECONDS = 2.0
RECONNECT_SECONDS = 0.2
# A caller that polls without draining gets a fresh answer after this time.
ABSENT_SECONDS = 0.5


def bucket_of(key: str) -> int:
    """Return the bucket in which a key is announced."""
    return zlib.crc32(key.encode()) % BUCKETS


class ResultConsumer(BaseResultConsumer):  # type: ignore[misc]  # Celery has no types
    """Passes results to Celery; locks the buckets of its tasks, so that results are announced."""

    backend: ResultBackend

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_after_fork()
        self._read_at = self._rechecked = 0.0

    def on_after_fork(self) -> None:
        """Begin without a session: that of the parent process is dropped."""
        self._guard = threading.RLock()
        self._awaited: set[str] = set()
        self._buckets: set[int] = set()
        self._announced: set[str] = set()
        self._absent: set[str] = set()
        self._link: Link | None = None

    def start(self, initial_task_id: str, **_: Any) -> None:
        """Begin to wait."""
        self.consume_from(initial_task_id)

    def consume_from(self, task_id: str) -> None:
        """Wait for this task too."""
        with self._guard:
            self._awaited.add(self.backend.get_key_for_task(task_id))

    def cancel_for(self, task_id: str) -> None:
        """Stop waiting for a task."""
        with self._guard:
            key = self.backend.get_key_for_task(task_id)
            self._awaited.discard(key)
            self._absent.discard(key)

    def is_absent(self, key: str) -> bool:
        """Return whether an awaited result was recently absent and has not been announced since.

        While Celery waits for a chord it reads every unfinished part after every event: without
        this the number of queries grows with the square of the number of parts.
        """
        return key in self._absent and time.monotonic() - self._read_at < ABSENT_SECONDS

    def on_wait_for_pending(self, result: Any, **kwargs: Any) -> None:
        """Wait for notices from now on, and read the results that are already stored."""
        try:
            self._await_buckets()
        except TRANSIENT:
            self.stop()
        for meta in result._iter_meta(**kwargs):
            if meta is not None:
                self.on_state_change(meta, None)

    def drain_events(self, timeout: float | None = None) -> None:
        """Wait for results of the awaited tasks."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            link = self._await_buckets()
            wait = RECHECK_SECONDS if timeout is None else min(timeout, RECHECK_SECONDS)
            readable, _, _ = select.select([link.fileno()], [], [], wait)
            if readable:
                link.receive()
            self._read_announced()
        except TRANSIENT as failure:
            logger.warning("results_interrupted", extra={"reason": str(failure).strip()})
            self.stop()
            left = RECONNECT_SECONDS if deadline is None else deadline - time.monotonic()
            time.sleep(min(max(left, 0), RECONNECT_SECONDS))

    def on_state_change(self, meta: dict[str, Any], message: Any) -> None:
        """Pass on a result; a ready one is no longer awaited."""
        super().on_state_change(meta, message)
        if meta["status"] in states.READY_STATES:
            self.cancel_for(meta["task_id"])

    def stop(self) -> None:
        """End the session; the next wait opens another."""
        with self._guard:
            link, self._link = self._link, None
            self._absent.clear()
            if link is not None:
                link.close()

    def _await_buckets(self) -> Link:
        with self._guard:
            if self._link is None or self._link.is_closed:
                self._link = self.backend.open_link("results wait")
                self._buckets = set()
                self._rechecked = 0.0
                self._link.listen(CHANNEL, self._announced.add)
            missing = {bucket_of(key) for key in self._awaited} - self._buckets
            if missing:
                self._link.run("select broker.await_results(%s)", (sorted(missing),))
                self._buckets |= missing
            return self._link

    def _read_announced(self) -> None:
        with self._guard:
            keys = list(self._announced & self._awaited)
            self._announced.clear()
            if time.monotonic() - self._rechecked > RECHECK_SECONDS:
                self._rechecked = time.monotonic()
                keys = list(self._awaited)
        values = self.backend.mget(keys) if keys else []
        with self._guard:
            for key, value in zip(keys, values, strict=True):
                (self._absent.add if value is None else self._absent.discard)(key)
            self._read_at = time.monotonic()
        for value in values:
            if value is not None:
                self.on_state_change(self.backend.decode_result(value), None)
