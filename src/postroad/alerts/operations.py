"""What an operator may do about alerts: acknowledge, test a channel, retry a notice."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from psycopg import AsyncConnection, Connection

from postroad.alerts import calls
from postroad.alerts.channel import Channel
from postroad.alerts.errors import DeliveryFailed
from postroad.alerts.sender import deliver
from postroad.settings.alerts import AlertsSettings

OTHER_SENDER_SECONDS_DEFAULT = 30.0
_PACE_SECONDS = 0.1


def ack(connection: Connection[Any], key: str | None, *, by: str | None = None) -> int:
    """Stop reminders of one open alert, or of all; return how many. Raises AlertNotFound."""
    return int(calls.run(connection, calls.ACK, (key, by))[0]["count"])


async def ack_async(
    connection: AsyncConnection[Any], key: str | None, *, by: str | None = None
) -> int:
    """Stop reminders of one open alert, or of all; return how many. Raises AlertNotFound."""
    return int((await calls.run_async(connection, calls.ACK, (key, by)))[0]["count"])


def retry(connection: Connection[Any], notice: int) -> bool:
    """Let a notice be tried again at once; False when it was sent or does not exist."""
    return bool(calls.run(connection, calls.RETRY, (notice,))[0]["is_tried"])


async def retry_async(connection: AsyncConnection[Any], notice: int) -> bool:
    """Let a notice be tried again at once; False when it was sent or does not exist."""
    return bool((await calls.run_async(connection, calls.RETRY, (notice,)))[0]["is_tried"])


async def try_channel(
    connection: AsyncConnection[Any],
    channel: Channel,
    settings: AlertsSettings,
    *,
    timeout_seconds: float = OTHER_SENDER_SECONDS_DEFAULT,
) -> None:
    """Send a test notice through a channel now, on an autocommit connection.

    A running sender may be quicker to take it; then its outcome is waited for. Raises
    ChannelNotFound, DeliveryFailed.
    """
    notice = (await calls.run_async(connection, calls.TEST, (channel.name,)))[0]["notice"]
    deadline = time.monotonic() + timeout_seconds
    while await deliver(connection, channel, settings, notice) is None:
        found = (await calls.run_async(connection, calls.NOTICE, (notice,)))[0]
        if found["state"] == "sent":
            return
        if found["state"] == "given_up" or time.monotonic() > deadline:
            raise DeliveryFailed(
                found["error"] or "no sender has said what came of it", channel=channel.name
            )
        await asyncio.sleep(_PACE_SECONDS)
