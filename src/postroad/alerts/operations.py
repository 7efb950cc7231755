"""What an operator may do about alerts: take, mute, acknowledge, test a channel, retry a notice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from postroad.alerts.channel import Channel
from postroad.alerts.errors import DeliveryFailed, InvalidAlert
from postroad.alerts.sender import deliver, set_channels
from postroad.postgres.calls import Connection, call
from postroad.settings.alerts import AlertsSettings

__all__ = ["ack", "mute", "own", "retry", "set_channels", "try_channel", "unmute"]

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


async def own(
    connection: Connection,
    key: str,
    *,
    owner: Annotated[str | None, "Who handles it; default: the user who runs the command."] = None,
    by: str | None = None,
) -> dict[str, Any]:
    """Take a problem: show everyone who handles it, and acknowledge its alert.

    Example: postroad alerts own exchange/in_doubt/9f2c --owner maria
    """
    await call(connection, "alerts.own", key, owner or by)
    return {"owner": owner or by}


async def mute(
    connection: Connection,
    key: str,
    *,
    duration: Annotated[timedelta, "For how long."],
    reason: Annotated[str, "Why; everyone who sees the problem sees it."],
    by: str | None = None,
) -> dict[str, Any]:
    """Send no notices about a problem for some time, even if it is solved and recurs.

    An alert that is still open when the time ends is sent then. Raises InvalidAlert.

    Example: postroad alerts mute disk/db1//var --duration 2h --reason "the disk is replaced"
    """
    try:
        until = datetime.now(UTC).replace(microsecond=0) + duration
    except OverflowError as wrong:
        raise InvalidAlert("the duration is too long", hint="specify a shorter one") from wrong
    await call(connection, "alerts.mute", key, until, reason, by)
    return {"until": until.isoformat()}


async def unmute(connection: Connection, key: str) -> bool:
    """Send notices about a muted problem again.

    Example: postroad alerts unmute disk/db1//var
    """
    return bool(await call(connection, "alerts.mute", key, None, None, None))


async def retry(connection: Connection, notice: int) -> bool:
    """Retry a notice now that is waiting or was given up.

    Example: postroad alerts retry 42
    """
    return bool(await call(connection, "alerts.retry", notice))


async def try_channel(connection: Connection, channel: Channel, settings: AlertsSettings) -> None:
    """Send a test notice through a channel now, on an autocommit connection.

    If a running sender takes the notice first, its outcome is awaited. Raises DeliveryFailed.
    """
    notice = await call(connection, "alerts.test", channel.name)
    deadline = time.monotonic() + OTHER_SENDER_SECONDS
    while await deliver(connection, channel, settings, notice) is None:
        cursor = await connection.execute(NOTICE, (notice,))
        ((state, error),) = await cursor.fetchall()
        if state == "sent":
            return
        if state == "given_up" or time.monotonic() > deadline:
            reason = error or "no sender has reported the outcome"
            raise DeliveryFailed(reason, channel=channel.name)
        await asyncio.sleep(POLL_SECONDS)
