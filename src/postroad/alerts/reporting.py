"""Raise and clear alerts, blocking and async, in the caller's transaction."""

from __future__ import annotations

from typing import Any, Literal

import psycopg

from postroad.blocking import finish
from postroad.postgres.calls import Connection, call

Severity = Literal["info", "warning", "error", "critical"]


def raise_alert(
    connection: psycopg.Connection[Any],
    key: str,
    *,
    room: str,
    severity: Severity,
    title: str,
    text: str = "",
) -> None:
    """Report a problem, in the caller's transaction. Raises InvalidAlert.

    Raising an open key again increments its count and sends no further notice. Takes no lock.
    """
    finish(call(connection, "alerts.raise", key, room, severity, title, text))


def clear_alert(connection: psycopg.Connection[Any], key: str) -> None:
    """Report that a problem is solved, in the caller's transaction; no-op if it is not open."""
    finish(call(connection, "alerts.clear", key))


async def raise_alert_async(
    connection: Connection, key: str, *, room: str, severity: Severity, title: str, text: str = ""
) -> None:
    """Do what `raise_alert` does."""
    await call(connection, "alerts.raise", key, room, severity, title, text)


async def clear_alert_async(connection: Connection, key: str) -> None:
    """Do what `clear_alert` does."""
    await call(connection, "alerts.clear", key)
