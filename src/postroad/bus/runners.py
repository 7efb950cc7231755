"""Where handlers run: in tasks of the worker's event loop, or in threads beside it.

A handler is called by a coroutine. In a thread that coroutine runs without an event loop, which
works because the handlers of `Worker` block and never await.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Generic, TypeVar

from postroad.blocking import finish

I = TypeVar("I")  # noqa: E741 - an item of work
Handle = Callable[[I], Coroutine[Any, Any, None]]
Ended = Callable[[I, BaseException | None], None]


class Runners(Generic[I]):
    """Runs `handle` for items, at most `count` at the same time.

    `ended` is called after each, with the error of `handle` if it raised one.
    """

    blocks: ClassVar[bool]

    def __init__(self, name: str, count: int, handle: Handle[I], ended: Ended[I]) -> None:
        self._name = name
        self._count = count
        self._handle = handle
        self._ended = ended

    def submit(self, item: I) -> None:
        """Handle an item as soon as a runner is free."""
        raise NotImplementedError

    def cancel(self, matches: Callable[[I], bool]) -> None:
        """Cancel the tasks of items that match; a thread cannot be interrupted."""

    async def stop(self) -> None:
        """Cancel all tasks and wait for their end; a thread ends after its current handler."""
        raise NotImplementedError


class TaskRunners(Runners[I]):
    """Runs each item in its own task."""

    blocks = False

    def __init__(self, name: str, count: int, handle: Handle[I], ended: Ended[I]) -> None:
        super().__init__(name, count, handle, ended)
        self._waiting: deque[I] = deque()
        self._tasks: dict[asyncio.Task[None], I] = {}

    def submit(self, item: I) -> None:
        """Handle an item as soon as a task is free."""
        self._waiting.append(item)
        self._fill()

    def cancel(self, matches: Callable[[I], bool]) -> None:
        """Cancel the tasks of matching items, once: a second time would interrupt their cleanup."""
        for task, item in self._tasks.items():
            if matches(item) and not task.cancelling():
                task.cancel()

    async def stop(self) -> None:
        """Cancel all tasks and wait for their end."""
        self._waiting.clear()
        self.cancel(lambda _: True)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fill(self) -> None:
        while self._waiting and len(self._tasks) < self._count:
            item = self._waiting.popleft()
            task = asyncio.create_task(self._handle(item))
            self._tasks[task] = item
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        item = self._tasks.pop(task)
        # Called here and not in the task, which may be cancelled before it begins.
        self._ended(item, None if task.cancelled() else task.exception())
        self._fill()


class ThreadRunners(Runners[I]):
    """Runs the items in threads, which are started when needed."""

    blocks = True

    def __init__(self, name: str, count: int, handle: Handle[I], ended: Ended[I]) -> None:
        super().__init__(name, count, handle, ended)
        self._waiting: queue.SimpleQueue[I | None] = queue.SimpleQueue()
        self._started = 0

    def submit(self, item: I) -> None:
        """Handle an item as soon as a thread is free."""
        self._waiting.put(item)
        if self._started < self._count:
            self._started += 1
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._work, args=(loop,), name=self._name, daemon=True).start()

    async def stop(self) -> None:
        """Let each thread end after its current handler, however long that takes."""
        for _ in range(self._started):
            self._waiting.put(None)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (item := self._waiting.get()) is not None:
            try:
                finish(self._handle(item))
                self._ended(item, None)
            except BaseException as error:  # noqa: BLE001 - reported to the owner, which stops
                # If the loop is closed, the owner has ended.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._ended, item, error)
