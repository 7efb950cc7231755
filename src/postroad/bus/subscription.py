# Written by `make generate` from bus/async_subscription.py; edit that file.
"""`for message in bus.subscribe("orders")`: messages as they arrive, none lost in a crash.

```
waiting ──lease──> handed out ──next message asked for, or block left──> acked
                       ├──block left by an exception──> nacked, delivered again
                       └──process died──> lease ends, delivered again
```
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from postroad.bus.errors import LeaseLost
from postroad.bus.message import LeasedMessage
from postroad.bus.reconnect import TRANSIENT, Backoff
from postroad.bus.wakeup import Wakeup
from postroad.service import ThreadAutoResetEvent

if TYPE_CHECKING:
    from postroad.bus.client import Bus

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Subscription:
    """An endless iterator of leased messages; leave it with `break` or call `close`."""

    bus: Bus
    queue: str
    consumer: str
    ttl: timedelta
    wakeup: Wakeup
    _current: LeasedMessage | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)
    _closing: ThreadAutoResetEvent = field(default_factory=ThreadAutoResetEvent, init=False)

    def __iter__(self) -> Iterator[LeasedMessage]:
        return self

    def __next__(self) -> LeasedMessage:
        """Ack the message handed out before, and wait for the next one."""
        self._ack()
        self.wakeup.start()
        while not self._is_closed:
            epoch = self.wakeup.epoch(self.queue)
            leased = self._persist(lambda: self.bus.lease(self.queue, self.consumer, ttl=self.ttl))
            if leased:
                self._current = leased[0]
                return leased[0]
            self.wakeup.wait(self.queue, epoch)
            if not self.wakeup.is_running:
                # Raises the error if it failed.
                self.wakeup.join()
        raise StopIteration

    def close(self) -> None:
        """End the iteration, from any task; the current message stays leased."""
        self._is_closed = True
        self._closing.set()
        self.wakeup.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._ack()
            else:
                self._nack(error)
        finally:
            self.close()

    def _ack(self) -> None:
        message, self._current = self._current, None
        if message is None:
            return
        try:
            self._persist(lambda: self.bus.ack(message))
        except LeaseLost:
            logger.warning("lease_lost", extra={"iid": message.iid, "queue": self.queue})

    def _nack(self, error: BaseException) -> None:
        message, self._current = self._current, None
        if message is None:
            return
        try:
            self.bus.nack(message, error=f"{type(error).__name__}: {error}")
        except (LeaseLost, *TRANSIENT) as failure:
            # The lease expires; the original exception matters more.
            logger.warning("nack_failed", extra={"iid": message.iid, "reason": str(failure)})

    def _persist(self, attempt: Callable[[], T]) -> T:
        """Repeat while the database is unavailable; every call made here may be repeated safely."""
        backoff = Backoff()
        while True:
            try:
                return attempt()
            except TRANSIENT as failure:
                logger.warning("database_unavailable", extra={"reason": str(failure).strip()})
                self._closing.wait(backoff.next_seconds())
                if self._is_closed:
                    raise
