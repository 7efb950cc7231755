"""`AlertSender`: folds reports, writes notices, sends them. Any number may run.

```
per channel:   compose ──> take (lease) ──> send ──> sent
                  ▲                          │
                  └── pause ── failed, due again later
upkeep:        register channels, fold reports, purge old rows
```

Each channel has its own task and connection, so a mail server that hangs does not delay text
messages. Sending blocks, so it runs in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

from postroad.alerts.channel import Channel, open_channels
from postroad.alerts.errors import DeliveryFailed
from postroad.alerts.rendering import Notice, render
from postroad.postgres.calls import Connection, call, select
from postroad.postgres.connected_service import ConnectedService
from postroad.settings.alerts import AlertsSettings

logger = logging.getLogger(__name__)

PURGE_INTERVAL_SECONDS = 3600.0


async def deliver(
    connection: Connection, channel: Channel, settings: AlertsSettings, notice_id: int | None = None
) -> Notice | None:
    """Take one notice of a channel, send it, and record the outcome; None when nothing is due.

    Each step is a separate transaction on an autocommit connection. Raises DeliveryFailed after
    recording the failure.
    """
    sender = f"{socket.gethostname()}:{os.getpid()}"
    wanted = [channel.name], settings.lease, settings.backoff_max, notice_id
    taken = await select(connection, "alerts.take", sender, *wanted)
    if not taken:
        return None
    notice = Notice(**taken[0])
    rendered = render(notice, settings.installation)
    try:
        await asyncio.get_running_loop().run_in_executor(
            _threads(), channel.send, rendered, settings.send_timeout
        )
    except DeliveryFailed as failure:
        delays = settings.backoff, settings.backoff_max, settings.give_up_after
        await call(connection, "alerts.failed", notice.id, notice.token, str(failure), *delays)
        raise
    await call(connection, "alerts.sent", notice.id)
    return notice


async def set_channels(connection: Connection, channels: list[Channel]) -> None:
    """Register the channels of the settings; others get no notices."""
    names, kinds = [each.name for each in channels], [each.kind for each in channels]
    severities = [each.least_severity for each in channels]
    await call(connection, "alerts.set_channels", names, kinds, severities)


@cache
def _threads() -> ThreadPoolExecutor:
    """Return a separate pool of threads: a server that hangs must not stop other services."""
    return ThreadPoolExecutor(16, thread_name_prefix="alerts")


class AlertSender(ConnectedService):
    """Sends reported alerts. Signals: `sent` with the notice, `failed` with the error."""

    def __init__(self, dsn: str, settings: AlertsSettings, *, is_pooled: bool = False) -> None:
        super().__init__("alert sender")
        self._dsn = dsn
        self._settings = settings
        self._is_pooled = is_pooled
        self._channels = open_channels(settings)
        self._purged_at = float("-inf")

    async def run(self) -> None:
        """Send until stopped."""
        async with asyncio.TaskGroup() as tasks:
            await self._repeat(partial(self._upkeep, tasks), "upkeep")

    async def _repeat(self, work: Callable[[Connection], Awaitable[bool]], task: str) -> None:
        """Repeat work until the sender is to stop, without a pause while the work returns true."""

        async def once(connection: Connection) -> None:
            if not await work(connection):
                await self.pause(self._settings.poll_interval.total_seconds())

        event, is_pooled = "alerts_interrupted", self._is_pooled
        await self.repeat(once, self._dsn, event=event, task=f"alerts {task}", is_pooled=is_pooled)

    async def _send(self, channel: Channel, connection: Connection) -> bool:
        settings = self._settings
        windows = settings.group_window, settings.quiet_window, settings.digest_interval
        is_heartbeat = settings.is_heartbeat
        await call(connection, "alerts.compose", channel.name, *windows, is_heartbeat)
        try:
            notice = await deliver(connection, channel, settings)
        except DeliveryFailed as failure:
            extra = {"channel": channel.name, "reason": str(failure)}
            logger.warning("alert_not_sent", extra=extra)
            self.signals.emit("failed", failure)
            return True
        if notice is not None:
            logger.info("alert_sent", extra={"channel": channel.name, "notice": notice.id})
            self.signals.emit("sent", notice)
        return notice is not None

    async def _upkeep(self, tasks: asyncio.TaskGroup, connection: Connection) -> bool:
        if not self._ready.is_set():
            await set_channels(connection, self._channels)
            for channel in self._channels:
                tasks.create_task(self._repeat(partial(self._send, channel), channel.name))
            self.announce_ready()
        folded = await call(connection, "alerts.fold")
        now = time.monotonic()
        if now - self._purged_at >= PURGE_INTERVAL_SECONDS:
            await call(connection, "alerts.purge", self._settings.keep)
            self._purged_at = now
        return bool(folded)
