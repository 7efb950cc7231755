"""Notifications of waiting workers, sent after the producer's commit.

A NOTIFY inside the producer's transaction would make all commits of the server wait for one
lock. So it is sent after the commit, on another connection, at most once per queue and interval.
Workers that miss it find the message by polling, so failures are only logged.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from postroad.blocking import finish
from postroad.bus.errors import BusError

logger = logging.getLogger(__name__)

NOTIFY_INTERVAL_DEFAULT = timedelta(milliseconds=10)

_FAILURES = (psycopg.Error, PoolClosed, PoolTimeout, BusError, OSError)


class Notifier:
    """Sends from its own thread, which starts with the first announcement."""

    def __init__(
        self,
        send: Callable[[list[str]], Coroutine[Any, Any, None]],
        interval: timedelta = NOTIFY_INTERVAL_DEFAULT,
    ) -> None:
        self._send = send
        self._interval = interval.total_seconds()
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        self._announced = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def announce(self, queue: str) -> None:
        """Schedule a notification; never blocks, never fails."""
        with self._lock:
            self._pending.add(queue)
            # A forked process does not inherit threads.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="postroad-notifier", daemon=True
                )
                self._thread.start()
        self._announced.set()

    def close(self) -> None:
        """Send pending notifications and end the thread; a second call does nothing."""
        self._stopping.set()
        self._announced.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while True:
            self._announced.wait()
            self._announced.clear()
            with self._lock:
                queues, self._pending = sorted(self._pending), set()
            if queues:
                try:
                    finish(self._send(queues))
                except _FAILURES as failure:
                    logger.debug("notify_failed", extra={"reason": str(failure)})
            if self._stopping.wait(self._interval):
                if not self._pending:
                    return
                self._announced.set()


class AsyncNotifier:
    """Sends from a task that runs only while something is pending."""

    def __init__(
        self,
        send: Callable[[list[str]], Coroutine[Any, Any, None]],
        interval: timedelta = NOTIFY_INTERVAL_DEFAULT,
    ) -> None:
        self._send = send
        self._interval = interval.total_seconds()
        self._pending: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def announce(self, queue: str) -> None:
        """Schedule a notification; never blocks, never fails."""
        self._pending.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="postroad-notifier")

    async def close(self) -> None:
        """Send pending notifications and end the task; a second call does nothing."""
        self._stopping.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def _work(self) -> None:
        while self._pending:
            queues, self._pending = sorted(self._pending), set()
            try:
                await self._send(queues)
            except _FAILURES as failure:
                logger.debug("notify_failed", extra={"reason": str(failure)})
            if not self._stopping.is_set():
                await asyncio.sleep(self._interval)
