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

from postroad.blocking import finish, resolved
from postroad.bus.errors import BusError
from postroad.service import AutoResetEvent

logger = logging.getLogger(__name__)

NOTIFY_INTERVAL_DEFAULT = timedelta(milliseconds=10)

_FAILURES = (psycopg.Error, PoolClosed, PoolTimeout, BusError, OSError)


class Notifier:
    """Sends announced notifications from a task that starts when it is needed.

    With `blocks` it is a thread without an event loop, of which gevent permits only one.
    """

    def __init__(
        self,
        send: Callable[[list[str]], Coroutine[Any, Any, None]],
        interval: timedelta = NOTIFY_INTERVAL_DEFAULT,
        *,
        blocks: bool = False,
    ) -> None:
        self._send = send
        self._interval = interval.total_seconds()
        self._blocks = blocks
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        self._announced: Any = threading.Event() if blocks else AutoResetEvent()
        self._closing: Any = threading.Event() if blocks else AutoResetEvent()
        self._is_closed = False
        self._worker: Any = None

    def announce(self, queue: str) -> None:
        """Schedule a notification; never blocks, never fails."""
        self._pending.add(queue)
        with self._lock:
            # A forked process does not inherit threads.
            worker = self._worker
            if worker is None or not (worker.is_alive() if self._blocks else not worker.done()):
                self._start()
        self._announced.set()

    async def close(self) -> None:
        """Send pending notifications and end; a second call does nothing."""
        self._is_closed = True
        self._closing.set()
        self._announced.set()
        worker, self._worker = self._worker, None
        if worker is not None:
            await resolved(worker.join() if self._blocks else worker)

    def _start(self) -> None:
        name, work = "postroad-notifier", self._work()
        if self._blocks:
            self._worker = threading.Thread(target=finish, args=(work,), name=name, daemon=True)
            self._worker.start()
        else:
            self._worker = asyncio.create_task(work, name=name)

    async def _work(self) -> None:
        while self._pending or not self._is_closed:
            await resolved(self._announced.wait())
            if self._blocks:
                self._announced.clear()
            # Other threads may add queues in the meantime.
            queues = sorted([self._pending.pop() for _ in range(len(self._pending))])
            if queues:
                try:
                    await self._send(queues)
                except _FAILURES as failure:
                    logger.debug("notify_failed", extra={"reason": str(failure)})
                if not self._is_closed:
                    await resolved(self._closing.wait(self._interval))
