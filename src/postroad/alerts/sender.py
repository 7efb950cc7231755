"""`AlertSender`: folds reports, writes notices, sends them. Any number may run.

```
per channel:   compose ──> take (lease) ──> send ──> sent
                  ▲                          │
                  └── pause ── failed, due again later
upkeep:        fold, and forget what is old
```

Each channel has a task and a connection of its own, so a mail server that hangs does not keep the
text message waiting. Sending blocks, so it happens in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection

from postroad.alerts import calls
from postroad.alerts.channel import Channel, open_channels
from postroad.alerts.errors import AlertsError, DeliveryFailed
from postroad.alerts.rendering import Notice, render
from postroad.bus.reconnect import Backoff
from postroad.clock import SYSTEM_CLOCK, Clock
from postroad.postgres.connections import connect_async
from postroad.postgres.errors import DatabaseUnavailable
from postroad.service import Service
from postroad.settings.alerts import AlertsSettings

logger = logging.getLogger(__name__)

PURGE_INTERVAL_DEFAULT = timedelta(hours=1)
SURVIVABLE = (psycopg.Error, AlertsError, DatabaseUnavailable, OSError)


def sender_name() -> str:
    """Name this process in the list of attempts."""
    return f"{socket.gethostname()}:{os.getpid()}"


async def deliver(
    connection: AsyncConnection[Any],
    channel: Channel,
    settings: AlertsSettings,
    notice_id: int | None = None,
) -> Notice | None:
    """Take one notice of a channel, send it, and record what came of it.

    Returns the notice, or None when nothing is due. Each step is a transaction of its own on an
    autocommit connection. Raises DeliveryFailed after it was recorded.
    """
    taken = await calls.run_async(
        connection,
        calls.TAKE,
        (sender_name(), [channel.name], settings.lease, settings.backoff_max, notice_id),
    )
    if not taken:
        return None
    notice = Notice(**taken[0])
    rendered = render(notice, settings.installation)
    try:
        await asyncio.to_thread(channel.send, rendered, settings.send_timeout)
    except DeliveryFailed as failure:
        await calls.run_async(
            connection,
            calls.FAILED,
            (
                notice.id,
                notice.token,
                str(failure),
                settings.backoff,
                settings.backoff_max,
                settings.give_up_after,
            ),
        )
        raise
    await calls.run_async(connection, calls.SENT, (notice.id,))
    return notice


class AlertSender(Service):
    """Tells the administrator what rooms report, and goes on when the database comes back.

    Signals: `sent` with the notice, `failed` with the error.
    """

    def __init__(
        self,
        dsn: str,
        settings: AlertsSettings,
        *,
        is_pooled: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__("alert sender")
        self._dsn = dsn
        self._settings = settings
        self._is_pooled = is_pooled
        self._clock = clock
        self._channels = open_channels(settings)
        self._purged_at: float | None = None

    async def run(self) -> None:
        """Send until stopped."""
        await self._serve(self._register, name="channels")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._serve(self._upkeep, name="upkeep", is_endless=True))
            for channel in self._channels:
                tasks.create_task(self._serve(self._turn(channel), channel.name, is_endless=True))

    async def _serve(
        self,
        work: Callable[[AsyncConnection[Any]], Awaitable[bool]],
        name: str,
        *,
        is_endless: bool = False,
    ) -> None:
        """Do the work on a connection that is opened anew whenever it breaks.

        It is repeated at once while it says that there is more, else after a pause.
        """
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                async with await connect_async(
                    self._dsn,
                    application_name=f"postroad alerts {name}",
                    autocommit=True,
                    is_pooled=self._is_pooled,
                ) as connection:
                    while not self.stopping.is_set():
                        has_more = await work(connection)
                        backoff.reset()
                        if not is_endless:
                            return
                        if not has_more:
                            await self.pause(self._settings.poll_interval.total_seconds())
            except SURVIVABLE as failure:
                logger.warning(
                    "alerts_interrupted", extra={"task": name, "reason": str(failure).strip()}
                )
                await self.pause(backoff.next_seconds())

    async def _register(self, connection: AsyncConnection[Any]) -> bool:
        channels = self._channels
        await calls.run_async(
            connection,
            calls.SET_CHANNELS,
            (
                [channel.name for channel in channels],
                [channel.kind for channel in channels],
                [channel.least_severity for channel in channels],
            ),
        )
        self.announce_ready()
        return False

    def _turn(self, channel: Channel) -> Callable[[AsyncConnection[Any]], Awaitable[bool]]:
        settings = self._settings

        async def turn(connection: AsyncConnection[Any]) -> bool:
            await calls.run_async(
                connection,
                calls.COMPOSE,
                (
                    channel.name,
                    settings.group_window,
                    settings.quiet_window,
                    settings.digest_interval,
                    settings.is_heartbeat,
                ),
            )
            try:
                notice = await deliver(connection, channel, settings)
            except DeliveryFailed as failure:
                logger.warning(
                    "alert_not_sent", extra={"channel": channel.name, "reason": str(failure)}
                )
                self.signals.emit("failed", failure)
                return True
            if notice is None:
                return False
            logger.info("alert_sent", extra={"channel": channel.name, "notice": notice.id})
            self.signals.emit("sent", notice)
            return True

        return turn

    async def _upkeep(self, connection: AsyncConnection[Any]) -> bool:
        rows = await calls.run_async(connection, calls.FOLD, ())
        now = self._clock.monotonic()
        due = PURGE_INTERVAL_DEFAULT.total_seconds()
        if self._purged_at is None or now - self._purged_at >= due:
            await calls.run_async(connection, calls.PURGE, (self._settings.keep,))
            self._purged_at = now
        return bool(rows[0]["count"])
