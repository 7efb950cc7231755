"""Drives a worker of either colour with the same script."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any

from postroad.bus import AsyncWorker, Worker, WorkerSettings
from postroad.testing import wait_until_async

# What a handler does after its script was called: run SQL on its connection, or wait.
Step = str | threading.Event
Script = Callable[[Any], Iterable[Step] | None]

QUICK = WorkerSettings(
    poll_interval=timedelta(milliseconds=20), maintenance_interval=timedelta(milliseconds=100)
)


async def _is_set(event: threading.Event) -> bool:
    return event.is_set()


class Crew:
    """A worker, its handlers written once as scripts that return steps."""

    def __init__(self, colour: str, dsn: str, settings: WorkerSettings = QUICK) -> None:
        self.is_blocking = colour == "sync"
        self.worker: Any = (Worker if self.is_blocking else AsyncWorker)(dsn, settings)

    def on(self, queue: str, script: Script, **options: Any) -> None:
        def blocking(message: Any, connection: Any = None) -> None:
            for step in script(message) or ():
                if isinstance(step, str):
                    connection.execute(step)
                else:
                    step.wait()

        async def awaiting(message: Any, connection: Any = None) -> None:
            for step in script(message) or ():
                if isinstance(step, str):
                    await connection.execute(step)
                else:
                    await wait_until_async(partial(_is_set, step), what="the test lets go")

        self.worker.handler(queue, **options)(blocking if self.is_blocking else awaiting)

    async def _call(self, name: str) -> None:
        method = getattr(self.worker, name)
        await (asyncio.to_thread(method) if self.is_blocking else method())

    async def __aenter__(self) -> Crew:
        await self._call("start")
        await self._call("ready")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        await self._call("stop")


def insert(message):
    return [f"insert into done values ('{message.data}')"]


def done_work(sight):
    return sorted(data for (data,) in sight("select data from done"))


async def finished(bus, sight, done):
    """Wait until nothing is ready or held and the work of `done` is there, once each."""

    async def look():
        [status] = await bus.status("orders")
        return status.ready + status.leased == 0 and done_work(sight) == sorted(done)

    await wait_until_async(look, what=f"{done} done; seen {done_work(sight)}")
