"""Where handlers of leased messages run: a few threads, or as many tasks.

A task can be cancelled and a thread cannot; everything else about leased messages is in the lease
loop, which is the same for both.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from postroad.bus.worker import HeldMessage


class AsyncRunners:
    """Runs `handle` for messages, at most `count` at once, each in a task of its own.

    `ended` is called after each, with the error of `handle` if it raised one.
    """

    def __init__(
        self,
        name: str,
        count: int,
        handle: Callable[[HeldMessage], Awaitable[None]],
        ended: Callable[[HeldMessage, BaseException | None], None],
    ) -> None:
        self._name = name
        self._count = count
        self._handle = handle
        self._ended = ended
        self._waiting: deque[HeldMessage] = deque()
        self._tasks: dict[int, asyncio.Future[None]] = {}

    def start(self) -> None:
        """Do nothing: tasks are started with their messages."""

    def submit(self, message: HeldMessage) -> None:
        """Handle a message as soon as a task is free."""
        self._waiting.append(message)
        self._fill()

    def cancel(self, message: HeldMessage) -> None:
        """Cancel the handler of a message."""
        task = self._tasks.get(message.token)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Cancel all handlers and wait until they have ended."""
        self._waiting.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fill(self) -> None:
        while self._waiting and len(self._tasks) < self._count:
            message = self._waiting.popleft()
            task = asyncio.ensure_future(self._handle(message))
            self._tasks[message.token] = task
            task.add_done_callback(partial(self._end, message))

    def _end(self, message: HeldMessage, task: asyncio.Future[None]) -> None:
        del self._tasks[message.token]
        # Here, and not in the task, which may be cancelled before it begins.
        self._ended(message, None if task.cancelled() else task.exception())
        self._fill()


class Runners:
    """Runs `handle` for messages in `count` threads, and `ended` after each."""

    def __init__(
        self,
        name: str,
        count: int,
        handle: Callable[[HeldMessage], None],
        ended: Callable[[HeldMessage, BaseException | None], None],
    ) -> None:
        self._name = name
        self._count = count
        self._handle = handle
        self._ended = ended
        self._waiting: queue.SimpleQueue[HeldMessage | None] = queue.SimpleQueue()

    def start(self) -> None:
        """Start the threads."""
        for _ in range(self._count):
            threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def submit(self, message: HeldMessage) -> None:
        """Handle a message as soon as a thread is free."""
        self._waiting.put(message)

    def cancel(self, message: HeldMessage) -> None:
        """Do nothing: a handler in a thread reads `message.lost`."""

    def stop(self) -> None:
        """Let each thread end after its current handler, which may take any time."""
        for _ in range(self._count):
            self._waiting.put(None)

    def _work(self) -> None:
        while (message := self._waiting.get()) is not None:
            error: BaseException | None = None
            try:
                self._handle(message)
            except BaseException as failure:  # noqa: BLE001 - reported to the owner, which stops
                error = failure
            self._ended(message, error)
