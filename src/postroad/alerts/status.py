"""What is so: read-only facts about alerts, for the console, the command line and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection, Connection

from postroad.alerts import calls

LIMIT_DEFAULT = 100


@dataclass(frozen=True, slots=True)
class Alert:
    """One episode of one key; open until `cleared_at`."""

    id: int
    key: str
    room: str
    severity: str
    title: str
    body: str
    count: int
    raised_at: datetime
    last_at: datetime
    cleared_at: datetime | None
    acked_at: datetime | None
    acked_by: str | None
    told: Sequence[str]


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """A channel that senders know, and how it does."""

    name: str
    kind: str
    least_severity: str
    is_active: bool
    waiting: int
    given_up: int
    sent: int
    last_sent_at: datetime | None
    failing_since: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class NoticeStatus:
    """A notice of the outbox with every attempt to send it."""

    id: int
    channel: str
    kind: str
    state: str
    items: Sequence[Mapping[str, Any]]
    attempts: int
    created_at: datetime
    due_at: datetime
    sent_at: datetime | None
    error: str | None
    tries: Sequence[Mapping[str, Any]]


def list_alerts(
    connection: Connection[Any], *, is_open: bool = True, limit: int = LIMIT_DEFAULT
) -> list[Alert]:
    """List the alerts that are open, or all; reports made before are folded in first."""
    return [Alert(**row) for row in calls.run(connection, calls.LIST, (is_open, limit))]


async def list_alerts_async(
    connection: AsyncConnection[Any], *, is_open: bool = True, limit: int = LIMIT_DEFAULT
) -> list[Alert]:
    """List the alerts that are open, or all; reports made before are folded in first."""
    rows = await calls.run_async(connection, calls.LIST, (is_open, limit))
    return [Alert(**row) for row in rows]


def list_channels(connection: Connection[Any]) -> list[ChannelStatus]:
    """List the channels that senders have made known."""
    return [ChannelStatus(**row) for row in calls.run(connection, calls.CHANNELS, ())]


async def list_channels_async(connection: AsyncConnection[Any]) -> list[ChannelStatus]:
    """List the channels that senders have made known."""
    return [ChannelStatus(**row) for row in await calls.run_async(connection, calls.CHANNELS, ())]


def list_notices(
    connection: Connection[Any], *, channel: str | None = None, limit: int = LIMIT_DEFAULT
) -> list[NoticeStatus]:
    """List the notices, the latest first."""
    return [NoticeStatus(**row) for row in calls.run(connection, calls.NOTICES, (channel, limit))]


async def list_notices_async(
    connection: AsyncConnection[Any], *, channel: str | None = None, limit: int = LIMIT_DEFAULT
) -> list[NoticeStatus]:
    """List the notices, the latest first."""
    rows = await calls.run_async(connection, calls.NOTICES, (channel, limit))
    return [NoticeStatus(**row) for row in rows]
