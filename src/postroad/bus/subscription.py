"""`for message in bus.subscribe("orders")`: messages as they arrive, none lost in a crash.

```
waiting ──lease──> handed out ──next message asked for, or block left──> acked
                       ├──block left by an exception──> nacked, delivered again
                       └──process died──> lease ends, delivered again
```
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Any, Self, TypeVar

from postroad.blocking import finish, resolved
from postroad.bus import calls
from postroad.bus.call import AnyCall
from postroad.bus.errors import LeaseLost
from postroad.bus.message import LeasedMessage
from postroad.bus.reconnect import TRANSIENT, Backoff
from postroad.bus.runner import AsyncRunner

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Messages:
    """The shared code of blocking and awaited subscriptions."""

    def __init__(
        self, runner: AsyncRunner, queue: str, consumer: str, ttl: timedelta, wakeup: Any
    ) -> None:
        self._runner = runner
        self._queue = queue
        self._lease = partial(calls.lease, queue, consumer, ttl=ttl)
        self._wakeup = wakeup
        self._current: LeasedMessage | None = None
        self._is_closed = False
        self._closing: Any = runner.make_event()

    async def _next(self) -> LeasedMessage | None:
        """Ack the message handed out before, and wait for the next one; None after the end."""
        await self._ack()
        await resolved(self._wakeup.start())
        while not self._is_closed:
            epoch = self._wakeup.epoch(self._queue)
            leased = await self._persist(self._lease())
            if leased:
                self._current = leased[0]
                return leased[0]
            await resolved(self._wakeup.wait(self._queue, epoch))
            if not self._wakeup.is_running:
                # Raises its error if it failed.
                await resolved(self._wakeup.join())
        return None

    async def _end(self) -> None:
        """End the iteration, from any task or thread; the current message stays leased."""
        self._is_closed = True
        self._closing.set()
        await resolved(self._wakeup.stop())

    async def _leave(self, error: BaseException | None) -> None:
        """Ack the current message, or nack it after an error, and end the iteration."""
        try:
            if error is None:
                await self._ack()
            else:
                await self._nack(error)
        finally:
            await self._end()

    async def _ack(self) -> None:
        message, self._current = self._current, None
        if message is None:
            return
        try:
            await self._persist(calls.ack(message))
        except LeaseLost:
            logger.warning("lease_lost", extra={"iid": message.iid, "queue": self._queue})

    async def _nack(self, error: BaseException) -> None:
        message, self._current = self._current, None
        if message is None:
            return
        try:
            reason = f"{type(error).__name__}: {error}"
            await self._runner.run(calls.nack(message, error=reason))
        except (LeaseLost, *TRANSIENT) as failure:
            # The lease expires; the original exception matters more.
            logger.warning("nack_failed", extra={"iid": message.iid, "reason": str(failure)})

    async def _persist(self, call: AnyCall[T]) -> T:
        """Repeat while the database is unavailable; every call made here may be repeated safely."""
        backoff = Backoff()
        while True:
            try:
                return await self._runner.run(call)
            except TRANSIENT as failure:
                logger.warning("database_unavailable", extra={"reason": str(failure).strip()})
                await resolved(self._closing.wait(backoff.next_seconds()))
                if self._is_closed:
                    raise


class AsyncSubscription(Messages):
    """An endless iterator of leased messages; leave it with `break` or call `close`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LeasedMessage:
        """Ack the message handed out before, and wait for the next one."""
        message = await self._next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def close(self) -> None:
        """End the iteration, from any task or thread; the current message stays leased."""
        await self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        await self._leave(error)


class Subscription(Messages):
    """An endless iterator of leased messages; leave it with `break` or call `close`."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LeasedMessage:
        """Ack the message handed out before, and wait for the next one."""
        message = finish(self._next())
        if message is None:
            raise StopIteration
        return message

    def close(self) -> None:
        """End the iteration, from any task or thread; the current message stays leased."""
        finish(self._end())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        finish(self._leave(error))
