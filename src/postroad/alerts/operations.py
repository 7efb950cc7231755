"""What an operator may do about alerts: acknowledge, test a channel, retry a notice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any

from postroad.alerts.channel import Channel
from postroad.alerts.errors import DeliveryFailed
from postroad.alerts.sender import deliver, set_channels
from postroad.postgres.calls import Connection, call
from postroad.settings.alerts import AlertsSettings

__all__ = ["ack", "retry", "set_channels", "try_channel"]

OTHER_SENDER_SECONDS = 30.0
POLL_SECONDS = 0.1
NOTICE = "select state, error from alerts.notice_list where id = %s"


async def ack(
    connection: Connection,
    keys: Sequence[str],
    *,
    by: Annotated[str | None, "Who; default: the user who runs the command."] = None,
) -> dict[str, Any]:
    """Acknowledge open alerts: no reminders of them are sent. Raises AlertNotFound.

    Example: postroad alerts ack exchange/in_doubt/9f2c
    """
    count = 0
    for key in keys:
        count += await call(connection, "alerts.ack", key, by)
    return {"acked": count, "count": count, "by": by}


async def retry(connection: Connection, notice: int) -> bool:
    """Retry a notice now that is waiting or was given up.

    Example: postroad alerts retry 42
    """
    return bool(await call(connection, "alerts.retry", notice))


async def try_channel(connection: Connection, channel: Channel, settings: AlertsSettings) -> None:
    """Send a test notice through a channel now, on an autocommit connection.

    If a running sender takes the notice first, its outcome is awaited. Raises ChannelNotFound,
    DeliveryFailed.
    """
    notice = await call(connection, "alerts.test", channel.name)
    deadline = time.monotonic() + OTHER_SENDER_SECONDS
    while await deliver(connection, channel, settings, notice) is None:
        cursor = await connection.execute(NOTICE, (notice,))
        ((state, error),) = await cursor.fetchall()
        if state == "sent":
            return
        if state == "given_up" or time.monotonic() > deadline:
            raise DeliveryFailed(
                error or "no sender has reported the outcome", channel=channel.name
            )
        await asyncio.sleep(POLL_SECONDS)
