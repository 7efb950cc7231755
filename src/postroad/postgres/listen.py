"""One LISTEN connection per process, shared by all subscribers.

```
connecting ──LISTEN for every channel──> listening ──connection lost──> connecting
```

A notice can be lost whenever the connection is down, so after each reconnect every subscriber gets
an interruption notice: check once without a notice. A subscriber that does so, and also polls
slowly, misses nothing. Callbacks run in the event loop and must not block.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from psycopg import sql

from postroad.postgres.calls import Connection
from postroad.postgres.connected_service import ConnectedService

logger = logging.getLogger(__name__)

# How often a silent connection is tested.
HEALTH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Notice:
    """A payload, or an interruption: notices may have been lost."""

    channel: str
    payload: str | None
    is_interruption: bool = False


Callback = Callable[[Notice], None]


@dataclass(eq=False, slots=True)
class Subscription:
    """A callback on a channel, until it is cancelled."""

    hub: ListenHub
    channel: str
    callback: Callback

    def cancel(self) -> None:
        """Cancel the subscription; a second call does nothing."""
        subscriptions = self.hub._subscriptions
        remaining = subscriptions.get(self.channel, [])
        if self in remaining:
            remaining.remove(self)
            if not remaining:
                del subscriptions[self.channel]
            self.hub._woken.set()


class ListenHub(ConnectedService):
    """Listens for a whole process and reconnects automatically."""

    def __init__(self, dsn: str) -> None:
        super().__init__("listen hub")
        self._dsn = dsn
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._listening: set[str] = set()
        self._woken = asyncio.Event()

    def subscribe(self, channel: str, callback: Callback) -> Subscription:
        """Call back for each notice on the channel.

        The first call is an interruption notice, made once the hub listens: earlier notices
        were not received.
        """
        subscription = Subscription(self, channel, callback)
        self._subscriptions.setdefault(channel, []).append(subscription)
        if channel in self._listening:
            asyncio.get_running_loop().call_soon(
                self._call, subscription, Notice(channel, None, is_interruption=True)
            )
        self._woken.set()
        return subscription

    def request_stop(self) -> None:
        """Ask the hub to close its connection; subscribers get no more notices."""
        super().request_stop()
        self._woken.set()

    async def run(self) -> None:
        """Listen until stopped; reconnect after errors."""
        event = "listen_connection_lost"
        await self.repeat(self._listen, self._dsn, event=event, task="listen")

    async def _listen(self, connection: Connection) -> None:
        """Dispatch the notices that have arrived, then wait for the next ones."""
        self._woken.clear()
        try:
            await self._follow_subscriptions(connection)
            async for notify in connection.notifies(timeout=0):
                self._dispatch(Notice(notify.channel, notify.payload))
            self.announce_ready()
            await self._wait(connection)
        except Exception:
            self._listening.clear()
            raise

    async def _wait(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        descriptor = connection.fileno()
        # Added each time, because the driver removes the reader after each call.
        loop.add_reader(descriptor, self._woken.set)
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                await self._woken.wait()
        except TimeoutError:
            await connection.execute("select 1")
        finally:
            with contextlib.suppress(ValueError):
                loop.remove_reader(descriptor)

    async def _follow_subscriptions(self, connection: Connection) -> None:
        for channel in sorted(self._subscriptions.keys() - self._listening):
            await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
            self._listening.add(channel)
            self._dispatch(Notice(channel, None, is_interruption=True))
            self.signals.emit("listening", channel)
        for channel in sorted(self._listening - self._subscriptions.keys()):
            await connection.execute(sql.SQL("unlisten {}").format(sql.Identifier(channel)))
            self._listening.discard(channel)

    def _dispatch(self, notice: Notice) -> None:
        for subscription in tuple(self._subscriptions.get(notice.channel, ())):
            self._call(subscription, notice)

    def _call(self, subscription: Subscription, notice: Notice) -> None:
        if subscription not in self._subscriptions.get(notice.channel, ()):
            return
        try:
            subscription.callback(notice)
        except Exception:
            # One subscriber's error must not affect the others.
            logger.exception("listen_callback_failed", extra={"channel": notice.channel})
