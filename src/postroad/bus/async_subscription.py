"""`async for message in bus.subscribe("orders")`: messages as they arrive, none lost in a crash.

```
waiting ──lease──> handed out ──next message asked for, or block left──> acked
                       ├──block left by an exception──> nacked, delivered again
                       └──process died──> lease ends, delivered again
```
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from postroad.bus.async_wakeup import AsyncWakeup
from postroad.bus.errors import LeaseLost
from postroad.bus.message import LeasedMessage
from postroad.bus.reconnect import TRANSIENT, Backoff
from postroad.service import AutoResetEvent

if TYPE_CHECKING:
    from postroad.bus.async_client import AsyncBus

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class AsyncSubscription:
    """An endless iterator of leased messages; leave it with `break` or call `close`."""

    bus: AsyncBus
    queue: str
    consumer: str
    ttl: timedelta
    wakeup: AsyncWakeup
    _current: LeasedMessage | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)
    _closing: AutoResetEvent = field(default_factory=AutoResetEvent, init=False)

    def __aiter__(self) -> AsyncIterator[LeasedMessage]:
        return self

    async def __anext__(self) -> LeasedMessage:
        """Ack the message handed out before, and wait for the next one."""
        await self._ack()
        await self.wakeup.start()
        while not self._is_closed:
            epoch = self.wakeup.epoch(self.queue)
            leased = await self._persist(
                lambda: self.bus.lease(self.queue, self.consumer, ttl=self.ttl)
            )
            if leased:
                self._current = leased[0]
                return leased[0]
            await self.wakeup.wait(self.queue, epoch)
            if not self.wakeup.is_running:
                # Raises the error if it failed.
                await self.wakeup.join()
        raise StopAsyncIteration

    async def close(self) -> None:
        """End the iteration, from any task; the current message stays leased."""
        self._is_closed = True
        self._closing.set()
        await self.wakeup.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self._ack()
            else:
                await self._nack(error)
        finally:
            await self.close()

    async def _ack(self) -> None:
        message, self._current = self._current, None
        if message is None:
            return
        try:
            await self._persist(lambda: self.bus.ack(message))
        except LeaseLost:
            logger.warning("lease_lost", extra={"iid": message.iid, "queue": self.queue})

    async def _nack(self, error: BaseException) -> None:
        message, self._current = self._current, None
        if message is None:
            return
        try:
            await self.bus.nack(message, error=f"{type(error).__name__}: {error}")
        except (LeaseLost, *TRANSIENT) as failure:
            # The lease expires; the original exception matters more.
            logger.warning("nack_failed", extra={"iid": message.iid, "reason": str(failure)})

    async def _persist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat while the database is unavailable; every call made here may be repeated safely."""
        backoff = Backoff()
        while True:
            try:
                return await attempt()
            except TRANSIENT as failure:
                logger.warning("database_unavailable", extra={"reason": str(failure).strip()})
                await self._closing.wait(backoff.next_seconds())
                if self._is_closed:
                    raise
