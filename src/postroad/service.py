"""One shape for everything that runs for long: start, ready, stop.

```
new ──start()──> starting ──announce_ready()──> running ──stop()──> stopped
                     └────────── run() raised ──────────────────────> failed
```

A subclass writes `run()`, calls `announce_ready()` once it does its work, and leaves when
`self.stopping` is set. `stop()` may be called any number of times, from several tasks, before
`start()` or after a failure. A service that fails is logged; `ready()`, `join()` and `stop()`
raise what it failed with.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Self

__all__ = ["Service", "Signals"]

logger = logging.getLogger(__name__)


class Signals:
    """Named events that tests wait for instead of sleeping.

    Nobody listens in production: `emit` is then one look into an empty dictionary.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, asyncio.Queue[Any]] = {}

    def listen(self, *names: str) -> None:
        """Begin to keep what is emitted under these names."""
        for name in names:
            self._listeners.setdefault(name, asyncio.Queue())

    def emit(self, name: str, value: Any = None) -> None:
        """Tell whoever listens; without a listener, do nothing."""
        listener = self._listeners.get(name)
        if listener is not None:
            listener.put_nowait(value)

    async def wait(self, name: str, timeout_seconds: float = 20.0) -> Any:
        """Return the next value emitted under a name that is being listened to."""
        async with asyncio.timeout(timeout_seconds):
            return await self._listeners[name].get()


class Service:
    """Something that runs until it is told to stop."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or type(self).__name__
        self.signals = Signals()
        self.stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Do the work until `self.stopping` is set. Written by the subclass."""
        raise NotImplementedError

    def announce_ready(self) -> None:
        """Say, from inside `run()`, that the service now does its work."""
        self._ready.set()

    async def start(self) -> None:
        """Begin to run in the background; a second call does nothing."""
        if self._task is None and not self.stopping.is_set():
            self._task = asyncio.create_task(self._guarded(), name=self.name)

    async def ready(self) -> None:
        """Wait until the service does its work; raise what it failed with if it never will."""
        if self._task is None:
            raise RuntimeError(f"{self.name} was not started")
        waiter = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({waiter, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def stop(self) -> None:
        """Ask the service to leave and wait until it has left."""
        self.stopping.set()
        await self.join()

    async def join(self) -> None:
        """Wait until the service has ended by itself; raise what it failed with."""
        if self._task is not None:
            # Shielded: one waiter that is cancelled must not cut the others off the work.
            await asyncio.shield(self._task)

    async def pause(self, seconds: float) -> bool:
        """Wait that long or until the service is to stop; return whether it is to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        return self.stopping.is_set()

    @property
    def is_running(self) -> bool:
        """Whether the service has been started and has not ended."""
        return self._task is not None and not self._task.done()

    async def _guarded(self) -> None:
        try:
            await self.run()
        except Exception:
            logger.exception("service_failed", extra={"service": self.name})
            raise

    async def __aenter__(self) -> Self:
        await self.start()
        try:
            await self.ready()
        except BaseException:
            self.stopping.set()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
