"""One interface for everything that runs in the background: start, ready, stop.

`Service` is a task. `LoopThread` runs one in a thread with its own event loop, for callers that
block.

```
new ──start()──> starting ──announce_ready()──> running ──stop()──> stopped
                     └────────── run() raised ──────────────────────> failed
```

A subclass writes `run()`, calls `announce_ready()` once it does its work, and returns when
`self.stopping` is set. `stop()` may be called any number of times, from several tasks, before
`start()` or after a failure. A service that fails is logged; `ready()`, `join()` and `stop()`
raise its error.

A service may supervise others: when one of them fails, or ends without being asked to, the
supervisor stops and fails with the same error. So no part can die unnoticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")
S = TypeVar("S", bound="Service")

logger = logging.getLogger(__name__)


async def first_of(
    *waits: asyncio.Task[Any] | asyncio.Event, timeout_seconds: float | None = None
) -> None:
    """Wait until a task has ended, an event is set or the time is up; the tasks continue."""
    tasks = {
        one if isinstance(one, asyncio.Task) else asyncio.create_task(one.wait()) for one in waits
    }
    try:
        await asyncio.wait(tasks, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks.difference(waits):
            task.cancel()


class Signals:
    """Named events that tests wait for instead of sleeping.

    In production there are no listeners, and `emit` only reads an empty dictionary.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, asyncio.Queue[Any]] = {}

    def listen(self, *names: str) -> None:
        """Record the values that are emitted under these names from now on."""
        for name in names:
            self._listeners.setdefault(name, asyncio.Queue())

    def emit(self, name: str, value: Any = None) -> None:
        """Pass the value to the listener of this name, if there is one."""
        listener = self._listeners.get(name)
        if listener is not None:
            listener.put_nowait(value)

    async def wait(self, name: str, timeout_seconds: float = 20.0) -> Any:
        """Return the next value emitted under a name that is being listened to."""
        async with asyncio.timeout(timeout_seconds):
            return await self._listeners[name].get()


class AutoResetEvent:
    """An event for one waiter, cleared when its `wait` returns; any thread may set it.

    The waiter checks its condition after `wait`; others change the state first and then call `set`.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None
        self._thread_id = 0

    def set(self) -> None:
        """End the current or the next wait."""
        if self._is_set:
            return
        self._is_set = True
        # Read after the flag is set, as `wait` reads the flag after it has set the waiter.
        waiter = self._waiter
        if waiter is None:
            return
        if self._thread_id == threading.get_ident():
            _resolve(waiter)
            return
        # If the loop is closed, nothing waits.
        with contextlib.suppress(RuntimeError):
            waiter.get_loop().call_soon_threadsafe(_resolve, waiter)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the event is set, at most `seconds`."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._thread_id, self._waiter = threading.get_ident(), waiter
        timer = None if seconds is None else loop.call_later(seconds, _resolve, waiter)
        try:
            if not self._is_set:
                await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        self._is_set = False


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Service:
    """A task that runs until it is stopped."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or type(self).__name__
        self.signals = Signals()
        self.stopping = asyncio.Event()
        # An event that `run` may wait for; also set when the service is asked to stop.
        self.changed = AutoResetEvent()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._supervises: list[Service] = []
        self._reports_to: Service | None = None
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Do the work until `self.stopping` is set. Written by the subclass."""
        raise NotImplementedError

    def announce_ready(self) -> None:
        """Announce, from inside `run()`, that the service now does its work."""
        self._ready.set()

    async def start(self) -> None:
        """Begin to run in the background; a second call does nothing."""
        if self._task is None and not self.stopping.is_set():
            self._task = asyncio.create_task(self._guarded(), name=self.name)
            # Its error is logged and kept, so the event loop need not report it again.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def supervise(self, *services: Service) -> None:
        """Start services without which this one cannot work."""
        for service in services:
            service._reports_to = self
            self._supervises.append(service)
            await service.start()

    async def stop_supervised(self, timeout_seconds: float | None = None) -> None:
        """Stop the supervised services, the last one first; their errors are already reported.

        A service that has not ended after the timeout is cancelled.
        """
        while self._supervises:
            service = self._supervises.pop()
            service.request_stop()
            if not await service.has_ended(timeout_seconds):
                service.cancel()
                await service.has_ended()

    async def ready(self) -> None:
        """Wait until the service does its work; raise its error if it never will."""
        if self._task is None:
            raise RuntimeError(f"{self.name} was not started")
        await first_of(self._ready, self._task)
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    def request_stop(self) -> None:
        """Ask the service to return from `run()`, without waiting for it."""
        self.stopping.set()
        self.changed.set()

    def fail(self, error: BaseException) -> None:
        """Stop the service, which then fails with this error; only the first error is kept."""
        if self._failure is None:
            self._failure = error
        self.request_stop()

    async def stop(self) -> None:
        """Ask the service to stop and wait until it has ended."""
        self.request_stop()
        await self.join()

    async def join(self) -> None:
        """Wait until the service has ended; raise its error."""
        if self._task is not None:
            # Shielded: a waiter that is cancelled must not cancel the service for the others.
            await asyncio.shield(self._task)

    def cancel(self) -> None:
        """End the service without waiting for its current work."""
        self.request_stop()
        if self._task is not None:
            self._task.cancel()

    async def join_or(self, event: asyncio.Event) -> bool:
        """Wait until the service ends or the event is set; return whether it ended, or raise."""
        if self._task is None:
            raise RuntimeError(f"{self.name} was not started")
        await first_of(event, self._task)
        if self._task.cancelled():
            raise RuntimeError(f"{self.name} was cancelled")
        if self._task.done():
            self._task.result()
        return self._task.done()

    async def has_ended(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end of the service; return whether it came in time. Never raises."""
        if self._task is None:
            return True
        done, _ = await asyncio.wait({self._task}, timeout=timeout_seconds)
        return bool(done)

    async def pause(self, seconds: float) -> bool:
        """Wait for `seconds` or until the service is to stop; return whether it is to stop."""
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
            self._check_end()
        except asyncio.CancelledError as cancelled:
            # As opposed to awaiting a task that was cancelled.
            is_own = self._task is not None and self._task.cancelling() > 0
            if is_own and (self._reports_to is None or self.stopping.is_set()):
                raise
            # Its own code was cancelled, or it awaited a task that was cancelled.
            failure = RuntimeError(f"{self.name} was cancelled")
            self._report_failure(failure)
            raise failure from cancelled
        except BaseException as failure:
            self._report_failure(failure)
            raise

    def _check_end(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._reports_to is not None and not self.stopping.is_set():
            raise RuntimeError(f"{self.name} ended without being stopped")

    def _report_failure(self, failure: BaseException) -> None:
        if failure is not self._failure:
            # A supervised service has logged its own error.
            logger.error("service_failed", extra={"service": self.name}, exc_info=failure)
        if self._failure is None:
            self._failure = failure
        # Callers that wait for the service must not wait forever.
        self.request_stop()
        if self._reports_to is not None:
            self._reports_to.fail(failure)

    async def __aenter__(self) -> Self:
        await self.start()
        try:
            await self.ready()
        except BaseException:
            # The block is not entered, so no other code would end the task.
            self.cancel()
            await self.has_ended()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class Together(Service):
    """Several services as one: started in order, stopped together; if one fails, all end."""

    def __init__(self, name: str, services: Sequence[Service]) -> None:
        super().__init__(name)
        self.services = services

    async def run(self) -> None:
        """Run until stopped, or until one of them ends, which is a failure."""
        try:
            for service in self.services:
                await self.supervise(service)
                await service.ready()
            self.announce_ready()
            await self.stopping.wait()
        finally:
            await self.stop_supervised()


class LoopThread:
    """Runs a service in a thread with an event loop; the methods are the same, but block."""

    def __init__(self, service: Service) -> None:
        self.name = service.name
        self.stopping = threading.Event()
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None

    def start(self) -> Self:
        """Begin to run in the background; a second call does nothing."""
        if self._thread is None and not self.stopping.is_set():
            self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
            self._thread.start()
        return self

    def ready(self) -> None:
        """Wait until the service does its work; raise its error if it never will."""
        if self._thread is None:
            raise RuntimeError(f"{self.name} was not started")
        self._is_ready.wait()
        if self._failure is not None:
            raise self._failure

    def request_stop(self) -> None:
        """Ask the service to stop, without waiting for it; from any thread or signal handler."""
        self.stopping.set()
        if self._loop is not None:
            # If the loop is closed, the service has ended.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._service.request_stop)

    def stop(self) -> None:
        """Ask the service to stop and wait until it has ended."""
        self.request_stop()
        self.join()

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the service has ended; return whether it has. Raises its error."""
        has_ended = self.wait_for_end(timeout_seconds)
        if has_ended and self._failure is not None:
            raise self._failure
        return has_ended

    def wait_for_end(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the service has ended; return whether it has, also when it failed."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        return not self.is_running

    @property
    def is_running(self) -> bool:
        """Whether the service has been started and has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of the service; return its result.

        Raises the error of the service if it failed, RuntimeError if it does not run, and
        CancelledError if it ends meanwhile.
        """
        try:
            self.ready()
            assert self._loop is not None  # noqa: S101 - it is ready
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result()
        finally:
            # For a caller that was interrupted; otherwise the call has ended.
            future.cancel()

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as failure:  # noqa: BLE001 - already logged, and raised by `join`
            self._failure = failure
        finally:
            # Callers that wait for a service that ended early must not wait forever.
            self.request_stop()
            self._is_ready.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self.stopping.is_set():
            # The stop was requested before the loop existed.
            return
        async with self._service:
            self._is_ready.set()
            await self._service.join()

    def __enter__(self) -> Self:
        self.start()
        try:
            self.ready()
        except BaseException:
            self.request_stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class OnDemand(Generic[S]):
    """A service of this event loop that starts with its first use, and again once it has ended."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._service: S | None = None

    async def call(self, work: Callable[[S], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a coroutine of the service."""
        if self._service is None or not self._service.is_running:
            self._service = self._make()
            await self._service.start()
        return await work(self._service)

    async def stop(self) -> None:
        """Stop the service if it is running; a second call does nothing."""
        if self._service is not None:
            await self._service.stop()


class OnDemandThread(Generic[S]):
    """`OnDemand` for callers that block: the service runs in a thread; any thread may use it."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._running: tuple[LoopThread, S] | None = None

    def call(self, work: Callable[[S], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a coroutine of the service."""
        with self._lock:
            # A forked process does not inherit threads.
            if self._running is None or not self._running[0].is_running:
                service = self._make()
                self._running = LoopThread(service).start(), service
            thread, service = self._running
        return thread.call(work(service))

    def stop(self) -> None:
        """Stop the service if it is running; a second call does nothing."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            # A service that is stopped before it has begun would not finish its calls.
            running[0].ready()
            running[0].stop()
